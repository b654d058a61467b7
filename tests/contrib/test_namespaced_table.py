"""The table of commands against the tables of real servers: nothing lacks, and both see the same keys."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenure import ConfigError
from tenure.command_table import COMMANDS, Kind, lookup
from tenure.contrib.redis_py import namespaced
from tenure.namespace import Namespace
from tests.contrib.command_lines import DUMPED, LINES, REFUSED, SCRIPTS, SUBSCRIPTIONS, fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

SITE = Namespace("site", lambda word: word if isinstance(word, bytes) else str(word).encode())
ALL_LINES = [*LINES, DUMPED, *SUBSCRIPTIONS, *SCRIPTS]


@functools.cache
def names_of(server: Server) -> dict[str, set[str]]:
    """Return the server's own table: each command and subcommand with its flags."""
    found: dict[str, set[str]] = {}
    todo = raw(server, "COMMAND")
    for row in todo:
        found[row[0].decode().upper().replace("|", " ")] = {flag.decode() for flag in row[2]}
        todo += row[9]
    return found


def raw(server: Server, *words: str | bytes) -> Any:  # noqa: ANN401 - as many types as there are commands
    """Return a reply as the server gives it."""
    connection = cast("Any", server.client()).connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        connection.disconnect()


def encoded(line: tuple[str, ...]) -> list[bytes]:
    return [word.encode() for word in line]


def keys_for(server: Server, words: list[bytes], *, lenient: bool = False) -> list[bytes]:
    """Return the keys that the server finds in a command."""
    try:
        return [key.encode() for key in server.command("COMMAND GETKEYS", *words)]
    except redis.ResponseError as error:
        if "no key arguments" in str(error) or (lenient and re.search("Invalid|wrong number", str(error))):
            return []
        raise


def test_every_command_of_the_server_is_known(own_server: Server) -> None:
    unknown = [name for name in names_of(own_server) if lookup(encoded(tuple(name.split()))) is None]
    assert not unknown, "new commands: say in command_table.py what they may do, and give them a line"


def test_the_table_knows_no_command_that_no_server_has(own_server: Server) -> None:
    # Redis 7.0 lacks what Valkey has added; the other way round nothing lacks.
    if own_server.kind == "valkey":
        assert set(COMMANDS) <= set(names_of(own_server))


def test_what_is_called_reading_only_reads_for_the_server_too(own_server: Server) -> None:
    for name, flags in names_of(own_server).items():
        command = lookup(encoded(tuple(name.split())))
        assert command is not None
        if command.kind is Kind.READ:
            assert "readonly" in flags, name
        if command.kind is Kind.WRITE:
            assert "write" in flags, name
        if command.kind is Kind.PLAIN and name != "LOLWUT":
            assert not flags & {"readonly", "write", "admin"} or name in ("LASTSAVE", "ROLE"), name


def test_every_command_has_a_line() -> None:
    shown = {command.name for line in [*ALL_LINES, *REFUSED] if (command := lookup(encoded(line))) is not None}
    assert set(COMMANDS) - shown <= {"READONLY", "READWRITE", "ASKING", "REPLCONF", "SLAVEOF", "PFSELFTEST",
                                     "BGREWRITEAOF", "PUBSUB", "XINFO", "COMMAND"}  # fmt: skip


def test_the_server_finds_the_same_keys(own_server: Server) -> None:
    known = names_of(own_server)
    for line in [*LINES, (*DUMPED, "payload"), *SCRIPTS]:
        sent = SITE.command(line, scripts=True)
        assert all(key.startswith(b"site:") for key in sent.keys), line
        if sent.name in known and sent.kind in (Kind.READ, Kind.WRITE, Kind.CONNECTION, Kind.SCRIPT):
            # Redis 7.0 wants at least two words.
            lenient = len(line) == 1
            assert keys_for(own_server, sent.words, lenient=lenient) == sent.keys, line
            bare = keys_for(own_server, encoded(line), lenient=lenient)
            assert [b"site:" + key for key in bare] == sent.keys, line


def test_what_escapes_is_refused_with_a_reason() -> None:
    for line in REFUSED:
        with pytest.raises(ConfigError, match=r"is not sent inside the namespace 'site': .{10}"):
            SITE.command(line)


def test_scripts_are_refused_unless_they_are_let_in() -> None:
    for line in SCRIPTS:
        with pytest.raises(ConfigError, match="a script may use keys that it does not declare"):
            SITE.command(line)


