"""Locks and leases on Redis and Valkey for programs that run in many processes, blocking and asyncio alike."""

from .errors import (
    AlreadyHeld,
    ConfigError,
    LeaseLost,
    NameConflict,
    NotAcquired,
    NotHeld,
    PermissionDenied,
    QuorumFailed,
    ServerError,
    ServerReadOnly,
    ServerUnavailable,
    StaleFence,
    TenureError,
)
from .events import (
    AskedEvent,
    Event,
    GrantedEvent,
    Hook,
    LostEvent,
    MovedEvent,
    OverheldEvent,
    ReleasedEvent,
    RenewedEvent,
    RenewFailedEvent,
    TamperedEvent,
    UnansweredEvent,
    WaitedEvent,
)
from .holder import Holder, Waiter
from .lease import AsyncLease, Lease
from .lock import AsyncLock, Lock
from .manager import AsyncLocks, Locks
from .outcomes import Ran, Released, Skipped

__version__ = "0.1.0"

__all__ = [
    "AlreadyHeld",
    "AskedEvent",
    "AsyncLease",
    "AsyncLock",
    "AsyncLocks",
    "ConfigError",
    "Event",
    "GrantedEvent",
    "Holder",
    "Hook",
    "Lease",
    "LeaseLost",
    "Lock",
    "Locks",
    "LostEvent",
    "MovedEvent",
    "NameConflict",
    "NotAcquired",
    "NotHeld",
    "OverheldEvent",
    "PermissionDenied",
    "QuorumFailed",
    "Ran",
    "Released",
    "ReleasedEvent",
    "RenewFailedEvent",
    "RenewedEvent",
    "ServerError",
    "ServerReadOnly",
    "ServerUnavailable",
    "Skipped",
    "StaleFence",
    "TamperedEvent",
    "TenureError",
    "UnansweredEvent",
    "WaitedEvent",
    "Waiter",
    "__version__",
]
