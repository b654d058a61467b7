"""What only a try can tell: the rights of this user, a whole lock, and whether messages arrive."""

from __future__ import annotations

import json
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..core.keys import channel_prefix, keys_of
from ..errors import PermissionDenied, ServerError, TenureError
from .facts import ask
from .finding import Finding

if TYPE_CHECKING:
    from ..lease import Lease
    from ..manager import Locks

TTL = 3.0
PROMPT = 1.0
"""Seconds within which a hand-over has come by message; the poll that repairs a lost one comes after half the ttl."""
WAIT = 5.0
POLL = 0.005

COMMANDS = {
    "evalsha": ("x", "0"),
    "eval": ("return 1", "0"),
    "time": (),
    "exists": ("main",),
    "get": ("main",),
    "set": ("main", "v", "PX", "1000"),
    "del": ("main",),
    "pttl": ("main",),
    "pexpire": ("queue", "1000"),
    "pexpireat": ("main", "1"),
    "type": ("main",),
    "zadd": ("queue", "1", "m"),
    "zcard": ("queue",),
    "zcount": ("queue", "0", "0"),
    "zrangebyscore": ("queue", "0", "0"),
    "zrange": ("queue", "0", "0"),
    "zrank": ("queue", "m"),
    "zrem": ("queue", "m"),
    "zscore": ("queue", "m"),
    "hget": ("entry", "f"),
    "hset": ("entry", "f", "v"),
    "hdel": ("entry", "f"),
    "ssubscribe": ("inbox",),
    "spublish": ("inbox", "m"),
    "pubsub|shardnumsub": ("inbox",),
    "ping": (),
    "scan": ("0",),
}
"""What the scripts and the hub call, with arguments; main, queue, entry and inbox stand for the probe's own."""

# Nothing is done: the server only says whether it would be. Not before Redis 7.0, where the list stays empty.
_WOULD = """
local missing = {}
for name, words in pairs(cjson.decode(ARGV[1])) do
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  if known and not allowed then missing[#missing + 1] = name end
end
return missing
"""


def _probe_name() -> str:
    return f"tenure-doctor-{secrets.token_hex(8)}"


def _missing(locks: Locks) -> list[str]:
    """The commands that the server would refuse this user."""
    keys = keys_of(locks.namespace, _probe_name())
    own = {
        "main": keys.main.decode(),
        "queue": keys.queue.decode(),
        "entry": keys.entry.decode(),
        "inbox": (channel_prefix(locks.namespace) + secrets.token_hex(8).encode()).decode(),
    }
    words = {name: [*name.split("|"), *(own.get(word, word) for word in rest)] for name, rest in COMMANDS.items()}
    try:
        found = {name.decode() for name in ask(locks, "EVAL", _WOULD, 0, json.dumps(words))}
    except PermissionDenied:
        found = {"eval"}
    return [name for name in COMMANDS if name in found]


def permissions(locks: Locks) -> list[Finding]:
    """Each command that this user may not use, and the pattern that may be why."""
    try:
        missing = _missing(locks)
    except TenureError as error:
        return [Finding("permissions", "error", str(error), "No lock can be taken.", "See the other findings.")]
    if not missing:
        return [Finding("permissions", "ok", "this user may do all that locks need")]
    space = f"{locks.namespace}:" if locks.namespace else ""
    patterns = {
        f"~{space}*": {name for name, words in COMMANDS.items() if words[:1] == ("main",)},
        f"~{{{space}*": {name for name, words in COMMANDS.items() if words[:1] in (("queue",), ("entry",))},
        f"&{space}@*": {"ssubscribe", "spublish"},
    }
    whole = [pattern for pattern, names in patterns.items() if names <= set(missing)]
    rules = " ".join(f"+{name}" for name in missing)
    seen = f"this user may not use {rules}"
    if whole:
        seen += f" (perhaps for want of {' and '.join(whole)} alone)"
    if "eval" in missing:
        seen += "; without +eval the others cannot be told"
    bearable = {"spublish", "pubsub|shardnumsub", "ping", "scan"}
    return [
        Finding(
            "permissions",
            "warning" if bearable >= set(missing) else "error",
            seen,
            "What needs these fails with PermissionDenied; docs/permissions.md says for each what does.",
            f"ACL SETUSER USER {' '.join([*whole, rules])}",
        )
    ]


def one_lock(locks: Locks) -> list[Finding]:
    """Takes, renews and releases a lock of the library's own, with somebody who waits for it."""
    name = _probe_name()
    try:
        began = time.perf_counter()
        lease = locks.lock(name, ttl=TTL, wait=0).acquire()
        try:
            lease.renew()
        except BaseException:
            lease.release()
            raise
        took = time.perf_counter() - began
    except TenureError as error:
        means = "No lock can be taken here." if isinstance(error, ServerError) else "Locks do not work here."
        return [Finding("lock", "error", str(error), means, "See the other findings.")]
    waited, problem = _handed_over(locks, name, lease)
    try:
        # Nobody will ever use this name again, and its fence would stay for a day.
        ask(locks, "DEL", keys_of(locks.namespace, name).fence)
    except TenureError as error:
        problem = problem or str(error)
    found = [Finding("lock", "ok", f"a lock was taken and renewed in {took * 1000:.1f} ms")]
    if problem is not None:
        return [
            *found,
            Finding(
                "inbox", "error", problem, "Waiting for a lock, or releasing it, fails.", "See the other findings."
            ),
        ]
    if waited > PROMPT:
        return [
            *found,
            Finding(
                "inbox",
                "warning",
                f"the next in line had the lock {waited:.1f} s after its release",
                "Messages do not arrive: waiters learn of their turn by asking, up to 5 s late.",
                "Permit +spublish and the channels; look for a proxy that passes no sharded publish and subscribe.",
            ),
        ]
    return [*found, Finding("inbox", "ok", f"the next in line had the lock after {waited * 1000:.1f} ms")]


def _handed_over(locks: Locks, name: str, lease: Lease) -> tuple[float, str | None]:
    """Seconds from the release to the grant of one who waits in another thread; or what went wrong."""

    def take() -> float:
        with locks.lock(name, ttl=TTL, wait=WAIT):
            return time.perf_counter()

    with ThreadPoolExecutor(1, thread_name_prefix="tenure-doctor") as pool:
        waiter = pool.submit(take)
        try:
            give_up = time.perf_counter() + WAIT / 2
            while not waiter.done() and time.perf_counter() < give_up and not locks.waiters(name):
                time.sleep(POLL)
            released = time.perf_counter()
            lease.release()
            return waiter.result() - released, None
        except TenureError as error:
            return 0.0, str(error)
