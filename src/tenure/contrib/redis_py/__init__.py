"""For programs that use redis-py or valkey-py themselves."""

from .lock import AsyncLock, Lock
from .lock_sessions import close_locks
from .namespacing import namespaced

__all__ = ["AsyncLock", "Lock", "close_locks", "namespaced"]
