"""Row 14: the interpreter ends while locks are held or waited for, in order or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.programs import EXIT, Program, expect_end
from tests.faults.support import FLAVOURS, Driver, key_fence, queue_length, traces, wait_queued

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)

HOLDS = Program(
    """
locks = tenure.Locks(url, namespace=namespace)
lease = locks.lock("precious").acquire()
ready()
sys.stdin.readline()
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    global lease
    lease = await locks.lock("precious").acquire()

asyncio.run(main())
ready()
sys.stdin.readline()
""",
)

HOLDS_MANY = Program(
    """
locks = tenure.Locks(url, namespace=namespace)
leases = [locks.lock(f"precious {number}").acquire() for number in range(100)]
ready()
sys.stdin.readline()
renew_now(*leases)
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    global leases
    leases = await asyncio.gather(*(locks.lock(f"precious {number}").acquire() for number in range(100)))

asyncio.run(main())
ready()
sys.stdin.readline()
renew_now(*leases)
""",
)

ENDS: dict[str, Program] = {
    "closed in order": Program(
        """
with tenure.Locks(url, namespace=namespace) as locks, tenure.Locks(url, namespace=namespace) as others:
    with locks.lock("precious") as lease:
        assert others.lock("precious").try_acquire(0.1) is None
        waiter = threading.Thread(target=lambda: others.lock("precious").acquire().release())
        waiter.start()
        renew_now(lease)
        time.sleep(0.1)
    waiter.join()
ready()
""",
        """
async def main():
    async with tenure.AsyncLocks(url, namespace=namespace) as locks:
        async with tenure.AsyncLocks(url, namespace=namespace) as others:
            async with locks.lock("precious") as lease:
                assert await others.lock("precious").try_acquire(0.1) is None
                waiter = asyncio.create_task(others.lock("precious").acquire())
                renew_now(lease)
                await asyncio.sleep(0.1)
            await (await waiter).release()

asyncio.run(main())
ready()
""",
    ),
    "never closed": Program(
        """
locks = tenure.Locks(url, namespace=namespace)
with locks.lock("precious") as lease:
    assert tenure.Locks(url, namespace=namespace).lock("precious").try_acquire(0.1) is None
    renew_now(lease)
ready()
""",
        """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    async with locks.lock("precious") as lease:
        assert await tenure.AsyncLocks(url, namespace=namespace).lock("precious").try_acquire(0.1) is None
        renew_now(lease)

asyncio.run(main())
ready()
""",
    ),
    "holding": HOLDS,
    "holding many, hub busy": HOLDS_MANY,
    "sys.exit in the body": Program(
        """
locks = tenure.Locks(url, namespace=namespace)
with locks.lock("precious"):
    ready()
    sys.exit(3)
""",
        """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    async with locks.lock("precious"):
        ready()
        sys.exit(3)

asyncio.run(main())
""",
        code=3,
    ),
    "error in the body": Program(
        """
locks = tenure.Locks(url, namespace=namespace)
with locks.lock("precious"):
    ready()
    raise RuntimeError("of the program")
""",
        """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    async with locks.lock("precious"):
        ready()
        raise RuntimeError("of the program")

asyncio.run(main())
""",
        code=1,
        error="RuntimeError: of the program",
    ),
    "error while holding": Program(
        """
locks = tenure.Locks(url, namespace=namespace)
lease = locks.lock("precious").acquire()
ready()
raise RuntimeError("of the program")
""",
        """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    global lease
    lease = await locks.lock("precious").acquire()
    ready()
    raise RuntimeError("of the program")

asyncio.run(main())
""",
        code=1,
        error="RuntimeError: of the program",
    ),
}


@BOTH
@pytest.mark.parametrize("ending", ENDS)
def test_row_14_the_end_of_a_program_gives_back_what_it_holds(
    valkey_server: Server, namespace: str, flavour: Flavour, ending: str
) -> None:
    """Row 14: in time, with the program's own exit code, and with nothing else on standard error."""
    program = ENDS[ending]
    with program.start(flavour, valkey_server.url, namespace) as worker:
        ready_at = float(worker.wait_for("ready").split()[1])
        expect_end(worker, program, ready_at)
        # No time passes between the end and the look: nothing here is left to a ttl.
        assert not traces(valkey_server, namespace)


