"""Counting commands and recording requests."""

from __future__ import annotations

from tests.harness.commands import CallCounter, Monitor, script_calls
from tests.harness.servers import Server, connect


def test_script_calls_and_commands_are_counted(any_server: Server) -> None:
    client = any_server.admin
    begin = script_calls(client)
    with CallCounter(client) as counter:
        for _ in range(3):
            any_server.command("EVAL", "return redis.call('SET', KEYS[1], 1, 'PX', 1000)", 1, "a")
        any_server.command("GET", "a")
    assert counter.commands == {"eval": 3, "set": 3, "get": 1}
    assert (counter.scripts, counter.total) == (3, 7)
    assert script_calls(client) == begin + 3
    with CallCounter(client) as counter:
        pass
    assert counter.commands == {}


def test_a_monitor_records_requests_but_not_what_scripts_do(any_server: Server) -> None:
    odd = bytes(range(256))
    with connect(any_server.unix_url) as client, Monitor(any_server) as monitor:
        client.eval("return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)", 1, "a", odd)
        assert [seen.args[0] for seen in monitor.requests()][-1:] == [b"EVAL"]
        client.get("a")
    requests = monitor.requests(b"a")
    assert [seen.args for seen in monitor.requests(odd)] == [requests[-2].args]
    assert requests[-2].args[-2:] == (b"a", odd)
    assert requests[-1].args == (b"GET", b"a")
    assert not monitor.requests(b"PX 1000")


def test_a_monitor_of_a_server_with_a_password() -> None:
    with Server.start(password="pw") as server, Monitor(server) as monitor:
        server.command("SET", "a", 1)
        assert monitor.requests(b"SET")[0].args == (b"SET", b"a", b"1")
