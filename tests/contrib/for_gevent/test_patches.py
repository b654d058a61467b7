"""What a process may have patched, and when: all that matters and before the first use, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import ROOT, Worker

if TYPE_CHECKING:
    from tests.harness.servers import Server

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
WORKS = """
import sys
import tenure
{patch}
with tenure.Locks(sys.argv[1], namespace=sys.argv[2]) as locks:
    {work}
print("done")
"""
ORDINARY = """
    with locks.lock("n") as lease:
        import threading
        assert any(thread.name == "tenure-hub" for thread in threading.enumerate())
        assert "tenure.runtime.green" not in sys.modules
"""
GREEN = """
    import gevent
    first = locks.lock("n").acquire()
    waiter = gevent.spawn(locks.lock("n", wait=60).acquire)
    while not locks.waiters("n"):
        gevent.sleep(0.01)
    first.release()
    assert waiter.get(timeout=60).release() is tenure.Released.RELEASED
    assert "tenure.runtime.green" in sys.modules
"""
REFUSED = """
import sys
import tenure
{before}
from gevent import monkey
monkey.{patch}
try:
    {what}
except tenure.ConfigError as error:
    print("refused", error)
{after}
"""


def runs(text: str, server: Server, namespace: str, *, quiet: bool = True) -> list[str]:
    """Runs a program to a good end, and returns its lines."""
    # gevent warns of what was imported before it patches: `ssl`, here and in most programs.
    with Worker.start(text, server.url, namespace, env={"PYTHONWARNINGS": "ignore"}) as worker:
        assert worker.wait() == 0, worker.errors()
        assert not quiet or worker.errors() == ""
        return worker.lines


@pytest.mark.parametrize(
    ("patch", "work"),
    [
        ("", ORDINARY + "    assert not [name for name in sys.modules if name.startswith(('gevent', 'greenlet'))]"),
        ("import gevent.monkey", ORDINARY),
        ("from gevent import monkey; monkey.patch_time()", ORDINARY),
        ("from gevent import monkey; monkey.patch_all()", GREEN),
        ("from gevent import monkey; monkey.patch_all(select=False)", GREEN),
        ("from gevent import monkey; monkey.patch_all(time=False, subprocess=False, queue=False)", GREEN),
    ],
)
def test_it_works_with(patch: str, work: str, valkey_server: Server, namespace: str) -> None:
    assert runs(WORKS.format(patch=patch, work=work.strip()), valkey_server, namespace) == ["done"]


@pytest.mark.parametrize(
    ("patch", "patched", "missing"),
    [
        ("patch_socket()", "socket", "threading"),
        ("patch_thread()", "threading", "socket"),
        ("patch_all(thread=False)", "socket, select, selectors", "threading"),
        ("patch_all(socket=False)", "threading, select, selectors", "socket"),
    ],
)
def test_half_of_it_is_refused(patch: str, patched: str, missing: str, valkey_server: Server, namespace: str) -> None:
    text = REFUSED.format(before="", patch=patch, what="tenure.Locks(sys.argv[1])", after="")
    message = (
        f"refused gevent has patched {patched} and not {missing}: "
        f"call gevent.monkey.patch_all(), or leave them all as they are"
    )
    assert runs(text, valkey_server, namespace) == [message]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "tenure.AsyncLocks(sys.argv[1])",
            "gevent has patched threads and sockets: AsyncLocks needs an ordinary event loop; use Locks in greenlets",
        ),
        (
            "tenure.Locks()",
            "no server: pass a URL or a client, or set TENURE_URL (the embedded server needs threads without gevent)",
        ),
    ],
)
def test_what_greenlets_cannot_have(what: str, message: str, valkey_server: Server, namespace: str) -> None:
    text = REFUSED.format(before="", patch="patch_all()", what=what, after="")
    assert runs(text, valkey_server, namespace) == [f"refused {message}"]
    assert f"`{message}`" in PAGE


@pytest.mark.parametrize(
    ("flavour", "used", "patch", "message"),
    [
        ("Locks", "", "patch_socket()", "gevent has patched socket and not threading: "),
        (
            "Locks",
            "locks.lock('n').acquire().release()",
            "patch_thread()",
            "gevent has patched threading and not socket",
        ),
        ("AsyncLocks", "", "patch_all()", "gevent has patched threads and sockets: AsyncLocks needs"),
    ],
)
def test_patches_that_come_after_the_constructor_are_looked_at(
    flavour: str, used: str, patch: str, message: str, valkey_server: Server, namespace: str
) -> None:
    acquire = "locks.lock('m').acquire()" if flavour == "Locks" else "asyncio.run(locks.lock('m').acquire())"
    text = REFUSED.format(
        before=f"import asyncio; locks = tenure.{flavour}(sys.argv[1], namespace=sys.argv[2]); {used}",
        patch=patch,
        what=acquire,
        after="",
    )
    lines = runs(text, valkey_server, namespace, quiet=False)
    assert [line.startswith(f"refused {message}") for line in lines] == [True]


@pytest.mark.parametrize("what", ["locks.lock('m').acquire()", "tenure.Locks(sys.argv[1]).lock('m').acquire()"])
def test_patching_after_the_first_use_is_refused(what: str, valkey_server: Server, namespace: str) -> None:
    text = REFUSED.format(
        before="locks = tenure.Locks(sys.argv[1], namespace=sys.argv[2]); lease = locks.lock('n').acquire()",
        patch="patch_all()",
        what=what,
        after="print(lease.release()); locks.close()",
    )
    # The end of a thread that was started before is a KeyError in `threading`, as for any other one.
    message = "gevent has patched threads after locks were first used in this process; patch before anything else"
    assert runs(text, valkey_server, namespace, quiet=False) == [f"refused {message}", "Released.RELEASED"]
    assert f"`{message}`" in PAGE
