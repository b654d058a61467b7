"""What a pair costs the server: requests, commands inside the scripts, and CPU time beside two minimal scripts."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import tenure
from bench.measure import Table, interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Scale
    from bench.target import Target, Usage

TTL_MS = 30_000
SET_NX = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"
COMPARE_DELETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
OURS, MINIMAL = "tenure", "two minimal EVALSHA"

Batch = tuple["Usage", "Usage"]


def measure(target: Target, scale: Scale) -> list[Table]:
    """Small batches in turn: the smallest is the one that nothing has disturbed."""
    names = [f"batch-{number}" for number in range(scale.batch)]
    with tenure.Locks(target.url, namespace="bench") as locks, target.client() as client:
        sides = {OURS: _ours(target, locks, names), MINIMAL: _minimal(target, client, names)}
        interleaved(sides, 2)
        found = interleaved(sides, scale.batches)
    table = Table(
        "Server: an uncontended pair",
        ("side", "requests/pair", "commands inside", "us min", "us median", "acquire us", "release us", "ratio"),
        note=(
            f"{scale.batches} batches of {scale.batch} pairs each in turn, CPU time of EVALSHA by commandstats; "
            "acquire and release: medians; ratio: of the smallest batches; target: at most 1.7"
        ),
    )
    least: dict[str, float] = {}
    rows: list[tuple[str | int | float, ...]] = []
    for side, batches in found.items():
        per_pair = [(taking.script_us + giving.script_us) / scale.batch for taking, giving in batches]
        least[side] = min(per_pair)
        # A stall may add a poll, a ping or a second try to a batch, and takes nothing away.
        taking, giving = min(batches, key=lambda batch: sum(used.scripts + used.inside for used in batch))
        rows.append(
            (
                side,
                round((taking.scripts + giving.scripts) / scale.batch, 2),
                round((taking.inside + giving.inside) / scale.batch, 2),
                round(least[side], 2),
                round(statistics.median(per_pair), 2),
                round(statistics.median(taking.script_us / scale.batch for taking, _ in batches), 2),
                round(statistics.median(giving.script_us / scale.batch for _, giving in batches), 2),
            )
        )
    ratio = least[OURS] / least[MINIMAL] if least[MINIMAL] else float("nan")
    for row in rows:
        table.add(*row, round(ratio, 2) if row[0] == OURS else "")
    return [table]


def _ours(target: Target, locks: tenure.Locks, names: list[str]) -> Callable[[], Batch]:
    described = [locks.lock(name, ttl=TTL_MS / 1000) for name in names]

    def batch() -> Batch:
        begin = target.usage()
        leases = [lock.acquire() for lock in described]
        middle = target.usage()
        for lease in leases:
            lease.release()
        return middle.since(begin), target.usage().since(middle)

    return batch


def _minimal(target: Target, client: Any, names: list[str]) -> Callable[[], Batch]:  # noqa: ANN401 - a redis-py client
    take, give = client.script_load(SET_NX), client.script_load(COMPARE_DELETE)

    def batch() -> Batch:
        begin = target.usage()
        for name in names:
            client.evalsha(take, 1, f"minimal:{name}", "0123456789abcdef", TTL_MS)
        middle = target.usage()
        for name in names:
            client.evalsha(give, 1, f"minimal:{name}", "0123456789abcdef")
        return middle.since(begin), target.usage().since(middle)

    return batch
