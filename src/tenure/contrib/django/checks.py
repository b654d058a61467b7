"""What `manage.py check` tells of the server that locks are on."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from ...doctor import diagnose
from ...errors import TenureError
from .settings import locks

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS = {"warning": checks.Warning, "error": checks.Error}


def check_settings(**_: Any) -> Sequence[checks.CheckMessage]:  # noqa: ANN401 - as Django calls it
    """Whether the setting `TENURE` can work; no I/O."""
    try:
        locks()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="tenure.E001")]
    return []


def check_server(**_: Any) -> Sequence[checks.CheckMessage]:  # noqa: ANN401 - as Django calls it
    """What `tenure doctor` finds wrong with the server; asks it, so only for `check --deploy`."""
    try:
        found = diagnose(locks().client, namespace=locks().namespace)
    except (ImproperlyConfigured, TenureError) as error:
        return [checks.Error(str(error), id="tenure.E002")]
    return [
        LEVELS[finding.severity](f"{finding.seen} {finding.means}".strip(), hint=finding.do, id=f"tenure.{finding.id}")
        for finding in found
        if finding.severity in LEVELS
    ]
