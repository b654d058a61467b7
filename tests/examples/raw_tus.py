"""Requests to one upload server as they are on the wire, so that a PATCH can stop in the middle."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass

from examples.uploads.parts import unread
from tests.harness.waiting import wait_until

SECONDS = 60.0
TUS = {"Tus-Resumable": "1.0.0"}
# filename a, filetype b
METADATA = "filename YQ==,filetype Yg=="


@dataclass(frozen=True)
class Reply:
    """What a server has answered."""

    status: int
    headers: dict[str, str]


def ask(port: int, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Reply:
    """One whole request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, body, TUS | (headers or {}))
        response = connection.getresponse()
        response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()})
    finally:
        connection.close()


def create(port: int, length: int) -> str:
    """A new upload; its path."""
    reply = ask(port, "POST", "/files", {"Upload-Length": str(length), "Upload-Metadata": METADATA})
    assert reply.status == 201, reply
    return "/files/" + reply.headers["location"].rpartition("/")[2]


def offset(port: int, path: str) -> int:
    """Where an upload goes on."""
    reply = ask(port, "HEAD", path)
    assert reply.status == 200, reply
    return int(reply.headers["upload-offset"])


def patch(port: int, path: str, at: int, body: bytes) -> Reply:
    """A whole PATCH."""
    return ask(port, "PATCH", path, {"Upload-Offset": str(at), "Content-Type": "application/offset+octet-stream"}, body)


def half_patch(port: int, path: str, at: int, body: bytes, sent: int) -> socket.socket:
    """A PATCH of which only a part is sent: its connection, which stays open.

    The server waits for the body now: it has compared the offset with what it knows, and read what was sent.
    """
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    head = (
        f"PATCH {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: {at}\r\n"
        "Content-Type: application/offset+octet-stream\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    connection.sendall(head.encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, said
        said += part
    assert said.startswith(b"HTTP/1.1 100 "), said
    connection.sendall(body[:sent])
    ours, theirs = connection.getsockname()[1], connection.getpeername()[1]
    wait_until(lambda: not unread(ours, theirs), 30, "the server to read what was sent")
    return connection


def answered(connection: socket.socket) -> int:
    """The status that the server answers on such a connection."""
    with connection.makefile("rb") as reading:
        return int(reading.readline().split()[1])
