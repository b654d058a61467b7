# ruff: noqa: ANN401, PT012 - the types of ASGI and of boto3 are wide; what is raised is raised at the end of a block
# pyright: reportMissingTypeStubs=false
"""lock_factory and guard_s3: what a storage of tuspyserver asks for, and an S3 client that refuses stale writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError
from tuspyserver.storage.s3 import S3Storage

import tenure
from tenure.contrib.asgi.middleware import request_lease
from tenure.contrib.tus import TusMiddleware, guard_s3, lock_factory
from tests.contrib.asgi.raw import Echo
from tests.contrib.tus.uploads import request
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@pytest.fixture
def run(url: str, namespace: str) -> Callable[[Callable[[tenure.AsyncLocks], Coroutine[Any, Any, None]]], None]:
    """Runs the body of a test with locks."""

    def running(body: Callable[[tenure.AsyncLocks], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(url, namespace=namespace) as locks:
                await body(locks)

        run_async(main)

    return running


class TestLockFactory:
    def test_the_block_holds_the_lock_of_the_upload(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            async with lock_factory(locks, name="u:{uid}")("7"):
                holder = await locks.holder("u:7")
                assert holder is not None
                lease = request_lease.get()
                assert lease is not None
                assert lease.fence == holder.fence, "guard_s3 finds it there"
            assert await locks.holder("u:7") is None
            assert request_lease.get() is None

        run(body)

    def test_under_the_middleware_it_costs_no_request(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            entered = list[bool]()

            async def app(scope: Any, receive: Any, send: Any) -> None:
                async with lock_factory(tenure.AsyncLocks("redis://127.0.0.1:1/0", server_timeout=0.2))("7"):
                    entered.append(True)
                await Echo()(scope, receive, send)

            assert (await request(TusMiddleware(app, locks=locks), "PATCH", "/files/7")).status == 200
            assert entered, "its server is not there, and was not needed"

        run(body)

    def test_under_the_middleware_it_takes_another_uploads_lock_all_the_same(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            names = list[str]()

            async def app(scope: Any, receive: Any, send: Any) -> None:
                async with lock_factory(locks)("8"):
                    names.extend(holder.name for holder in await locks.list("upload:"))
                await Echo()(scope, receive, send)

            await request(TusMiddleware(app, locks=locks), "PATCH", "/files/7")
            assert names == ["upload:7", "upload:8"]

        run(body)

    def test_under_a_middleware_that_has_lost_its_lease_the_block_is_not_entered(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            entered = list[bool]()

            async def app(*_: Any) -> None:
                await locks.break_lock("upload:7", force=True)
                lease = request_lease.get()
                assert lease is not None
                await lease.wait_lost(30)
                async with lock_factory(locks)("7"):
                    entered.append(True)

            assert (await request(TusMiddleware(app, locks=locks), "PATCH", "/files/7")).status == 503
            assert not entered

        run(body)

    def test_a_lock_that_is_not_had_in_time_is_the_time_out_that_tuspyserver_answers_503(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            storage = S3Storage("bucket", None, lock_factory=lock_factory(locks, wait=0.2))
            holding = asyncio.Event()

            async def hold() -> None:
                async with locks.lock("upload:7"):
                    holding.set()
                    await asyncio.Event().wait()

            holder = asyncio.ensure_future(hold())
            await holding.wait()
            with pytest.raises(TimeoutError) as caught:
                await storage.lock("7").__aenter__()
            assert isinstance(caught.value, tenure.NotAcquired)
            holder.cancel()
            await asyncio.wait({holder})

        run(body)

    def test_a_loss_in_the_block_is_told_at_its_end_and_cancels_nothing(self, run: Any) -> None:
        """For tuspyserver keeps the bytes of a request that was cancelled, and would add them to the next one."""

        async def body(locks: tenure.AsyncLocks) -> None:
            went_on = False
            with pytest.raises(tenure.LeaseLost):
                async with lock_factory(locks)("7"):
                    lease = request_lease.get()
                    assert lease is not None
                    await locks.break_lock("upload:7", force=True)
                    await lease.wait_lost(30)
                    await asyncio.sleep(0)
                    went_on = True
            assert went_on
            assert request_lease.get() is None

        run(body)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [({"name": "upload"}, "needs '{uid}'"), ({"wait": -1}, "wait must be"), ({"wait": None}, "wait must be")],
    )
    def test_arguments_that_cannot_work_are_refused_at_once(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(tenure.ConfigError, match=message):
            lock_factory(tenure.AsyncLocks("redis://127.0.0.1:1/0"), **arguments)


class Sending:
    """An S3 client of boto3 whose requests are answered here."""

    def __init__(self, **guard: Any) -> None:
        untyped: Any = boto3
        self.client = untyped.client(
            "s3",
            endpoint_url="http://127.0.0.1:1",
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        self.sent: list[str] = []
        self.failing = 0
        self.before_retry: Callable[[], None] = lambda: None
        guard_s3(self.client, **guard)
        self.client.meta.events.register("before-send.s3", self._answer)

    def _answer(self, request: Any, **_: object) -> AWSResponse:
        self.sent.append(request.method)
        if self.failing:
            self.failing -= 1
            self.before_retry()
            raise ConnectionClosedError(endpoint_url=request.url)
        return AWSResponse(request.url, 200, {"Content-Length": "0"}, _Empty())

    async def put(self) -> None:
        await asyncio.to_thread(self.client.put_object, Bucket="bucket", Key="k", Body=b"x")

    async def get(self) -> None:
        await asyncio.to_thread(self.client.list_objects_v2, Bucket="bucket")


class _Empty:
    def stream(self) -> list[bytes]:
        return []


class TestGuardS3:
    def test_without_a_lease_all_is_as_before(self) -> None:
        async def main() -> None:
            sending = Sending()
            await sending.put()
            await sending.get()
            assert sending.sent == ["PUT", "GET"]

        run_async(main)

    def test_a_lease_that_is_held_lets_everything_pass(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            sending = Sending(takes=1)
            async with lock_factory(locks)("7"):
                await sending.put()
                await sending.get()
            assert sending.sent == ["PUT", "GET"]

        run(body)

    def test_a_lease_that_is_lost_lets_nothing_be_written(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            sending = Sending()
            with pytest.raises(tenure.LeaseLost):
                async with lock_factory(locks)("7"):
                    await _lose(locks)
                    await sending.get()
                    await sending.put()
            assert sending.sent == ["GET"]

        run(body)

    def test_a_lease_too_short_for_a_write_counts_as_over(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            sending = Sending(takes=20)
            async with lock_factory(locks, ttl=10)("7"):
                with pytest.raises(tenure.LeaseLost, match="20 s are needed"):
                    await sending.put()
            assert not sending.sent

        run(body)

    def test_a_retry_is_a_write_too(self, run: Any) -> None:
        async def body(locks: tenure.AsyncLocks) -> None:
            sending, lost = Sending(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def lose() -> None:
                asyncio.run_coroutine_threadsafe(_lose(locks), loop).result(30)
                lost.set()

            with pytest.raises(tenure.LeaseLost):
                async with lock_factory(locks)("7"):
                    lease = request_lease.get()
                    assert lease is not None
                    sending.failing, sending.before_retry = 1, lose
                    with pytest.raises(tenure.LeaseLost):
                        await sending.put()
                    await wait_until_async(lambda: lease.lost is not None, 30)
            assert sending.sent == ["PUT"]

        run(body)


async def _lose(locks: tenure.AsyncLocks) -> None:
    await locks.break_lock("upload:7", force=True)
    lease = request_lease.get()
    if lease is not None:
        await lease.wait_lost(30)
