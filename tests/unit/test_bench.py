"""A tiny run of all measurements: it works, and writes down what docs/performance.md speaks of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.measure import SCALES, Slice, Table, interleaved, median_ratio, percentile

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "pairs": {"flavour", "callers", "side", "pairs/s", "client CPU us/pair", "ratio"},
    "hand-over": {"side", "median ms", "p99 ms", "to the bare one", "to redis-py Lock"},
    "turns": {"owner changes/s", "hand-over p50 ms", "p99 ms", "most/fewest turns", "script calls/change"},
    "server": {"requests/pair", "commands inside", "us min", "us median", "ratio"},
    "renewals": {"leases", "client CPU us/renewal", "lost"},
    "asgi": {"tasks", "side", "requests/s", "to the bare one", "added us"},
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    output = tmp_path_factory.mktemp("bench") / "deep" / "figures.json"
    done = run("--scale", "tiny", "--server", "valkey", "--output", str(output))
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text(encoding="utf-8"))
    assert document["scale"] == "tiny"
    assert document["surroundings"]["cores"] >= 1
    for result in document["results"]:
        assert result["server"].startswith("valkey ")
        assert result["transport"] == "tcp"
        for table in result["tables"]:
            assert table["title"] in done.stdout, "what is written is also shown"
    return {result["benchmark"]: result["tables"] for result in document["results"]}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_measurement_writes_its_figures(results: dict[str, list[dict[str, Any]]], name: str) -> None:
    rows = results[name][0]["rows"]
    assert rows
    for row in rows:
        assert row.keys() >= COLUMNS[name]
        numbers = [cell for cell in row.values() if isinstance(cell, int | float)]
        assert numbers
        # No number where a machine that stood still has done nothing in its slice of time.
        assert not any(number < 0 for number in numbers)


def test_both_sides_of_each_comparison_were_measured(results: dict[str, list[dict[str, Any]]]) -> None:
    pairs = results["pairs"][0]["rows"]
    cases = {(row["flavour"], row["callers"]) for row in pairs}
    assert cases == {("blocking", 1), ("blocking", 8), *(("asyncio", tasks) for tasks in SCALES["tiny"].tasks)}
    # On a machine that stands still a side may do nothing in its twenty milliseconds, but not all of them.
    assert any(row["pairs/s"] > 0 for row in pairs)
    assert {row["side"] for row in pairs} == {"tenure", "redis-py Lock"}
    assert len(results["hand-over"][0]["rows"]) == 5
    assert all(row["median ms"] > 0 for row in results["hand-over"][0]["rows"])


def test_what_is_counted_and_does_not_depend_on_the_machine(results: dict[str, list[dict[str, Any]]]) -> None:
    server = {row["side"]: row for row in results["server"][0]["rows"]}
    assert server["tenure"]["requests/pair"] == 2
    assert server["two minimal EVALSHA"]["requests/pair"] == 2
    assert server["two minimal EVALSHA"]["commands inside"] == 3
    turns = {row["side"]: row for row in results["turns"][0]["rows"]}
    # Without a third request for a grant; polls and the window's end cost each of the four processes some more. For a
    # grant, not for a change of owner: one process has the lock over and over while the others are not let run.
    row = turns["tenure, blocking"]
    changes = max(row["owner changes/s"] * SCALES["tiny"].window, 1)
    grants = row["acquisitions/s"] * SCALES["tiny"].window
    assert row["script calls/change"] * changes < 2.5 * grants + 30
    (renewal,) = results["renewals"][0]["rows"]
    assert renewal["leases"] == 100
    # What a machine that stands still for a second does not renew is lost, and counted as that.
    assert renewal["renewals/s"] > 0 or renewal["lost"] > 0
    assert 0 <= renewal["lost"] <= renewal["leases"]
    for row in results["renewals"][1]["rows"]:
        assert row["client"] > 100
        assert row["server"] > 100


def test_standard_output_carries_the_document_alone() -> None:
    done = run("--scale", "tiny", "--server", "valkey", "--only", "server", "--transport", "unix", "--output", "-")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert (result["benchmark"], result["transport"]) == ("server", "unix")


def test_an_unknown_measurement_is_refused() -> None:
    done = run("--only", "speed")
    assert done.returncode == 2
    assert "speed" in done.stderr


# Arithmetic


def test_sides_have_their_turns_one_after_the_other() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], int]:
        return lambda: order.append(name) or len(order)

    found = interleaved({"a": side("a"), "b": side("b")}, 2)
    assert order == ["a", "b", "a", "b"]
    assert found == {"a": [1, 3], "b": [2, 4]}


def test_ratios_are_of_neighbours_and_a_useless_one_is_left_out() -> None:
    # The machine was four times slower in the second half: the ratio of the medians would say something else.
    assert median_ratio([40.0, 44.0, 10.0], [20.0, 22.0, 5.0]) == 2
    assert median_ratio([40.0, 1.0], [20.0, 0.0]) == 2


def test_percentiles_and_rates() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (51, 100, 7)
    turn = Slice(pairs=50, seconds=0.5, cpu=0.01)
    assert turn.rate == 100
    assert turn.cpu_us == pytest.approx(200)
    assert Slice(pairs=0, seconds=0.5, cpu=0.01).cpu_us > 0


def test_a_table_gives_its_rows_by_column() -> None:
    table = Table("t", ("a", "b"), note="n")
    table.add(1, "x")
    assert table.data() == {"title": "t", "note": "n", "rows": [{"a": 1, "b": "x"}]}