@pytest.mark.parametrize(
    "spelled",
    [("GET text",), (b"get", b"text"), ("gEt", b"text"), ("GET\ttext",), (b" GET text ",), ("\n", "x"), ("",), ()],
)
def test_no_spelling_gets_a_key_past(spelled: tuple[str | bytes, ...]) -> None:
    try:
        sent = SITE.command(spelled)
    except ConfigError:
        assert not b"".join(word if isinstance(word, bytes) else word.encode() for word in spelled[:1]).strip()
        return
    assert [word.upper() for word in sent.words] == [b"GET", b"SITE:TEXT"]
    packed = b"".join(cast("Any", redis.Connection)().pack_command(*sent.args))
    assert packed.upper() == b"*2\r\n$3\r\nGET\r\n$9\r\nSITE:TEXT\r\n"


def test_options_are_options_however_they_are_spelled() -> None:
    sent = SITE.command(("sort", "set", "by", "weight_*", "Get", "#", "sToRe", "new"))
    assert sent.words[1:] == [b"site:set", b"by", b"site:weight_*", b"Get", b"#", b"sToRe", b"site:new"]
    assert SITE.command(("xread", "count", "1", "streams", "a", "0")).words[4] == b"site:a"


TOKENS = st.sampled_from([
    *("0", "1", "2", "3", "-1", "01", "+1", "*", "#", "$", ">", "(1", "km", "10", ""),
    *("STORE", "STOREDIST", "BY", "GET", "LIMIT", "STREAMS", "GROUP", "COUNT", "BLOCK", "NOACK", "MATCH", "TYPE"),
    *("KEYS", "WEIGHTS", "AGGREGATE", "LEFT", "WITHSCORES", "WITHDIST", "ANY", "ASC", "ALPHA", "DB", "REPLACE"),
    *("store", "By"),
    *("text", "set", "zset", "list", "stream", "geo", "weight_*", "group", "Palermo", "NX", "EX", "CLAIM"),
])  # fmt: skip
NAMES = st.sampled_from(sorted(
    command.name for command in COMMANDS.values() if command.kind in (Kind.READ, Kind.WRITE) and command.name != "KEYS"
))  # fmt: skip


@pytest.fixture(scope="module")
def foreign(own_server: Server) -> Iterator[dict[bytes, bytes]]:
    """Keys without a prefix, under the names that the tokens have, and one namespace beside."""
    fill(own_server.client(), "SECRET")
    yield {key: own_server.command("DUMP", key) for key in own_server.command("KEYS", "*")}
    own_server.command("FLUSHALL")
    own_server.close_clients()


@settings(max_examples=300)
@given(name=NAMES, tokens=st.lists(TOKENS, max_size=9))
@example(name="SORT", tokens=["set", "GET", "weight_*", "STORE", "text"])
@example(name="SORT", tokens=["set", "BY", "nosort", "GET", "weight_*"])
@example(name="XREAD", tokens=["COUNT", "1", "STREAMS", "STREAMS", "stream", "0", "0"])
@example(name="GEORADIUS", tokens=["geo", "15", "37", "200", "km", "COUNT", "STORE", "text", "1"])
def test_no_line_gets_out(own_server: Server, foreign: dict[bytes, bytes], name: str, tokens: list[str]) -> None:
    """Any words at all: refused, or nothing outside of the namespace is read or written."""
    try:
        sent = SITE.command((name, *tokens))
    except ConfigError:
        return
    if sent.name in names_of(own_server):
        assert set(keys_for(own_server, sent.words, lenient=True)) <= set(sent.keys)
    fill(namespaced(cast("Any", own_server.admin), "site"), "ours")
    # In a transaction nothing blocks.
    pipe = cast("Any", own_server.admin).pipeline(transaction=True)
    pipe.execute_command(*sent.words)
    try:
        reply = pipe.execute()
    except redis.ResponseError:
        reply = None
    assert b"SECRET" not in repr(reply).encode()
    now = own_server.command("KEYS", "*")
    assert {key: own_server.command("DUMP", key) for key in foreign} == foreign
    assert all(key in foreign or key.startswith(b"site:") for key in now)
    assert not any(b"SECRET" in (own_server.command("DUMP", key) or b"") for key in now if key not in foreign)
