"""The shipped scripts on a real server, with a clock that the test sets: expiry to the millisecond without a sleep.

A few lines of Lua in front of the script's own text stand between it and the server: TIME is what the test says, the
ends of keys are kept an hour ahead of the real clock, so that nothing expires by itself, and a key is deleted when the
virtual clock has passed its end. They also refuse a key that the call did not declare, and can fail at the n-th write.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, cast

from tenure.core import scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from tests.harness.servers import Server

Reply = list["bytes | int | Reply"]
Word = bytes | str | int

PREFIX = b"ns:@"
AHEAD_US = 3_600_000_000

SCRIPTS = {
    script.name: script
    for script in (
        *(scripts.ACQUIRE, scripts.ONCE, scripts.SEVERAL, scripts.ADOPT),
        *(scripts.RELEASE, scripts.WITHDRAW, scripts.RENEW, scripts.ANNOUNCE),
        *(scripts.INSPECT, scripts.ASK, scripts.BREAK),
    )
}

_VIRTUAL = rb"""
local real, fail_at, writes = redis, %d, 0
local seconds, micros_part = string.match(ARGV[1], '^(%%d+)%%.(%%d+)$')
local virtual_ms = seconds * 1000 + math.floor(micros_part / 1000)
local declared = {}
for _, key in ipairs(KEYS) do
  declared[key] = true
  local till = real.call('PEXPIRETIME', key)
  if till >= 0 and virtual_ms > till then real.call('DEL', key) end
end
local keyless = {TIME = true, PUBSUB = true, PUBLISH = true, SPUBLISH = true}
local reads = {GET = true, EXISTS = true, TYPE = true, PTTL = true, ZRANGE = true, ZRANGEBYSCORE = true, ZCOUNT = true,
  ZSCORE = true, ZRANK = true, ZCARD = true, HGET = true}
local all_are_keys = {EXISTS = true, DEL = true}
local function virtual(how, command, key, ...)
  local rest = {...}
  if command == 'TIME' then return {seconds, micros_part} end
  if not keyless[command] then
    if not declared[key] then error('undeclared key ' .. tostring(key)) end
    if not reads[command] then
      writes = writes + 1
      if writes == fail_at then error('write refused') end
    end
    for _, more in ipairs(all_are_keys[command] and rest or {}) do
      if not declared[more] then error('undeclared key ' .. more) end
    end
  end
  if command == 'PTTL' then
    local till = real.call('PEXPIRETIME', key)
    return till >= 0 and till - virtual_ms or till
  elseif command == 'PEXPIRE' then
    command, rest[1] = 'PEXPIREAT', virtual_ms + rest[1]
  elseif command == 'SET' and rest[2] == 'PX' then
    rest[2], rest[3] = 'PXAT', virtual_ms + rest[3]
  end
  return how(command, key, unpack(rest))
