"""Prometheus: the metrics of a real run, scraped over HTTP, are what happened."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import tenure
from tenure.instrument import prometheus
from tenure.instrument.metrics import BUCKETS, COUNTERS
from tests.instrument.run import everything, group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server
    from tests.instrument.run import Measured

    Samples = dict[str, list[tuple[dict[str, str], float]]]


class Scrape:
    """What Prometheus would get from this process."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._server, self._thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=self.registry)

    def families(self) -> list[Metric]:
        address = f"http://127.0.0.1:{self._server.server_port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))

    def samples(self) -> Samples:
        found: Samples = {}
        for family in self.families():
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def measured(self) -> Measured:
        samples = self.samples()
        found: Measured = {}
        for what, name in {
            "waited": "tenure_wait_seconds_count",
            "held": "tenure_held_seconds_count",
            "holds": "tenure_holds",
            **{what: f"tenure_{what}_total" for what in COUNTERS},
        }.items():
            for labels, value in samples.get(name, []):
                more = [labels[label] for label in ("outcome", "reason", "request") if label in labels]
                found[(what, labels["group"], *more)] = value
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    made = Scrape()
    yield made
    made.close()


def test_the_metrics_of_a_run_are_what_happened(
    valkey_server: Server, proxy: FaultProxy, namespace: str, scrape: Scrape
) -> None:
    everything(valkey_server, proxy, namespace, prometheus.hook(scrape.registry, group=group), scrape.measured)
    waits = scrape.samples()["tenure_wait_seconds_sum"]
    (gave_up,) = [value for labels, value in waits if labels == {"group": "busy", "outcome": "gave_up"}]
    assert 0.05 <= gave_up < 60
    assert [value for labels, value in waits if labels["group"] == "free"] == [0]
    check_dashboard(scrape)


# The dashboard

PANELS = {"timeseries", "stat"}
VARIABLES = {"$__rate_interval", "$__range", "$group", "${datasource}", "$__all"}


def check_dashboard(scrape: Scrape) -> None:
    """Every expression uses metrics and labels that a real scrape has."""
    samples = scrape.samples()
    panels: list[Any] = json.loads(prometheus.dashboard())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used: set[str] = set()
    for expression in expressions:
        names = set(re.findall(r"\btenure_\w+", expression))
        assert names, expression
        used |= names
        for name in names:
            assert name in samples, f"{name} is in no scrape: {expression}"
            known = set(samples[name][0][0])
            (selected,) = re.findall(rf"{name}\{{(.*?)\}}", expression)
            assert set(re.findall(r"(\w+)(?:=~|!=|=)", selected)) <= known, expression
            for by in re.findall(r"\bby \((.*?)\)", expression):
                assert set(by.split(", ")) <= known, expression
        assert expression.count("(") == expression.count(")")
        assert set(re.findall(r"\$\{?\w+\}?", expression)) <= VARIABLES
    families = {name.removesuffix("_count").removesuffix("_bucket") for name in used}
    assert families == {
        "tenure_holds", "tenure_wait_seconds", "tenure_held_seconds", *(f"tenure_{what}_total" for what in COUNTERS)
    }, "a metric that no panel shows"  # fmt: skip


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    board: dict[str, Any] = json.loads(prometheus.dashboard())
    assert board["title"]
    assert re.fullmatch(r"[\w-]{1,40}", board["uid"])
    assert board["schemaVersion"] >= 36, "targets name their data source since Grafana 8.5"
    assert {"from", "to"} == set(board["time"])
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["group"]["query"]["query"] == "label_values(tenure_holds, group)"
    ids: set[int] = set()
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["type"] in PANELS
        assert panel["title"]
        assert panel["description"]
        assert panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']!r} overlaps another panel"
        taken |= cells
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))
        for owner in (panel, *panel["targets"]):
            assert owner["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


# The labels


def granted(name: str) -> tenure.GrantedEvent:
    return tenure.GrantedEvent(name, "00000000", 1, waited=0.0)


def test_the_name_of_a_lock_is_no_label() -> None:
    registry = prometheus_client.CollectorRegistry()
    hook = prometheus.hook(registry)
    for number in range(1000):
        hook(granted(f"invoice:{number}"))
    text = prometheus_client.generate_latest(registry).decode()
    assert "invoice" not in text
    assert 'tenure_holds{group="all"} 1000.0' in text


def test_there_are_at_most_so_many_groups() -> None:
    registry = prometheus_client.CollectorRegistry()
    hook = prometheus.hook(registry, group=lambda name: name, most_groups=3)
    for number in range(100):
        hook(granted(str(number)))
        hook(tenure.LostEvent(str(number), "00000000", 1, reason="expired", held_for=1.0))
    hook(granted("0"))
    groups = {
        sample.labels["group"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "tenure_wait_seconds_count"
    }
    assert groups == {"0": 2, "1": 1, "2": 1, "other": 97}


def test_hooks_on_one_registry_share_their_metrics() -> None:
    registry = prometheus_client.CollectorRegistry()
    for hook in (prometheus.hook(registry), prometheus.hook(registry, group=lambda _: "g")):
        hook(granted("n"))
    assert registry.get_sample_value("tenure_holds", {"group": "all"}) == 1
    assert registry.get_sample_value("tenure_holds", {"group": "g"}) == 1


def test_without_a_registry_it_is_the_librarys_own() -> None:
    def value() -> float:
        return prometheus_client.REGISTRY.get_sample_value("tenure_holds", {"group": "of-this-test"}) or 0

    prometheus.hook(group=lambda _: "of-this-test")(granted("n"))
    assert value() == 1


@pytest.mark.parametrize("wrong", [{"group": "shop"}, {"most_groups": 0}, {"most_groups": True}])
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(tenure.ConfigError):
        prometheus.hook(prometheus_client.CollectorRegistry(), **wrong)


def test_a_group_function_that_raises_harms_no_lock(url: str, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    def group_of(name: str) -> str:
        raise LookupError(name)

    hook = prometheus.hook(prometheus_client.CollectorRegistry(), group=group_of)
    with tenure.Locks(url, namespace=namespace, hooks=[hook]) as locks, locks.lock("n") as lease:
        lease.check()
    assert "a callback raised" in caplog.text


def test_the_buckets_are_those_of_the_page(scrape: Scrape) -> None:
    prometheus.hook(scrape.registry)(granted("n"))
    bounds = [labels["le"] for labels, _ in scrape.samples()["tenure_wait_seconds_bucket"]]
    assert [float(bound) for bound in bounds] == [*BUCKETS, float("inf")]
