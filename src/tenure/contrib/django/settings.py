"""The one `Locks` object of a process, from Django's settings."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

import functools
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from ...errors import ConfigError
from ...manager import Locks

SETTING = "TENURE"
_ARGUMENTS = frozenset({
    "namespace", "server_timeout", "grace", "max_ttl", "drift", "identity", "hooks", "embedded",
})  # fmt: skip


@functools.cache
def locks() -> Locks:
    """The locks of this process, made when first asked for; no I/O.

    Raises `ImproperlyConfigured` when the setting `TENURE` cannot work.
    """
    chosen: dict[str, Any] = {key.lower(): value for key, value in getattr(settings, SETTING, {}).items()}
    server = chosen.pop("url", None)
    unknown = sorted(chosen.keys() - _ARGUMENTS)
    if unknown:
        known = ", ".join(sorted(name.upper() for name in (*_ARGUMENTS, "url")))
        msg = f"the setting {SETTING} does not know {unknown[0].upper()!r}; it knows {known}"
        raise ImproperlyConfigured(msg)
    try:
        return Locks(server, **chosen)
    except ConfigError as error:
        msg = f"the setting {SETTING} cannot work: {error}"
        raise ImproperlyConfigured(msg) from error


def _changed(*, setting: str, **_: object) -> None:
    """A test that overrides the setting gets other locks; those of before end with their last lease."""
    if setting == SETTING:
        locks.cache_clear()


setting_changed.connect(_changed)
