"""Every method of redis-py's and valkey-py's clients, pipelines and subscriptions: in the namespace, or refused."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tenure import ConfigError
from tenure.command_table import Kind, lookup
from tenure.contrib.redis_py import namespaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contrib.command_lines import AnyClient
    from tests.harness.servers import Server

CLIENTS = ["redis", "redis.asyncio", "valkey", "valkey.asyncio"]

VALUES: dict[str, Any] = {
    "keys": ["k1", "k2"], "streams": {"k1": "0", "k2": "0"}, "mapping": {"k1": 1}, "fields": {"f": "v"},
    "values": [1, 2, "m"], "numkeys": 1, "num_keys": 1, "direction": "LEFT", "where": "BEFORE", "members": ["m"],
    "message_ids": ["1-1"], "infotype": "ENCODING", "operation": "AND", "bit": 1, "mode": "ON",
    "func": print, "callback": len, "algo": "LCS", "command": "GET", "command_name": "GET",
    "attr": "LIB-NAME", "reply": "ON", "script": "return 1", "metrics": ["CPU"], "predicates": [], "username": "u",
    "value": "k1", "value1": "k1", "value2": "k2", "payload": b"p",
}  # fmt: skip
"""What parameters get that do not take a number as well as a text."""
NUMBERS = {
    "amount", "client_id", "count", "db", "destination_db", "end", "first", "index", "latitude", "longitude", "max",
    "milliseconds", "min", "min_idle_time", "num_local", "num_replicas", "offset", "port", "quorum", "radius", "second",
    "seconds", "size", "start", "time", "time_ms", "timeout", "ttl", "unix_time_milliseconds", "unix_time_seconds",
    "when",
}  # fmt: skip
SPECIAL: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "hmget": (("k1", ["f"]), {}), "hmset": (("k1", {"f": 1}), {}), "zadd": (("k1", {"m": 1}), {}),
    "geoadd": (("k1", [1.0, 2.0, "m"]), {}), "sort": (("k1",), {"by": "k2_*", "get": ["#", "k3_*"], "store": "k4"}),
    "sort_ro": (("k1",), {"by": "k2_*"}), "georadius": (("k1", 1, 2, 3), {"store": "k2"}),
    "bitop": (("AND", "k1", "k2"), {}), "georadiusbymember": (("k1", "m", 3), {"store_dist": "k2"}),
    "hset": (("k1", "f", "v"), {}), "eval": (("s", 1, "k1"), {}),
    "geosearch": (("k1",), {"member": "m", "radius": 1, "unit": "km"}), "mget": ((["k1", "k2"],), {}),
    "geosearchstore": (("k1", "k2"), {"member": "m", "radius": 1, "unit": "km"}), "delete": (("k1", "k2"), {}),
    "exists": (("k1", "k2"), {}), "unlink": (("k1", "k2"), {}), "touch": (("k1", "k2"), {}),
    "watch": (("k1", "k2"), {}), "pfcount": (("k1", "k2"), {}), "xpending_range": (("k1", "g", "-", "+", 1), {}),
    "publish": (("k1", "m"), {}), "xreadgroup": (("g", "c", {"k1": ">"}), {}),
    "lmpop": ((2, "k1", "k2"), {"direction": "LEFT"}), "blmpop": ((1, 2, "k1", "k2"), {"direction": "LEFT"}),
    "zmpop": ((1, ["k1"]), {"min": True}), "bzmpop": ((1, 1, ["k1"]), {"min": True}), "zadd_incr": (("k1",), {}),
    "zrange": (("k1", 0, -1), {}), "pubsub_numsub": (("k1",), {}), "pubsub_shardnumsub": (("k1",), {}),
    "pubsub_channels": (("k1*",), {}), "pubsub_shardchannels": (("k1*",), {}), "fcall": (("f", 1, "k1"), {}),
    "fcall_ro": (("f", 1, "k1"), {}), "sinter": ((["k1", "k2"],), {}), "sunion": ((["k1", "k2"],), {}),
    "sdiff": ((["k1", "k2"],), {}), "hdel": (("k1", "f"), {}), "lpush": (("k1", "v"), {}), "rpush": (("k1", "v"), {}),
    "sadd": (("k1", "v"), {}), "xdel": (("k1", "1-1"), {}), "xack": (("k1", "g", "1-1"), {}),
    "pfmerge": (("k1", "k2"), {}), "keys": (("k1*",), {}), "scan": ((), {"match": "k1*"}), "scan_iter": ((), {}),
    "xtrim": (("k1",), {"maxlen": 1}), "srem": (("k1", "v"), {}), "linsert": (("k1", "BEFORE", "a", "b"), {}),
    "xclaim": (("k1", "g", "c", 0, ["1-1"]), {}), "lcs": (("k1", "k2"), {}), "evalsha": (("s", 1, "k1"), {}),
    "eval_ro": (("s", 1, "k1"), {}), "evalsha_ro": (("s", 1, "k1"), {}), "msetex": (({"k1": 1, "k2": 2},), {}),
    "hexpire": (("k1", 1, "f"), {}), "hpexpire": (("k1", 1, "f"), {}), "memory_usage": (("k1",), {}),
    "hgetex": (("k1", "f"), {"ex": 1}), "hsetex": (("k1", "f", "v"), {"ex": 1}), "hgetdel": (("k1", "f"), {}),
    "zrangestore": (("k1", "k2", 0, 1), {}), "rename": (("k1", "k2"), {}),
    "client_kill_filter": ((), {"_id": "1"}), "tfunction_list": ((), {"verbose": 1}),
    "xnack": (("k1", "g", "FAIL", "1-1"), {}),
    "arop": (("k1", 0, 1, SimpleNamespace(value="SUM")), {}), "hotkeys_start": (([SimpleNamespace(value="CPU")],), {}),
    "xcfgset": (("k1",), {"idmp_duration": 1}),
}  # fmt: skip
SILENT = {
    *("aclose", "close", "from_pool", "from_url", "get_cache", "get_connection_kwargs", "get_encoder", "get_retry"),
    *("himport_discard", "himport_discard_all", "himport_prepare", "initialize", "load_external_module"),
    *("parse_response", "pipeline", "pubsub", "register_script", "client", "set_response_callback", "set_retry"),
    *("bitfield", "sentinel", "transaction", "unwatch", "watch"),
    *("digest_local", "delete_command_from_cache", "flush_cache", "invalidate_key_from_cache", "get_subscriptions"),
}
"""Send nothing by themselves; what some of them return is tested with the rest of the behaviour."""


class Captured(Exception):
    """What would have been sent."""


def library(name: str) -> type:
    module = importlib.import_module(name)
    return getattr(module, name.partition(".")[0].capitalize())


def recording(name: str, words: list[tuple[Any, ...]]) -> AnyClient:
    """Return a client that notes the words that it is to send, instead of sending them."""

    def capture(_self: object, *args: object, **_options: object) -> None:
        words.append(args)
        raise Captured

    return type("Recording", (library(name),), {"execute_command": capture})()


def arguments(method: Callable[..., Any], name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that a method takes, and that make sense for it."""
    if name in SPECIAL:
        return SPECIAL[name]
    given: list[Any] = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            given.append(VALUES.get(parameter.name, 1 if parameter.name in NUMBERS else f"k{len(given) + 1}"))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            given.append("k9")
    return tuple(given), {}


