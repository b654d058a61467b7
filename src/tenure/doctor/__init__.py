"""Is this server fit for locks? Each finding says what was seen, what it means for locks, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import PermissionDenied, ServerError
from ..manager import Locks
from . import probe
from .checks import CHECKS
from .facts import gather
from .finding import Finding, Severity

if TYPE_CHECKING:
    from .. import options
    from ..clients.base import Client

__all__ = ["Finding", "Severity", "diagnose"]


def diagnose(
    server: str | Client | Any | None = None,  # noqa: ANN401 - as `Locks` takes it
    *,
    namespace: str = "tenure",
    server_timeout: options.Seconds = 5,
) -> list[Finding]:
    """Examines a server and tries a lock of its own on it; the findings, of which the first says what was examined.

    A sound server has findings of the severities "ok" and "info" only. One that cannot be reached, or refuses
    everything, has a single finding, `server`. Settings are read, and never changed; the lock that is tried has a name
    that nobody else uses.

    Args:
        server: a URL or a blocking client, as `Locks` takes it. None: `$TENURE_URL`, else the embedded server.
        namespace: whose keys and channels are tried.
        server_timeout: seconds that a single step may take.

    Raises `ConfigError` for arguments or credentials that cannot work. Blocks for about a second on a sound server, and
    a few times `server_timeout` on a bad one.
    """
    with Locks(server, namespace=namespace, server_timeout=server_timeout, identity="tenure doctor") as locks:
        try:
            facts = gather(locks)
        except PermissionDenied as error:
            # The first request of all asks for the time, and not every server says what it has refused.
            return [Finding("permissions", "error", str(error), "No lock can be taken.", "ACL SETUSER USER +time")]
        except ServerError as error:
            return [
                Finding(
                    "server",
                    "error",
                    str(error),
                    "No lock can be taken or renewed.",
                    "Start the server, or correct the address, the password or the user's rights.",
                )
            ]
        found = [check(facts) for check in CHECKS]
        return [
            *(finding for finding in found if finding is not None),
            *probe.permissions(locks),
            *probe.one_lock(locks),
        ]
