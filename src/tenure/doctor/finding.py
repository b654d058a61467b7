"""What the doctor reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined.

    Severities: "ok"; "info" is worth knowing and needs no action; "warning" costs time or may become an error; with an
    "error" locks do not work, or two clients can hold the same one.
    """

    id: str
    """What was examined; stable, for programs."""
    severity: Severity
    seen: str
    """What was found."""
    means: str = ""
    """What that means for locks; empty when all is well."""
    do: str = ""
    """What to do; empty when there is nothing to do."""
