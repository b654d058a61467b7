# ruff: noqa: ANN401 - arguments are wrong on purpose, and both flavours have no type in common
"""Keys on Redis and Valkey, for both flavours, both client libraries, and both kinds of replies."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

import tenure
from tenure.fencing import AsyncFencedKeys, FencedKeys
from tenure.fencing.redis import companion
from tests.house.test_api import docstring, members, signature

if TYPE_CHECKING:
    from tests.conformance.flavours import Flavour
    from tests.fencing.conftest import Holders
    from tests.harness.servers import Server

KEY = "testdata:stock"
SEEN = "{testdata:stock}:seen"


class Keys:
    """Fenced keys of either flavour, called as plain code."""

    def __init__(self, flavour: Flavour, client: Any, **options: Any) -> None:
        self._flavour = flavour
        cls = FencedKeys if flavour.kind == "blocking" else AsyncFencedKeys
        self._raw: Any = cls(client, **options)
        self.plain = client

    def get(self, *args: Any, **kwargs: Any) -> Any:
        return self._flavour.call(self._raw.get, *args, **kwargs)

    def set(self, *args: Any, **kwargs: Any) -> Any:
        return self._flavour.call(self._raw.set, *args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        return self._flavour.call(self._raw.delete, *args, **kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        return self._flavour.call(self._raw.execute, *args, **kwargs)


@pytest.fixture
def keys(flavour: Flavour, any_url: str) -> Keys:
    return Keys(flavour, flavour.client(any_url))


class TestLostUpdates:
    def test_without_a_fence_the_newer_holders_write_is_lost(self, valkey_server: Server, holders: Holders) -> None:
        client = valkey_server.admin
        late = int(valkey_server.command("GET", KEY) or 0) + 1
        client.set(KEY, 10)  # the newer holder
        client.set(KEY, late)  # the older one, after its pause
        assert valkey_server.command("GET", KEY) == b"1"

    @pytest.mark.parametrize("library", ["redis", "valkey"])
    @pytest.mark.parametrize("decode", [False, True])
    def test_a_stale_write_is_refused_and_changes_nothing(
        self, flavour: Flavour, any_server: Server, holders: Holders, library: str, decode: bool
    ) -> None:
        keys = Keys(flavour, flavour.client(any_server.url, library, decode_responses=decode))
        assert keys.get(holders.older, KEY) is None
        assert keys.set(holders.newer, KEY, 10) is None
        with pytest.raises(tenure.StaleFence) as caught:
            keys.set(holders.older, KEY, 1)
        assert (caught.value.fence, caught.value.seen) == (holders.older.fence, holders.newer.fence)
        assert KEY in str(caught.value)
        assert keys.get(holders.newer, KEY) == ("10" if decode else b"10")
        for refused in (keys.get, keys.delete):
            with pytest.raises(tenure.StaleFence):
                refused(holders.older, KEY)
        assert any_server.command("GET", KEY) == b"10"
        assert int(any_server.command("GET", SEEN)) == holders.newer.fence

    def test_without_the_guard_on_the_read_an_update_is_lost(
        self, keys: Keys, any_server: Server, holders: Holders
    ) -> None:
        seen_by_the_newer = int(any_server.command("GET", KEY) or 0)
        keys.set(holders.older, KEY, 5)
        keys.set(holders.newer, KEY, seen_by_the_newer + 10)
        assert any_server.command("GET", KEY) == b"10"

    def test_after_a_newer_holders_read_the_stale_write_is_refused(
        self, keys: Keys, any_server: Server, holders: Holders
    ) -> None:
        keys.set(holders.older, KEY, 5)
        boxes = int(keys.get(holders.newer, KEY))
        with pytest.raises(tenure.StaleFence):
            keys.set(holders.older, KEY, 6)
        keys.set(holders.newer, KEY, boxes + 10)
        assert any_server.command("GET", KEY) == b"15"

    def test_a_key_that_is_missing_or_deleted_remembers_too(self, keys: Keys, any_server: Server) -> None:
        assert keys.get(8, KEY) is None
        with pytest.raises(tenure.StaleFence):
            keys.set(7, KEY, 1)
        keys.set(8, KEY, 1)
        assert (keys.delete(9, KEY), keys.delete(9, KEY)) == (True, False)
        with pytest.raises(tenure.StaleFence):
            keys.set(8, KEY, 1)
        assert any_server.command("EXISTS", KEY) == 0


class TestNumbers:
    @pytest.mark.parametrize(
        ("higher", "lower"),
        [(10, 9), (2**53 + 1, 2**53), (2**63 - 1, 2**63 - 2), (10**16, 10**16 - 1), (1_764_451_200_000_001, 9)],
        ids=str,
    )
    def test_are_compared_to_the_last_digit(self, keys: Keys, higher: int, lower: int) -> None:
        keys.set(lower, KEY, 1)
        keys.set(higher, KEY, 2)
        keys.set(higher, KEY, 3)
        with pytest.raises(tenure.StaleFence) as caught:
            keys.set(lower, KEY, 4)
        assert (caught.value.fence, caught.value.seen) == (lower, higher)

    @pytest.mark.parametrize("garbage", ["", "x", "-1", "07", "1e3", "1 "])
    def test_a_companion_that_is_no_number_lets_nobody_in(self, keys: Keys, any_server: Server, garbage: str) -> None:
        any_server.command("SET", SEEN, garbage, "EX", 60)
        with pytest.raises(Exception, match="holds no fence"):
            keys.set(2**63 - 1, KEY, 1)
        assert any_server.command("EXISTS", KEY) == 0


class TestCommands:
    def test_of_any_type(self, keys: Keys, any_server: Server) -> None:
        assert keys.execute(7, "HSET", KEY, "boxes", 3, "label", "blue") == 2
        assert keys.execute(7, "hgetall", KEY) == [b"boxes", b"3", b"label", b"blue"]
        assert keys.execute(8, "HINCRBY", KEY, "boxes", 4) == 7
        assert keys.execute(8, "HGET", KEY, "nothing") is None
        with pytest.raises(tenure.StaleFence):
            keys.execute(7, "HSET", KEY, "boxes", 0)
        assert any_server.command("HGET", KEY, "boxes") == b"7"

    def test_their_own_errors_go_through(self, keys: Keys) -> None:
        keys.execute(7, "RPUSH", KEY, "a")
        with pytest.raises(Exception, match="WRONGTYPE"):
            keys.get(8, KEY)
        # The fence has risen all the same, which refuses too much at worst.
        with pytest.raises(tenure.StaleFence):
            keys.execute(7, "RPUSH", KEY, "b")

    def test_a_server_that_does_not_know_the_script_is_sent_it(self, keys: Keys, any_server: Server) -> None:
        keys.set(7, KEY, 1)
        any_server.command("SCRIPT", "FLUSH")
        keys.set(8, KEY, 2)
        assert any_server.command("GET", KEY) == b"2"

    def test_values_may_be_what_the_client_takes(self, keys: Keys, any_server: Server) -> None:
        for value, kept in ((b"\0\xff", b"\0\xff"), ("ü", "ü".encode()), (1.5, b"1.5"), (-3, b"-3")):
            keys.set(7, KEY, value)
            assert any_server.command("GET", KEY) == kept


class TestExpiry:
    def test_a_value_has_the_ttl_that_it_was_given(self, keys: Keys, any_server: Server) -> None:
        keys.set(7, KEY, 1)
        assert any_server.command("PTTL", KEY) == -1
        keys.set(7, KEY, 1, ttl=timedelta(seconds=90.0005))
        assert 60_000 < any_server.command("PTTL", KEY) <= 90_001

    def test_the_companion_is_kept_from_its_last_use(self, keys: Keys, any_server: Server) -> None:
        keys.set(7, KEY, 1)
        any_server.command("PEXPIRE", SEEN, 60_000)
        keys.get(7, KEY)
        assert 6 * 86_400_000 < any_server.command("PTTL", SEEN) <= 7 * 86_400_000

    def test_it_outlives_a_value_with_a_ttl(self, flavour: Flavour, any_server: Server) -> None:
        keys = Keys(flavour, flavour.client(any_server.url), keep=3600)
        keys.set(7, KEY, 1, ttl=7200)
        assert any_server.command("PTTL", SEEN) >= any_server.command("PTTL", KEY) > 3_600_000
        keys.set(7, KEY, 1, ttl=60)
        assert 60_000 < any_server.command("PTTL", SEEN) <= 3_600_000


class TestNames:
    @pytest.mark.parametrize(
        ("key", "beside"),
        [
            ("stock:1", "{stock:1}:seen"),
            (b"stock:\xff", b"{stock:\xff}:seen"),
            ("shop:{stock}:1", "shop:{stock}:1:seen"),
            (b"{stock}", b"{stock}:seen"),
        ],
        ids=str,
    )
    def test_the_companion_is_on_the_same_node(self, key: Any, beside: Any) -> None:
        assert companion(key) == beside
        hashed = [key_slot(name.encode() if isinstance(name, str) else name) for name in (key, beside)]
        assert hashed[0] == hashed[1]


class TestArguments:
    @pytest.fixture
    def nowhere(self, flavour: Flavour) -> Keys:
        """Keys on a server that nobody can reach: what is refused was refused before anything was sent."""
        return Keys(flavour, flavour.client("redis://127.0.0.1:1"))

    def test_fences(self, nowhere: Keys) -> None:
        fence: Any
        for fence in (True, 0, -1, math.nan, "7", None, 2**63):
            for call in (nowhere.get, nowhere.delete):
                with pytest.raises(tenure.ConfigError, match="fence"):
                    call(fence, KEY)
            with pytest.raises(tenure.ConfigError, match="fence"):
                nowhere.set(fence, KEY, 1)
            with pytest.raises(tenure.ConfigError, match="fence"):
                nowhere.execute(fence, "GET", KEY)

    def test_keys(self, nowhere: Keys) -> None:
        for key in ("", b"", None, 7):
            with pytest.raises(tenure.ConfigError, match="a key is"):
                nowhere.get(7, key)

    def test_commands(self, nowhere: Keys) -> None:
        for command in ("", None, "GET x", b"GET", 7):
            with pytest.raises(tenure.ConfigError, match="name of a command"):
                nowhere.execute(7, command, KEY)

    def test_ttl(self, nowhere: Keys) -> None:
        for ttl in (0, -1, True, math.nan, "7"):
            with pytest.raises(tenure.ConfigError, match="ttl"):
                nowhere.set(7, KEY, 1, ttl=ttl)

    def test_keep(self, nowhere: Keys, flavour: Flavour) -> None:
        for keep in (0, 3599, True, math.inf, None):
            with pytest.raises(tenure.ConfigError, match="keep"):
                Keys(flavour, nowhere.plain, keep=keep)

    def test_clients(self) -> None:
        wrong: Any
        for wrong in (None, "redis://127.0.0.1:1", object()):
            for cls in (FencedKeys, AsyncFencedKeys):
                with pytest.raises(tenure.ConfigError, match="a client of redis-py"):
                    cls(wrong)
        with pytest.raises(tenure.ConfigError, match="AsyncFencedKeys takes"):
            FencedKeys(redis.asyncio.Redis())
        with pytest.raises(tenure.ConfigError, match="FencedKeys takes"):
            AsyncFencedKeys(redis.Redis())

    def test_a_lease_of_several_names_needs_to_know_which(self, keys: Keys, several: tenure.Lease) -> None:
        with pytest.raises(tenure.ConfigError, match="name="):
            keys.set(several, KEY, 1)
        keys.set(several, KEY, 1, name="shelf:2")
        assert keys.get(several, KEY, name="shelf:2") == b"1"
        assert keys.delete(several, KEY, name="shelf:2")
        with pytest.raises(tenure.StaleFence):
            keys.execute(several, "GET", KEY, name="shelf:1")

    def test_a_semaphores_lease_is_refused(self, keys: Keys, place: tenure.Lease) -> None:
        with pytest.raises(tenure.ConfigError, match="semaphore"):
            keys.set(place, KEY, 1)


def test_both_flavours_are_the_same() -> None:
    blocking, aio = members(FencedKeys), members(AsyncFencedKeys)
    assert set(blocking) == set(aio) == {"get", "set", "delete", "execute"}
    for name in blocking:
        assert signature(blocking[name]) == signature(aio[name])
        assert docstring(blocking[name]) == docstring(aio[name])
        assert inspect.iscoroutinefunction(aio[name])
    assert signature(FencedKeys.__init__) == signature(AsyncFencedKeys.__init__)
