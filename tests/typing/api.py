"""Never run: a user's program that touches every public signature, for mypy --strict and pyright to check.

`assert_type` pins what a user's editor shows. A line that must be an error carries an ignore, which is itself an error
as soon as it is not needed any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, assert_type

import tenure
from tenure.errors import LossReason

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    import redis.asyncio

    from tenure.clients import Client

# Making locks


def servers(client: redis.Redis, async_client: redis.asyncio.Redis, own: Client) -> None:
    tenure.Locks()
    tenure.Locks("redis://h")
    tenure.Locks(client)
    tenure.AsyncLocks(async_client)
    tenure.Locks(own)
    tenure.Locks(
        "redis://h",
        namespace="shop",
        server_timeout=timedelta(seconds=5),
        grace=0.5,
        max_ttl=timedelta(hours=1),
        drift=0.01,
        identity="worker 7",
        hooks=[hook, Hook()],
        embedded=False,
    )


def hook(event: tenure.Event) -> None:
    assert_type(event.name, str)
    assert_type(event.id, str)
    assert_type(event.fence, int | None)
    match event:
        case tenure.TamperedEvent() | tenure.LostEvent():
            assert_type(event.reason, LossReason)
            assert_type(event.held_for, float)
        case tenure.OverheldEvent():
            assert_type((event.held_for, event.over), tuple[float, float])
        case tenure.WaitedEvent():
            assert_type((event.waited, event.granted), tuple[float, bool])
        case tenure.GrantedEvent():
            assert_type(event.waited, float)
        case tenure.RenewedEvent() | tenure.RenewFailedEvent():
            assert_type(event.remaining, float)
        case tenure.ReleasedEvent():
            assert_type(event.held_for, float)
        case tenure.AskedEvent():
            assert_type((event.host, event.pid, event.program), tuple[str, int | None, str])
        case tenure.MovedEvent():
            assert_type(event.held_for, float)
        case tenure.UnansweredEvent():
            assert_type(event.request, str)
        case _:
            pass


class Hook:
    """A hook may be any callable object."""

    def __call__(self, event: tenure.Event, /) -> None: ...


as_hook: tenure.Hook = hook


# Blocking


def blocking(locks: tenure.Locks) -> None:
    def lost(lease: tenure.Lease) -> None:
        assert_type(lease.lost, LossReason | None)

    lock = locks.lock("invoice:42", ttl=30, wait=5)
    assert_type(lock, tenure.Lock)
    assert_type(lock.names, tuple[str, ...])
    locks.lock(
        b"invoice",
        ttl=timedelta(minutes=1),
        wait=None,
        renew=False,
        max_hold=timedelta(hours=1),
        info={"for": "invoices", "n": 3, "done": False},
        warn_after=3.5,
        on_lost=lost,
        on_exit_lost="note",
    )
    locks.lock("x", info="a word", on_lost=lambda lease: lease.release())
    assert_type(lock.acquire(), tenure.Lease)
    assert_type(lock.try_acquire(), tenure.Lease | None)
    assert_type(lock.try_acquire(wait=timedelta(seconds=1)), tenure.Lease | None)
    assert_type(lock.locked(), bool)
    assert_type(lock.holder(), tenure.Holder | None)
    with lock as lease:
        assert_type(lease, tenure.Lease)
        a_lease(lease)
    with lock.acquire() as own:
        assert_type(own, tenure.Lease)
    assert_type(locks.holder("x"), tenure.Holder | None)
    assert_type(locks.holders("x"), list[tenure.Holder])
    assert_type(locks.waiters("x"), list[tenure.Waiter])
    assert_type(locks.list(), list[tenure.Holder])
    assert_type(locks.list(prefix="invoice:"), list[tenure.Holder])
    assert_type(locks.break_lock("x", 7), tenure.Holder | None)
    assert_type(locks.break_lock("x", fence=None, force=True), tenure.Holder | None)
    assert_type(locks.namespace, str)
    locks.close_on_signals()
    locks.close()
    locks.close(wait=timedelta(seconds=5))
    with locks as same:
        assert_type(same, tenure.Locks)


def a_lease(lease: tenure.Lease) -> None:
    what_needs_no_io(lease)
    lease.renew()
    lease.renew(60)
    assert_type(lease.release(), tenure.Released)
    assert_type(lease.wait_lost(), bool)
    assert_type(lease.wait_lost(timeout=1.5), bool)
    lease.on_lost(lambda gone: gone.lost)


def what_needs_no_io(lease: tenure.Lease | tenure.AsyncLease) -> None:
    assert_type(lease.names, tuple[str, ...])
    assert_type(lease.fence, int)
    assert_type(lease.fences, Mapping[str, int])
    assert_type(lease.token, str)
    assert_type(lease.info, str | Mapping[str, Any] | None)
    assert_type(lease.valid, bool)
    assert_type(lease.lost, LossReason | None)
    assert_type(lease.remaining(), float)
    assert_type(lease.held_for(), float)
    lease.check()
    lease.check(min_remaining=0.5)


def decorated(locks: tenure.Locks) -> None:
    @locks.lock("report:{user_id}")
    def report(user_id: int, *, kind: str = "day") -> list[str]:
        return [kind] * user_id

    assert_type(report(7, kind="week"), list[str])
    report("7")  # type: ignore[arg-type]
    taken: Callable[[int], list[str]] = report
    taken(7)


def everything_people_lock_with(locks: tenure.Locks) -> None:
    def asked(lease: tenure.Lease) -> None:
        assert_type(lease.asked, tenure.AskedEvent | None)

    locks.lock("a", "b", shared=True, ask_after=timedelta(seconds=1), reentrant=True, on_ask=asked)
    places = locks.semaphore(
        "s", 3, ttl=30, wait=5, renew=True, max_hold=60, ask_after=0, info="x", reentrant=False, warn_after=5,
        on_lost=asked, on_ask=asked, on_exit_lost="note",
    )  # fmt: skip
    assert_type(places, tenure.Lock)
    lease = places.acquire()
    assert_type(lease.mode, Literal["exclusive", "shared", "semaphore"])
    assert_type(lease.wait_asked(timeout=1), bool)
    lease.on_ask(asked)
    lease.set_info({"progress": 5})
    lease.detach()
    lease.transaction()
    exported = lease.export()
    assert_type(exported, str)
    assert_type(locks.adopt(exported, renew=False, info="x", max_hold=5), tenure.Lease)
    assert_type(locks.current("a"), tenure.Lease | None)
    assert_type(locks.ask("a"), tenure.Holder | None)
    assert_type(locks.deadlocks(), list[tuple[tenure.Waiter, ...]])
    for holder in locks.watch("a"):
        assert_type(holder, tenure.Holder | None)

    def number() -> int:
        return 5

    def maybe() -> int | None:
        return None

    def of_two(a: int, b: str) -> str:
        return a * b

    assert_type(locks.run("a", "b", call=number, wait=5, shared=True), tenure.Ran[int] | tenure.Skipped)
    ran = locks.once("a", of_two, 3, "x", at_least=timedelta(hours=1), max_hold=5, ttl=30)
    assert_type(ran, tenure.Ran[str] | tenure.Skipped)
    if isinstance(ran, tenure.Skipped):
        assert_type((ran.holder, ran.until), tuple[tenure.Holder | None, datetime | None])
    assert_type(locks.get_or_create("a", maybe, number, ttl=5, wait=None), int)
    locks.once("a", of_two, "x", 3)  # type: ignore[arg-type]


# asyncio


async def in_asyncio(locks: tenure.AsyncLocks) -> None:
    def lost(lease: tenure.AsyncLease) -> None:
        assert_type(lease.lost, LossReason | None)

    lock = locks.lock("invoice:42", ttl=30, wait=5)
    assert_type(lock, tenure.AsyncLock)
    assert_type(lock.names, tuple[str, ...])
    locks.lock(
        b"invoice",
        ttl=timedelta(minutes=1),
        wait=None,
        renew=False,
        max_hold=timedelta(hours=1),
        info={"for": "invoices", "n": 3, "done": False},
        warn_after=3.5,
        on_lost=lost,
        on_exit_lost="raise",
        cancel_on_lost=False,
    )
    assert_type(await lock.acquire(), tenure.AsyncLease)
    assert_type(await lock.try_acquire(), tenure.AsyncLease | None)
    assert_type(await lock.try_acquire(wait=1), tenure.AsyncLease | None)
    assert_type(await lock.locked(), bool)
    assert_type(await lock.holder(), tenure.Holder | None)
    async with lock as lease:
        assert_type(lease, tenure.AsyncLease)
        await an_async_lease(lease)
    async with await lock.acquire() as own:
        assert_type(own, tenure.AsyncLease)
    assert_type(await locks.holder("x"), tenure.Holder | None)
    assert_type(await locks.holders("x"), list[tenure.Holder])
    assert_type(await locks.waiters("x"), list[tenure.Waiter])
    assert_type(await locks.list(), list[tenure.Holder])
    assert_type(await locks.list(prefix="invoice:"), list[tenure.Holder])
    assert_type(await locks.break_lock("x", 7), tenure.Holder | None)
    assert_type(await locks.break_lock("x", fence=None, force=True), tenure.Holder | None)
    await locks.close()
    await locks.close(wait=timedelta(seconds=5))
    async with locks as same:
        assert_type(same, tenure.AsyncLocks)


async def an_async_lease(lease: tenure.AsyncLease) -> None:
    what_needs_no_io(lease)
    await lease.renew()
    await lease.renew(60)
    assert_type(await lease.release(), tenure.Released)
    assert_type(await lease.wait_lost(), bool)
    assert_type(await lease.wait_lost(timeout=1.5), bool)
    lease.on_lost(lambda gone: gone.lost)


async def decorated_async(locks: tenure.AsyncLocks) -> None:
    @locks.lock("report:{user_id}")
    async def report(user_id: int, *, kind: str = "day") -> list[str]:
        return [kind] * user_id

    assert_type(await report(7, kind="week"), list[str])
    await report("7")  # type: ignore[arg-type]

    @locks.lock("x")  # type: ignore[arg-type]
    def plain() -> None: ...


async def async_everything_people_lock_with(locks: tenure.AsyncLocks) -> None:
    def asked(lease: tenure.AsyncLease) -> None:
        assert_type(lease.asked, tenure.AskedEvent | None)

    locks.lock("a", "b", shared=True, ask_after=timedelta(seconds=1), reentrant=True, on_ask=asked)
    places = locks.semaphore(
        "s", 3, ttl=30, wait=5, renew=True, max_hold=60, ask_after=0, info="x", reentrant=False, warn_after=5,
        on_lost=asked, on_ask=asked, on_exit_lost="note",
    )  # fmt: skip
    assert_type(places, tenure.AsyncLock)
    lease = await places.acquire()
    assert_type(lease.mode, Literal["exclusive", "shared", "semaphore"])
    assert_type(await lease.wait_asked(timeout=1), bool)
    lease.on_ask(asked)
    await lease.set_info({"progress": 5})
    lease.detach()
    lease.transaction()
    exported = lease.export()
    assert_type(exported, str)
    assert_type(await locks.adopt(exported, renew=False, info="x", max_hold=5), tenure.AsyncLease)
    assert_type(locks.current("a"), tenure.AsyncLease | None)
    assert_type(await locks.ask("a"), tenure.Holder | None)
    assert_type(await locks.deadlocks(), list[tuple[tenure.Waiter, ...]])
    async for holder in locks.watch("a"):
        assert_type(holder, tenure.Holder | None)

    async def number() -> int:
        return 5

    async def maybe() -> int | None:
        return None

    async def of_two(a: int, b: str) -> str:
        return a * b

    assert_type(await locks.run("a", "b", call=number, wait=5, shared=True), tenure.Ran[int] | tenure.Skipped)
    ran = await locks.once("a", of_two, 3, "x", at_least=timedelta(hours=1), max_hold=5, ttl=30)
    assert_type(ran, tenure.Ran[str] | tenure.Skipped)
    if isinstance(ran, tenure.Skipped):
        assert_type((ran.holder, ran.until), tuple[tenure.Holder | None, datetime | None])
    assert_type(await locks.get_or_create("a", maybe, number, ttl=5, wait=None), int)
    await locks.once("a", of_two, "x", 3)  # type: ignore[arg-type]


# Records and errors


def statistics(locks: tenure.Locks | tenure.AsyncLocks) -> None:
    numbers = locks.statistics()
    assert_type(numbers.scope, str)
    assert_type(numbers.held + numbers.waiting + numbers.granted + numbers.released + numbers.lost, int)
    assert_type(numbers.gave_up + numbers.renew_failures + numbers.requests + numbers.broken_connections, int)


def records(holder: tenure.Holder, waiter: tenure.Waiter) -> None:
    assert_type((holder.name, holder.fence, holder.id, holder.host), tuple[str, int | None, str, str])
    assert_type((holder.pid, holder.program, holder.identity), tuple[int | None, str, str | None])
    assert_type(holder.info, str | Mapping[str, str | int | float | bool | None] | None)
    assert_type((holder.since, holder.expires_in, holder.foreign), tuple[datetime | None, float | None, bool])
    assert_type(holder.revoked, bool)
    assert_type((waiter.name, waiter.position, waiter.id, waiter.since), tuple[str, int, str, datetime])
    assert_type((waiter.host, waiter.pid, waiter.program, waiter.identity), tuple[str, int | None, str, str | None])
    assert_type(waiter.info, str | Mapping[str, str | int | float | bool | None] | None)
    holder.name = "other"  # type: ignore[misc]


def errors(error: tenure.TenureError) -> str:
    if isinstance(error, tenure.NotAcquired):
        assert_type((error.names, error.waited), tuple[tuple[str, ...], float])
        assert_type((error.holder, error.position), tuple[tenure.Holder | None, int | None])
        assert_type(error.retry_after, float)
        assert_type((error.heard, error.deadlock), tuple[bool | None, str | None])
        timed_out: TimeoutError = error
        return str(timed_out)
    if isinstance(error, tenure.LeaseLost):
        assert_type((error.names, error.reason, error.held_for), tuple[tuple[str, ...], LossReason, float])
    if isinstance(error, tenure.NotHeld | tenure.AlreadyHeld | tenure.NameConflict):
        assert_type(error.names, tuple[str, ...])
    if isinstance(error, tenure.StaleFence):
        assert_type((error.fence, error.seen), tuple[int, int])
    if isinstance(error, tenure.QuorumFailed):
        assert_type(error.nodes, dict[str, str])
    if isinstance(error, tenure.ServerError):
        assert_type((error.node, error.cause), tuple[str | None, str | None])
    return str(error)


def are_what_one_would_catch(
    config: tenure.ConfigError, down: tenure.ServerUnavailable, denied: tenure.PermissionDenied
) -> tuple[ValueError, ConnectionError, PermissionError]:
    read_only: tenure.ServerError = tenure.ServerReadOnly("", node="h:7", cause="READONLY")
    assert_type(read_only.node, str | None)
    return config, down, denied


def released(how: tenure.Released) -> Literal["free", "lost"]:
    match how:
        case tenure.Released.RELEASED:
            return "free"
        case tenure.Released.GONE | tenure.Released.TAKEN:
            return "lost"


# What a type checker has to refuse


def mistakes(locks: tenure.Locks, async_locks: tenure.AsyncLocks) -> None:
    locks.lock("x", 30)  # type: ignore[arg-type]
    locks.lock(42)  # type: ignore[arg-type]
    locks.lock("x", ttl="30")  # type: ignore[arg-type]
    locks.lock("x", ttl=None)  # type: ignore[arg-type]
    locks.lock("x", cancel_on_lost=True)  # type: ignore[call-arg]
    locks.lock("x", on_exit_lost="ignore")  # type: ignore[arg-type]
    locks.lock("x", on_lost=lambda: None)  # type: ignore[arg-type, misc]
    locks.lock("x").acquire(5)  # type: ignore[call-arg]
    with async_locks.lock("x"):  # type: ignore[attr-defined]
        pass


__version__: str = tenure.__version__
