"""What each command of Redis and Valkey may do inside a namespace, and which of its words are keys.

The groups are those of the servers' own tables: tests compare them with what `COMMAND` of a Redis and a Valkey says,
and the keys with `COMMAND GETKEYS`. A command that is not in here is unknown to those servers, and is not sent.
Options are read strictly, as the servers read them: a word that could be a key for them and none for us would escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Bare = Callable[[Any], Any]


class Kind(Enum):
    """What a command does, as far as a namespace is concerned."""

    READ = auto()
    WRITE = auto()
    PUBLISH = auto()
    SUBSCRIBE = auto()
    PLAIN = auto()
    """It has no keys, and neither shows nor changes anybody's data."""
    CONNECTION = auto()
    """It belongs to the connection that it travels on."""
    SCRIPT = auto()
    """It declares keys, and may build others that nobody can see from outside."""
    REFUSED = auto()


class Unclear(ValueError):
    """It cannot be told which words are keys, or one of them leads out of the namespace."""


class Spots(NamedTuple):
    """The places of the words that belong to the namespace, counted from the command's name."""

    keys: Sequence[int] = ()
    """Keys, and names of channels."""
    patterns: Sequence[int] = ()
    """Patterns in which the server looks for keys or channels."""
    templates: Sequence[int] = ()
    """Keys in which the server replaces the first `*` by an element."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or one subcommand (`XGROUP CREATE`)."""

    name: str
    kind: Kind
    find: Callable[[list[bytes]], Spots]
    """Finds the keys among the words; appends a pattern where one is needed that the caller did not give."""
    why: str = ""
    """Why it is refused."""


_NUMBER = re.compile(rb"0|[1-9]\d{0,8}")


def _none(words: list[bytes]) -> Spots:
    del words
    return Spots()


def _span(first: int, last: int, step: int = 1) -> Callable[[list[bytes]], Spots]:
    """Keys from one place to another, both included; a negative one is counted from the end."""

    def find(words: list[bytes]) -> Spots:
        if len(words) <= first:
            # Nothing that could be a key: the server says what is missing.
            return Spots()
        end = last if last >= 0 else len(words) + last
        if end < first or end >= len(words):
            msg = "a key is missing"
            raise Unclear(msg)
        return Spots(range(first, end + 1, step))

    return find


def _counted(at: int, *fixed: int, step: int = 1, least: int = 1) -> Callable[[list[bytes]], Spots]:
    """As many keys as the word at a place says, right behind it; and those at fixed places."""

    def find(words: list[bytes]) -> Spots:
        if len(words) <= at or not _NUMBER.fullmatch(words[at]):
            msg = "its number of keys is not a number"
            raise Unclear(msg)
        end = at + 1 + int(words[at]) * step
        if int(words[at]) < least or end > len(words):
            msg = f"it says {int(words[at])} keys and has {len(words) - at - 1} more words"
            raise Unclear(msg)
        return Spots([*fixed, *range(at + 1, end, step)])

    return find


def _options(words: list[bytes], start: int, takes: Mapping[bytes, int]) -> Iterator[tuple[bytes, int]]:
    """Each option from a place on, and the place of its argument; `takes` says how many arguments each has."""
    at = start
    while at < len(words):
        option = words[at].upper()
        if option not in takes or at + takes[option] >= len(words):
            msg = f"{option.decode(errors='replace')!r} is no option that is known, or one without its value"
            raise Unclear(msg)
        yield option, at + 1
        at += takes[option] + 1


_SORTING = {b"BY": 1, b"GET": 1, b"LIMIT": 2, b"ASC": 0, b"DESC": 0, b"ALPHA": 0}


def _sort(words: list[bytes]) -> Spots:
    keys, templates = list(_span(1, 1)(words).keys), list[int]()
    for option, at in _options(words, 2, _SORTING | {b"STORE": 1}):
        if option == b"STORE":
            keys.append(at)
        elif option in (b"BY", b"GET") and words[at] != b"#":
            templates.append(at)
    return Spots(keys, (), templates)


