"""The web API: plain functions, and a middleware that holds the locks which each path names.

`python -m examples.library.web FOLDER [--url URL]` prints its port.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse

import tenure
from tenure.contrib.asgi import LockMiddleware, Rule

from .library import Library

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ARCHIVE, CATEGORY = "archive:{name}", "category:{category}"
RULES = (
    Rule("/archives/{name}", [ARCHIVE]),
    Rule("/archives/{name}/tags/{tag}", [ARCHIVE], ["PUT"], "add a tag"),
    # Written in whatever order: everybody takes them in the same one.
    Rule("/categories/{category}/archives/{name}", [CATEGORY, ARCHIVE], ["PUT"], "add to a category"),
)


def application(library: Library, locks: tenure.AsyncLocks | None) -> FastAPI:
    """The API; without locks when there are none."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        if locks is not None:
            await locks.close()

    app = FastAPI(lifespan=lifespan)
    if locks is not None:
        app.add_middleware(LockMiddleware, locks=locks, rules=RULES, ttl=20, wait=0.5, show_holder=True)

    # Functions without `async`: FastAPI runs them in threads, and files may block.
    def read(name: str) -> dict[str, Any]:
        _there(library, name)
        return library.read(name)

    def delete(name: str) -> dict[str, str]:
        library.delete(name)
        return {"deleted": name}

    def put_into(category: str, name: str) -> list[str]:
        return library.put_into(category, name)

    app.get("/archives/{name}")(read)
    app.delete("/archives/{name}")(delete)
    app.put("/archives/{name}/tags/{tag}")(library.tag)
    app.put("/categories/{category}/archives/{name}")(put_into)
    app.add_exception_handler(FileNotFoundError, _missing)
    return app


def _there(library: Library, name: str) -> None:
    if not library.path(name).exists():
        raise HTTPException(404, name)


async def _missing(_request: object, _error: Exception) -> JSONResponse:
    return JSONResponse({"error": "no such archive"}, 404)


def main() -> None:
    """Serves until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--without-lock", action="store_true")
    chosen = parser.parse_args()
    locks = None if chosen.without_lock else tenure.AsyncLocks(chosen.url, namespace="library", server_timeout=10)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        application(Library(chosen.folder), locks), log_level="warning", timeout_graceful_shutdown=2
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
