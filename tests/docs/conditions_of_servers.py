"""How to get into each situation of docs/errors.md that is the server's fault: a function for every row."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import redis

import tenure
from tests.docs.conditions import case, holding
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    from tests.docs.conditions import World


@case("the server is down")
def _(world: World) -> None:
    # Not a port that was free a moment ago: a server of another test may get it.
    world.take("redis://127.0.0.1:1/0")


@case("the host has no address")
def _(world: World) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # A real look-up of such a name takes long on a machine whose name server is out of reach.
    monkeypatch: pytest.MonkeyPatch = world.request.getfixturevalue("monkeypatch")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    world.take("redis://no-such-host.invalid:6379/0")


@case("the unix socket is not there")
def _(world: World) -> None:
    world.take("unix:///nonexistent/socket")


@case("the server does not answer")
def _(world: World) -> None:
    world.server.pause()
    try:
        world.take()
    finally:
        world.server.resume()


_ENDLESS = "while redis.call('TIME')[1] - ARGV[1] < 60 do end"


@case("the server runs a long script")
def _(world: World) -> None:
    def run() -> None:
        with contextlib.suppress(redis.RedisError):  # it is killed below
            world.server.client(socket_timeout=60).eval(_ENDLESS, 0, str(int(time.time())))

    def busy() -> bool:
        try:
            world.server.command("PING")
        except redis.RedisError as error:
            return "busy" in str(error).lower()
        return False

    with world.server.configured(busy_reply_threshold=10):
        script = threading.Thread(target=run)
        script.start()
        try:
            wait_until(busy, 30, "the script to run")
            world.take()
        finally:
            world.server.command("SCRIPT", "KILL")
            script.join()


@contextlib.contextmanager
def replica(world: World) -> Generator[None]:
    """The server as a replica of one that is not there."""
    world.server.command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        world.server.command("REPLICAOF", "NO", "ONE")


@case("the replica has lost its primary")
def _(world: World) -> None:
    with world.server.configured(replica_serve_stale_data="no"), replica(world):
        world.take()


@case("too few replicas for a write")
def _(world: World) -> None:
    with world.server.configured(min_replicas_to_write=1):
        world.take()


@case("no connection is left")
def _(world: World) -> None:
    world.server.command("PING")
    with world.server.configured(maxclients=1):
        world.take()


@case("the server is read-only")
def _(world: World) -> None:
    with replica(world):
        world.take()


@case("the server's memory is full")
def _(world: World) -> None:
    with world.server.configured(maxmemory=1, maxmemory_policy="noeviction"):
        world.take()


@case("wrong password")
def _(world: World) -> None:
    world.server.acl_user("me", "right", "~*", "&*", "+@all")
    world.take(world.url("me:wrong@"))


@case("no password where one is needed")
def _(world: World) -> None:
    world.server.command("PING")
    world.server.command("CONFIG", "SET", "requirepass", "secret")
    try:
        world.take(world.url())
    finally:
        world.server.command("CONFIG", "SET", "requirepass", "")


@case("a password where none is set")
def _(world: World) -> None:
    world.take(world.url(":secret@"))


@case("the database does not exist")
def _(world: World) -> None:
    world.take(world.url(database=99))


@case("a command is not permitted")
def _(world: World) -> None:
    world.take(world.server.acl_user("me", "p", "~*", "&*", "+@all", "-evalsha"))


@case("a key is not permitted")
def _(world: World) -> None:
    world.take(world.server.acl_user("me", "p", "~other:*", "&*", "+@all"))


@case("the inbox channel is not permitted, and somebody has to wait")
def _(world: World) -> None:
    with holding(world):
        world.take(world.server.acl_user("me", "p", "~*", "resetchannels", "+@all"), wait=30)


@case("plain connection to a TLS port")
def _(world: World) -> None:
    world.take(f"redis://localhost:{world.tls.tls_port}/0")


@case("TLS connection to a plain port")
def _(world: World) -> None:
    world.take(world.url(scheme="rediss"))


@case("the certificate is not the expected one")
def _(world: World) -> None:
    world.take(f"rediss://localhost:{world.tls.tls_port}/0?ssl_ca_certs={world.certificates.wrong_ca}")


@case("the key holds a list")
def _(world: World) -> None:
    world.server.command("RPUSH", "tenure:n", "x")
    world.take()


@case("the key holds a lock of a newer format")
def _(world: World) -> None:
    world.store("tenure:n", "tenure2:unknown")
    world.take()


@case("the queue key holds a string")
def _(world: World) -> None:
    world.store("{tenure:n}:queue", "x")
    world.take()


@case("the fence key is far ahead of the clock")
def _(world: World) -> None:
    world.store("{tenure:n}:fence", "9" * 18)
    world.take()


@case("`break_lock` on a key of another library")
def _(world: World) -> None:
    world.store("tenure:n", "their release token")
    with tenure.Locks(world.server.url) as locks:
        locks.break_lock("n")
