"""What is written to the server: under which keys, for how long, by which scripts, for which clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.crc import key_slot

import tenure
from tests.cases.server_side import Keys, only_fences_left
from tests.harness.commands import Monitor
from tests.harness.leaks import keys_without_ttl, leftover_keys
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server

LONG = 120.0
"""A ttl that no test waits for."""
BRACED = ("{a}b", "a{b}", "}{", "{}", "{", "}", "{{a}}", "50%{", "a}b{c}")
NAMES = ("ключ/鍵/🔑", "with space", "a:b:c", "%7Ba%7D", "*[a-z]?", "x" * 512, b"\xff\xfe\x80", b"plain", *BRACED)


def test_every_key_has_an_end_and_only_fences_stay(
    locks: AnyLocks, others: AnyLocks, valkey_server: Server, namespace: str
) -> None:
    """The server filled with helper keys of locks: signals, counters, queues."""
    holding = others.lock("a", ttl=LONG).acquire()
    assert locks.lock("a").try_acquire(0.05) is None
    waiting = locks.queue("a", ttl=LONG, wait=60)
    keys = leftover_keys(valkey_server.admin, f"{namespace}:")
    assert len(keys) == 4
    assert keys_without_ttl(valkey_server.admin, f"{namespace}:") == []
    holding.release()
    waiting.result(30).release()
    (fence,) = leftover_keys(valkey_server.admin, f"{namespace}:")
    assert fence.endswith(b":fence")
    assert 86_000_000 < valkey_server.command("PTTL", fence) <= 86_400_000


@pytest.mark.parametrize("name", BRACED)
def test_all_keys_of_a_lock_share_a_slot_whatever_braces_its_name_has(
    locks: AnyLocks, others: AnyLocks, valkey_server: Server, namespace: str, name: str
) -> None:
    """CROSSSLOT on a cluster, and the lock left behind: the keys of one lock hashed apart."""
    holding = others.lock(name, ttl=LONG).acquire()
    waiting = locks.queue(name, ttl=LONG, wait=60)
    keys = leftover_keys(valkey_server.admin, f"{namespace}:")
    assert len(keys) == 4
    assert len({key_slot(key) for key in keys}) == 1
    holding.release()
    waiting.result(30).release()


def test_every_script_call_declares_its_keys(
    locks: AnyLocks, others: AnyLocks, valkey_server: Server, namespace: str
) -> None:
    """Managed servers refused the scripts: keys that were not declared, scripts without keys, names among arguments."""
    with Monitor(valkey_server) as monitor:
        holding = others.lock("a", ttl=LONG).acquire()
        waiting = locks.queue("a", ttl=LONG, wait=60)
        holding.renew()
        holding.release()
        lease = waiting.result(30)
        locks.break_lock("a")
        lease.release()
        calls = [seen.args for seen in monitor.requests() if seen.args[0].upper().startswith(b"EVAL")]
    assert len(calls) >= 6
    own = (f"{namespace}:".encode(), f"{{{namespace}:".encode())
    for call in calls:
        count = int(call[2])
        keys, words = call[3 : 3 + count], call[3 + count :]
        assert count >= 1
        assert all(key.startswith(own) for key in keys)
        # The prefix of inbox channels is no key.
        assert not [word for word in words if word.startswith(own) and not word.startswith(own[0] + b"@")]


def test_scripts_are_sent_again_when_the_server_has_forgotten_them(
    locks: AnyLocks, flavour: Flavour, valkey_server: Server, private_server: Server
) -> None:
    """NOSCRIPT after a failover or a flush, until the process was started again."""
    lock = locks.lock("a", ttl=LONG, renew=False)
    lease = lock.acquire()
    for verb in (lease.renew, lease.release):
        valkey_server.command("SCRIPT", "FLUSH")
        verb()
    valkey_server.command("SCRIPT", "FLUSH")
    lock.acquire().release()

    moving = flavour.locks(private_server.url)
    moving.lock("a").acquire().release()
    private_server.restart()
    moving.lock("a").acquire().release()
    # A shared server outlives its test, this one does not.
    moving.close()


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"decode_responses": True, "protocol": 3}], ids=repr)
def test_a_client_that_decodes_replies_can_release(
    flavour: Flavour, others: AnyLocks, url: str, namespace: str, options: dict[str, Any]
) -> None:
    """release() always failed with decode_responses: bytes were compared with str."""
    locks = flavour.locks(flavour.client(url, **options), namespace=namespace)
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = locks.queue("a", ttl=LONG, wait=60)
    holding.release()
    lease = waiting.result(30)
    lease.renew()
    assert locks.holder("a") is not None
    assert lease.release() is tenure.Released.RELEASED


# Fine elsewhere, and to stay so here


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_any_name_is_a_lock_of_its_own(
    locks: AnyLocks, others: AnyLocks, valkey_server: Server, namespace: str, name: str | bytes
) -> None:
    """Binary, non-ASCII and braced names."""
    lease = locks.lock(name, ttl=LONG).acquire()
    assert others.lock(name).try_acquire() is None
    free = others.lock("another").try_acquire()
    assert free is not None
    free.release()
    (held,) = others.list()
    assert held.name == (name if isinstance(name, str) else name.decode("utf-8", "surrogateescape"))
    assert lease.release() is tenure.Released.RELEASED
    assert only_fences_left(valkey_server, namespace)


def test_names_that_look_alike_are_different_locks(locks: AnyLocks) -> None:
    """Names whose escaped forms might meet."""
    leases = [locks.lock(name, ttl=LONG).acquire() for name in ("{", "%7B", "%257B", "a{", "a%7B", "a", "A")]
    assert {lease.release() for lease in leases} == {tenure.Released.RELEASED}


@pytest.mark.parametrize("names", [("",), (b"",), ("x" * 513,), ("é" * 257,), (), ("a", 5), (5,), (None,)], ids=ascii)
def test_what_is_no_name_is_refused_before_any_request(flavour: Flavour, names: tuple[Any, ...]) -> None:
    """Empty names, names of more than 512 bytes, and a ttl in a name's place."""
    with pytest.raises(tenure.ConfigError):
        flavour.locks("redis://127.0.0.1:1").lock(*names)


def test_half_a_value_under_our_mark_is_somebody_elses(locks: AnyLocks, valkey_server: Server, namespace: str) -> None:
    """One truncated value made every look at the locks of a namespace fail."""
    keys = Keys(valkey_server, namespace, "a")
    for value in ("tenure1:", f"tenure1:{'0' * 44}", f"tenure1:{'0' * 44} 1 x y"):
        keys.overwrite(value)
        assert locks.lock("a").try_acquire() is None
        (held,) = locks.list()
        assert held.foreign
        with pytest.raises(tenure.NameConflict):
            locks.break_lock("a")
    assert locks.break_lock("a", force=True) is not None
    wait_until(lambda: locks.holder("a") is None, 30, "the key to be gone")
