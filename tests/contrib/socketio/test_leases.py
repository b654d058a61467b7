"""Connection leases, with real python-socketio servers and clients: who owns a device, and what ends that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import socketio  # pyright: ignore[reportMissingTypeStubs] - it has no types
from socketio.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    ConnectionError as Refused,
)
from socketio.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    ConnectionRefusedError as Refusal,
)

import tenure
from tenure.contrib.socketio import DeviceLeases, Owner
from tests.contrib.socketio.gateway import Device, Gateway, closing, device_of, scenario, until
from tests.harness.leases import age

if TYPE_CHECKING:
    from tenure.contrib.socketio import Connection
    from tests.harness.servers import Server


class TestConnecting:
    def test_gives_the_connection_a_lease_that_says_where_the_device_is(self, any_url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(any_url, namespace) as gateway, closing(Device()) as (device,):
                assert await gateway.leases.owner("d") is None
                await device.connect(gateway)
                connection = gateway.connection()
                sid = device.client.get_sid()
                assert await gateway.leases.owner("d") == Owner("d", gateway.url, sid, connection.lease.fence)
                holder = await gateway.locks.holder("device:d")
                assert holder is not None
                assert holder.info == {"server": gateway.url, "sid": sid}
                assert gateway.leases.lease(sid) is connection.lease
                assert gateway.leases.lease("another") is None
                await until(lambda: gateway.told == [("online", "d", None)], "the hook")

        scenario(work())

    def test_refuses_whom_nobody_knows(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device()) as (device,):
                with pytest.raises(Refused):
                    await device.connect(gateway, auth=None)
                assert device.refused == {"message": "no device"}
                assert await gateway.locks.list() == []
                assert gateway.told == []

        scenario(work())

    def test_refuses_a_device_that_cannot_be_named(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device("a\nb")) as (device,):
                with pytest.raises(Refused):
                    await device.connect(gateway)
                assert device.refused == {"message": "no name of a device"}

        scenario(work())

    def test_asks_the_application_who_it_is(self, url: str, namespace: str) -> None:
        async def known(environ: dict[str, Any], auth: dict[str, str]) -> str:
            assert environ["PATH_INFO"] == "/socket.io/"
            if auth["device"] != "d":
                raise Refusal("wrong password")
            return "known-" + auth["device"]

        async def work() -> None:
            async with Gateway(url, namespace, device_of=known) as gateway, closing(Device(), Device("x")) as (d, x):
                await d.connect(gateway)
                assert gateway.connection("known-d").device == "known-d"
                with pytest.raises(Refused):
                    await x.connect(gateway)
                assert x.refused == {"message": "wrong password"}

        scenario(work())

    def test_works_by_long_polling_as_well(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                Gateway(url, namespace, ping_interval=1, ping_timeout=5) as gateway,
                closing(Device()) as (device,),
            ):
                await device.connect(gateway, transports=["polling"])
                assert gateway.connection().sid == device.client.get_sid()
                await device.client.disconnect()
                await until(lambda: not gateway.leases.connections, "the connection to end")

        scenario(work())

    def test_refuses_without_a_lock_server_and_says_when_to_come_again(self, private_server: Server) -> None:
        async def work() -> None:
            url = private_server.url
            async with Gateway(url, "t", server_timeout=1) as gateway, closing(Device()) as (device,):
                private_server.kill9()
                with pytest.raises(Refused):
                    await device.connect(gateway)
                assert device.refused == {"message": "no lock server", "data": {"retry_after": 1}}
                private_server.restart()

        scenario(work())


class TestTakingOver:
    def test_closes_the_old_connection_before_the_new_one_is_there(self, any_url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                Gateway(any_url, namespace) as first,
                Gateway(any_url, namespace) as second,
                closing(Device(), Device()) as (old, new),
            ):
                await old.connect(first)
                before = first.connection()
                await new.connect(second)
                assert first.leases.connections == []
                assert (before.ending, before.lease.valid) == ("asked", False)
                assert second.connection().lease.fence > before.lease.fence
                await asyncio.wait_for(old.gone.wait(), 30)
                await until(lambda: first.told[-1:] == [("offline", "d", "asked")], "the hook")
                assert not new.gone.is_set()

        scenario(work())

    def test_does_so_on_one_server_and_with_a_connection_that_no_longer_hears(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device(), Device()) as (old, new):
                await old.connect(gateway)
                old.vanish()
                await new.connect(gateway)
                assert gateway.connection().sid == new.client.get_sid()

        scenario(work())

    def test_leaves_the_device_to_the_last_of_several_connections(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                Gateway(url, namespace, takeover=30) as a,
                Gateway(url, namespace, takeover=30) as b,
                closing(*(Device() for _ in range(5))) as devices,
            ):
                await devices[0].connect(a)
                await asyncio.gather(*(device.connect(b if at % 2 else a) for at, device in enumerate(devices) if at))
                await until(lambda: sum(device.gone.is_set() for device in devices) == 4, "all others to end")
                (left,) = [device for device in devices if not device.gone.is_set()]
                owner = await a.leases.owner("d")
                assert owner is not None
                assert owner.sid == left.client.get_sid()
                assert len(a.leases.connections) + len(b.leases.connections) == 1

        scenario(work())

    def test_waits_a_short_time_for_one_that_does_not_let_go(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                tenure.AsyncLocks(url, namespace=namespace) as other,
                Gateway(url, namespace, takeover=0.2) as gateway,
                closing(Device()) as (device,),
            ):
                lease = await other.lock("device:d", ttl=60).acquire()
                with pytest.raises(Refused):
                    await device.connect(gateway)
                assert device.refused["message"] == "the device's old connection is still there"
                assert 1 <= device.refused["data"]["retry_after"] <= 61
                await lease.release()

        scenario(work())

    def test_gives_back_what_a_connection_got_that_has_ended_meanwhile(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                tenure.AsyncLocks(url, namespace=namespace) as other,
                Gateway(url, namespace, takeover=30) as gateway,
                closing(Device()) as (device,),
            ):
                lease = await other.lock("device:d", ttl=60).acquire()
                connecting = asyncio.create_task(device.connect(gateway))
                assert await lease.wait_asked(30)
                (socket,) = gateway.sio.eio.sockets.values()
                await socket.close(wait=False)
                await lease.release()
                with pytest.raises(Refused):
                    await connecting
                # In its turn: what the gateway gives back comes here.
                await (await other.lock("device:d", wait=30).acquire()).release()
                assert gateway.told == []

        scenario(work())


class TestPings:
    def test_ttl_is_two_heartbeats_and_ten_seconds(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace, ping_interval=25) as gateway, closing(Device()) as (device,):
                assert gateway.leases.ttl == 60
                await device.connect(gateway)
                assert 50 < gateway.connection().lease.remaining() <= 60

        scenario(work())

    def test_renew_the_lease_and_nothing_else_does(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace, ping_interval=1, slack=4) as gateway, closing(Device()) as (device,):
                await device.connect(gateway)
                lease = gateway.connection().lease
                fence, longest = lease.fence, gateway.leases.ttl
                # For longer than a lease lasts without them.
                await until(lambda: lease.held_for() > longest + 1, "a connection that is older than its ttl")
                assert lease.valid
                assert lease.fence == fence
                device.vanish()
                await until(lambda: ("offline", "d", "lost") in gateway.told, "the silent connection to be closed")
                assert gateway.leases.connections == []
                assert not [event for event in gateway.events if isinstance(event, tenure.OverheldEvent)]

        scenario(work())

    def test_of_the_application_do_as_well(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device()) as (device,):

                async def still_here(sid: str) -> None:
                    gateway.leases.heard(sid)

                gateway.sio.on("still-here", still_here)
                await device.connect(gateway)
                lease = gateway.connection().lease
                # By far more than passes from the renewal until it is seen.
                age(lease, 60)
                low = lease.remaining()
                await device.client.emit("still-here")
                await until(lambda: lease.remaining() > low, "a renewal")
                gateway.leases.heard("nobody")

        scenario(work())


class TestEnding:
    def test_gives_the_device_free_at_once(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device()) as (device,):
                await device.connect(gateway)
                await device.client.disconnect()
                await until(lambda: gateway.told == [("online", "d", None), ("offline", "d", "left")], "both hooks")
                assert await gateway.leases.owner("d") is None

        scenario(work())

    def test_releases_only_its_own_lease_and_extends_no_other_one(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with (
                tenure.AsyncLocks(url, namespace=namespace) as other,
                Gateway(url, namespace) as gateway,
                closing(Device()) as (device,),
            ):
                await device.connect(gateway)
                sid = device.client.get_sid()
                await other.break_lock("device:d", force=True)
                async with other.lock("device:d", ttl=60) as newer:
                    expires = (await other.lock("device:d").holder()).expires_in  # pyright: ignore[reportOptionalMemberAccess]
                    # A ping of the old connection: it must end itself, and touch nothing.
                    gateway.leases.heard(sid)
                    await asyncio.wait_for(device.gone.wait(), 30)
                    await until(lambda: gateway.told[-1:] == [("offline", "d", "lost")], "the hook")
                    holder = await other.holder("device:d")
                    assert holder is not None
                    assert holder.fence == newer.fence
                    assert holder.expires_in is not None
                    assert expires is not None
                    assert holder.expires_in <= expires

        scenario(work())

    def test_of_the_server_closes_all_and_refuses_new_ones(self, url: str, namespace: str) -> None:
        async def work() -> None:
            async with Gateway(url, namespace) as gateway, closing(Device(), Device("e"), Device("f")) as (d, e, f):
                await d.connect(gateway)
                await e.connect(gateway)
                await gateway.leases.close()
                assert gateway.leases.connections == []
                assert {told for told in gateway.told if told[0] == "offline"} == {
                    ("offline", "d", "shutdown"), ("offline", "e", "shutdown"),
                }  # fmt: skip
                assert await gateway.locks.list() == []
                with pytest.raises(Refused):
                    await f.connect(gateway)
                assert f.refused == {"message": "this server is closing", "data": {"retry_after": 1}}

        scenario(work())


class TestHooks:
    def test_run_in_order_beside_the_connection(self, url: str, namespace: str) -> None:
        async def work() -> None:
            slow = asyncio.Event()
            order: list[str] = []

            async def online(connection: Connection) -> None:
                await slow.wait()
                order.append(f"online {connection.device}")

            async def offline(connection: Connection) -> None:
                order.append(f"offline {connection.device}")

            async with (
                Gateway(url, namespace, on_connect=online, on_disconnect=offline) as gateway,
                closing(Device(), Device()) as (old, new),
            ):
                await old.connect(gateway)
                # The database hangs, and the device moves on all the same.
                await new.connect(gateway)
                await new.client.disconnect()
                await until(lambda: not gateway.leases.connections, "both to end")
                assert order == []
                slow.set()
                await until(lambda: len(order) == 4, "all hooks")
                assert order.count("online d") == 2
                assert order[0] == "online d"
                assert order[-1] == "offline d"

        scenario(work())

    def test_that_fail_are_logged(self, url: str, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
        async def online(connection: Connection) -> None:
            raise RuntimeError(f"no database for {connection.device}")

        async def work() -> None:
            async with Gateway(url, namespace, on_connect=online) as gateway, closing(Device()) as (device,):
                await device.connect(gateway)
                await until(lambda: "no database for d" in caplog.text, "the record")
                assert gateway.connection().lease.valid

        scenario(work())


def test_watch_tells_of_each_change(url: str, namespace: str) -> None:
    async def work() -> None:
        seen: list[Owner | None] = []

        async def look(gateway: Gateway) -> None:
            async for owner in gateway.leases.watch("d"):
                seen.append(owner)  # noqa: PERF401 - looked at meanwhile

        async with (
            Gateway(url, namespace) as first,
            Gateway(url, namespace) as second,
            closing(Device(), Device()) as (old, new),
        ):
            looking = asyncio.create_task(look(second))
            await until(lambda: seen == [None], "a first look")
            await old.connect(first)
            await until(lambda: [owner and owner.server for owner in seen] == [None, first.url], "the first owner")
            await new.connect(second)
            await until(lambda: seen[-1] is not None and seen[-1].server == second.url, "the second owner")
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    scenario(work())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "device"}, "needs '{device}'"),
        ({"heartbeat": 0}, "heartbeat must be more than 0"),
        ({"slack": -1}, "slack must be at least 0"),
        ({"takeover": "soon"}, "takeover must be a number"),
    ],
)
def test_arguments_that_cannot_work_are_refused(wrong: dict[str, Any], message: str) -> None:
    chosen: dict[str, Any] = {"server": "here", **wrong}
    with pytest.raises(tenure.ConfigError, match=message):
        DeviceLeases(socketio.AsyncServer(), tenure.AsyncLocks(), device_of, **chosen)
