"""What the tests of the doctor share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.doctor import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.doctor import Finding


def bad(findings: Iterable[Finding]) -> dict[str, str]:
    """The warnings and errors: what was examined -> severity."""
    return {f.id: f.severity for f in findings if f.severity in ("warning", "error")}


def look(url: str, *, server_timeout: float = 5) -> dict[str, Finding]:
    """All findings by what was examined; each of them is complete."""
    findings = diagnose(url, server_timeout=server_timeout)
    by_id = {finding.id: finding for finding in findings}
    assert len(by_id) == len(findings)
    for finding in findings:
        assert finding.seen
        assert bool(finding.means) == bool(finding.do) == (finding.severity != "ok"), finding
    return by_id
