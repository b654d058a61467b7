"""Keys on Redis or Valkey through a client of redis-py or valkey-py, standalone or Cluster."""

from __future__ import annotations

import re
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol

from .. import options
from ..errors import ConfigError
from ..options import shown, to_ms
from .fence import fence_of, stale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..options import Seconds
    from .fence import Fence

Key = str | bytes
Value = str | bytes | int | float

SHORTEST_KEEP = 3600.0
"""Seconds; a holder may be suspended for longer than one thinks."""

_SCRIPT = (files("tenure.fencing") / "guard.lua").read_text(encoding="utf-8")
_TAG = re.compile(rb"\{[^}]+\}")
_COMMAND = re.compile(r"[A-Za-z]+(?:\.[A-Za-z.]+)?")


class Client(Protocol):
    """What is used of a client: the same method in both flavours of both libraries."""

    def register_script(self, script: Any) -> Any:  # noqa: ANN401 - each library has a type of its own for it
        """Something to call with keys and arguments, which sends the script when the server does not know it."""
        ...


class _Keys:
    """What both flavours share: everything that needs no I/O."""

    def __init__(self, client: Client, keep: Seconds, *, asyncio: bool) -> None:
        self._keep = options.seconds(keep, "keep", least=SHORTEST_KEEP)
        execute = getattr(client, "execute_command", None)
        if execute is None or not hasattr(client, "register_script"):
            msg = f"a client of redis-py or valkey-py is needed, not {shown(client)}"
            raise ConfigError(msg)
        if iscoroutinefunction(execute) is not asyncio:
            msg = (
                "this is a blocking client: FencedKeys takes it" if asyncio else "AsyncFencedKeys takes asyncio clients"
            )
            raise ConfigError(msg)
        self._script: Any = client.register_script(_SCRIPT)

    def _call(
        self, fence: Fence, name: str | None, key: Key, words: Sequence[Value], keep: float = 0.0
    ) -> tuple[list[Key], list[Value]]:
        number = fence_of(fence, name=name)
        if not isinstance(key, str | bytes) or not key:  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
            msg = f"a key is a text or bytes that are not empty, not {shown(key)}"
            raise ConfigError(msg)
        if not isinstance(words[0], str) or not _COMMAND.fullmatch(words[0]):
            msg = f"{shown(words[0])} is not the name of a command"
            raise ConfigError(msg)
        return [key, companion(key)], [str(number), to_ms(max(self._keep, keep)), *words]

    @staticmethod
    def _set(value: Value, ttl: Seconds | None) -> tuple[list[Value], float]:
        if ttl is None:
            return ["SET", value], 0.0
        left = options.seconds(ttl, "ttl", above=True)
        # A second more: two commands of a script may fall on two milliseconds.
        return ["SET", value, "PX", to_ms(left)], left + 1

    @staticmethod
    def _answer(reply: Any, keys: Sequence[Key], args: Sequence[Value]) -> Any:  # noqa: ANN401 - the command's
        admitted, value = reply
        if not admitted:
            raise stale(f"key {shown(keys[0])}", int(args[0]), int(value))
        return value


def companion(key: Key) -> Key:
    """Where the highest fence is kept with which `key` was used: `{key}:seen`, or `key:seen` with a hash tag."""
    if isinstance(key, bytes):
        return (key if _TAG.search(key) else b"{" + key + b"}") + b":seen"
    return (key if _TAG.search(key.encode()) else f"{{{key}}}") + ":seen"