def _georadius(start: int) -> Callable[[list[bytes]], Spots]:
    plain = dict.fromkeys((b"WITHCOORD", b"WITHDIST", b"WITHHASH", b"ANY", b"ASC", b"DESC"), 0)
    stores = {b"STORE": 1, b"STOREDIST": 1}

    def find(words: list[bytes]) -> Spots:
        options = _options(words, start, plain | stores | {b"COUNT": 1})
        return Spots([*_span(1, 1)(words).keys, *(at for option, at in options if option in stores)])

    return find


def _streams(words: list[bytes]) -> Spots:
    takes = {b"COUNT": 1, b"BLOCK": 1, b"NOACK": 0, b"GROUP": 2, b"CLAIM": 1, b"STREAMS": 0}
    for option, at in _options(words, 1, takes):
        if option == b"STREAMS":
            count, odd = divmod(len(words) - at, 2)
            if odd or not count:
                break
            return Spots(range(at, at + count))
    msg = "behind STREAMS there must be as many keys as ids"
    raise Unclear(msg)


def _copy(words: list[bytes]) -> Spots:
    if any(word.upper() == b"DB" for word in words[3:]):
        msg = "DB leads to another database"
        raise Unclear(msg)
    return _span(1, 2)(words)


def _scan(words: list[bytes]) -> Spots:
    patterns = [at for option, at in _options(words, 2, {b"MATCH": 1, b"COUNT": 1, b"TYPE": 1}) if option == b"MATCH"]
    if not patterns:
        words += [b"MATCH", b"*"]
        patterns = [len(words) - 1]
    return Spots((), patterns)


def _pattern(words: list[bytes]) -> Spots:
    return Spots((), _span(1, 1)(words).keys)


def _all_patterns(words: list[bytes]) -> Spots:
    return Spots((), range(1, len(words)))


def _pattern_or_all(words: list[bytes]) -> Spots:
    if len(words) == 2:  # noqa: PLR2004 - the two words of PUBSUB CHANNELS
        words.append(b"*")
    return Spots((), [2])


def _rest(first: int) -> Callable[[list[bytes]], Spots]:
    return lambda words: Spots(range(first, len(words)))


_FIRST, _SECOND, _BOTH, _ALL = _span(1, 1), _span(2, 2), _span(1, 2), _span(1, -1)

