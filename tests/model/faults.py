"""What may go wrong: with a packet on its way, and with a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.ports import Unanswered
from tests.model.sim import PREFIX, Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.model.client import Client
    from tests.model.world import Packet, World


def slow(world: World, packet: Packet) -> None:
    """It may take any time, and nobody waits for it."""
    packet.slow = True
    packet.due = world.true_us + int(world.scenario.slowest * 1e6)


def lose(world: World, packet: Packet) -> None:
    """It never arrives, and who waits for its reply learns that at once."""
    world.packets.remove(packet)
    if packet.task is not None:
        world.resume(packet.client, packet.task, Unanswered("connection lost"))


def double(world: World, packet: Packet) -> None:
    """It arrives twice, the second time at any later moment."""
    copy = type(packet)(packet.kind, packet.client, None, packet.request, packet.body)
    slow(world, copy)
    world.packets.append(copy)


def stuck(world: World, packet: Packet) -> None:
    """The connection breaks, and the request arrives all the same, at any later moment."""
    if packet.task is not None:
        world.unanswered(packet.client, packet.task)


def swap(world: World, packet: Packet) -> None:
    """A connection is out of step: this reply and another one change places."""
    other = next((p for p in world.packets if p.kind == "reply" and p is not packet), packet)
    packet.body, other.body = other.body, packet.body


def kill(world: World, client: Client) -> None:
    """The process dies; what it has sent is on its way all the same."""
    client.alive, client.gone_at = False, world.true_us
    for task in client.tasks:
        world.abandon(task)
    if client.subscribed:
        world.server.unsubscribe(PREFIX + client.name.encode())


def cancel(world: World, client: Client) -> None:
    """Its caller is cancelled, or interrupted, at its suspension point."""
    task = client.task("main")
    if task is not None:
        world.abandon(task)
        world.resume(client, task, Cancelled())


def pause(world: World, client: Client) -> None:
    """The process stands still; its connections do not break."""
    client.paused = True
    if world.scenario.pause_for is not None:
        client.wakes_at = world.true_us + int(world.scenario.pause_for * 1e6)


def drop(_world: World, client: Client) -> None:
    """Its inbox connection breaks, with all that was on it."""
    client.unsubscribe()


def cut_off(world: World, client: Client) -> None:
    """A partition: nothing of it arrives any more, nothing reaches it."""
    client.cut_off, client.gone_at = True, world.true_us
    # What is slow has left its machine, and arrives all the same.
    world.packets = [p for p in world.packets if p.slow or p.client is not client]


PACKET_FAULTS: dict[str, Callable[[World, Packet], None]] = {
    "slow": slow,
    "lose": lose,
    "double": double,
    "stuck": stuck,
    "swap": swap,
}
CLIENT_FAULTS: dict[str, Callable[[World, Client], None]] = {
    "kill": kill,
    "cancel": cancel,
    "pause": pause,
    "drop": drop,
    "cut off": cut_off,
}


def of(world: World) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every fault that the scenario allows now."""
    scenario = world.scenario
    yield from scenario.extra_faults(world)
    for packet in world.packets:
        if not packet.slow:
            for kind, strike in PACKET_FAULTS.items():
                if scenario.allows(world, f"{kind} {packet.kind}", packet.client.name, packet):
                    yield f"{kind} {packet.label()}", lambda s=strike, p=packet: s(world, p)
    for client in world.clients:
        if client.alive and client.task("main") is not None:
            for kind, strike_client in CLIENT_FAULTS.items():
                if scenario.allows(world, kind, client.name, client):
                    yield f"{kind} {client.name}", lambda s=strike_client, c=client: s(world, c)