class FencedKeys(_Keys):
    """Keys of any type, each with a companion that remembers the highest fence with which it was read or written.

    For the key `stock:1` the companion is `{stock:1}:seen`; both are on the same node of a cluster. The key itself is
    as it always was: who reads it without this class needs no change.

    Args:
        client: a blocking client of redis-py or valkey-py; `decode_responses` is as you like it.
        keep: how long a companion is kept after its last use, at least an hour; longer than a holder can be delayed.

    Raises `ConfigError` for another kind of client. No I/O until it is used.

    Safety: what writes to the key in another way is not refused, and a server that evicts or loses keys can lose the
    companion alone.
    """

    def __init__(self, client: Client, *, keep: Seconds = 7 * 86_400) -> None:
        super().__init__(client, keep, asyncio=False)

    def get(self, fence: Fence, key: Key, *, name: str | None = None) -> Any:  # noqa: ANN401 - bytes or str, as the client is set
        """Reads the key under the fence: from then on no older holder writes it. None when there is no such key.

        Args:
            fence: a lease, or its fence.
            key: of a string.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work. The client's own
        errors go through. May block for as long as the client does.
        """
        return self.execute(fence, "GET", key, name=name)

    def set(self, fence: Fence, key: Key, value: Value, *, ttl: Seconds | None = None, name: str | None = None) -> None:
        """Writes the key.

        Args:
            fence: a lease, or its fence.
            key: to be a string from now on.
            value: what `set` of the client takes.
            ttl: until the key expires; None: it does not.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        words, keep = self._set(value, ttl)
        keys, args = self._call(fence, name, key, words, keep)
        self._answer(self._script(keys=keys, args=args), keys, args)

    def delete(self, fence: Fence, key: Key, *, name: str | None = None) -> bool:
        """Deletes the key, whose companion stays; whether it was there.

        Args:
            fence: a lease, or its fence.
            key: of any type.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        return bool(self.execute(fence, "DEL", key, name=name))

    def execute(self, fence: Fence, command: str, key: Key, *args: Value, name: str | None = None) -> Any:  # noqa: ANN401 - the command's
        """Runs a command on the key and returns its reply as the server sends it to scripts.

        Args:
            fence: a lease, or its fence.
            command: one that has one key, as its first argument: `"HSET"`, `"RPUSH"`, `"INCRBY"`, …
            key: the key.
            args: the command's arguments after the key.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        keys, sent = self._call(fence, name, key, [command, *args])
        return self._answer(self._script(keys=keys, args=sent), keys, sent)


class AsyncFencedKeys(_Keys):
    """Keys of any type, each with a companion that remembers the highest fence with which it was read or written.

    For the key `stock:1` the companion is `{stock:1}:seen`; both are on the same node of a cluster. The key itself is
    as it always was: who reads it without this class needs no change.

    Args:
        client: an asyncio client of redis-py or valkey-py; `decode_responses` is as you like it.
        keep: how long a companion is kept after its last use, at least an hour; longer than a holder can be delayed.

    Raises `ConfigError` for another kind of client. No I/O until it is used.

    Safety: what writes to the key in another way is not refused, and a server that evicts or loses keys can lose the
    companion alone.
    """

    def __init__(self, client: Client, *, keep: Seconds = 7 * 86_400) -> None:
        super().__init__(client, keep, asyncio=True)

    async def get(self, fence: Fence, key: Key, *, name: str | None = None) -> Any:  # noqa: ANN401 - bytes or str, as the client is set
        """Reads the key under the fence: from then on no older holder writes it. None when there is no such key.

        Args:
            fence: a lease, or its fence.
            key: of a string.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work. The client's own
        errors go through. May block for as long as the client does.
        """
        return await self.execute(fence, "GET", key, name=name)

    async def set(
        self, fence: Fence, key: Key, value: Value, *, ttl: Seconds | None = None, name: str | None = None
    ) -> None:
        """Writes the key.

        Args:
            fence: a lease, or its fence.
            key: to be a string from now on.
            value: what `set` of the client takes.
            ttl: until the key expires; None: it does not.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        words, keep = self._set(value, ttl)
        keys, args = self._call(fence, name, key, words, keep)
        self._answer(await self._script(keys=keys, args=args), keys, args)

    async def delete(self, fence: Fence, key: Key, *, name: str | None = None) -> bool:
        """Deletes the key, whose companion stays; whether it was there.

        Args:
            fence: a lease, or its fence.
            key: of any type.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        return bool(await self.execute(fence, "DEL", key, name=name))

    async def execute(self, fence: Fence, command: str, key: Key, *args: Value, name: str | None = None) -> Any:  # noqa: ANN401 - the command's
        """Runs a command on the key and returns its reply as the server sends it to scripts.

        Args:
            fence: a lease, or its fence.
            command: one that has one key, as its first argument: `"HSET"`, `"RPUSH"`, `"INCRBY"`, …
            key: the key.
            args: the command's arguments after the key.
            name: of a lease of several names, the one that stands for this key.

        Raises `StaleFence` when a newer holder was here: nothing has changed then; `ConfigError` for arguments that
        cannot work. The client's own errors go through. May block for as long as the client does.
        """
        keys, sent = self._call(fence, name, key, [command, *args])
        return self._answer(await self._script(keys=keys, args=sent), keys, sent)
