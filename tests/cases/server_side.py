"""What a lock's keys look like on the server, and clients of other kinds that write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.harness.leaks import leftover_keys
from tests.harness.waiting import wait_until
from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, lock_keys, plain

if TYPE_CHECKING:
    from tests.harness.servers import Server


class Keys:
    """The keys of one lock on a real server."""

    def __init__(self, server: Server, namespace: str, name: str) -> None:
        self._server = server
        self._all = lock_keys(f"{namespace}:{name}".encode())
        self.main, self.queue, self.entry, self.fence = self._all[:4]

    def value(self) -> bytes | None:
        """What the main key holds."""
        return self._server.command("GET", self.main)

    def token(self) -> str | None:
        """Whose lease it is; None when nobody holds."""
        value = self.value()
        return None if value is None else value.split(b":", 1)[1].split(b" ")[0].decode()

    def left_ms(self) -> int:
        """Milliseconds until the main key ends; -2 when there is none, -1 when it never ends."""
        return self._server.command("PTTL", self.main)

    def waiting(self) -> int:
        """How many stand in the queue."""
        return self._server.command("ZCARD", self.queue)

    def delete(self) -> None:
        """Deletes the main key, as no sound client does."""
        assert self._server.command("DEL", self.main) == 1

    def overwrite(self, value: str = "their token", life_ms: int = 60_000) -> None:
        """Another library's client takes the key."""
        self._server.command("SET", self.main, value, "PX", life_ms)

    def wait_free(self, timeout: float = 30.0) -> None:
        """Waits until nobody holds and nobody stands in the queue."""
        wait_until(lambda: self.left_ms() == -2 and not self.waiting(), timeout, f"{self.main!r} to be free")

    def dead_holder(self, ttl_ms: int) -> None:
        """A lease whose holder dies without a word."""
        reply: Any = self._acquire(0, "x", ttl_ms, 0)
        assert reply[0] == b"granted"

    def dead_waiters(self, count: int) -> None:
        """Places of waiters that have died since."""
        with Inboxes(self._server) as inboxes:
            inboxes.subscribe(PREFIX + b"dead")
            for number in range(1, count + 1):
                reply: Any = self._acquire(number, "x@sdead", 60_000, 60_000)
                assert reply[0] == b"queued"

    def _acquire(self, number: int, flags: str, ttl_ms: int, life_ms: int) -> Any:  # noqa: ANN401 - a reply
        args = (0, 1, b"%044d" % number, ttl_ms, 20, life_ms, "", flags, "{}")
        return plain(self._server.admin, "acquire", self._all, args)[2]


def only_fences_left(server: Server, namespace: str) -> bool:
    """Whether a namespace holds nothing but fences, which outlive their locks."""
    return all(key.endswith(b":fence") for key in leftover_keys(server.admin, f"{namespace}:"))
