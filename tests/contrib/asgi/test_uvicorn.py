# ruff: noqa: ANN401 - the types of ASGI are wide
"""Two real servers, and clients whose connections are cut or half-open."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

import tenure
from tenure.contrib.asgi import LockMiddleware, Rule
from tenure.contrib.asgi.rules import WAIT
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def append(path: Path, part: bytes) -> int:
    """Adds to a file, and tells how long it is."""
    with path.open("ab") as file:
        file.write(part)
        return file.tell()


def serve(url: str, namespace: str, folder: str) -> None:
    """A server that stores bodies as files; below /slow they are taken over, below /quick nobody waits."""
    locks = tenure.AsyncLocks(url, namespace=namespace)

    async def store(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = Path(folder, scope["path"].rpartition("/")[2])
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            append(path, message["body"])
            if not message["more_body"]:
                break
        body = b"%d" % append(path, b"")
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    # A hundred times what is waited by default: a server may stand still between its answer and its release.
    plain = LockMiddleware(store, locks=locks, rules=[Rule("/plain/{name}", ["{name}"])], wait=100 * WAIT)
    quick = LockMiddleware(plain, locks=locks, rules=[Rule("/quick/{name}", ["{name}"])], wait=0, show_holder=True)
    app = LockMiddleware(quick, locks=locks, rules=[Rule("/slow/{name}", ["{name}"])], wait=60, takeover=True)
    listener = socket.create_server(("127.0.0.1", 0))
    say(listener.getsockname()[1])
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


class Client:
    """A connection with one request on it, whose body need not come to its end."""

    def __init__(self, port: int, path: str, body: bytes, *, length: int | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        head = f"PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length or len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def answer(self) -> tuple[int, bytes]:
        """The response as soon as it is there, without waiting for the end of the connection."""
        with self.socket, self.socket.makefile("rb") as file:
            status = int(file.readline().split()[1])
            length = 0
            while line := file.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            return status, file.read(length)


@pytest.fixture
def ports(url: str, namespace: str, tmp_path: Path) -> Iterator[list[int]]:
    with (
        Worker.start(serve, url, namespace, str(tmp_path)) as one,
        Worker.start(serve, url, namespace, str(tmp_path)) as two,
    ):
        yield [int(one.read_line(60)), int(two.read_line(60))]


def test_a_client_is_not_refused_because_of_its_own_last_request(ports: list[int]) -> None:
    answers = [Client(ports[number % 2], "/plain/a", b"1").answer() for number in range(40)]
    assert answers == [(200, b"%d" % size) for size in range(1, 41)]


@pytest.fixture
def locks(url: str, namespace: str) -> Iterator[tenure.Locks]:
    with tenure.Locks(url, namespace=namespace) as made:
        yield made


def test_requests_of_two_servers(ports: list[int], locks: tenure.Locks, tmp_path: Path) -> None:
    one, two = ports

    def stored(name: str, size: int) -> None:
        path = tmp_path / name
        wait_until(lambda: path.exists() and path.stat().st_size == size, 30, f"{size} bytes of {name}")

    half_open = Client(one, "/slow/a", b"1234", length=100)
    stored("a", 4)
    refused = Client(two, "/quick/a", b"x")
    status, body = refused.answer()
    assert status == 423
    assert json.loads(body)["holder"]["info"] == {"operation": "put"}

    assert Client(two, "/slow/a", b"56789").answer() == (200, b"9"), (
        "it goes on where the other one has been asked to end"
    )
    assert half_open.answer() == (200, b"4"), "what the other one has stored is the answer of its application"

    with locks.lock("b", ttl=60) as lease:
        gone = Client(one, "/slow/b", b"1234")
        wait_until(lambda: len(locks.waiters("b")) == 1, 30, "it to wait")
        gone.socket.close()
        wait_until(lambda: not locks.waiters("b"), 30, "it to leave the queue when its client goes away")
        waits = Client(two, "/slow/b", b"1" * 200_000)
        wait_until(lambda: lease.asked is not None, 30, "the holder to be asked")
    assert waits.answer() == (200, b"200000"), "all of the body, after it has waited"
    wait_until(lambda: not locks.list(), 30, "the last lease to be given back, after its answer")
