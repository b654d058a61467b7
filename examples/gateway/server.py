"""One gateway, `python -m examples.gateway.server`: says its address first, and ends when its input does."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import socket
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import socketio  # pyright: ignore[reportMissingTypeStubs] - it has no types
import uvicorn
from socketio.exceptions import TimeoutError as Unanswered  # pyright: ignore[reportMissingTypeStubs]
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import tenure
from tenure.contrib.socketio import DeviceLeases

from .jobs import Sweep
from .journal import Journal
from .naive import NaiveDevices
from .records import Records

if TYPE_CHECKING:
    from starlette.requests import Request

    from tenure.contrib.socketio import Connection

    from .naive import NaiveConnection

ANSWER_SECONDS = 3.0
"""How long a device may take to answer before its connection counts as one that no longer hears."""
ROUTE_SECONDS = 10.0
"""How long a command for a device is tried; it may be moving to another server."""


def device_of(environ: dict[str, Any], auth: dict[str, str] | None) -> str | None:
    """Here devices say who they are; elsewhere this checks a password or a certificate."""
    del environ
    return auth.get("device") if auth else None


class Gateway:
    """One server: connections of devices, their records, commands for them, and a scheduled job."""

    def __init__(self, url: str, chosen: argparse.Namespace) -> None:
        self.url = url
        self.locks = tenure.AsyncLocks(chosen.locks, namespace=chosen.namespace, identity=url)
        self.records = Records(chosen.database, delay=chosen.database_delay, fenced=not chosen.without_fence)
        self.journal = Journal(chosen.journal, url)
        self.sio: Any = socketio.AsyncServer(
            async_mode="asgi", ping_interval=chosen.heartbeat, ping_timeout=chosen.patience, cors_allowed_origins="*"
        )
        self.sio.on("status", self._status)
        self.leases: DeviceLeases | NaiveDevices
        if chosen.without_lock:
            self.leases = NaiveDevices(
                self.sio, self.records, device_of, server=url,
                on_connect=self._online, on_disconnect=self._offline,
            )  # fmt: skip
        else:
            self.leases = DeviceLeases(
                self.sio, self.locks, device_of, server=url, slack=chosen.slack, takeover=chosen.takeover,
                on_connect=self._online, on_disconnect=self._offline,
            )  # fmt: skip
        self.sweep = Sweep(self.locks, self.records, url, every=chosen.job_every, once=not chosen.without_lock)
        self.here = self.forwarded = 0
        self._http: aiohttp.ClientSession | None = None
        routes = [
            Route("/devices/{device}/command", self._command, methods=["POST"]),
            Route("/connections/{sid}/command", self._command_here, methods=["POST"]),
            Route("/status", self._look),
        ]
        self.app = socketio.ASGIApp(self.sio, Starlette(routes=routes))

    # The record

    async def _online(self, connection: Connection | NaiveConnection) -> None:
        self.journal.began(connection)
        fence = connection.lease.fence if connection.lease is not None else 0
        await self.records.online(connection.device, self.url, connection.sid, fence or 1)

    async def _offline(self, connection: Connection | NaiveConnection) -> None:
        self.journal.ended(connection)
        fence = connection.lease.fence if connection.lease is not None else 0
        await self.records.offline(connection.device, connection.sid, fence or 1)

    async def _status(self, sid: str, data: Any) -> None:  # noqa: ANN401 - whatever a device says
        del data
        connection = self.leases.connection(sid)
        if connection is not None:
            fence = connection.lease.fence if connection.lease is not None else 1
            await self.records.seen(connection.device, fence)

    # Commands for devices

    async def _command(self, request: Request) -> JSONResponse:
        """Goes to whichever server has the device; waits for a device that is just moving."""
        device = request.path_params["device"]
        body = await request.json()
        try:
            async with asyncio.timeout(ROUTE_SECONDS):
                async for owner in self.leases.watch(device):
                    while owner is not None:
                        answer = await self._sent_to(owner.server, owner.sid, body)
                        if answer is not None:
                            return JSONResponse({"server": owner.server, "answer": answer})
                        # It has moved meanwhile, or does not hear: look where it is now.
                        await asyncio.sleep(0.1)
                        owner = await self.leases.owner(device)  # noqa: PLW2901
        except TimeoutError:
            pass
        return JSONResponse({"error": "the device cannot be reached"}, 503, {"Retry-After": "1"})

    async def _sent_to(self, server: str, sid: str, body: Any) -> Any:  # noqa: ANN401 - JSON
        if server == self.url:
            self.here += 1
            return await self._sent_here(sid, body)
        assert self._http is not None  # noqa: S101 - for the type checker
        self.forwarded += 1
        try:
            async with self._http.post(f"{server}/connections/{sid}/command", json=body) as answer:
                return (await answer.json())["answer"] if answer.ok else None
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _sent_here(self, sid: str, body: Any) -> Any:  # noqa: ANN401 - JSON
        connection = self.leases.connection(sid)
        if connection is None or not (connection.lease is None or connection.lease.valid):
            return None
        try:
            return await self.sio.call("command", body, to=sid, timeout=ANSWER_SECONDS)
        except Unanswered:
            return None

    async def _command_here(self, request: Request) -> JSONResponse:
        answer = await self._sent_here(request.path_params["sid"], await request.json())
        return JSONResponse({"answer": answer}, 409 if answer is None else 200)

    async def _look(self, request: Request) -> JSONResponse:
        del request
        return JSONResponse(
            {
                "connections": {
                    c.device: c.lease.remaining() if c.lease is not None else None for c in self.leases.connections
                },
                "unwritten": self.journal.open - len(self.leases.connections) + self.records.pending,
                "refused": self.records.refused,
                "here": self.here,
                "forwarded": self.forwarded,
                "ran": self.sweep.ran,
                "skipped": self.sweep.skipped,
                "last_skip": self.sweep.last_skip,
            }
        )

    # Life of the process

    async def serve(self, listening: socket.socket) -> None:
        """Serves until the process's input ends; then the devices are sent elsewhere first."""
        server = uvicorn.Server(
            uvicorn.Config(self.app, log_level="warning", lifespan="off", ws="wsproto", timeout_graceful_shutdown=5)
        )
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_SECONDS + 1)) as self._http:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            helpers = [asyncio.create_task(self.sweep.repeat()), asyncio.create_task(self.journal.sample(self.leases))]
            await asyncio.to_thread(_say, {"url": self.url})
            loop.add_reader(sys.stdin.fileno(), ended.set)
            await asyncio.wait([serving, asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
            for helper in helpers:
                helper.cancel()
            await self.leases.close()
            server.should_exit = True
            await serving
            await self.locks.close()


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    """Runs one gateway."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locks", help="URL of the lock server")
    parser.add_argument("--namespace", default="gateway")
    parser.add_argument("--database", required=True, help="an SQLite file, or what psycopg connects to")
    parser.add_argument("--journal", required=True, help="where it is written who owned a device from when to when")
    parser.add_argument("--heartbeat", type=int, default=25)
    parser.add_argument("--patience", type=int, default=20, help="seconds until python-socketio misses a ping's answer")
    parser.add_argument("--slack", type=float, default=10)
    parser.add_argument("--takeover", type=float, default=5)
    parser.add_argument("--job-every", type=float, default=5)
    parser.add_argument("--database-delay", type=float, default=0)
    parser.add_argument("--without-lock", action="store_true")
    parser.add_argument("--without-fence", action="store_true")
    logging.basicConfig(level=logging.WARNING)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    gateway = Gateway(f"http://127.0.0.1:{listening.getsockname()[1]}", parser.parse_args())
    asyncio.run(gateway.serve(listening))


if __name__ == "__main__":
    main()
