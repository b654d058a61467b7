"""Locks for Django: from the settings, around views, until the commit, around management commands, and in `check`.

`INSTALLED_APPS = [..., "tenure.contrib.django"]` adds the checks; everything else works without it. The setting is
`TENURE = {"URL": "redis://…", "NAMESPACE": "shop"}`: the arguments of `Locks`, in capitals; `URL` is its server.
"""

from .commands import LockedCommand
from .commits import hold_until_commit
from .settings import locks
from .views import locked

__all__ = ["LockedCommand", "hold_until_commit", "locked", "locks"]