_GROUPS: list[tuple[Kind, Callable[[list[bytes]], Spots], str]] = [
    (Kind.READ, _FIRST, """
        BITCOUNT BITFIELD_RO BITPOS DUMP EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO GEORADIUS_RO
        GEOSEARCH GET GETBIT GETRANGE HEXISTS HEXPIRETIME HGET HGETALL HKEYS HLEN HMGET HPEXPIRETIME HPTTL
        HRANDFIELD HSCAN HSTRLEN HTTL HVALS LINDEX LLEN LPOS LRANGE PEXPIRETIME PTTL SCARD SISMEMBER SMEMBERS
        SMISMEMBER SRANDMEMBER SSCAN STRLEN SUBSTR TTL TYPE XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZLEXCOUNT
        ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE
        ZREVRANK ZSCAN ZSCORE"""),
    (Kind.READ, _SECOND, """
        MEMORY-USAGE OBJECT-ENCODING OBJECT-FREQ OBJECT-IDLETIME OBJECT-REFCOUNT XINFO-CONSUMERS XINFO-GROUPS
        XINFO-STREAM"""),
    (Kind.READ, _BOTH, "LCS"),
    (Kind.READ, _ALL, "EXISTS MGET PFCOUNT SDIFF SINTER SUNION TOUCH"),
    (Kind.READ, _counted(1), "SINTERCARD ZDIFF ZINTER ZINTERCARD ZUNION"),
    (Kind.READ, _sort, "SORT_RO"),
    (Kind.READ, _streams, "XREAD"),
    (Kind.READ, _pattern, "KEYS"),
    (Kind.READ, _scan, "SCAN"),
    (Kind.WRITE, _FIRST, """
        APPEND BITFIELD DECR DECRBY DELIFEQ EXPIRE EXPIREAT GEOADD GETDEL GETEX GETSET HDEL HEXPIRE HEXPIREAT
        HGETDEL HGETEX HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY
        INCRBYFLOAT LINSERT LPOP LPUSH LPUSHX LREM LSET LTRIM PERSIST PEXPIRE PEXPIREAT PFADD PSETEX RESTORE RPOP
        RPUSH RPUSHX SADD SET SETBIT SETEX SETNX SETRANGE SPOP SREM XACK XADD XAUTOCLAIM XCLAIM XDEL XSETID XTRIM
        ZADD ZINCRBY ZPOPMAX ZPOPMIN ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE"""),
    (Kind.WRITE, _SECOND, "XGROUP-CREATE XGROUP-CREATECONSUMER XGROUP-DELCONSUMER XGROUP-DESTROY XGROUP-SETID"),
    (Kind.WRITE, _BOTH, "BLMOVE BRPOPLPUSH GEOSEARCHSTORE LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE"),
    (Kind.WRITE, _copy, "COPY"),
    (Kind.WRITE, _ALL, "DEL PFMERGE SDIFFSTORE SINTERSTORE SUNIONSTORE UNLINK"),
    (Kind.WRITE, _span(1, -1, 2), "MSET MSETNX"),
    (Kind.WRITE, _span(1, -2), "BLPOP BRPOP BZPOPMAX BZPOPMIN"),
    (Kind.WRITE, _span(2, -1), "BITOP"),
    (Kind.WRITE, _counted(1), "LMPOP ZMPOP"),
    (Kind.WRITE, _counted(1, step=2), "MSETEX"),
    (Kind.WRITE, _counted(2), "BLMPOP BZMPOP"),
    (Kind.WRITE, _counted(2, 1), "ZDIFFSTORE ZINTERSTORE ZUNIONSTORE"),
    (Kind.WRITE, _georadius(6), "GEORADIUS"),
    (Kind.WRITE, _georadius(5), "GEORADIUSBYMEMBER"),
    (Kind.WRITE, _sort, "SORT"),
    (Kind.WRITE, _streams, "XREADGROUP"),
    (Kind.PUBLISH, _FIRST, "PUBLISH SPUBLISH"),
    (Kind.SUBSCRIBE, _rest(1), "SUBSCRIBE SSUBSCRIBE UNSUBSCRIBE SUNSUBSCRIBE"),
    (Kind.SUBSCRIBE, _all_patterns, "PSUBSCRIBE PUNSUBSCRIBE"),
    (Kind.PLAIN, _pattern_or_all, "PUBSUB-CHANNELS PUBSUB-SHARDCHANNELS"),
    (Kind.PLAIN, _rest(2), "PUBSUB-NUMSUB PUBSUB-SHARDNUMSUB"),
    (Kind.PLAIN, _none, """
        COMMAND ECHO INFO LASTSAVE LOLWUT MEMORY-HELP OBJECT-HELP PING PUBSUB-HELP ROLE SCRIPT-HELP TIME XGROUP-HELP
        XINFO-HELP"""),
    (Kind.CONNECTION, _none, """
        CLIENT-GETNAME CLIENT-HELP CLIENT-ID CLIENT-INFO CLIENT-SETINFO CLIENT-SETNAME DISCARD QUIT UNWATCH WAIT
        WAITAOF"""),
    (Kind.CONNECTION, _ALL, "WATCH"),
    (Kind.SCRIPT, _counted(2, least=0), "EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO"),
    (Kind.SCRIPT, _none, "SCRIPT-EXISTS SCRIPT-LOAD"),
]  # fmt: skip

