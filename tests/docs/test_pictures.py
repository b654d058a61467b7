"""The pictures are current, and tell of the requests that are really sent."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ET  # of our own making
from typing import TYPE_CHECKING

import pytest

import tenure
from docs import pictures
from tenure.core import lease_state, scripts
from tests.docs.pages import ROOT
from tests.harness.commands import Monitor
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.harness.servers import Server

SCRIPTS = (scripts.ACQUIRE, scripts.RELEASE, scripts.WITHDRAW, scripts.RENEW, scripts.ANNOUNCE)
PATIENCE = 30
"""No request is sent again because a slow machine has let its time-out pass."""
NAMES = {key: script.name for script in SCRIPTS for key in (script.sha, script.text)}


@pytest.mark.parametrize(("name", "content"), pictures.pictures().items(), ids=lambda value: str(value)[:24])
def test_a_picture_is_current(name: str, content: str) -> None:
    stored = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
    assert stored == content, "draw it anew: python docs/pictures.py"
    assert ET.fromstring(content).tag.endswith("svg")  # noqa: S314 - drawn above


def test_no_picture_is_left_over() -> None:
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == set(pictures.pictures())


def test_every_picture_is_shown() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for name in pictures.pictures():
        assert f"pictures/{name})" in text


def test_a_new_state_or_transition_asks_for_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    state = lease_state.State
    monkeypatch.setitem(lease_state.TRANSITIONS, state.LOST, frozenset({state.HELD}))
    with pytest.raises(ValueError, match="REASONS"):
        pictures.states()


def told(story: pictures.Story) -> list[str]:
    """The requests of a story, in order."""
    return [step.what for step in story.steps if step.receiver == "server" and not step.answer]


def sent(monitor: Monitor) -> list[str]:
    """The scripts and subscriptions that were asked for, in the server's order."""
    seen: list[str] = []
    for request in monitor.requests():
        command = request.args[0].lower()
        if command in (b"eval", b"evalsha"):
            seen.append(NAMES[request.args[1]])
        elif command == b"ssubscribe":
            seen.append("ssubscribe")
    return seen


def warm(server: Server) -> None:
    """Make the server know the scripts, so that none is sent twice."""
    with tenure.Locks(server.url) as locks:
        for name in ("a", "b"):
            locks.lock(name).acquire().release()


def test_a_free_lock_takes_the_requests_of_the_picture(private_server: Server) -> None:
    warm(private_server)
    with Monitor(private_server) as monitor, tenure.Locks(private_server.url, server_timeout=PATIENCE) as locks:
        with locks.lock("n"):
            pass
        # The hub may or may not have opened its inbox, and announced it, by then.
        asked = [what for what in sent(monitor) if what not in {"ssubscribe", "announce"}]
    assert asked == told(pictures.FREE)


def test_a_held_lock_takes_the_requests_of_the_picture(private_server: Server) -> None:
    warm(private_server)
    holder = tenure.Locks(private_server.url, server_timeout=PATIENCE)
    waiter = tenure.Locks(private_server.url, server_timeout=PATIENCE)

    def wait() -> None:
        with waiter.lock("n", wait=60):
            pass

    with Monitor(private_server) as monitor, holder, waiter:
        lease = holder.lock("n").acquire()
        listening = wait_until(lambda: "ssubscribe" in sent(monitor), 30, "the holder's hub to open its inbox")
        assert listening
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: private_server.command("ZCARD", "{tenure:n}:queue") == 1, 30, "the waiter to have its place")
        lease.release()
        waiting.join(timeout=60)
        # The holder's announcement of its inbox has no place in the story, nor has the subscription before it.
        asked = [what for what in sent(monitor) if what != "announce"]
    asked.remove("ssubscribe")
    assert asked == told(pictures.CONTENDED)
    fences = [step.more for step in pictures.CONTENDED.steps if step.what == "granted"]
    assert "inbox" in fences[-1]
