"""One run of the example: uploads through a load balancer, while connections are cut and servers come and go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import statistics
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .parts import Bucket, start_client, start_s3, start_server, until
from .proxy import Cut, Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
    from pathlib import Path

    from .parts import Part

MIB = 1024 * 1024
SIZES = (12 * MIB + 1, 3 * MIB + 777, 7 * MIB, 6 * MIB + 13, 11 * MIB, 4 * MIB + 5)
# What happens to each upload, in turn. The short time-outs end while the upload goes on elsewhere.
PLANS = (
    (Cut(0.15, "half-open"), Cut(0.55, "half-open", linger=1.5)),
    (Cut(0.3, "half-open", linger=1.0), Cut(0.7, "half-open")),
    (Cut(0.2, "cut"), Cut(0.6, "half-open")),
)
RATE = 3 * MIB
CLIENTS = ("tuspy", "tus-js-client")
# Servers get their client of the lock server in each of the ways that there are.
LIBRARIES = ("", "redis", "valkey")
RUN_SECONDS = 180.0
END_SECONDS = 10.0
"""How long a server may take to end a request that it has handed over; less than a half-open connection stays."""


@dataclass
class Sent:
    """One file and the client that uploads it."""

    file: Path
    content: bytes
    client: Part
    uid: str = ""


@dataclass
class Result:
    """What a run has shown."""

    uploads: int
    size: int
    """Bytes of all uploads."""
    finished: int = 0
    """Clients that ended well."""
    identical: int = 0
    """Uploads whose object is the file byte by byte, and whose offset is its length."""
    damage: list[str] = field(default_factory=list[str])
    cuts: int = 0
    half_open: int = 0
    without_progress: int = 0
    """PATCH requests that were cut or left half-open and of which nothing was saved."""
    sent_twice: int = 0
    """Bytes that were sent again after a cut."""
    lost_with_server: int = 0
    """Bytes that were sent again after a server had ended."""
    timed_out: int = 0
    """Half-open connections that had to wait for their time-out while uploads were in progress."""
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    """Responses that clients have seen, by method and status."""
    servers_added: int = 0
    servers_killed: int = 0
    servers_removed: int = 0
    seconds_to_resume: list[float] = field(default_factory=list[float])

    def seen(self, status: int) -> int:
        """How many responses with this status clients have seen."""
        return sum(count for key, count in self.statuses.items() if key.endswith(f" {status}"))

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        found = list(self.damage)
        if self.identical != self.uploads:
            found.append(f"{self.identical} of {self.uploads} uploads are byte-identical")
        found += [f"clients saw {status}" for status in (423, 409, 503) if self.seen(status)]
        if self.sent_twice >= self.size / 10:
            found.append(f"{self.sent_twice} bytes had arrived, were not saved, and were sent again")
        if self.timed_out:
            found.append(f"{self.timed_out} half-open connections had to wait for their time-out")
        return found

    def figures(self) -> dict[str, Any]:
        """The result as JSON."""
        resumed = sorted(self.seconds_to_resume)
        return {
            "uploads": self.uploads,
            "finished": self.finished,
            "byte_identical": self.identical,
            "cut": self.cuts,
            "left_half_open": self.half_open,
            "half_open_until_time_out": self.timed_out,
            "cut_without_progress": self.without_progress,
            "bytes_sent_again": {"after_cuts": self.sent_twice, "after_ends_of_servers": self.lost_with_server},
            "servers": {"added": self.servers_added, "killed": self.servers_killed, "removed": self.servers_removed},
            "seen_by_clients": {"423": self.seen(423), "409": self.seen(409), "503": self.seen(503)},
            "seconds_from_cut_to_resumed_byte": {
                "median": round(statistics.median(resumed), 3) if resumed else None,
                "max": round(resumed[-1], 3) if resumed else None,
                "count": len(resumed),
            },
            "responses": dict(sorted(self.statuses.items())),
            "damage": self.damage,
        }


class World:
    """All parts; use `World.open`.

    Args:
        folder: for files and logs.
        modules: where node finds tus-js-client; "" to do without it.
        url: the lock server; "" for the embedded one.
        ttl: how long an upload stays locked when its server dies.
        wait: how long a request waits for the one in progress.
        without_lock: the servers take no locks, to show what these prevent.
        sizes: of the uploads.
    """

    def __init__(  # noqa: PLR0913 - all but two by keyword
        self,
        folder: Path,
        modules: str,
        *,
        url: str = "",
        ttl: float = 8,
        wait: float = 30,
        without_lock: bool = False,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self.folder = folder
        self.proxy = Proxy(RATE, (list(plan) for plan in itertools.cycle(PLANS)))
        self.servers: dict[int, Part] = {}
        self._leaving: list[Part] = []
        self.sent: list[Sent] = []
        self.news: list[str] = []
        self.result = Result(len(sizes), sum(sizes))
        self.url = ""
        self._modules = modules
        self._sizes = sizes
        self._env = {"UPLOADS_TTL": str(ttl), "UPLOADS_WAIT": str(wait)}
        self._without_lock = without_lock
        if without_lock:
            self._env["UPLOADS_WITHOUT_LOCK"] = "1"
        if url:
            self._env["TENURE_URL"] = url
        self._libraries = itertools.cycle(LIBRARIES if url or "TENURE_URL" in os.environ else [""])
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """A block in which three servers run behind the proxy; `url` is where clients go."""
        s3 = await start_s3(self.folder)
        self.bucket = Bucket(s3.port)
        try:
            self._env |= self.bucket.env
            await asyncio.to_thread(self.bucket.create)
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(self.add_server())
            async with self.proxy.listening() as port:
                self.url = f"http://127.0.0.1:{port}/files"
                yield
        finally:
            self.bucket.close()
            parts = [*(sent.client for sent in self.sent), *self.servers.values(), *self._leaving, s3]
            await asyncio.gather(*(part.end(signal.SIGKILL) for part in parts))

    # Servers

    async def add_server(self, **env: str) -> Part:
        """One more server behind the proxy; with settings of its own, if you like."""
        library, number = next(self._libraries), next(self._numbers)
        server = await start_server(f"server-{number}", self.folder, self._env | {"UPLOADS_CLIENT": library} | env)
        self.servers[server.port] = server
        self.proxy.servers.append(server.port)
        self.news.append(f"{server.name} added ({library or 'url'})")
        return server

    async def kill_server(self) -> None:
        """Kills a server that receives uploads. The proxy finds out when it cannot connect.

        Not one that saves: tuspyserver writes parts and offset one after the other, and no lock can make that one step.
        """
        try:
            while not self._all_ended():
                receiving = [port for port in self.proxy.receiving() if port in self.servers]
                # The same one for as long as it receives: spared, it will soon do nothing else.
                if self.proxy.spared not in receiving:
                    self.proxy.spared = receiving[0] if receiving else 0
                port = self.proxy.spared
                if port and self.proxy.only_receives(port):
                    self.servers[port].process.kill()
                    self.result.servers_killed += 1
                    await self._gone(self.servers[port], "killed")
                    return
                await asyncio.sleep(0.01)
        finally:
            self.proxy.spared = 0

    @property
    def running(self) -> int:
        """How many server processes there are, with those that are about to end."""
        return sum(server.running for server in (*self.servers.values(), *self._leaving))

    async def remove_server(self) -> None:
        """Takes a server away with SIGTERM; it hands over what it is receiving."""
        others = [port for port in (*self.proxy.receiving(), *self.servers) if port != self.proxy.spared]
        self.result.servers_removed += 1
        await self._gone(self.servers[next(port for port in others if port in self.servers)], "removed")

    async def _gone(self, server: Part, how: str) -> None:
        self.news.append(f"{server.name} {how}")
        del self.servers[server.port]
        self._leaving.append(server)
        await server.end()
        self.proxy.servers.remove(server.port)

    # The run

    async def run(self) -> Result:
        """Uploads all files, with trouble; returns what came of it."""
        await self._start_clients()
        trouble = asyncio.ensure_future(self._trouble())
        try:
            await until(self._all_ended, RUN_SECONDS, "the uploads to end")
        except TimeoutError as error:
            self.result.damage.append(str(error))
            await asyncio.gather(*(sent.client.end(signal.SIGKILL) for sent in self.sent))
        finally:
            trouble.cancel()
            await asyncio.wait({trouble})
        if not trouble.cancelled():
            trouble.result()
        half_open = {
            exchange for exchange in self.proxy.exchanges if exchange.half_open and exchange.upload is not None
        }
        if not self._without_lock:
            with contextlib.suppress(TimeoutError):
                await until(lambda: not half_open & self.proxy.exchanges, END_SECONDS, "the servers to end them")
        self.result.timed_out = sum(exchange.timed_out or exchange in self.proxy.exchanges for exchange in half_open)
        self.proxy.time_out()
        await until(lambda: not self.proxy.exchanges, RUN_SECONDS, "the servers to end all requests")
        await self._check()
        return self.result

    async def _start_clients(self) -> None:
        kinds = itertools.cycle(CLIENTS if self._modules else CLIENTS[:1])
        for number, size in enumerate(self._sizes, 1):
            file = self.folder / f"{number}.bin"
            content = random.Random(number).randbytes(size)  # noqa: S311 - any bytes, the same each time
            file.write_bytes(content)
            client = await start_client(next(kinds), self.url, file, self.folder, self._modules)
            self.sent.append(Sent(file, content, client))

    def progress(self) -> float:
        """How much of all has been sent, 0 to 1."""
        return sum(upload.sent for upload in self.proxy.uploads.values()) / sum(self._sizes)

    def _all_ended(self) -> bool:
        return not any(sent.client.running for sent in self.sent)

    async def _trouble(self) -> None:
        steps = ((0.15, self._one_more), (0.25, self.kill_server), (0.35, self._one_more), (0.45, self.remove_server))
        async with asyncio.TaskGroup() as group:
            for share, step in steps:
                group.create_task(self._after(share, step))

    async def _after(self, share: float, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await until(lambda: self.progress() >= share, RUN_SECONDS, f"{share:.0%} of the bytes")
        await step()

    async def _one_more(self) -> None:
        self.result.servers_added += 1
        await self.add_server()

    # What came of it

    async def _check(self) -> None:
        result, proxy = self.result, self.proxy
        result.cuts, result.half_open = proxy.cuts["cut"], proxy.cuts["half-open"]
        result.seconds_to_resume = proxy.resumed
        result.statuses = {f"{method} {status}": count for (method, status), count in proxy.statuses.items()}
        for piece, then in [pair for upload in proxy.uploads.values() for pair in itertools.pairwise(upload.pieces)]:
            again = max(0, piece.sent - then.began)
            if piece.end == "server":
                result.lost_with_server += again
            else:
                result.sent_twice += again
                result.without_progress += then.began <= piece.began
        keys = await asyncio.to_thread(self.bucket.keys)
        for sent in self.sent:
            name = sent.client.name
            if sent.client.process.returncode != 0:
                result.damage.append(f"{name} failed: {sent.client.written()}")
                continue
            result.finished += 1
            sent.uid = sent.client.written().strip().rsplit("/", 1)[-1]
            damage = await self._damage(sent, keys)
            result.damage += [f"{name}: {what}" for what in damage]
            result.identical += not damage

    async def _damage(self, sent: Sent, keys: set[str]) -> list[str]:
        content = await asyncio.to_thread(self.bucket.read, sent.uid)
        found: list[str] = []
        if content is None:
            found.append("the server said that it is finished, and there is no object")
        elif content != sent.content:
            found.append(f"the object is not the file: {len(content)} bytes instead of {len(sent.content)}")
        offset = await asyncio.to_thread(head_offset, f"{self.url}/{sent.uid}")
        if offset != len(sent.content):
            found.append(f"finished, and yet the server says that it goes on at {offset}")
        found += [
            f"{key} is left over" for key in sorted(keys) if key in {f"tus/{sent.uid}.mpu", f"tus/{sent.uid}.part"}
        ]
        return found


def head_offset(url: str) -> int:
    """Where an upload goes on, as a server says; -1 when it says nothing of the kind."""
    request = urllib.request.Request(url, method="HEAD", headers={"Tus-Resumable": "1.0.0"})  # noqa: S310 - our own
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return int(response.headers.get("Upload-Offset", -1))
    except OSError:
        return -1
