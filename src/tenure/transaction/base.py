"""What both flavours of a transaction share: what may be in it, and how it is committed.

The lock's key is watched while its value is compared, so EXEC does nothing once the lease has ended on the server. A
renewal changes the key as well: then the value is read again, and EXEC tried again.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import redis

from ..clients.resp import pack
from ..command_table import Kind
from ..core import backoff
from ..core.exchange import Kind as Answer
from ..core.exchange import classify
from ..core.keys import short_id
from ..core.ports import NotSent, Refused, Unanswered
from ..errors import ConfigError, LeaseLost, PermissionDenied, ServerError, ServerReadOnly, ServerUnavailable
from ..namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..core.lease_state import Hold
    from ..core.ports import Port
    from ..namespace import Sent
    from ..runtime.session import Session
    from .links import AioLink, Link

T = TypeVar("T")

MARK = b"tenure1:"
"""How the value of a lock's key begins, in front of the holder's token; as in the scripts."""

_LIBRARYS_OWN = frozenset({"keys", "NEVER_DECODE", "EMPTY_RESPONSE"})
_UNKNOWN = (
    "the answer to EXEC did not come, so it is unknown whether the transaction was carried out, all of it or nothing; "
    "read what it writes before you repeat it"
)


class _Again(Exception):
    """No error but an answer: the lock's key was changed before EXEC, which did nothing; by a renewal most likely."""


@functools.cache
def _library() -> redis.Redis:
    """Knows how redis-py encodes arguments and parses replies; it never connects."""
    return redis.Redis(protocol=2)


