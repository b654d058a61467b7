# ruff: noqa: ANN401 - the types of ASGI are wide
"""TusMiddleware around tuspyserver: an upload goes on wherever its client comes back, and nothing else is different."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.contrib.tus import TusMiddleware
from tests.contrib.asgi.raw import Echo
from tests.contrib.tus.uploads import METADATA, begin, create, offset, patch, request, tus_app
from tests.faults.support import queue_length, set_timeouts
from tests.harness.aio import run_async
from tests.harness.leases import wait_for_inbox
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from pathlib import Path

WAIT = 60.0
FILE = bytes(range(256)) * 40
HALF = 4_000

Two = tuple[TusMiddleware, TusMiddleware]


async def warm(locks: tenure.AsyncLocks) -> None:
    """So that the first ask finds an inbox, and need not wait for the next poll."""
    async with locks.lock("first", on_ask=id):
        await asyncio.to_thread(wait_for_inbox, locks)


@contextlib.asynccontextmanager
async def two_servers(url: str, namespace: str, folder: Path) -> AsyncGenerator[Two]:
    """Two upload servers that share the folder and the lock server."""
    async with (
        tenure.AsyncLocks(url, namespace=namespace) as first,
        tenure.AsyncLocks(url, namespace=namespace) as second,
    ):
        await warm(first)
        yield (
            TusMiddleware(tus_app(folder), locks=first, wait=WAIT),
            TusMiddleware(tus_app(folder), locks=second, wait=WAIT),
        )
        await wait_until_async(lambda: first.statistics().held == second.statistics().held == 0, 30, "no lease left")


@pytest.fixture
def run(url: str, namespace: str, tmp_path: Path) -> Callable[[Callable[[Two], Coroutine[Any, Any, None]]], None]:
    """Runs the body of a test with two servers."""

    def running(body: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with two_servers(url, namespace, tmp_path) as servers:
                await body(servers)

        run_async(main)

    return running


async def half_sent(server: TusMiddleware, locks: tenure.AsyncLocks, at: int = 0, till: int = HALF) -> tuple[str, Any]:
    """An upload of FILE whose client has sent a part of it, and says nothing any more: its path, and that request."""
    path = await create(server, len(FILE))
    silent = patch(server, path, at, FILE[at:till], length=len(FILE) - at)
    await wait_until_async(lambda: locks.statistics().held == 1, 30, "the upload to be locked")
    return path, silent


class TestTakingOver:
    def test_the_next_server_finds_what_has_arrived_and_goes_on_there(self, run: Any, tmp_path: Path) -> None:
        async def body(servers: Two) -> None:
            first, second = servers
            path, silent = await half_sent(first, first._locks)
            assert await offset(second, path) == HALF
            assert (await patch(second, path, HALF, FILE[HALF:]).done()).status == 204
            assert (tmp_path / path.rpartition("/")[2]).read_bytes() == FILE
            assert (await silent.done()).headers["upload-offset"] == str(HALF), (
                "its own answer, should anybody be there"
            )

        run(body)

    def test_the_same_server_does_so_as_well(self, run: Any) -> None:
        async def body(servers: Two) -> None:
            first, _ = servers
            path, silent = await half_sent(first, first._locks)
            assert await offset(first, path) == HALF
            await silent.done()

        run(body)

    def test_what_comes_after_the_disconnect_is_not_saved(self, run: Any, tmp_path: Path) -> None:
        """Late bytes of the old connection must not land behind those of the new one."""

        async def body(servers: Two) -> None:
            first, second = servers
            path, silent = await half_sent(first, first._locks)
            assert await offset(second, path) == HALF
            silent.arrive(b"late", more=False)
            await silent.done()
            assert await offset(second, path) == HALF
            assert (tmp_path / path.rpartition("/")[2]).read_bytes() == FILE[:HALF]

        run(body)

    def test_a_delete_takes_it_over_too(self, run: Any) -> None:
        async def body(servers: Two) -> None:
            first, second = servers
            path, silent = await half_sent(first, first._locks)
            assert (await request(second, "DELETE", path)).status == 204
            await silent.done()
            assert (await request(first, "HEAD", path)).status == 404

        run(body)

    def test_so_does_a_patch_that_is_called_post(self, run: Any) -> None:
        async def body(servers: Two) -> None:
            first, second = servers
            path, silent = await half_sent(first, first._locks)
            post = patch(second, path, HALF, FILE[HALF:], method="POST", x_http_method_override="PATCH")
            reply = await post.done()
            assert (reply.status, reply.headers["upload-offset"]) == (204, str(len(FILE)))
            await silent.done()

        run(body)

    def test_a_client_that_comes_back_five_times_loses_nothing(self, run: Any, tmp_path: Path) -> None:
        async def body(servers: Two) -> None:
            path = await create(servers[0], len(FILE))
            at, silent = 0, list[Any]()
            for turn in range(5):
                silent.append(patch(servers[turn % 2], path, at, FILE[at : at + 1_500], length=len(FILE) - at))
                held = [server._locks for server in servers]
                await wait_until_async(lambda held=held: sum(locks.statistics().held for locks in held) == 1, 30)
                at = await offset(servers[(turn + 1) % 2], path)
                assert at == 1_500 * (turn + 1)
            assert (await patch(servers[0], path, at, FILE[at:]).done()).status == 204
            assert (tmp_path / path.rpartition("/")[2]).read_bytes() == FILE
            for old in silent:
                await old.done()

        run(body)

    def test_a_head_waits_until_all_is_saved(self, url: str, valkey_server: Any, namespace: str) -> None:
        class Slow:
            def __init__(self) -> None:
                self.saving, self.saved, self.heads = asyncio.Event(), asyncio.Event(), 0

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                if scope["method"] == "HEAD":
                    self.heads += 1
                    assert self.saved.is_set()
                while scope["method"] == "PATCH" and (await receive())["type"] != "http.disconnect":
                    pass
                if scope["method"] == "PATCH":
                    self.saving.set()
                    await self.saved.wait()
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})

        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                await warm(locks)
                slow = Slow()
                app = TusMiddleware(slow, locks=locks, wait=WAIT)
                silent = begin(app, "PATCH", "/files/7", b"x", open_end=True)
                await wait_until_async(lambda: locks.statistics().held == 1, 30)
                head = begin(app, "HEAD", "/files/7")
                await asyncio.wait_for(slow.saving.wait(), 30)
                # Its first try has asked already; it queues with the next one.
                await wait_until_async(lambda: queue_length(valkey_server, namespace, "upload:7"), 30, "it to queue")
                assert not slow.heads
                slow.saved.set()
                assert (await head.done()).status == 204
                await silent.done()

        run_async(main)


class TestLosing:
    def test_a_lost_lease_is_told_as_a_disconnect_and_nothing_more_is_taken(self, url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                echo = Echo()
                app = TusMiddleware(echo, locks=locks, wait=WAIT)
                silent = begin(app, "PATCH", "/files/7", b"x", open_end=True)
                await wait_until_async(lambda: echo.got == [b"x"], 30)
                assert await locks.break_lock("upload:7", force=True)
                with pytest.raises(tenure.LeaseLost):
                    await silent.done()
                assert echo.saw_disconnect == 1, "told in the same way as an ask"

        run_async(main)

    def test_who_does_not_let_go_costs_the_next_one_its_budget_and_no_more(self, url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                deaf = asyncio.Event()

                async def app(scope: Any, receive: Any, send: Any) -> None:
                    await deaf.wait()
                    await Echo()(scope, receive, send)

                server = TusMiddleware(app, locks=locks, wait=0.3)
                old = begin(server, "PATCH", "/files/7", b"x")
                await wait_until_async(lambda: locks.statistics().held == 1, 30)
                refused = await request(server, "HEAD", "/files/7")
                assert refused.status == 423
                assert int(refused.headers["retry-after"]) >= 1
                assert json.loads(refused.content)["resource"] == "upload:7"
                deaf.set()
                await old.done()

        run_async(main)

    def test_without_a_lock_server_the_answer_is_503_and_nothing_is_touched(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks("redis://127.0.0.1:1/0", server_timeout=0.2) as locks:
                echo = Echo()
                assert (await request(TusMiddleware(echo, locks=locks), "PATCH", "/files/7", b"x")).status == 503
                assert not echo.calls

        run_async(main)


class TestHandingOver:
    def test_all_requests_in_progress_save_and_end(self, run: Any) -> None:
        async def body(servers: Two) -> None:
            first, second = servers
            paths = [await create(first, len(FILE)) for _ in range(3)]
            silent = [patch(first, path, 0, FILE[:HALF], length=len(FILE)) for path in paths]
            await wait_until_async(lambda: len(first._in_progress) == 3, 30)
            first.hand_over()
            for old in silent:
                await old.done()
            assert [await offset(second, path) for path in paths] == [HALF] * 3
            assert not first._in_progress

        run(body)

    def test_so_does_what_gets_its_lock_afterwards(self, run: Any) -> None:
        """A grant may be on its way while the server is told to end; its request would be cancelled in the end."""

        async def body(servers: Two) -> None:
            first, second = servers
            path = await create(first, len(FILE))
            first.hand_over()
            late = await patch(first, path, 0, FILE[:HALF], length=len(FILE)).done()
            assert (late.status, late.headers["upload-offset"]) == (204, str(HALF))
            assert await offset(second, path) == HALF

        run(body)

    def test_no_lock_server_is_needed_for_it(self, private_server: Any) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(private_server.url, embedded=False) as locks:
                echo = Echo()
                app = TusMiddleware(echo, locks=locks, ttl=60)
                old = begin(app, "PATCH", "/files/7", b"x", open_end=True)
                await echo.entered()
                private_server.kill9()
                # Only from now on is a call to fail.
                set_timeouts(locks, 0.2)
                app.hand_over()
                assert (await old.done()).content == b"x"
                assert echo.saw_disconnect == 1

        run_async(main)


class TestUncontended:
    def test_every_answer_is_that_of_the_bare_server(self, url: str, namespace: str, tmp_path: Path) -> None:
        async def conversation(app: Any) -> list[Any]:
            said: list[Any] = []

            async def say(method: str, path: str, *body: bytes, **headers: str) -> None:
                reply = await request(app, method, path, *body, **headers)
                kept = {
                    name: value for name, value in reply.headers.items() if name not in ("location", "upload-expires")
                }
                said.append((method, reply.status, kept, reply.content))

            path = await create(app, len(FILE))
            stream = {"content_type": "application/offset+octet-stream", "content_length": str(HALF)}
            await say("OPTIONS", "/files/")
            await say("POST", "/files", upload_length="5", upload_metadata=METADATA)
            await say("POST", "/files", upload_length="x")
            await say("HEAD", path)
            await say("PATCH", path, FILE[:HALF], upload_offset="0", **stream)
            await say("HEAD", path)
            await say("PATCH", path, FILE[:HALF], upload_offset="0", **stream)
            await say("PATCH", path, FILE[:HALF], upload_offset="x", **stream)
            await say("PATCH", path, FILE[:HALF], upload_offset=str(HALF), **stream | {"content_type": "text/plain"})
            await say("HEAD", path, tus_resumable="0.1.0")
            await say("GET", path)
            await say("DELETE", path)
            await say("HEAD", path)
            await say("PATCH", "/files/none", b"x", upload_offset="0", **stream)
            await say("GET", "/elsewhere")
            return said

        async def main() -> None:
            bare = await conversation(tus_app(tmp_path / "bare"))
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                assert await conversation(TusMiddleware(tus_app(tmp_path / "locked"), locks=locks)) == bare
            assert {status for _, status, _, _ in bare} >= {200, 201, 204, 404, 409, 412, 415, 422}

        run_async(main)

    @pytest.mark.parametrize(
        ("method", "path", "names"),
        [
            ("HEAD", "/files/7", ("upload:7",)),
            ("PATCH", "/files/7", ("upload:7",)),
            ("DELETE", "/files/7", ("upload:7",)),
            ("POST", "/files/7", ("upload:7",)),
            ("GET", "/files/7", None),
            ("OPTIONS", "/files/7", None),
            ("POST", "/files", None),
            ("POST", "/files/", None),
            ("PATCH", "/files/7/8", None),
            ("PATCH", "/other/7", None),
        ],
    )
    def test_who_takes_which_lock(
        self, url: str, namespace: str, method: str, path: str, names: tuple[str, ...] | None
    ) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                echo, seen = Echo(), list[Any]()

                async def app(scope: Any, receive: Any, send: Any) -> None:
                    seen.append(scope.get("tenure.lease"))
                    await echo(scope, receive, send)

                assert (await request(TusMiddleware(app, locks=locks), method, path)).status == 200
                assert (None if seen[0] is None else seen[0].names) == names

        run_async(main)

    @pytest.mark.parametrize("prefix", ["/api/uploads", "api/uploads/", "/api/uploads/"])
    def test_the_prefix_may_have_slashes_or_not(self, url: str, namespace: str, prefix: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                seen = list[Any]()

                async def app(scope: Any, receive: Any, send: Any) -> None:
                    seen.append(scope["tenure.lease"].names)
                    await Echo()(scope, receive, send)

                server = TusMiddleware(app, locks=locks, prefix=prefix, name="u:{uid}")
                await request(server, "HEAD", "/api/uploads/a-b_C")
                assert seen == [("u:a-b_C",)]

        run_async(main)

    def test_what_is_no_request_passes_by(self, url: str) -> None:
        async def main() -> None:
            seen: list[str] = []

            async def app(scope: Any, receive: Any, send: Any) -> None:
                seen.append(scope["type"])

            async with tenure.AsyncLocks(url) as locks:
                nothing: Any = None
                await TusMiddleware(app, locks=locks)({"type": "lifespan"}, nothing, nothing)
            assert seen == ["lifespan"]

        run_async(main)

    def test_a_name_without_the_upload_is_refused(self) -> None:
        locks = tenure.AsyncLocks("redis://127.0.0.1:1/0")
        with pytest.raises(tenure.ConfigError, match=r"needs '\{uid\}', not 'upload'"):
            TusMiddleware(Echo(), locks=locks, name="upload")