@BOTH
@pytest.mark.parametrize(("how", "program"), [("gone", HOLDS), ("frozen", HOLDS_MANY)], ids=["gone", "frozen"])
def test_row_14_without_a_server_the_end_comes_all_the_same(
    private_server: Server, namespace: str, flavour: Flavour, how: str, program: Program
) -> None:
    """Row 14: what cannot be given back is left to its ttl; the exit code stays that of the program."""
    with program.start(flavour, private_server.url, namespace, patient=False) as worker:
        worker.wait_for("ready")
        if how == "gone":
            private_server.kill9()
        else:
            private_server.pause()
        worker.write_line()
        told_at = time.monotonic()
        assert worker.wait() == 0, worker.errors()
        assert time.monotonic() - told_at < EXIT, "the end took too long"
        assert "Exception ignored" not in worker.errors()
        assert "Traceback" not in worker.errors()


# Threads at the end

WAITS = Program(
    """
locks = tenure.Locks(url, namespace=namespace)
for _ in range(3):
    threading.Thread(target=lambda: locks.lock("precious").acquire(), daemon=True).start()
sys.stdin.readline()
ready()
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    await asyncio.gather(*(locks.lock("precious").acquire() for _ in range(3)))

threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
sys.stdin.readline()
ready()
""",
)


@BOTH
def test_row_14_daemon_threads_that_wait_leave_the_queue(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Row 14: a program that ends is not handed a lock any more, and its sleeping threads neither stop it nor cry."""
    with Driver("blocking", valkey_server.url, namespace) as outside:
        lease = outside.acquire(NAME)
        with WAITS.start(flavour, valkey_server.url, namespace) as worker:
            wait_queued(valkey_server, namespace, NAME, 3)
            worker.write_line()
            ready_at = float(worker.wait_for("ready").split()[1])
            expect_end(worker, WAITS, ready_at)
            assert queue_length(valkey_server, namespace, NAME) == 0, "the dead still queue"
        outside.release(lease)
        assert not traces(valkey_server, namespace)


WORKS_ON = Program(
    """
locks = tenure.Locks(url, namespace=namespace)

def work():
    threading.main_thread().join()
    with locks.lock("precious") as lease:
        ready(lease.fence)
        sys.stdin.readline()
        made_old = lease._hold.deadline = lease._hold.deadline - 20
        renew_now(lease)
        give_up = time.monotonic() + 9
        while lease._hold.deadline == made_old and time.monotonic() < give_up:
            time.sleep(0.01)
        lease.check(15)
        print("renewed", flush=True)
        sys.stdin.readline()
        with tenure.Locks(url, namespace=namespace) as others:
            # Waiting needs a hub of its own, started when the main thread has long ended.
            assert others.lock("precious").try_acquire(0.1) is None

threading.Thread(target=work).start()
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)

async def main():
    async with locks.lock("precious") as lease:
        ready(lease.fence)
        # No executor runs anything any more when the main thread has ended.
        told = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, told.set)
        await told.wait()
        asyncio.get_running_loop().remove_reader(sys.stdin)
        made_old = lease._hold.deadline = lease._hold.deadline - 20
        renew_now(lease)
        give_up = time.monotonic() + 9
        while lease._hold.deadline == made_old and time.monotonic() < give_up:
            await asyncio.sleep(0.01)
        lease.check(15)
        print("renewed", flush=True)
        sys.stdin.readline()
        sys.stdin.readline()
        async with tenure.AsyncLocks(url, namespace=namespace) as others:
            assert await others.lock("precious").try_acquire(0.1) is None

def work():
    threading.main_thread().join()
    asyncio.run(main())

threading.Thread(target=work).start()
""",
)


@BOTH
def test_row_14_a_thread_that_works_on_keeps_its_lease(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """Row 14: the main thread's end is not the program's: a lease taken after it is renewed and given back."""
    with WORKS_ON.start(flavour, valkey_server.url, namespace) as worker:
        fence = int(worker.wait_for("ready").split()[2])
        worker.write_line()
        worker.wait_for("renewed")
        assert key_fence(valkey_server, namespace, NAME) == fence
        worker.write_line()
        expect_end(worker, WORKS_ON, time.monotonic())
        assert not traces(valkey_server, namespace)
