"""What clients do instead of taking the lock, working and giving it back: handing leases over, mostly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.core import release
from tenure.core.lease_state import Hold
from tenure.errors import LeaseLost, NotAcquired
from tests.model.sim import Signal, Wait

if TYPE_CHECKING:
    from tests.model.client import Client

PATIENCE = 5.0
"""Seconds that an heir waits for a lease to be written down: its holder may have died."""


async def exporter(client: Client) -> None:
    """Takes the lock, works, and writes its lease down for another process."""
    await client.port.sleep(client.spec.start)
    holds = await client.take()
    try:
        await client.work()
    except BaseException:
        await client.give(holds)
        raise
    client.write_down(holds)


async def lender(client: Client) -> None:
    """Writes its lease down at once and goes on, as `tenure run` does for its command."""
    holds = await client.take()
    client.write_down(holds, goes_on=True)
    try:
        await client.work()
    finally:
        await client.give(holds)


async def heir(client: Client) -> None:
    """Takes over what was written down, works, and gives it back; nothing, when somebody else was faster."""
    await Wait(client.world.posted, client.now() + PATIENCE)
    if client.world.exported is None:
        return
    if client.spec.start:
        await client.port.sleep(client.spec.start)
    try:
        holds = await client.take_over()
    except LeaseLost:
        return
    try:
        await client.work()
    finally:
        await client.give(holds)


async def closer(client: Client) -> None:
    """Gives back what was written down, as `tenure release` does."""
    await Wait(client.world.posted, client.now() + PATIENCE)
    exported = client.world.exported
    if exported is None:
        return
    for name, word, fence in exported.leases:
        keys, token = client.world.locks[name], word.encode()
        now = client.now()
        until = now + exported.ttl
        hold = Hold(keys, token, fence, client.terms(), granted_at=now, deadline=until, mutex=Signal().mutex)
        await release.release(client.port, hold)
        await release.settle(client.port, keys, token, exported.stray_until)


async def mixed(client: Client) -> None:
    """Holds one of its two locks shared and the other one alone, so that one request renews both kinds."""
    spec = client.spec
    client.spec = replace(spec, mode="shared", names=spec.names[1:])
    shared = await client.take()
    client.spec = replace(spec, names=spec.names[:1])
    alone = await client.take()
    await client.work()
    await client.give(alone)
    await client.give(shared)


async def tries(client: Client) -> None:
    """Tries to take the lock again and again, and works when it has it."""
    await client.port.sleep(client.spec.start)
    for turn in range(client.spec.turns):
        if turn:
            await client.port.sleep(client.spec.pause)
        try:
            holds = await client.take()
        except NotAcquired:
            continue
        try:
            await client.work()
        finally:
            await client.give(holds)
