"""Some devices, as real Socket.IO clients: `python -m examples.gateway.devices`; told what to do on its input.

In a storm a device moves to another server. Mostly its old connection is left half-open, as by a network that has gone:
nothing is read from it any more, so no ping is answered; the server hears of its end late, or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from typing import Any

import aiohttp
import socketio  # pyright: ignore[reportMissingTypeStubs] - it has no types
from socketio.exceptions import ConnectionError as NotConnected  # pyright: ignore[reportMissingTypeStubs]

HALF_OPEN = 0.7
"""The share of connections that end without a word."""
GHOST_SECONDS = (0.5, 6.0)
"""For how long the network keeps an old connection that nobody reads from."""
OUTLIVING = 2.0
"""Those that are kept for longer are there when the device is back, however slow the machine is."""
CONNECT_SECONDS = 8.0


class Device:
    """One device, which wants to be connected."""

    def __init__(self, name: str, servers: list[str]) -> None:
        self.name = name
        self.server = ""
        self.sid: str | None = None
        self.generation = 0
        self.newest = 0
        """The last generation that was accepted by a server."""
        self.refused = 0
        self.online = asyncio.Event()
        self._servers = servers
        self._client: Any = None
        self._http: aiohttp.ClientSession | None = None
        self._moving = asyncio.Event()
        self._ghosts: set[asyncio.Task[None]] = set()
        self._living: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connects, and again whenever the connection has ended."""
        self._living = asyncio.create_task(self._live())

    def move(self) -> None:
        """Goes to another server."""
        self.online.clear()
        self._moving.set()

    async def hush(self) -> None:
        """Says nothing any more, and stays away."""
        if self._living is not None:
            self._living.cancel()
            await asyncio.wait([self._living])
        self.online.clear()
        self._vanish(3600)

    @property
    def ghosts(self) -> int:
        """How many old connections the network still keeps."""
        return len(self._ghosts)

    async def stop(self) -> None:
        """Says goodbye."""
        if self._living is not None:
            self._living.cancel()
            await asyncio.wait([self._living])
        await self._leave()
        for ghost in list(self._ghosts):
            ghost.cancel()
        if self._ghosts:
            await asyncio.wait(self._ghosts)

    async def _live(self) -> None:
        while True:
            self._moving.clear()
            if not await self._connect():
                await asyncio.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secret
                continue
            self.online.set()
            await self._moving.wait()
            self.online.clear()
            if self._client.connected and random.random() < HALF_OPEN:  # noqa: S311
                self._vanish(random.uniform(*GHOST_SECONDS))  # noqa: S311
            else:
                await self._leave()

    async def _connect(self) -> bool:
        self.generation += 1
        generation = self.generation
        others = [server for server in self._servers if server != self.server] or self._servers
        self.server = random.choice(others)  # noqa: S311
        http = aiohttp.ClientSession()
        client: Any = socketio.AsyncClient(reconnection=False, http_session=http)

        async def command(body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
            return {"device": self.name, "current": generation >= self.newest, "echo": body}

        async def gone(reason: str = "") -> None:
            del reason
            if generation == self.generation:
                self.sid = None
                self.move()

        client.on("command", command)
        client.on("disconnect", gone)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(
                    self.server, auth={"device": self.name}, transports=["websocket"], wait_timeout=CONNECT_SECONDS
                )
                await client.emit("status", {"battery": 0.9})
        except (NotConnected, TimeoutError, OSError, aiohttp.ClientError):
            self.refused += 1
            await _ended(client, http)
            return False
        except BaseException:
            await _ended(client, http)
            raise
        self._client, self._http, self.sid = client, http, client.get_sid()
        self.newest = generation
        return client.connected

    def _vanish(self, seconds: float) -> None:
        client, http, self._client, self._http, self.sid = self._client, self._http, None, None, None
        if client is None or http is None or not client.connected:
            return
        self.generation += 1
        wire = client.eio.ws._conn.transport  # noqa: SLF001 - a cable cannot be pulled politely
        wire.pause_reading()

        async def ghost() -> None:
            try:
                if seconds > OUTLIVING:
                    await self.online.wait()
                await asyncio.sleep(seconds)
            finally:
                wire.abort()
                await _ended(client, http)

        task = asyncio.create_task(ghost())
        self._ghosts.add(task)
        task.add_done_callback(self._ghosts.discard)

    async def _leave(self) -> None:
        client, http, self._client, self._http, self.sid = self._client, self._http, None, None, None
        if client is not None and http is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.disconnect(), 5)
            await _ended(client, http)


async def _ended(client: Any, http: aiohttp.ClientSession) -> None:  # noqa: ANN401 - untyped
    """Ends what is left of a client."""
    await http.close()
    for task in (client.eio.read_loop_task, client.eio.write_loop_task):
        if task is not None:
            task.cancel()


class Fleet:
    """All devices of this process."""

    def __init__(self, names: list[str], servers: list[str]) -> None:
        self.devices = {name: Device(name, servers) for name in names}
        self._hushed: set[str] = set()

    @property
    def _loud(self) -> list[Device]:
        return [device for name, device in self.devices.items() if name not in self._hushed]

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Does what the input says, and returns what there is to tell."""
        started = time.monotonic()
        match order["do"]:
            case "connect":
                for device in self._loud:
                    device.start()
                await self._all_online()
            case "storm":
                for device in self._loud:
                    device.move()
                await self._all_online()
            case "hush":
                self._hushed.add(order["device"])
                await self.devices[order["device"]].hush()
            case "settle":
                await self._all_online()
            case "stop":
                await asyncio.gather(*(device.stop() for device in self.devices.values()))
            case _:
                pass
        return {
            "done": order["do"],
            "seconds": time.monotonic() - started,
            "ghosts": sum(device.ghosts for device in self._loud),
            "refused": sum(device.refused for device in self.devices.values()),
            "where": {device.name: [device.server, device.sid] for device in self._loud if device.online.is_set()},
        }

    async def _all_online(self) -> None:
        await asyncio.gather(*(device.online.wait() for device in self._loud))


async def serve(fleet: Fleet) -> None:
    """Obeys line by line until the input ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await fleet.obey(json.loads(line))), flush=True)
    await fleet.obey({"do": "stop"})


def main() -> None:
    """Runs some devices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--device", action="append", required=True)
    chosen = parser.parse_args()

    async def run() -> None:
        await serve(Fleet(chosen.device, chosen.server))

    asyncio.run(run())


if __name__ == "__main__":
    main()
