"""docs/monitoring.md names what is measured, as it is measured."""

from __future__ import annotations

import re

import prometheus_client

from tenure.instrument import prometheus
from tenure.instrument.metrics import COUNTERS, MOST_GROUPS
from tests.docs.pages import ROOT, code, prose, rows

PAGE = ROOT / "docs" / "monitoring.md"
KINDS = {"histogram": "histogram", "gauge": "gauge"}


def test_every_metric_is_listed_with_its_kind_and_labels() -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus.hook(registry)
    listed = {
        code(row[0]): (row[2].split(":")[0] if ":" in row[2] else "counter", re.findall(r"`(\w+)`", row[1]))
        for row in rows(PAGE, "## Prometheus")
    }
    families = {family.name: family.type for family in registry.collect()}
    assert {name.removesuffix("_total"): kind for name, (kind, _) in listed.items()} == families
    for what, (_, labels) in COUNTERS.items():
        assert listed[f"tenure_{what}_total"][1] == ["group", *labels]


def test_every_instrument_is_listed() -> None:
    listed = {re.findall(r"`([\w.]+)`", row[0])[0]: code(row[2]) for row in rows(PAGE, "## OpenTelemetry")}
    assert listed == {
        "tenure.wait.duration": "tenure_wait_seconds",
        "tenure.holds": "tenure_holds",
        "tenure.held.duration": "tenure_held_seconds",
        **{f"tenure.{what}": f"tenure_{what}_total" for what in COUNTERS},
    }


def test_alerts_use_metrics_that_there_are() -> None:
    known = {
        "tenure_holds",
        "tenure_wait_seconds",
        "tenure_held_seconds",
        *(f"tenure_{what}_total" for what in COUNTERS),
    }
    used = {name for row in rows(PAGE, "### What to be woken by") for name in re.findall(r"tenure_\w+", row[1])}
    assert used
    assert {name.removesuffix("_bucket") for name in used} <= known
    assert f"({MOST_GROUPS})" in prose(PAGE)
