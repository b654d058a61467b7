"""From names to keys: one slot per lock, no two locks with a key in common, and back again."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tenure.core.keys import again_key, channel_prefix, keys_of, main_key, name_of, pattern_of

MANY = settings(max_examples=80)
# The characters that structure keys, often; and everything else that a name may have.
NAMES = st.one_of(
    st.text("{}%:a7BD25@*", min_size=1, max_size=12),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12),
    st.binary(min_size=1, max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
).filter(lambda name: bool(name.strip()))
SPACES = st.one_of(st.just(""), st.text("ab%-_ .", min_size=1, max_size=5))


def hash_tag(key: bytes) -> bytes:
    """What a cluster hashes: what stands between the first brace and the next closing one, if that is anything."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


@MANY
@given(SPACES, NAMES)
def test_all_keys_of_a_lock_share_a_slot(space: str, name: str) -> None:
    keys = keys_of(space, name)
    assert len({hash_tag(key) for key in (*keys.all, again_key(keys))}) == 1
    assert len({*keys.all, again_key(keys)}) == 6
    assert b"{" not in keys.main
    assert b"}" not in keys.main
    assert keys.all == (keys.main, keys.queue, keys.entry, keys.fence, keys.shared)


@MANY
@given(SPACES, NAMES, NAMES)
def test_two_locks_have_no_key_in_common(space: str, one: str, other: str) -> None:
    assume(one != other)
    assert not set(keys_of(space, one).all) & set(keys_of(space, other).all)


@MANY
@given(SPACES.filter(bool), SPACES.filter(bool), NAMES, NAMES)
def test_two_namespaces_have_no_key_in_common(one: str, other: str, name: str, another: str) -> None:
    assume(one != other)
    assert not set(keys_of(one, name).all) & set(keys_of(other, another).all)


@MANY
@given(SPACES, NAMES)
def test_a_name_can_be_read_back_from_its_key_and_from_no_other(space: str, name: str) -> None:
    keys = keys_of(space, name)
    assert name_of(space, keys.main) == name
    assert [name_of(space, key) for key in (*keys.all[1:], again_key(keys))] == [None] * 5
    assert keys.name == name
    if space:
        assert name_of(f"{space}x", keys.main) is None


@MANY
@given(SPACES, NAMES, NAMES)
def test_the_pattern_of_a_prefix_finds_its_names_and_no_others(space: str, prefix: str, name: str) -> None:
    glob = pattern_of(space, prefix)
    # A server's glob with every special character escaped, and one star at the end.
    assert glob.endswith(b"*")
    literal = re.sub(rb"\\(.)", rb"\1", glob[:-1], flags=re.DOTALL)
    assert not re.search(rb"(?<!\\)(?:\\\\)*[*?\[\]]", glob[:-1])
    for candidate in (name, prefix, f"{prefix}{name}"):
        assert keys_of(space, candidate).main.startswith(literal) is candidate.startswith(prefix)


@pytest.mark.parametrize(
    ("space", "name", "main"),
    [
        ("tenure", "invoice:42", b"tenure:invoice:42"),
        ("", "plain", b"plain"),
        ("n", "{}a}", b"n:%7B%7Da%7D"),
        ("n", "100%", b"n:100%25"),
        ("n", "%7B", b"n:%257B"),
        ("n", "ü", "n:ü".encode()),
        ("n", b"\xff".decode("utf-8", "surrogateescape"), b"n:\xff"),
    ],
)
def test_keys_are_as_the_design_says(space: str, name: str, main: bytes) -> None:
    keys = keys_of(space, name)
    assert keys.main == main == main_key(space, name).encode("utf-8", "surrogateescape")
    assert keys.queue == b"{" + main + b"}:queue"
    assert keys.entry == b"{" + main + b"}:entry"
    assert keys.fence == b"{" + main + b"}:fence"
    assert keys.shared == b"{" + main + b"}:shared"
    assert again_key(keys) == b"{" + main + b"}:again"


def test_inboxes_have_channels_of_their_own() -> None:
    assert channel_prefix("n") == b"n:@"
    assert channel_prefix("") == b"@"