REFUSED = {
    "it acts on the whole server": """
        ACL BGREWRITEAOF BGSAVE CLUSTER CONFIG DEBUG FAILOVER FLUSHALL FLUSHDB FUNCTION LATENCY MODULE PFDEBUG
        PFSELFTEST REPLCONF REPLICAOF RESTORE-ASKING SAVE SCRIPT SHUTDOWN SLAVEOF SWAPDB""",
    "it shows or counts what is not in the namespace": """
        CLUSTERSCAN COMMANDLOG DBSIZE MEMORY MONITOR PSYNC PUBSUB-NUMPAT RANDOMKEY SLOWLOG SYNC""",
    "it leads to another database or server": "MIGRATE MOVE SELECT",
    "it changes a connection that others will use": "ASKING AUTH CLIENT HELLO READONLY READWRITE RESET",
    "MULTI and EXEC are sent by a pipeline": "EXEC MULTI",
    "it needs a subcommand": "OBJECT PUBSUB XGROUP XINFO",
}

_NAMES_WITH_A_DASH = {"RESTORE-ASKING"}


def _table() -> dict[str, Command]:
    made: dict[str, Command] = {}
    groups = [(kind, find, text, "") for kind, find, text in _GROUPS]
    groups += [(Kind.REFUSED, _none, text, why) for why, text in REFUSED.items()]
    for kind, find, text, why in groups:
        for word in text.split():
            name = word if word in _NAMES_WITH_A_DASH else word.replace("-", " ")
            made[name] = Command(name, kind, find, why)
    return made


COMMANDS = _table()
_CONTAINERS = {name.partition(" ")[0].encode() for name in COMMANDS if " " in name}


def lookup(words: list[bytes], more: Mapping[str, Command] | None = None) -> Command | None:
    """The command that these words are, or None when it is unknown; `more` are known beside the table."""
    first = words[0].upper()
    command = None
    if first in _CONTAINERS and len(words) > 1:
        command = COMMANDS.get(b" ".join([first, words[1].upper()]).decode(errors="replace"))
    name = first.decode(errors="replace")
    return command or COMMANDS.get(name) or (more or {}).get(name)


def newer(answer: Mapping[str, Mapping[str, Any]]) -> dict[str, Command]:
    """Commands that the table lacks, from what `command()` of a client answers: those whose keys have fixed places.

    Not the commands of modules: an index or a rule that one of them makes reaches beyond the keys that it declares.
    """
    made: dict[str, Command] = {}
    for told in answer.values():
        name, flags = str(told["name"]).upper(), set(told["flags"])
        first, last, step = int(told["first_key_pos"]), int(told["last_key_pos"]), int(told["step_count"])
        kind = Kind.READ if "readonly" in flags else Kind.WRITE if "write" in flags else None
        if name not in COMMANDS and "." not in name and first > 0 and kind and "movablekeys" not in flags:
            made[name] = Command(name, kind, _span(first, last, step))
    return made


def _list(bare: Bare, items: list[Any]) -> list[Any]:
    return [bare(item) for item in items]


def _cursor(bare: Bare, items: list[Any]) -> list[Any]:
    return [items[0], [bare(item) for item in items[1]]]


def _first(bare: Bare, items: list[Any]) -> list[Any]:
    return [bare(items[0]), *items[1:]]


def _each(bare: Bare, items: list[Any]) -> list[Any]:
    return [[bare(item[0]), *item[1:]] for item in items]


def _in_turn(bare: Bare, items: list[Any]) -> list[Any]:
    return [item if at % 2 else bare(item) for at, item in enumerate(items)]


NAMING: dict[str, Callable[[Bare, list[Any]], list[Any]]] = {
    **dict.fromkeys(("KEYS", "PUBSUB CHANNELS", "PUBSUB SHARDCHANNELS"), _list),
    **dict.fromkeys(("BLMPOP", "BLPOP", "BRPOP", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "LMPOP", "ZMPOP"), _first),
    **dict.fromkeys(("XREAD", "XREADGROUP"), _each),
    **dict.fromkeys(("PUBSUB NUMSUB", "PUBSUB SHARDNUMSUB"), _in_turn),
    "SCAN": _cursor,
}
"""Commands whose reply names keys or channels, and how to make them bare; in a map, those are its keys."""
