"""Leases that are taken over by another flavour, by another process, and by many who try at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenure
from tests.conformance.flavours import Flavour
from tests.harness.processes import Worker

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks


def test_an_adoption_is_won_by_one_of_many_who_try_at_once(locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
    for _ in range(5):
        text = locks.lock("a", ttl=60).acquire().export()
        trying = [flavour.spawn(client.adopt, text) for client in (locks, others) * 3]
        errors = [future.exception(30) for future in trying]
        (winner,) = [future.result() for future, error in zip(trying, errors, strict=True) if error is None]
        assert {type(error) for error in errors} == {type(None), tenure.LeaseLost}
        winner.check()
        assert winner.release() is tenure.Released.RELEASED


def test_the_other_flavour_takes_it_over(flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks) -> None:
    lease = locks.lock("a", ttl=60).acquire()
    with Flavour("asyncio" if flavour.kind == "blocking" else "blocking") as other:
        mine = other.locks(any_url, namespace=namespace).adopt(lease.export())
        assert mine.fence == lease.raw.fence
        back = locks.adopt(mine.export())
        assert back.release() is tenure.Released.RELEASED


def test_another_process_takes_it_over(locks: AnyLocks, flavour: Flavour, any_url: str, namespace: str) -> None:
    lease = locks.lock("a", ttl=60).acquire()
    fence = lease.fence
    with Worker.start(_ADOPT[flavour.kind], any_url, namespace, lease.export()) as worker:
        assert worker.wait_for("adopted").split() == ["adopted", str(fence)]
        holder = locks.holder("a")
        assert holder is not None
        assert (holder.pid, holder.fence) == (worker.pid, fence)
        worker.write_line()
        assert worker.wait_for("released") == "released Released.RELEASED"
        assert worker.wait() == 0, worker.errors()
    assert not locks.lock("a").locked()


_ADOPT = {
    "blocking": """
import sys, tenure
with tenure.Locks(sys.argv[1], namespace=sys.argv[2]) as locks:
    lease = locks.adopt(sys.argv[3])
    print("adopted", lease.fence, flush=True)
    sys.stdin.readline()
    print("released", lease.release(), flush=True)
""",
    "asyncio": """
import asyncio, sys, tenure
async def main():
    async with tenure.AsyncLocks(sys.argv[1], namespace=sys.argv[2]) as locks:
        lease = await locks.adopt(sys.argv[3])
        print("adopted", lease.fence, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("released", await lease.release(), flush=True)
asyncio.run(main())
""",
}
