"""Transaction and AsyncTransaction: MULTI and EXEC that take effect only while a lease is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from redis.commands import AsyncCoreCommands, CoreCommands

from ..runtime.blocking import run
from .base import TransactionBase
from .links import AioLink, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import TracebackType

    from ..core.lease_state import Hold
    from ..runtime.session import Session


class Transaction(TransactionBase, CoreCommands):
    """A block whose writes take effect together, and only while the lease is held.

    Before `multi()` commands that read are carried out at once; after it all are queued, and carried out when the block
    ends without an error. They are redis-py's, with its arguments and, as bytes, its replies; keys and channels are
    inside the namespace of the locks. `results` has the replies.
    """

    _is_async_client: Literal[False] = False
    # Declared by the commands of redis-py, which use it for nothing that has a place here.
    _event_dispatcher: Any = None

    def __init__(self, session: Session, holds: Sequence[Hold], check: Callable[[], None]) -> None:
        super().__init__(session, holds, check, session.port, Link(session.state.client))

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as in redis-py
        """Carries a command out, or queues it; what all other commands are made of.

        Raises `ConfigError` for a command that has no place here, `LeaseLost` when the lease is lost, a `ServerError`
        when the server refuses it or cannot be reached. May block for `server_timeout`.
        """
        sent = self._admit(args)
        return self._later(sent, options) if self._queueing else run(self._read(sent, options))

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                run(self._commit())
        finally:
            self._end()


class AsyncTransaction(TransactionBase, AsyncCoreCommands):
    """A block whose writes take effect together, and only while the lease is held.

    Before `multi()` commands that read are carried out at once; after it all are queued, and carried out when the block
    ends without an error. They are redis-py's, with its arguments and, as bytes, its replies; keys and channels are
    inside the namespace of the locks. `results` has the replies.
    """

    _is_async_client: Literal[True] = True
    # Declared by the commands of redis-py, which use it for nothing that has a place here.
    _event_dispatcher: Any = None

    def __init__(self, session: Session, holds: Sequence[Hold], check: Callable[[], None]) -> None:
        super().__init__(session, holds, check, session.aio_port(), AioLink(session.state.client))

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as in redis-py
        """Carries a command out, or queues it; what all other commands are made of.

        Raises `ConfigError` for a command that has no place here, `LeaseLost` when the lease is lost, a `ServerError`
        when the server refuses it or cannot be reached. May block for `server_timeout`.
        """
        sent = self._admit(args)
        return self._later(sent, options) if self._queueing else self._read(sent, options)

    def __await__(self) -> Generator[Any, Any, Self]:
        # `await tx.set(...)` is as good as `tx.set(...)` once commands are queued.
        async def itself() -> Self:
            return self

        return itself().__await__()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._commit()
        finally:
            self._end()
