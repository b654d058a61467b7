"""What the facts mean for locks: one pure function a subject; None where the server does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from .facts import Facts

OLDEST = (6, 2)
SHARDED = (7, 0)
FULL = 0.9
IDLE = 60
LEAST_BUFFER = 1 << 20
SLOW = 0.1
_ELSEWHERE = "Connect to the primary of a standalone deployment."
_MISCONF = "The server refuses writes (MISCONF): no lock can be taken, renewed or released."


def scope(facts: Facts) -> Finding:
    """Whom locks on this server exclude."""
    if facts.embedded:
        return Finding(
            "scope",
            "info",
            "the embedded server of this user on this machine",
            "These locks exclude nobody on another machine, and no other user of this one.",
            "Set TENURE_URL to share locks.",
        )
    what = f"the namespace {facts.namespace!r}" if facts.namespace else "no namespace"
    return Finding(
        "scope", "ok", f"{facts.node}, {what}: excludes whoever uses the same server, database and namespace"
    )


def access(facts: Facts) -> Finding | None:
    """What could not be read."""
    closed = [name for name, told in (("INFO", facts.info), ("CONFIG GET", facts.settings)) if not told]
    if not closed:
        return None
    return Finding(
        "access",
        "info",
        f"{' and '.join(closed)} not permitted to this user, as on many rented servers",
        "What they tell could not be examined; locks do not need them.",
        "Run doctor as a user who may, or look up eviction, persistence and replicas in the provider's console.",
    )


def version(facts: Facts) -> Finding | None:
    """Whether the server is new enough."""
    text = facts.info.get("valkey_version") or facts.info.get("redis_version")
    if text is None:
        return None
    name = "Valkey" if "valkey_version" in facts.info else "Redis"
    number = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if number < OLDEST:
        return Finding(
            "version", "error", f"{name} {text}", "Older than 6.2: the scripts need newer commands.", "Upgrade."
        )
    if number < SHARDED:
        return Finding(
            "version",
            "info",
            f"{name} {text}",
            "Before 7.0 there is no sharded publish and subscribe: a client that listens to every channel, as some "
            "monitors do, makes waiters look alive that are dead.",
            "Upgrade to 7.0 or newer.",
        )
    return Finding("version", "ok", f"{name} {text}")


def role(facts: Facts) -> Finding | None:
    """Whether this is a server to write to."""
    if "role" not in facts.info:
        return None
    if facts.number("cluster_enabled"):
        seen, means = "a node of a cluster", "This version does not follow redirections: most names will fail."
    elif facts.info.get("redis_mode") == "sentinel":
        seen, means = "a Sentinel", "It keeps no keys: nothing can be locked."
    elif facts.info["role"] != "master":
        host, port = facts.info.get("master_host", "?"), facts.info.get("master_port", "?")
        seen, means = f"a replica of {host}:{port}", "It refuses writes: every acquire fails with ServerReadOnly."
    else:
        return Finding("role", "ok", "a primary")
    return Finding("role", "error", seen, means, _ELSEWHERE)


def busy(facts: Facts) -> Finding | None:
    """Whether the server is loading, or changing its role."""
    if facts.number("loading") or facts.number("async_loading"):
        return Finding("state", "error", "loading its data", "No lock can be taken until that has ended.", "Wait.")
    failover = facts.info.get("master_failover_state", "no-failover")
    if failover != "no-failover":
        means = "Writes stop until it has ended; locks that were not replicated yet are gone then."
        return Finding("state", "error", f"a failover is in progress ({failover})", means, "Wait, then look again.")
    return Finding("state", "ok", "ready") if facts.info else None


def eviction(facts: Facts) -> Finding | None:
    """Whether the server may delete keys when its memory is full."""
    policy = facts.info.get("maxmemory_policy")
    if policy is None:
        return None
    if policy == "noeviction":
        return Finding("eviction", "ok", "maxmemory-policy is noeviction")
    do = "Set maxmemory-policy to noeviction, or give locks a server of their own."
    if not facts.number("maxmemory"):
        means = "Nothing is evicted while maxmemory is 0; once it is set, locks are deleted when memory is full."
        return Finding("eviction", "warning", f"maxmemory-policy is {policy}, maxmemory is 0", means, do)
    means = (
        "When memory is full the server deletes locks that are held (each has an expiry): two clients hold the same."
    )
    return Finding("eviction", "error", f"maxmemory-policy is {policy}", means, do)


def evicted(facts: Facts) -> Finding | None:
    """Whether keys have been deleted already."""
    count = facts.number("evicted_keys")
    if not count:
        return None
    return Finding(
        "evicted",
        "error",
        f"{count} keys were evicted since the server started",
        "Locks may have been among them, and then two clients held the same one.",
        "See `eviction`, and look for tampered locks in your logs. CONFIG RESETSTAT begins the count anew.",
    )


def memory(facts: Facts) -> Finding | None:
    """Whether memory is nearly full."""
    used, most = facts.number("used_memory"), facts.number("maxmemory")
    if used is None or not most or used < FULL * most:
        return None
    return Finding(
        "memory",
        "warning",
        f"{used / most:.0%} of maxmemory is used",
        "When it is full, acquiring fails (OOM), or eviction begins; renewals go on.",
        "Give the server more memory, or find out what fills it.",
    )


def persistence(facts: Facts) -> Finding | None:
    """What a restart does to locks."""
    if "aof_enabled" not in facts.info:
        return None
    if facts.number("aof_enabled"):
        sync = facts.settings.get("appendfsync", "unknown")
        if sync == "always":
            return Finding("persistence", "ok", "append-only file, appendfsync always")
        seen, means = f"append-only file, appendfsync {sync}", "After a crash the locks of the last moments are missing"
    elif facts.settings.get("save"):
        seen = f"snapshots only (save {facts.settings['save']})"
        means = "A restart brings back the locks of the last snapshot: newer ones are missing"
    else:
        seen, means = "no append-only file", "After a restart the server may know no lock"
    return Finding(
        "persistence",
        "info",
        seen,
        f"{means}, and can be taken by others, while their holders go on until their next renewal.",
        "Where two holders would corrupt data, check the fence there; appendonly with appendfsync always narrows it.",
    )


def disk(facts: Facts) -> Finding | None:
    """Whether the server fails to write what it should persist."""
    if facts.info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            "disk", "error", "the append-only file cannot be written", _MISCONF, "Look at the disk and the log."
        )
    if facts.info.get("rdb_last_bgsave_status", "ok") == "ok":
        return None
    stops = facts.settings.get("stop-writes-on-bgsave-error", "yes") == "yes" and bool(facts.settings.get("save", "?"))
    means = _MISCONF if stops else "A restart would bring back an older state, with locks that have ended."
    do = "Look at the server's disk and log."
    return Finding("disk", "error" if stops else "warning", "the last snapshot failed", means, do)


def replicas(facts: Facts) -> Finding | None:
    """What a failover does to locks, and whether replicas that are demanded are there."""
    attached, wanted = facts.number("connected_slaves"), facts.number("min-replicas-to-write") or 0
    if attached is None or facts.info.get("role") != "master":
        return None
    good = facts.number("min_slaves_good_slaves")
    if wanted and good is not None and good < wanted:
        return Finding(
            "replicas",
            "error",
            f"min-replicas-to-write is {wanted}, and {good} replicas are in time",
            "The server refuses writes (NOREPLICAS): no lock can be taken or renewed.",
            "Bring the replicas back, or lower min-replicas-to-write.",
        )
    if attached and not wanted:
        return Finding(
            "replicas",
            "info",
            f"{attached} attached, min-replicas-to-write is 0",
            "After a failover the newest locks may be missing; a primary that was cut off goes on granting.",
            "With min-replicas-to-write 1 it stops after min-replicas-max-lag; check the fence where it matters.",
        )
    return Finding("replicas", "ok", f"{attached} attached, {wanted} demanded")


def idle(facts: Facts) -> Finding | None:
    """Whether the server hangs up on idle clients."""
    seconds = facts.number("timeout")
    if seconds is None:
        return None
    if 0 < seconds < IDLE:
        return Finding(
            "timeout",
            "warning",
            f"connections that are idle for {seconds} s are closed",
            "No lock is lost, but many requests first have to connect anew.",
            "Set timeout to 0, or to some minutes.",
        )
    return Finding("timeout", "ok", f"timeout is {seconds}" if seconds else "idle connections stay open")


def buffers(facts: Facts) -> Finding | None:
    """Whether subscribers are cut off after a few messages."""
    words = facts.settings.get("client-output-buffer-limit", "").split()
    if "pubsub" not in words:
        return None
    hard, soft = (int(word) for word in words[words.index("pubsub") + 1 :][:2])
    least = min((limit for limit in (hard, soft) if limit), default=LEAST_BUFFER)
    if least < LEAST_BUFFER:
        return Finding(
            "buffers",
            "warning",
            f"client-output-buffer-limit cuts subscribers off at {least} bytes",
            "A client with many waiters loses its inbox in a burst of grants, and learns of them seconds later.",
            "Set client-output-buffer-limit pubsub to the default, 32mb 8mb 60.",
        )
    return Finding("buffers", "ok", "subscribers have room")


def clients(facts: Facts) -> Finding | None:
    """Whether there is room for more connections."""
    now, most = facts.number("connected_clients"), facts.number("maxclients")
    if now is None or not most:
        return None
    if now > FULL * most:
        return Finding(
            "clients",
            "warning",
            f"{now} of {most} connections are in use",
            "Beyond that the server refuses connections, also those that a renewal needs after a broken one.",
            "Raise maxclients and the limit of open files, or find out who connects so often.",
        )
    return Finding("clients", "ok", f"{now} of {most} connections are in use")


def tls(facts: Facts) -> Finding | None:
    """Whether others can listen."""
    if facts.local:
        return Finding("tls", "ok", "the connection does not leave this machine")
    if facts.tls is None:
        return None
    if facts.tls:
        return Finding("tls", "ok", "the connection is encrypted")
    return Finding(
        "tls",
        "warning",
        f"plain TCP to {facts.node}",
        "Whoever can listen reads the password and the tokens, and can then take and break every lock.",
        "Use rediss://, unless the network is trusted.",
    )


def clock(facts: Facts) -> Finding:
    """How far this machine's clock and the server's are apart."""
    apart = f"the server's clock is {abs(facts.skew):.3f} s {'ahead of' if facts.skew > 0 else 'behind'} this machine's"
    if abs(facts.skew) - facts.round_trip / 2 <= facts.grace:
        return Finding("clock", "ok", apart)
    return Finding(
        "clock",
        "warning",
        apart,
        "Leases are unaffected, since only the server's clock counts; times that are shown (`since`) are off. If the "
        "clocks of two servers differ so much, a failover ends leases early or keeps them.",
        "Run a time service (chrony, systemd-timesyncd) on both.",
    )


def latency(facts: Facts) -> Finding:
    """What each request costs."""
    seen = f"a round trip takes {facts.round_trip * 1000:.2f} ms"
    if facts.round_trip <= SLOW:
        return Finding("latency", "ok", seen)
    means = "Each acquire and release takes so long, and a ttl should be many times as long."
    return Finding("latency", "warning", seen, means, "Use a server nearby; look at its slow log.")


CHECKS: tuple[Callable[[Facts], Finding | None], ...] = (
    scope, access, version, role, busy, eviction, evicted, memory, persistence, disk, replicas, idle, buffers, clients,
    tls, clock, latency,
)  # fmt: skip