def called(method: Callable[..., Any], name: str) -> None:
    """Call a method of either flavour, and what it returns if that does the work."""
    args, given = arguments(method, name)
    made: Any = method(*args, **given)
    if inspect.isgenerator(made):
        next(made)
    elif inspect.isawaitable(made) or inspect.isasyncgen(made):
        asyncio.run(awaited(made))


async def awaited(made: Any) -> None:  # noqa: ANN401 - a coroutine or an asynchronous generator
    await (anext(made) if inspect.isasyncgen(made) else made)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_every_method_stays_in_the_namespace_or_is_refused(name: str, valkey_server: Server) -> None:
    sent: list[tuple[Any, ...]] = []
    client: AnyClient = namespaced(recording(name, sent), "site")
    inside, refused, odd = set[str](), set[str](), set[str]()
    for method in sorted(name for name in dir(library(name)) if not name.startswith("_")):
        if method in SILENT or not callable(getattr(client, method)):
            continue
        sent.clear()
        try:
            called(getattr(client, method), method)
        except ConfigError:
            refused.add(method)
            odd |= {method} if sent else set()
        except Captured:
            inside.add(method)
            if not within(valkey_server, sent[0]):
                odd.add(f"{method}: {sent[0]}")
        except NotImplementedError:
            # The library itself does not know how.
            continue
        except Exception as error:  # noqa: BLE001 - shown with the name of the method
            odd.add(f"{method}: {error!r}")
        else:
            odd.add(f"{method} sends nothing?")
    assert not odd, "\n".join(sorted(odd))
    assert len(inside) > 190
    assert {"get", "mset", "xread", "sort", "publish", "scan_iter"} <= inside
    assert {"eval", "flushall", "lock", "monitor", "json", "dbsize", "function_load"} <= refused


def within(server: Server, args: tuple[Any, ...]) -> bool:
    """Whether all keys that the server finds in a command are in the namespace."""
    head = args[0].split() if isinstance(args[0], str) else [args[0]]
    try:
        keys = server.command("COMMAND GETKEYS", *head, *args[1:])
    except redis.ResponseError as error:
        command = lookup([word if isinstance(word, bytes) else word.encode() for word in head])
        keyless = command is not None and command.kind not in (Kind.READ, Kind.WRITE)
        return "no key arguments" in str(error) and (keyless or head[0] in ("KEYS", "SCAN"))
    return all(key.startswith("site:") for key in keys)
