"""Metrics for Prometheus. Needs the extra `prometheus`; docs/monitoring.md lists what is measured."""

from __future__ import annotations

import threading
import weakref
from importlib.resources import files
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from .metrics import BUCKETS, COUNTERS, MOST_GROUPS, MetricsHook

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from ..events import Hook

_mutex = threading.Lock()
_sinks: weakref.WeakKeyDictionary[CollectorRegistry, _Sink] = weakref.WeakKeyDictionary()


class _Sink:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = Histogram(
            "tenure_wait_seconds", "How long acquires took to end.", ("group", "outcome"),
            registry=registry, buckets=BUCKETS,
        )  # fmt: skip
        self._held = Histogram(
            "tenure_held_seconds", "How long leases were held.", ("group",), registry=registry, buckets=BUCKETS
        )
        self._holds = Gauge(
            "tenure_holds", "Leases that this process holds.", ("group",), registry=registry,
            # Of processes that share a folder of samples: of those that live, the sum.
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._counters = {
            what: Counter(f"tenure_{what}_total", text, ("group", *labels), registry=registry)
            for what, (text, labels) in COUNTERS.items()
        }

    def waited(self, group: str, outcome: str, seconds: float) -> None:
        self._wait.labels(group, outcome).observe(seconds)

    def holding(self, group: str, change: int) -> None:
        self._holds.labels(group).inc(change)

    def held(self, group: str, seconds: float) -> None:
        self._held.labels(group).observe(seconds)

    def count(self, what: str, group: str, **more: str) -> None:
        self._counters[what].labels(group=group, **more).inc()


def hook(
    registry: CollectorRegistry | None = None,
    *,
    group: Callable[[str], str] | None = None,
    most_groups: int = MOST_GROUPS,
) -> Hook:
    """A hook that measures into a registry: `Locks(hooks=[hook()])`.

    Args:
        registry: None is `prometheus_client`'s own. Several hooks on one registry share their metrics.
        group: from a lock's name to the value of the label `group`; None sorts all locks into "all". Called for each
            event, so quick.
        most_groups: how many values there may be; those that come later are sorted into "other".

    Raises `ConfigError` for arguments that cannot work.
    """
    chosen = REGISTRY if registry is None else registry
    with _mutex:
        sink = _sinks.get(chosen)
        if sink is None:
            sink = _sinks[chosen] = _Sink(chosen)
    return MetricsHook(sink, group, most_groups)


def dashboard() -> str:
    """A dashboard for Grafana over these metrics, as JSON to import; reads a file of this package."""
    return (files("tenure.instrument") / "dashboard.json").read_text(encoding="utf-8")
