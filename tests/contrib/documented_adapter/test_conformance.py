"""The protocol `tenure.clients.Client` is enough: what is written from its words alone passes the same tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pytest

import tenure
from tests.conformance import test_basics, test_requests, test_waiting
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

TestALease = test_basics.TestALease
TestTheBudget = test_waiting.TestTheBudget
TestTheQueue = test_waiting.TestTheQueue
TestRequests = test_requests.TestRequests


class TestTrouble:
    def test_of_a_server_that_comes_back(
        self, flavour: Flavour, private_server: Server, namespace: str, shown: dict[str, Any]
    ) -> None:
        plain = shown["Plain"]
        locks, others = (
            flavour.locks(plain("127.0.0.1", private_server.port), namespace=namespace, server_timeout=30)
            for _ in range(2)
        )
        lease = locks.lock("a", ttl=30).acquire()
        waiting = others.queue("a", ttl=30, wait=60)
        private_server.restart()
        handed = waiting.result(60)
        assert handed.fence > lease.fence
        assert lease.release() is not tenure.Released.RELEASED
        assert handed.release() is tenure.Released.RELEASED

    @pytest.mark.parametrize("loss", ["rst", "close", "silence"])
    def test_of_a_reply_that_is_lost(
        self,
        flavour: Flavour,
        proxy: FaultProxy,
        valkey_server: Server,
        namespace: str,
        loss: Literal["rst", "close", "silence"],
        shown: dict[str, Any],
    ) -> None:
        address = urlsplit(proxy.url)
        plain = shown["Plain"](address.hostname, address.port)
        locks = flavour.locks(plain, namespace=namespace, server_timeout=9)
        locks.lock("b").acquire().release()
        proxy.drop_next_reply(f"{namespace}:a".encode(), then=loss)
        lease = locks.lock("a", ttl=30).acquire()
        assert lease.release() is tenure.Released.RELEASED
        wait_until(lambda: not valkey_server.command("EXISTS", f"{namespace}:a"), 25, "the lock to be free")
        # Before the proxy ends, to which a hub would connect again.
        locks.close()

    def test_of_nobody_there(self, flavour: Flavour, namespace: str, shown: dict[str, Any]) -> None:
        locks = flavour.locks(shown["Plain"]("127.0.0.1", 1), namespace=namespace, server_timeout=0.3)
        for use in (locks.lock("a").acquire, locks.lock("a").try_acquire, locks.list):
            with pytest.raises(tenure.ServerUnavailable, match=r"127\.0\.0\.1:1"):
                use()

    def test_of_a_fork(self, any_server: Server, namespace: str, shown: dict[str, Any]) -> None:
        with tenure.Locks(shown["Plain"]("127.0.0.1", any_server.port), namespace=namespace) as locks:
            lease = locks.lock("a", ttl=60).acquire()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with locks.lock("b", wait=0):
                        code = int(locks.lock("a").try_acquire() is not None)
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            lease.renew()
            assert lease.release() is tenure.Released.RELEASED
