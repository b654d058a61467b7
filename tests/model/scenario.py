"""What a scenario consists of: who wants the lock, what may go wrong and when, what must be true all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.core import inspect
from tests.model.client import Client
from tests.model.server_model import MARK, TOKEN_WIDTH, ModelServer
from tests.model.sim import SimPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.model.sim import Spec
    from tests.model.world import Packet, World


def nothing(_world: World) -> None:
    """No preparation."""


def no_faults(_world: World) -> Iterable[tuple[str, Callable[[], None]]]:
    """No faults beyond those that are named."""
    return ()


@dataclass(frozen=True)
class Scenario:
    """What is explored; `faults` are kinds of faults with the clients that they may strike, `budget` how many do."""

    clients: tuple[Spec, ...]
    faults: tuple[tuple[str, str], ...] = ()
    budget: int = 0
    only: Callable[[World, str, Packet | Client], bool] | None = None
    """Narrows the faults further: kind, and the packet or client."""
    extra_faults: Callable[[World], Iterable[tuple[str, Callable[[], None]]]] = no_faults
    prepare: Callable[[World], None] = nothing
    server: Callable[[], ModelServer] = ModelServer
    port: type[SimPort] = SimPort
    client: type[Client] = Client
    polls: bool = True
    instants: tuple[float, ...] = ()
    """True seconds at which time stops although nothing is due."""
    start_us: int = 0
    names: tuple[str, ...] = ("lock",)
    """The locks that there are."""
    max_orphan: float = 0.005
    max_wait: float | None = None
    """Seconds that no caller may wait longer for its lease."""
    cost: tuple[int, int] | None = None
    """Requests and messages of the whole run."""
    slowest: float = 1e6
    """Seconds after which even a slow packet arrives."""
    pause_for: float | None = None
    """Seconds that a paused client stands still; None: any time."""
    deliverable: Callable[[World, Packet], bool] = lambda _world, _packet: True
    """Which packets may arrive now."""
    patches: tuple[tuple[str, object], ...] = ()
    """What is replaced while it is explored: dotted name, and what stands there instead."""
    keeps_turn: bool = False
    """A turn that was granted is used, however late."""
    keeps_lease: bool = False
    """No lease may end by its deadline."""
    errors: tuple[str, ...] = ()
    """Names of errors with which a caller may come back."""

    def allows(self, world: World, kind: str, client: str, what: Packet | Client) -> bool:
        """Whether this fault may strike here."""
        return any(kind == k and client in names for k, names in self.faults) and (
            self.only is None or self.only(world, kind, what)
        )


def no_margin(_drift: float, _span: float) -> float:
    """Deadlines to the last instant."""
    return 0.0


def each(kinds: str, clients: str) -> tuple[tuple[str, str], ...]:
    """The same clients for several kinds of faults, separated by commas."""
    return tuple((kind.strip(), clients) for kind in kinds.split(","))


def request_of(*scripts: str) -> Callable[[World, str, Packet | Client], bool]:
    """Strikes packets of these scripts only, and clients."""
    return lambda _world, _kind, what: (
        isinstance(what, Client) or (what.request is not None and what.request.script.name in scripts)
    )


# --- What scenarios put in place -------------------------------------------------------------------------------------


def dead_waiters(count: int, *, expired: bool) -> Callable[[World], None]:
    """A queue whose first entries belong to nobody any more."""

    def prepare(world: World) -> None:
        server, lock = world.server, world.keys
        tokens = [f"z{i}".ljust(TOKEN_WIDTH, "0").encode() for i in range(count)]
        till = server.now + (-1 if expired else 10_000_000)
        server.put(lock.queue, {t: server.now_us - count + i for i, t in enumerate(tokens)}, end=server.now + 10**8)
        server.put(lock.entry, dict.fromkeys(tokens, b"%d 6000 80 x@pz {}" % till), end=server.now + 10**8)

    return prepare


def held_by_the_dead(world: World) -> None:
    """The lock belongs to a client that died a while ago: its lease ends in 50 ms."""
    server = world.server
    fence = server.now_us - 5_950_000
    value = MARK + b"Z1".ljust(TOKEN_WIDTH, b"0") + b" %d %d x@pZ {}" % (fence, fence // 1000)
    server.put(world.keys.main, value, end=server.now + 50)


def clock_steps(seconds: float) -> Callable[[World], Iterable[tuple[str, Callable[[], None]]]]:
    """The server's clock jumps at any moment."""

    def faults(world: World) -> Iterable[tuple[str, Callable[[], None]]]:
        def jump() -> None:
            world.server.now_us += int(seconds * 1e6)
            world.excused = True

        return [(f"clock steps {seconds:g} s", jump)]

    return faults


