"""Many held leases: what their renewal costs the client, and what one of them weighs."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import tenure
from bench.measure import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.measure import Scale
    from bench.target import Target

INTERVALS = 3
AT_ONCE = 500
USUAL_TTL = 30
TRACED = 500


def measure(target: Target, scale: Scale) -> list[Table]:
    """Renewal by the hub while the program does nothing, then memory."""
    ttl = scale.ttl
    renewal = Table(
        "Renewal of held leases by the hub",
        ("leases", "renewals/s", "client CPU us/renewal", f"share of a core at ttl {ttl:g}", "share at ttl 30", "lost"),
        note=f"over {INTERVALS} intervals of ttl/3, everything the process does included; share at ttl 30: computed",
    )
    for leases in scale.leases:
        renewal.add(leases, *asyncio.run(_renewals(target, leases, ttl)))
    memory = Table(
        "Memory per held lease, bytes",
        ("flavour", "client", "server"),
        note="client: tracemalloc, the keys' cache included; server: MEMORY USAGE of the lock's keys",
    )
    traced = min(max(scale.leases), TRACED)
    memory.add("asyncio", *asyncio.run(_memory_asyncio(target, traced)))
    memory.add("blocking", *_memory_blocking(target, traced))
    return [renewal, memory]


async def _renewals(target: Target, leases: int, ttl: float) -> tuple[float, float, float, float, int]:
    async with tenure.AsyncLocks(target.url, namespace="bench") as locks:
        held = await _held(locks, leases, ttl)
        # One interval first: what opens connections and loads scripts is not renewal.
        await asyncio.sleep(ttl / 3)
        before, cpu, start = target.usage(), time.process_time(), time.perf_counter()
        await asyncio.sleep(INTERVALS * ttl / 3)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
        renewed = target.usage().since(before).calls.get("pexpireat", 0)
        lost = sum(lease.lost is not None for lease in held)
        await _give_back(held)
    per_renewal = cpu / max(renewed, 1)
    at_usual = leases / (USUAL_TTL / 3) * per_renewal
    return (
        round(renewed / seconds),
        round(per_renewal * 1e6, 2),
        round(cpu / seconds, 4),
        round(at_usual, 4),
        lost,
    )


async def _held(locks: tenure.AsyncLocks, leases: int, ttl: float) -> list[tenure.AsyncLease]:
    held: list[tenure.AsyncLease] = []
    for first in range(0, leases, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, leases))
        held += await asyncio.gather(*(locks.lock(f"held-{n}", ttl=ttl).acquire() for n in numbers))
    return held


async def _give_back(held: list[tenure.AsyncLease]) -> None:
    for first in range(0, len(held), AT_ONCE):
        await asyncio.gather(*(lease.release() for lease in held[first : first + AT_ONCE]))


async def _memory_asyncio(target: Target, leases: int) -> tuple[int, int]:
    async with tenure.AsyncLocks(target.url, namespace="bench") as locks:
        await _give_back(await _held(locks, 10, USUAL_TTL))
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            held = [await locks.lock(f"weighed-a-{n}", ttl=USUAL_TTL).acquire() for n in range(leases)]
            client = (tracemalloc.get_traced_memory()[0] - before) // leases
        finally:
            tracemalloc.stop()
        server = _server_bytes(target, ["weighed-a-0"])
        await _give_back(held)
    return client, server


def _memory_blocking(target: Target, leases: int) -> tuple[int, int]:
    with tenure.Locks(target.url, namespace="bench") as locks:
        locks.lock("warm", ttl=USUAL_TTL).acquire().release()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            held = [locks.lock(f"weighed-b-{n}", ttl=USUAL_TTL).acquire() for n in range(leases)]
            client = (tracemalloc.get_traced_memory()[0] - before) // leases
        finally:
            tracemalloc.stop()
        server = _server_bytes(target, ["weighed-b-0"])
        for lease in held:
            lease.release()
    return client, server


def _server_bytes(target: Target, names: Iterable[str]) -> int:
    admin: Any = target.server.admin
    main = [f"bench:{name}" for name in names]
    return sum(admin.memory_usage(key) or 0 for name in main for key in (name, f"{{{name}}}:fence"))
