"""The one Valkey server of this user on this machine: found, or started, by whoever needs it first.

It listens on a unix socket in a directory that only the user can enter, on no TCP port, and writes nothing to disk. It
lives while any process is a member and is gone within seconds after the last one has closed its membership or died.
Processes of one user that see different runtime directories (containers, a PrivateTmp service, another XDG_RUNTIME_DIR)
get different servers: give those one server by name, in TENURE_URL.
"""

from __future__ import annotations

import sys

from tenure.errors import ConfigError

if sys.platform == "win32":
    _msg = "The embedded server needs Linux or macOS. On Windows name a server in TENURE_URL."
    raise ConfigError(_msg)

from .control import Status, status, stop
from .joining import Membership, join

__all__ = ["Membership", "Status", "join", "status", "stop"]
