"""Runs the whole gateway: servers, devices, storms of reconnections, a server that dies and one that stands still.

Everything is a process of its own. At the end the journals and the database are checked: see `check.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp

import tenure

from . import check
from .records import Records

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""Seconds until a step counts as failed, on a machine however slow."""
LOOK_EVERY = 0.5
COMMANDS_AT_ONCE = 8


@dataclass(frozen=True)
class Plan:
    """What to run."""

    servers: int = 4
    processes: int = 2
    """Of devices."""
    devices: int = 200
    storms: int = 3
    heartbeat: int = 2
    slack: float = 10.0
    delays: tuple[float, ...] = (0.0,)
    """Seconds that a write to the database takes, for the first server, the second, and so on, again from the front."""
    with_lock: bool = True
    with_fence: bool = True
    trouble: bool = True
    """One server is killed and one stands still for longer than the ttl; three devices fall silent."""
    job_every: float = 5.0
    patience: float = PATIENCE
    """Seconds that the records may take to tell where each device is."""

    @property
    def ttl(self) -> float:
        """Of a connection's lease."""
        return 2 * self.heartbeat + self.slack


class Child:
    """One process, which ends when its input does."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.url = ""

    @classmethod
    async def start(cls, module: str, *args: str) -> Self:
        """Starts `python -m examples.gateway.<module>`."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"examples.gateway.{module}",
                *args,
                stdin=PIPE,
                stdout=PIPE,
                cwd=ROOT,
                limit=2**20,
                start_new_session=True,
            )
        )

    async def heard(self) -> dict[str, Any]:
        """The next line that it says."""
        assert self.process.stdout is not None  # noqa: S101 - for the type checker
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        if not line:
            msg = f"process {self.process.pid} has ended"
            raise RuntimeError(msg)
        return json.loads(line)

    async def told(self, **order: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Has it do something, and waits until it is done."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.heard()

    def signal(self, number: signal.Signals) -> None:
        """Stops, continues or kills it."""
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    async def end(self) -> None:
        """Closes its input, and kills it when that is not enough."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 20)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()


@dataclass
class Routed:
    """What became of commands for devices."""

    sent: int = 0
    answered: int = 0
    wrong: int = 0
    """Answered by another device, by an old connection, or from another server than the device is on."""


@dataclass
class Storm:
    """A run in progress, for those who look."""

    plan: Plan
    folder: Path
    locks: str | None
    """URL of the lock server; None: the embedded one of this user."""
    namespace: str
    database: str
    servers: list[Child] = field(default_factory=list[Child])
    fleets: list[Child] = field(default_factory=list[Child])
    where: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ghosts: int = 0
    """Old connections that the network still keeps."""
    step: str = "starting"
    steps: int = 0
    routed: Routed = field(default_factory=Routed)
    settled: Routed = field(default_factory=Routed)
    killed: dict[str, float] = field(default_factory=dict[str, float])
    """When a server died, by its address."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    silent: list[str] = field(default_factory=list[str])
    freed: int = 0
    """How many of the silent devices somebody else could have."""
    wrong_at_end: list[str] = field(default_factory=list[str])
    runs: int = 0
    """How often the job has run."""
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    http: aiohttp.ClientSession = field(init=False)

    @property
    def names(self) -> list[str]:
        """Of all devices."""
        return [f"device-{number:03}" for number in range(self.plan.devices)]

    @property
    def all_steps(self) -> int:
        """How many steps there are."""
        return self.plan.storms + 4 + self.plan.trouble * 2

    async def run(self, watch: Callable[[Storm], object] | None = None) -> check.Outcome:
        """Runs all of it, and checks; the processes are ended in any case."""
        records = Records(self.database)
        records.prepare()
        started = time.monotonic()
        # A connection for each request: a server closes one that is idle at the moment at which a request comes for it.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30), connector=connector) as self.http:
            looking = asyncio.create_task(self._look(watch))
            try:
                await self._start()
                await self._storms()
                if self.plan.trouble:
                    await self._trouble()
                await self._settle(records)
                seen = await self._statuses()
                # Counted now: while the processes end, which may take long, the job goes on.
                self.runs = len(await asyncio.to_thread(records.rows, "run"))
                ran_for = time.monotonic() - started
            finally:
                looking.cancel()
                await asyncio.gather(*(child.end() for child in self.fleets))
                await asyncio.gather(*(child.end() for child in self.servers))
        return check.outcome(self, records, seen, ran_for)

    async def _start(self) -> None:
        plan = self.plan
        await asyncio.gather(*(self._start_server(number) for number in range(plan.servers)))
        servers = [word for child in self.servers for word in ("--server", child.url)]
        for number in range(plan.processes):
            names = self.names[number :: plan.processes]
            devices = [word for name in names for word in ("--device", name)]
            self.fleets.append(await Child.start("devices", *servers, *devices))
        self._next("connecting")
        await self._all("connect")

    async def _start_server(self, number: int) -> None:
        plan = self.plan
        flags = ["--locks", self.locks] if self.locks else []
        flags += ["--without-lock"] * (not plan.with_lock) + ["--without-fence"] * (not plan.with_fence)
        child = await Child.start(
            "server", "--namespace", self.namespace, "--database", self.database,
            "--journal", str(self.folder / f"journal-{number}.jsonl"), "--heartbeat", str(plan.heartbeat),
            "--patience", "6", "--slack", str(plan.slack), "--job-every", str(plan.job_every),
            "--database-delay", str(plan.delays[number % len(plan.delays)]), *flags,
        )  # fmt: skip
        self.servers.append(child)
        child.url = (await child.heard())["url"]

    def _next(self, step: str) -> None:
        self.step, self.steps = step, self.steps + 1

    async def _all(self, do: str) -> None:
        """Has all devices do something."""
        started = time.monotonic()
        answers = await asyncio.gather(*(fleet.told(do=do) for fleet in self.fleets))
        self.where = {name: place for answer in answers for name, place in answer["where"].items()}
        self.ghosts = sum(answer["ghosts"] for answer in answers)
        self.seconds.setdefault(self.step, round(time.monotonic() - started, 2))

    async def _storms(self) -> None:
        at_once = min(COMMANDS_AT_ONCE, self.plan.devices)
        for number in range(self.plan.storms):
            self._next(f"storm {number + 1}")
            storm = asyncio.create_task(self._all("storm"))
            while not storm.done():
                # Meanwhile somebody wants something of a device, and knows nothing of where it is.
                await asyncio.gather(
                    *(self._command(name, self.routed) for name in random.sample(self.names, k=at_once))
                )
            await storm

    async def _command(self, device: str, routed: Routed, expected: str | None = None) -> None:
        server = random.choice([child for child in self.servers if child.url not in self.killed])  # noqa: S311
        routed.sent += 1
        number = routed.sent
        try:
            async with self.http.post(f"{server.url}/devices/{device}/command", json=number) as reply:
                body = await reply.json()
        except (aiohttp.ClientError, TimeoutError):
            return
        answer = body.get("answer")
        if answer is None:
            return
        routed.answered += 1
        right = answer["device"] == device and answer["current"] and answer["echo"] == number
        routed.wrong += not (right and expected in (None, body["server"]))

    async def _trouble(self) -> None:
        """A server that dies says goodbye to nobody; one that stands still comes back when others have taken over."""
        # What a server that is killed has not written down yet cannot be checked.
        await self._until_written()
        self._next("a server dies, another one stands still")
        for number, fleet in enumerate(self.fleets):
            for name in self.names[number :: self.plan.processes][: 3 - number]:
                await fleet.told(do="hush", device=name)
                self.silent.append(name)
        dying, still = self.servers[:2]
        dying.signal(signal.SIGKILL)
        self.killed[dying.url] = time.monotonic()
        still.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            await self._all("settle")
            while time.monotonic() < stopped + self.plan.ttl + 1 or not await self._moved_from(dying, still):  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(LOOK_EVERY)
            self.seconds["until all were back"] = round(time.monotonic() - stopped, 2)
        finally:
            still.signal(signal.SIGCONT)
        self._next("it goes on, and has lost its leases")

    async def _until_written(self) -> None:
        """Waits until old connections have ended everywhere, and servers have written down what they know."""
        give_up = time.monotonic() + PATIENCE
        while await self._unwritten():
            if time.monotonic() > give_up:
                raise TimeoutError("the gateways do not keep up with writing")
            await asyncio.sleep(LOOK_EVERY)

    async def _unwritten(self) -> int:
        await self._all("settle")
        return self.ghosts + sum(status["unwritten"] for status in (await self._statuses()).values())

    async def _moved_from(self, *gone: Child) -> bool:
        await self._all("settle")
        bad = {child.url for child in gone}
        return len(self.where) == self.plan.devices - len(self.silent) and not any(
            server in bad for server, _ in self.where.values()
        )

    async def _settle(self, records: Records) -> None:
        """Waits until the records tell where each device is; then each of them is sent something."""
        self._next("settling")
        # What comes late has to be late before it can do any harm.
        await self._until_written()
        give_up = time.monotonic() + self.plan.patience
        while (wrong := await self._wrong(records)) and time.monotonic() < give_up:  # noqa: ASYNC110 - nor does a table
            await asyncio.sleep(LOOK_EVERY)
        self.wrong_at_end = wrong
        self.freed = await self._freed()
        self._next("a command for each device")
        devices = list(self.where.items())
        for first in range(0, len(devices), COMMANDS_AT_ONCE):
            some = devices[first : first + COMMANDS_AT_ONCE]
            await asyncio.gather(*(self._command(device, self.settled, server) for device, (server, _) in some))

    async def _wrong(self, records: Records) -> list[str]:
        await self._all("settle")
        return await asyncio.to_thread(check.wrong_records, records, self.where, self.silent)

    async def _freed(self) -> int:
        async with tenure.AsyncLocks(self.locks, namespace=self.namespace) as locks:
            return sum([await locks.holder(f"device:{device}") is None for device in self.silent])

    async def _statuses(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for child in self.servers:
            if child.url in self.killed:
                continue
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self.http.get(f"{child.url}/status", timeout=aiohttp.ClientTimeout(10)) as reply:
                    found[child.url] = await reply.json()
        return found

    async def _look(self, watch: Callable[[Storm], object] | None) -> None:
        while watch is not None:
            self.statuses = await self._quick()
            watch(self)
            await asyncio.sleep(LOOK_EVERY)

    async def _quick(self) -> dict[str, dict[str, Any]]:
        async def one(url: str) -> dict[str, Any]:
            try:
                async with self.http.get(f"{url}/status", timeout=aiohttp.ClientTimeout(1)) as reply:
                    return await reply.json()
            except (aiohttp.ClientError, TimeoutError):
                return {}

        urls = [child.url for child in self.servers if child.url]
        return dict(zip(urls, await asyncio.gather(*map(one, urls)), strict=True))
