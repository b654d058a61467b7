"""Upload servers in the test's own event loop: tuspyserver as it is, on a folder that all of them share."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import tuspyserver
from fastapi import FastAPI

from tests.contrib.asgi.raw import Request

if TYPE_CHECKING:
    from pathlib import Path

METADATA = ",".join(f"{name} {base64.b64encode(b'a').decode()}" for name in ("filename", "filetype"))


def tus_app(folder: Path, prefix: str = "files") -> FastAPI:
    """An application with nothing but the tus routes; what it uploads is in the folder."""
    untyped: Any = tuspyserver
    app = FastAPI()
    app.include_router(untyped.create_tus_router(prefix=prefix, files_dir=str(folder)))
    return app


def begin(
    app: Any,  # noqa: ANN401 - an ASGI application
    method: str,
    path: str,
    *body: bytes,
    open_end: bool = False,
    headers: dict[str, str] | None = None,
) -> Request:
    """A request of a tus client that has begun."""
    request = Request(app, method, path, *body, open_end=open_end)
    fields = {"host": "uploads", "tus-resumable": "1.0.0"} | (headers or {})
    # The application has not run yet.
    request.scope["headers"] = [(name.encode(), value.encode()) for name, value in fields.items()]
    return request


async def request(app: Any, method: str, path: str, *body: bytes, **headers: str) -> Request:  # noqa: ANN401 - as above
    """A whole request of a tus client; a header's name is written with `_`."""
    return await begin(app, method, path, *body, headers=_dashed(headers)).done()


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def create(app: Any, length: int, prefix: str = "/files") -> str:  # noqa: ANN401 - as above
    """A new upload; its path."""
    made = await request(app, "POST", prefix, upload_length=str(length), upload_metadata=METADATA)
    assert made.status == 201, made.content
    return prefix + "/" + made.headers["location"].rpartition("/")[2]


def patch(
    app: Any,  # noqa: ANN401 - as above
    path: str,
    at: int,
    *body: bytes,
    length: int | None = None,
    method: str = "PATCH",
    **headers: str,
) -> Request:
    """A PATCH that has begun; with `length` its body is that long, and what is not given does not come by itself."""
    sent = sum(map(len, body))
    fields = {"content-length": str(length or sent), "upload-offset": str(at)} | _dashed(headers)
    fields["content-type"] = "application/offset+octet-stream"
    return begin(app, method, path, *body, open_end=length is not None, headers=fields)


async def offset(app: Any, path: str) -> int:  # noqa: ANN401 - as above
    """Where an upload goes on."""
    head = await request(app, "HEAD", path)
    assert head.status == 200, head.content
    return int(head.headers["upload-offset"])
