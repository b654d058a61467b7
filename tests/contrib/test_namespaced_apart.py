"""Two namespaces on one server cannot reach each other's keys by any command in the table."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

import pytest

from tenure import ConfigError, command_table
from tenure.contrib.redis_py import namespaced
from tests.contrib.command_lines import DUMPED, LINES, REFUSED, SCRIPTS, SUBSCRIPTIONS, fill
from tests.docs.pages import ROOT, blocks, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contrib.command_lines import AnyClient
    from tests.harness.servers import Server

LIBRARIES = ("redis", "valkey")


@pytest.fixture(params=LIBRARIES)
def plain(request: pytest.FixtureRequest, own_server: Server) -> Iterator[AnyClient]:
    """A client of each library, without a namespace."""
    module = importlib.import_module(request.param)
    client = getattr(module, request.param.capitalize()).from_url(own_server.url)
    client.flushall()
    yield client
    client.flushall()
    client.close()


def contents(plain: AnyClient) -> list[object]:
    """Return everything that the other site holds, with when it expires."""
    keys = sorted(plain.scan_iter("there:*", count=1000))
    pipe = plain.pipeline(transaction=False)
    for key in keys:
        pipe.dump(key).pexpiretime(key)
    return [keys, pipe.execute()]


def attempts(line: tuple[str, ...]) -> list[tuple[str | bytes, ...]]:
    """Return spellings of a line that try to name the keys of the other site."""
    there = tuple(f"there:{word}" if word.islower() else word for word in line[1:])
    return [line, (line[0], *there), (" ".join(line),), (line[0].encode(), *(word.encode() for word in there))]


def test_no_command_reaches_the_other(plain: AnyClient) -> None:
    here, there = namespaced(plain, "here", scripts=True), namespaced(plain, "there")
    fill(there, "SECRET")
    before = contents(plain)
    sent = refused = 0
    for line in [*LINES, *SCRIPTS, *REFUSED, (*DUMPED, "x")]:
        fill(here, "ours")
        for spelled in attempts(line):
            try:
                reply = here.execute_command(*spelled)
                sent += 1
            except ConfigError:
                refused += 1
                continue
            except Exception as error:  # noqa: BLE001 - the server's, about words that make no sense
                reply = str(error)
            assert "SECRET" not in repr(reply), spelled
            if line[0] == "QUIT":
                plain.connection_pool.disconnect()
        assert contents(plain) == before, line
    assert {key.partition(b":")[0] for key in plain.scan_iter()} == {b"here", b"there"}
    # Not everything is refused: what a line is for is done.
    assert sent > len(LINES)
    assert refused > len(REFUSED)


def test_a_restored_value_is_ones_own(plain: AnyClient) -> None:
    here, there = namespaced(plain, "here"), namespaced(plain, "there")
    here.set("text", "ours")
    assert here.restore("new", 0, here.dump("text"))
    assert here.get("new") == b"ours"
    assert there.exists("new") == 0


@pytest.mark.parametrize("line", SUBSCRIPTIONS, ids=" ".join)
def test_no_subscription_hears_the_other(plain: AnyClient, line: tuple[str, ...]) -> None:
    here, there = namespaced(plain, "here"), namespaced(plain, "there")
    with contextlib.closing(here.pubsub()) as pubsub:
        pubsub.execute_command(*line)
        pubsub.execute_command(line[0], "there:channel")
        assert there.publish("channel", "SECRET") == 0
        assert there.spublish("channel", "SECRET") == 0
        assert plain.publish("channel", "SECRET") == 0
        heard = here.publish("channel", "ours") + here.spublish("channel", "ours")
        assert heard == (0 if "UNSUB" in line[0] else 1)
        assert there.pubsub_channels() == there.pubsub_shardchannels() == []


def test_each_sees_its_own_names_alone(plain: AnyClient) -> None:
    here, there = namespaced(plain, "here"), namespaced(plain, "there")
    for site, name in ((here, "a"), (there, "b")):
        site.mset({name: 1, "both": 1})
    plain.set("outside", 1)
    assert sorted(here.keys()) == sorted(here.scan_iter()) == [b"a", b"both"]
    assert sorted(there.keys("b*")) == sorted(there.scan_iter("b*")) == [b"b", b"both"]
    assert here.exists("b", "outside", "there:b") == 0
    assert set(plain.scan_iter()) == {b"here:a", b"here:both", b"there:b", b"there:both", b"outside"}


def test_a_site_may_have_glob_characters_in_its_name(plain: AnyClient) -> None:
    star, other = namespaced(plain, "s*[a]?\\"), namespaced(plain, "sxa!")
    star.set("x", 1)
    other.set("x", 2)
    namespaced(plain, "s*a?\\").set("x", 3)
    assert star.keys() == [b"x"]
    assert list(star.scan_iter()) == [b"x"]
    assert star.get("x") == b"1"
    with contextlib.closing(star.pubsub()) as pubsub:
        pubsub.psubscribe("c*")
        assert other.publish("c", 1) == 0
        assert star.publish("c", 1) == 1
    star.sadd("set", 1)
    with pytest.raises(ConfigError, match="SORT"):
        star.sort("set", by="weight_*")
    assert star.sort("set") == [b"1"]


def test_the_page_lists_what_is_refused() -> None:
    page = ROOT / "docs" / "howto" / "namespaces.md"
    assert {why: " ".join(names.split()) for why, names in rows(page, "## What is refused")} == {
        why: " ".join(names.split()) for why, names in command_table.REFUSED.items()
    }


def test_a_user_of_the_server_keeps_out_what_a_script_would_reach(plain: AnyClient, own_server: Server) -> None:
    page = ROOT / "docs" / "howto" / "namespaces.md"
    (console,) = blocks(page, "console")
    words = console.text.replace("PASSWORD", "secret").replace("books", "here").split()
    plain.execute_command(*words)
    plain.set("there:text", "SECRET")
    module = importlib.import_module(type(plain).__module__.partition(".")[0])
    user = type(plain)(port=own_server.port, username="here", password="secret")
    here = namespaced(user, "here", scripts=True)
    assert here.eval("return redis.call('INCR', KEYS[1])", 1, "n") == 1
    with pytest.raises(module.exceptions.ResponseError, match=r"(?i)no ?perm|ACL|can't access"):
        here.eval("return redis.call('GET', 'there:text')", 0)
    with here.pipeline() as pipe:
        pipe.watch("n")
        pipe.multi()
        pipe.incr("n")
        assert pipe.execute() == [2]
    assert here.publish("channel", "x") == 0
    user.close()
    plain.execute_command("ACL", "DELUSER", "here")