def in_hand_over(world: World) -> bool:
    """A grant is on its way by message, and nobody believes to hold."""
    held = any(world.monitor.valid(c, h) for c in world.clients for h in c.holds.values())
    return not held and any(p.kind == "message" and p.body.startswith(b"granted") for p in world.packets)


def failover(world: World) -> Iterable[tuple[str, Callable[[], None]]]:
    """An empty server takes over while a grant of the old one is still on its way."""

    def fail() -> None:
        for packet in world.packets:
            packet.slow = packet.slow or packet.kind == "message"
        world.server.data.clear()
        world.server.ends.clear()
        world.server.now_us += 1
        for client in world.clients:
            client.epoch += 1

    return [("failover", fail)] if in_hand_over(world) else []


def forced(world: World) -> Iterable[tuple[str, Callable[[], None]]]:
    """An operator deletes a lease of which its holder does not know yet."""

    def force() -> None:
        for packet in world.packets:
            packet.slow = packet.slow or packet.kind == "message"
        lock = world.keys
        world.server.run("break", lock.all, [b"", 1], b"0", b"ns:@")
        world.collect()

    return [("force", force)] if in_hand_over(world) else []


def overtaken(_world: World, packet: Packet) -> bool:
    """Grants arrive only after their waiter was told that it is still queued."""
    if packet.kind != "message" or not packet.slow:
        return True
    ticket = packet.client.tickets.get(packet.body.split(b" ")[1])
    return ticket is not None and (ticket.server_ms or 0) > int(packet.body.split(b" ")[2]) / 1000


def on_its_way(world: World, script: str) -> bool:
    """Whether such a request is on its way."""
    return any(p.request and p.request.script.name == script and p.kind == "request" for p in world.packets)


def flush(world: World) -> Iterable[tuple[str, Callable[[], None]]]:
    """Everything is deleted while nobody holds."""
    return [("flush", world.server.data.clear)] if not world.monitor.owners() else []


def deleted(script: str) -> Callable[[World], Iterable[tuple[str, Callable[[], None]]]]:
    """The key of a lease is deleted while such a request of its holder is on its way."""

    def faults(world: World) -> Iterable[tuple[str, Callable[[], None]]]:
        def delete() -> None:
            world.server.delete(world.keys.main)
            world.excused = True
            world.forgot = script == "renew"

        return [("delete", delete)] if on_its_way(world, script) else []

    return faults


async def operator(client: Client) -> None:
    """Breaks whatever lease there is after half a second."""
    await client.port.sleep(0.5)
    await inspect.break_lock(client.port, client.world.keys, None, force=False)


async def pair(client: Client) -> None:
    """Two callers of one process."""
    client.spawn("other", client.main())
    await client.main()


async def crowd(client: Client) -> None:
    """Puts more dead waiters in front of everybody than one call may skip."""
    await client.port.sleep(0.05)
    dead_waiters(150, expired=True)(client.world)


async def flickering(client: Client) -> None:
    """Takes the lock, and asks for a shorter ttl while it holds."""
    holds = await client.take()
    await client.shorten(holds, 1.0)
    await client.port.sleep(client.spec.hold)
    await client.give(holds)
