"""OpenTelemetry: the metrics of a real run, read from an SDK, are what happened."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint

import tenure
from tenure.instrument import otel
from tenure.instrument.metrics import BUCKETS
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until
from tests.instrument.run import everything, group

if TYPE_CHECKING:
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server
    from tests.instrument.run import Measured

NAMES = {"tenure.wait.duration": "waited", "tenure.held.duration": "held"}


class Reading:
    """A provider, and what it has been given."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def measured(self) -> Measured:
        found: Measured = {}
        data = self.reader.get_metrics_data()
        for metric in [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []:
            for point in metric.data.data_points:
                labels = dict(point.attributes or {})
                key = (
                    NAMES.get(metric.name, metric.name.removeprefix("tenure.")),
                    str(labels.pop("group")),
                    *map(str, labels.values()),
                )
                if isinstance(point, HistogramDataPoint):
                    found[key] = point.count
                    assert tuple(point.explicit_bounds) == BUCKETS
                elif isinstance(point, NumberDataPoint):
                    found[key] = point.value
        return found


def test_the_metrics_of_a_run_are_what_happened(valkey_server: Server, proxy: FaultProxy, namespace: str) -> None:
    reading = Reading()
    everything(valkey_server, proxy, namespace, otel.hook(reading.provider, group=group), reading.measured)
    reading.provider.shutdown()


def test_asyncio_is_measured_as_well(url: str, namespace: str) -> None:
    reading = Reading()

    async def main() -> None:
        async with (
            tenure.AsyncLocks(url, namespace=namespace, hooks=[otel.hook(reading.provider)]) as locks,
            locks.lock("n"),
        ):
            assert reading.measured() == {("waited", "all", "granted"): 1, ("holds", "all"): 1}

    run_async(main)
    wait_until(lambda: reading.measured().get(("holds", "all")) == 0)
    assert reading.measured()["held", "all"] == 1
    reading.provider.shutdown()


def test_the_api_alone_is_enough() -> None:
    """Without an SDK nothing is measured, and nothing fails."""
    code = """
import sys
sys.modules["opentelemetry.sdk"] = None
from tenure.instrument import otel
import tenure
otel.hook()(tenure.GrantedEvent("n", "00000000", 1, waited=0.0))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
