"""The parts of the example as processes: the S3 stand-in, upload servers, and clients."""

# pyright: reportMissingTypeStubs=false
# boto3 has no types.

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TUS_JS = "tus-js-client@4.3.1"
BUCKET = "uploads"
START_SECONDS = 60.0
END_SECONDS = 20.0
NPM_SECONDS = 90.0
CONNECTIONS = Path("/proc/net/tcp")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)\s")


def unread(sender: int, receiver: int) -> bool:
    """Whether bytes from one port of this machine to another one have not been read yet; False where nobody can say."""
    if not CONNECTIONS.exists():
        return False
    for line in CONNECTIONS.read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        ends = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
        sending, receiving = (int(queue, 16) for queue in queues.split(":"))
        if (ends == (sender, receiver) and sending) or (ends == (receiver, sender) and receiving):
            return True
    return False


async def until(condition: Any, seconds: float, what: str) -> None:  # noqa: ANN401 - any function without arguments
    """Returns when `condition()` is true. Raises `TimeoutError` with `what` after that many seconds."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(0.01)


@dataclass
class Part:
    """One process, which listens on a port if it is a server; what it writes is in a file."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    port: int = 0

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str], *, serves: bool = False
    ) -> Self:
        """Starts it; returns when it answers at the address that it has written down, if it is a server."""
        log = folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
                cwd=ROOT,
            )
        part = cls(name, process, log)
        if serves:
            try:
                await part._answers()
            except BaseException:
                await part.end(signal.SIGKILL)
                raise
        return part

    async def _answers(self) -> None:
        give_up = time.monotonic() + START_SECONDS
        while not await self._answered():
            if self.process.returncode is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self.name} did not start:\n{self.written()}")
            await asyncio.sleep(0.05)

    async def _answered(self) -> bool:
        found = _ADDRESS.search(self.written())
        if found is None:
            return False
        self.port = int(found[1])
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            async with asyncio.timeout(START_SECONDS):
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                return bool(await reader.read(1))
        except OSError:
            return False
        finally:
            writer.close()

    def written(self) -> str:
        """The end of what it has written."""
        return self.log.read_text(errors="replace")[-4000:]

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and waits for that; after a while by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


class Bucket:
    """The bucket on the S3 stand-in, as a checker sees it."""

    def __init__(self, port: int) -> None:
        self.env = {
            "UPLOADS_S3": f"http://127.0.0.1:{port}",
            "UPLOADS_BUCKET": BUCKET,
            "AWS_ACCESS_KEY_ID": "example",
            "AWS_SECRET_ACCESS_KEY": "example",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._client = cast("Any", boto3).client(
            "s3",
            endpoint_url=self.env["UPLOADS_S3"],
            aws_access_key_id="example",
            aws_secret_access_key="example",  # noqa: S106 - of the stand-in, which asks for none
            region_name="us-east-1",
            config=Config(connect_timeout=5, read_timeout=20),
        )

    def create(self) -> None:
        """Makes it."""
        self._client.create_bucket(Bucket=BUCKET)

    def read(self, uid: str) -> bytes | None:
        """A finished upload; None when there is none."""
        try:
            return self._client.get_object(Bucket=BUCKET, Key=f"tus/{uid}")["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return None

    def keys(self) -> set[str]:
        """The names of all objects."""
        found = self._client.list_objects_v2(Bucket=BUCKET)
        return {entry["Key"] for entry in found.get("Contents", [])}

    def size(self, key: str) -> int:
        """How many bytes an object has."""
        return int(self._client.head_object(Bucket=BUCKET, Key=key)["ContentLength"])

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()


async def start_s3(folder: Path) -> Part:
    """moto, which stands in for S3."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    return await Part.start("s3", command, folder, {}, serves=True)


async def start_server(name: str, folder: Path, env: Mapping[str, str]) -> Part:
    """One upload server."""
    return await Part.start(name, [sys.executable, "-m", "examples.uploads.server", "0"], folder, env, serves=True)


async def start_client(kind: str, url: str, file: Path, folder: Path, modules: str) -> Part:
    """A client that uploads one file: `tuspy` or `tus-js-client`."""
    program = [sys.executable, str(HERE / "clients" / "with_tuspy.py")]
    if kind == "tus-js-client":
        program = ["node", str(HERE / "clients" / "with_tus_js.cjs")]
    env = {"NODE_PATH": modules, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    return await Part.start(f"{kind}-{file.name}", [*program, url, str(file)], folder, env)


async def install_tus_js(folder: Path) -> str:
    """Installs tus-js-client below a folder and returns where node finds it; "" with a word why when that fails."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("no node and npm on PATH: only tuspy uploads", file=sys.stderr)
        return ""
    modules = folder / "node_modules"
    if not (modules / "tus-js-client").exists():
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), TUS_JS]
        part = await Part.start("npm", command, Path(tempfile.mkdtemp(prefix="uploads-npm-")), {})
        code: int | None = None
        try:
            async with asyncio.timeout(NPM_SECONDS):
                code = await part.process.wait()
        except TimeoutError:
            await part.end(signal.SIGKILL)
        said = part.written()
        shutil.rmtree(part.log.parent)
        if code != 0:
            # What it has done of it must not be taken for all of it the next time.
            shutil.rmtree(modules, ignore_errors=True)
            print(f"npm could not install {TUS_JS}: only tuspy uploads\n{said}", file=sys.stderr)
            return ""
    return str(modules)
