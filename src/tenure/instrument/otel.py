"""Metrics for OpenTelemetry. Needs the extra `otel`, which is the API alone: without an SDK nothing is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import get_meter

from .metrics import BUCKETS, COUNTERS, MOST_GROUPS, MetricsHook

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider

    from ..events import Hook


class _Sink:
    def __init__(self, provider: MeterProvider | None) -> None:
        meter = get_meter("tenure", meter_provider=provider)
        self._wait = meter.create_histogram(
            "tenure.wait.duration", "s", "How long acquires took to end.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )  # fmt: skip
        self._held = meter.create_histogram(
            "tenure.held.duration", "s", "How long leases were held.", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._holds = meter.create_up_down_counter("tenure.holds", "{lease}", "Leases that this process holds.")
        self._counters = {
            what: meter.create_counter(f"tenure.{what}", "1", text) for what, (text, _) in COUNTERS.items()
        }

    def waited(self, group: str, outcome: str, seconds: float) -> None:
        self._wait.record(seconds, {"group": group, "outcome": outcome})

    def holding(self, group: str, change: int) -> None:
        self._holds.add(change, {"group": group})

    def held(self, group: str, seconds: float) -> None:
        self._held.record(seconds, {"group": group})

    def count(self, what: str, group: str, **more: str) -> None:
        self._counters[what].add(1, {"group": group, **more})


def hook(
    meter_provider: MeterProvider | None = None,
    *,
    group: Callable[[str], str] | None = None,
    most_groups: int = MOST_GROUPS,
) -> Hook:
    """A hook that measures with the meter `tenure` of a provider: `Locks(hooks=[hook()])`.

    Args:
        meter_provider: None is the global one, also one that is set later.
        group: from a lock's name to the value of the attribute `group`; None sorts all locks into "all". Called for
            each event, so quick.
        most_groups: how many values there may be; those that come later are sorted into "other".

    Raises `ConfigError` for arguments that cannot work.
    """
    return MetricsHook(_Sink(meter_provider), group, most_groups)