end
local redis = setmetatable({
  call = function(...) return virtual(real.call, ...) end,
  pcall = function(...) return virtual(real.pcall, ...) end,
}, {__index = real})
"""


def lock_keys(name: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """The five keys of a lock, in the order in which scripts want them."""
    return (name, b"{%b}:queue" % name, b"{%b}:entry" % name, b"{%b}:fence" % name, b"{%b}:shared" % name)


def member_keys(name: bytes) -> tuple[bytes, bytes, bytes]:
    """The keys by which a shared or semaphore lease is renewed, and its holders are asked."""
    main, _, entry, _, shared = lock_keys(name)
    return main, entry, shared


def again_key(name: bytes) -> bytes:
    """The sixth key of `once`."""
    return b"{%b}:again" % name


def moved_key(name: bytes, old: Word) -> bytes:
    """The sixth key of `adopt`."""
    assert isinstance(old, bytes)
    return b"{%b}:moved:%b" % (name, hashlib.sha1(old, usedforsecurity=False).hexdigest()[:8].encode())


def listed(reply: bytes | Reply) -> Reply:
    """A reply as a list: the fast paths of acquire and release answer in one string."""
    if not isinstance(reply, bytes):
        return reply
    echo, now, how, *rest = reply.split(b" ")
    if how == b"granted":
        fence, count, remaining = rest
        return [echo, int(now), [how, fence, int(count), int(remaining)]]
    return [echo, int(now), how, *map(int, rest)]


def token(number: int) -> bytes:
    """A token of the right width."""
    return b"%044d" % number


def waiter(who: bytes, *, ttl: int = 1000, grace: int = 20, life: int = 0, **more: Word) -> tuple[Word, ...]:
    """The nine words of one waiter; `more` may have `number`, `place`, `flags`, `info` and `ask`."""
    unusual = more.keys() - {"number", "place", "flags", "info", "ask"}
    assert not unusual, unusual
    tail = (more.get("place", ""), more.get("flags", "x"), more.get("info", "{}"), more.get("ask", ""))
    return (more.get("number", 1), who, ttl, grace, life, *tail)


class VirtualServer:
    """Runs scripts on `server` under a clock of its own, and looks at the keys as that clock sees them."""

    def __init__(self, server: Server) -> None:
        self._client: redis.Redis = server.admin
        self.now_us = time.time_ns() // 1000 + AHEAD_US

    @property
    def now(self) -> int:
        """The virtual clock in whole milliseconds."""
        return self.now_us // 1000

    @property
    def echo(self) -> bytes:
        """What a script called now will echo: the time itself."""
        return b"%d.%d" % divmod(self.now_us, 1_000_000)

    def command(self, *words: Word) -> Any:  # noqa: ANN401 - as many types as there are commands
        """Runs one plain command."""
        return cast("Any", self._client).execute_command(*words)

    def run(self, name: str, keys: Sequence[bytes], args: Sequence[Word], *, fail_at: int = 0) -> Reply:
        """Runs a script of the package; `fail_at` makes its n-th write fail."""
        text = _VIRTUAL % fail_at + SCRIPTS[name].text
        return listed(self.command("EVAL", text, len(keys), *keys, self.echo, PREFIX, *args))

    def acquire(
        self, lock: bytes, who: bytes, *, ttl: int = 1000, grace: int = 20, life: int = 0, **more: Word
    ) -> Reply:
        """One waiter's acquire; `more` may have what `waiter` takes, and `not_after`. Its answer alone."""
        not_after = more.pop("not_after", 0)
        item = waiter(who, ttl=ttl, grace=grace, life=life, **more)
        return cast("Reply", self.run("acquire", lock_keys(lock), (not_after, *item))[2])

    def release(self, lock: bytes, who: bytes, *, verb: str = "release") -> Reply:
        """Releases (or withdraws) a token; the answers after echo and time."""
        return self.run(verb, lock_keys(lock), (who,))[2:]

    def renew(
        self, lock: bytes, who: bytes, *, ttl: int = 1000, grace: int = 20, not_after: int = 0, shared: bool = False
    ) -> bytes:
        """Renews one lease, an exclusive one unless it is `shared`; the answer."""
        keys = member_keys(lock) if shared else (lock,)
        return cast("bytes", self.run("renew", keys, (not_after, int(not shared), who, ttl, grace))[2])

    def state(self) -> dict[bytes, tuple[str, object, int | None]]:
        """Every key that lives at the virtual time: type, value, last millisecond or None."""
        dump: dict[bytes, tuple[str, object, int | None]] = {}
        keys: list[bytes] = self.command("KEYS", "*")
        for key in sorted(keys):
            end: int = self.command("PEXPIRETIME", key)
            if end >= 0 and self.now > end:
                self.command("DEL", key)
                continue
            kind: str = self.command("TYPE", key).decode()
            dump[key] = (kind, self._value(key, kind), None if end < 0 else end)
        return dump

    def _value(self, key: bytes, kind: str) -> object:
        if kind == "string":
            return self.command("GET", key)
        if kind == "hash":
            return self.command("HGETALL", key)
        if kind == "zset":
            flat: list[bytes] = self.command("ZRANGE", key, 0, -1, "WITHSCORES")
            return [(int(score), member) for member, score in zip(flat[::2], flat[1::2], strict=True)]
        return b"".join(self.command("LRANGE", key, 0, -1))


def plain(client: redis.Redis, name: str, keys: Sequence[bytes], args: Sequence[Word]) -> Reply:
    """Runs a script as it is shipped, on the server's own clock."""
    reply = cast("Any", client).execute_command("EVAL", SCRIPTS[name].text, len(keys), *keys, b"echo", PREFIX, *args)
    return listed(reply)


def plain_acquire(client: redis.Redis, lock: bytes, who: bytes, *, life: int = 0, flags: str = "x") -> Reply:
    """One waiter's acquire with a ttl of a minute, on the server's own clock; its answer alone."""
    item = waiter(who, ttl=60_000, life=life, flags=flags)
    return cast("Reply", plain(client, "acquire", lock_keys(lock), (0, *item))[2])
