"""One upload server: tuspyserver with its S3 storage, and tenure's middleware around it.

`python -m examples.uploads.server PORT`, as often as you like; they share nothing but the lock server and the bucket.
It prints its address; PORT 0 is any port that is free.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# boto3 and tuspyserver have no complete types.

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

import boto3
import uvicorn
from botocore.config import Config
from fastapi import FastAPI
from tuspyserver import create_tus_router
from tuspyserver.storage.s3 import S3Storage

import tenure
from tenure.contrib.tus import TusMiddleware, guard_s3, lock_factory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BUCKET = os.environ.get("UPLOADS_BUCKET", "uploads")
TTL = float(os.environ.get("UPLOADS_TTL", "10"))
WAIT = float(os.environ.get("UPLOADS_WAIT", "20"))
WITHOUT_LOCK = os.environ.get("UPLOADS_WITHOUT_LOCK") == "1"


def s3_client() -> Any:  # noqa: ANN401 - boto3 makes its classes when it runs
    """A client for the bucket, which refuses to write for a request that has lost its lock."""
    config = Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 3}, max_pool_connections=50)
    client = cast("Any", boto3).client("s3", endpoint_url=os.environ.get("UPLOADS_S3"), config=config)
    guard_s3(client)
    return client


def make_locks() -> tenure.AsyncLocks:
    """Locks on $TENURE_URL, or the embedded server; $UPLOADS_CLIENT hands over a client object of a library instead."""
    library = os.environ.get("UPLOADS_CLIENT")
    if library == "redis":
        import redis.asyncio  # noqa: PLC0415 - only the library that was chosen

        return tenure.AsyncLocks(redis.asyncio.Redis.from_url(os.environ["TENURE_URL"]))
    if library == "valkey":
        import valkey.asyncio  # noqa: PLC0415 - as above

        return tenure.AsyncLocks(valkey.asyncio.Valkey.from_url(os.environ["TENURE_URL"]))
    return tenure.AsyncLocks()


def create_app(locks: tenure.AsyncLocks) -> FastAPI:
    """The application with the tus routes, as it would be on a single server."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with locks:
            yield

    factory = None if WITHOUT_LOCK else lock_factory(locks, ttl=TTL, wait=WAIT)
    create: Any = create_tus_router
    uploads: Any = create(prefix="files", storage=S3Storage(BUCKET, s3_client(), lock_factory=factory))
    app = FastAPI(lifespan=lifespan)
    app.include_router(uploads)
    return app


class UploadServer(uvicorn.Server):
    """A server that hands its uploads over when it is taken away."""

    def __init__(self, config: uvicorn.Config, uploads: TusMiddleware) -> None:
        super().__init__(config)
        self._uploads = uploads

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """After SIGTERM: the uploads in progress are saved and go on elsewhere, so this does not wait for their end."""
        self._uploads.hand_over()
        await super().shutdown(sockets)


def main(port: int) -> None:
    """Serves until SIGTERM."""
    locks = make_locks()
    app = create_app(locks)
    limits: dict[str, Any] = {"timeout_graceful_shutdown": 10, "log_level": "warning"}
    listener = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    if WITHOUT_LOCK:
        uvicorn.Server(uvicorn.Config(app, **limits)).run(sockets=[listener])
        return
    uploads = TusMiddleware(app, locks=locks, ttl=TTL, wait=WAIT)
    UploadServer(uvicorn.Config(uploads, **limits), uploads).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