class TransactionBase:
    """What both flavours share: everything but the way to wait."""

    def __init__(
        self, session: Session, holds: Sequence[Hold], check: Callable[[], None], port: Port, link: Link | AioLink
    ) -> None:
        if any(hold.terms.mode != "exclusive" for hold in holds):
            msg = "a transaction needs an exclusive lease: a shared one, or one of a semaphore, excludes nobody"
            raise ConfigError(msg)
        self.results: list[Any] = []
        """After the block: the replies to what was queued, in order, as redis-py returns them."""
        self._session = session
        self._holds = holds
        self._check = check
        self._port = port
        self._link = link
        self._names = Namespace(session.state.defaults.namespace, cast("Any", _library()).get_encoder().encode)
        self._open = False
        self._queueing = False
        self._queue: list[tuple[Sent, dict[str, Any]]] = []
        self._command = ""

    def multi(self) -> None:
        """From here on commands are queued, to be carried out together when the block ends.

        Raises `ConfigError` when called twice.
        """
        if self._queueing:
            msg = "multi() was called already: everything after it is queued"
            raise ConfigError(msg)
        self._queueing = True

    def _admit(self, args: tuple[Any, ...]) -> Sent:
        if not self._open:
            msg = "a transaction is used inside its block: with lease.transaction() as tx: ..."
            raise ConfigError(msg)
        sent = self._names.command(args)
        if sent.kind in (Kind.CONNECTION, Kind.SUBSCRIBE):
            msg = (
                f"{sent.name} cannot be part of a transaction of a lease: the lock is what is watched, and who else "
                f"writes here has to hold it"
            )
            raise ConfigError(msg)
        if sent.kind in (Kind.READ, Kind.WRITE) and not sent.keys and sent.name not in ("KEYS", "SCAN"):
            msg = f"{sent.name} has no key"
            raise ConfigError(msg)
        for hold in self._holds:
            main = hold.keys.main
            if any(key == main or key.startswith(b"{%b}:" % main) for key in sent.keys):
                msg = f"{sent.name} would touch a key of the lock {hold.keys.name!r} itself; give the data another name"
                raise ConfigError(msg)
        if not self._queueing:
            if sent.kind in (Kind.WRITE, Kind.PUBLISH):
                msg = f"{sent.name} changes something: call multi() first, or it would run at once and unguarded"
                raise ConfigError(msg)
            if sent.name == "XREAD" and b"BLOCK" in (word.upper() for word in sent.words[1 : -2 * len(sent.keys)]):
                msg = "XREAD with BLOCK cannot be part of a transaction: nobody would renew what it waits for"
                raise ConfigError(msg)
        return sent

    def _later(self, sent: Sent, options: dict[str, Any]) -> Self:
        self._queue.append((sent, options))
        return self

    def _parsed(self, sent: Sent, options: dict[str, Any], raw: Any) -> Any:  # noqa: ANN401 - any reply
        """A reply as redis-py returns it, with keys as the caller knows them."""
        reply = self._names.reply(sent.name, raw)
        known = cast("dict[str, Any]", _library().response_callbacks)
        if sent.args[0] not in known:
            return reply
        return known[sent.args[0]](
            reply, **{name: value for name, value in options.items() if name not in _LIBRARYS_OWN}
        )

    async def _call(self, name: str, words: Sequence[bytes]) -> Any:  # noqa: ANN401 - any reply
        self._command = name
        return await self._link.call(pack(*words), self._port.request_timeout)

    async def _read(self, sent: Sent, options: dict[str, Any]) -> Any:  # noqa: ANN401 - any reply
        async def step() -> object:
            return await self._call(sent.name, sent.words)

        return self._parsed(sent, options, await self._patiently(step))

    async def _commit(self) -> None:
        if not self._queue:
            self._check()
            return
        try:
            raw = await self._patiently(self._execute)
        except LeaseLost as loss:
            loss.add_note("nothing of the transaction was written")
            raise
        self.results = [
            reply if isinstance(reply, Exception) else self._parsed(sent, options, reply)
            for (sent, options), reply in zip(self._queue, raw, strict=True)
        ]
        for at, reply in enumerate(raw):
            if isinstance(reply, Exception):
                name = self._queue[at][0].name
                msg = (
                    f"command {at + 1} of the transaction ({name}) failed: {reply}; the other commands were carried "
                    f"out, since the server does not roll back; `results` has their replies"
                )
                raise ServerError(msg, node=self._port.node, cause=str(reply))

    async def _execute(self) -> list[Any]:
        """One try: the replies, or `_Again` when the key was touched in between."""
        await self._call("WATCH", (b"WATCH", *(hold.keys.main for hold in self._holds)))
        for hold in self._holds:
            await self._compare(hold)
        await self._call("MULTI", (b"MULTI",))
        for sent, _ in self._queue:
            await self._call(sent.name, sent.words)
        # The deadline may have passed meanwhile, and a lease that is lost here is lost.
        self._check()
        try:
            raw = await self._call("EXEC", (b"EXEC",))
        except Refused:
            raise
        except Unanswered as failure:
            node = self._port.node
            msg = f"no answer from the server at {node}: {failure.cause}; {_UNKNOWN}"
            raise ServerUnavailable(msg, node=node, cause=failure.cause) from None
        except BaseException as error:
            error.add_note(f"interrupted: {_UNKNOWN}")
            raise
        if raw is None:
            raise _Again
        return cast("list[Any]", raw)

    async def _compare(self, hold: Hold) -> None:
        """Whether the server still has the lease; raises `LeaseLost`."""
        try:
            value = await self._call("GET", (b"GET", hold.keys.main))
        except Refused as refused:
            if classify(refused.text) is not Answer.CONFLICT:
                raise
            value = b""
        outcome = _ended(value, hold.token)
        if outcome:
            self._session.hub.ended(hold, outcome)
            self._check()
            msg = f"lock {hold.keys.name!r} is not held any more; nothing was written"
            raise LeaseLost(msg, names=(hold.keys.name,), reason="taken")

    async def _patiently(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeats a step that has had no effect while the lease is held, for `server_timeout` at most."""
        port = self._port
        give_up = port.now() + port.server_timeout
        attempt = 0
        reconnected = False
        while True:
            self._check()
            try:
                return await step()
            except _Again:
                msg = f"the key of the lock changed at every one of {attempt + 1} tries; nothing was written"
                error: ServerError = ServerUnavailable(msg, node=port.node, cause="EXEC answered nil")
            except NotSent as failure:
                msg = f"cannot reach the server at {port.node}: {failure.cause}; nothing was written"
                error = ServerUnavailable(msg, node=port.node, cause=failure.cause)
                if failure.fatal:
                    raise error from None
            except Unanswered as failure:
                self._link.close()
                msg = f"no answer from the server at {port.node}: {failure.cause}; nothing was written"
                error = ServerUnavailable(msg, node=port.node, cause=failure.cause)
            except Refused as refused:
                # Whatever was queued on this connection is forgotten with it.
                self._link.close()
                kind = classify(refused.text)
                error = self._refusal(refused.text, kind)
                if kind is Answer.READONLY and not reconnected:
                    reconnected = True
                    continue
                if kind is not Answer.RETRY:
                    raise error from None
            pause = backoff.delay(attempt, port.random())
            attempt += 1
            if port.now() + pause >= give_up:
                raise error from None
            await port.sleep(pause)

    def _refusal(self, text: str, kind: Answer) -> ServerError:
        node = self._port.node
        msg = f"the server at {node} refused {self._command} in a transaction: {text}; nothing was written"
        known: dict[Answer, type[ServerError]] = {
            Answer.READONLY: ServerReadOnly,
            Answer.DENIED: PermissionDenied,
            Answer.RETRY: ServerUnavailable,
        }
        return known.get(kind, ServerError)(msg, node=node, cause=text)

    def _begin(self) -> None:
        if self._open or self._queue:
            msg = "a transaction is used once; call lease.transaction() again"
            raise ConfigError(msg)
        self._check()
        self._open = True

    def _end(self) -> None:
        self._open = False
        self._link.close(forked=self._session.forked)


def _ended(value: object, token: bytes) -> str:
    """How the lease of `token` has ended, from what the lock's key holds; empty while it is held."""
    if value is None:
        return "gone"
    words = value.split(b" ", 4) if isinstance(value, bytes) and value.startswith(MARK) else []
    flags = words[3] if len(words) > 4 else b""  # noqa: PLR2004 - token, fence, since, flags, info
    if not words or words[0] != MARK + token:
        return "moved" if b"<" + short_id(token).encode() in flags else "taken"
    return "revoked" if flags.startswith(b"!") else ""
