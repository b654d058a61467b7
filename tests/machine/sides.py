"""Two flavours side by side on one real server: what both machines do to them, and how their answers are compared."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tenure
from tests.conformance.flavours import KINDS, Flavour
from tests.harness.leaks import keys_without_ttl, leftover_keys
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    import warnings
    from collections.abc import Callable

    from tests.conformance.flavours import AnyLocks, Kind
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

TTL = 120.0
"""Never passes during an example: leases end by the machine's rules alone."""
CLIENTS = (0, 1)


@dataclasses.dataclass
class Side:
    """One flavour: its clients, and its half of every lease."""

    kind: Kind
    flavour: Flavour
    locks: list[AnyLocks]
    namespace: str
    last_fences: dict[str, int] = dataclasses.field(default_factory=dict[str, int])

    def name(self, lock: str = "") -> str:
        """This side's name of a lock."""
        return f"{self.kind[0]}{lock}"

    def key(self, lock: str = "") -> str:
        """The main key of it."""
        return f"{self.namespace}:{self.name(lock)}"


class Sides(RuleBasedStateMachine):
    """Two flavours with two clients each, as two processes would have them."""

    server: Server
    proxy: FaultProxy

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[Side] = []
        self.drop_replies = False
        self.namespace = ""

    @initialize()
    def start(self) -> None:
        self.namespace = f"machine-{self.server.command('INCR', 'testdata:machine')}"
        for kind in KINDS:
            flavour = Flavour(kind)
            options: dict[str, Any] = {"namespace": self.namespace, "server_timeout": 30}
            made = [flavour.locks(self.proxy.url, **options) for _ in CLIENTS]
            self.sides.append(Side(kind, flavour, made, self.namespace))
            for locks in made:
                locks.lock(f"warm-up-{kind}").acquire().release()
        self.wait_for_inboxes()

    def teardown(self) -> None:
        self.proxy.heal()
        for side in self.sides:
            side.flavour.__exit__()

    # Helpers

    def both(self, call: Callable[[Side], Any]) -> Any:  # noqa: ANN401 - an outcome
        """Do it to each side; the outcome, which is the same: a value or an error's class and reason."""
        outcomes = [self._outcome(side, call) for side in self.sides]
        self.drop_replies = False
        assert outcomes[0] == outcomes[1], dict(zip(KINDS, outcomes, strict=True))
        return outcomes[0]

    def _outcome(self, side: Side, call: Callable[[Side], Any]) -> Any:  # noqa: ANN401 - an outcome
        fault = self.proxy.drop_next_reply(b":" + side.kind[0].encode()) if self.drop_replies else None
        try:
            return call(side)
        except tenure.LeaseLost as error:
            return type(error), error.reason
        except tenure.TenureError as error:
            return type(error)
        finally:
            if fault is not None:
                # A call that needed no request has left it armed.
                self.proxy.heal()

    def client_states(self) -> list[Any]:
        return [cast("Any", locks.raw).session().state for side in self.sides for locks in side.locks]

    def wait_for_inboxes(self) -> None:
        """Until then a lease has no address at which its holder could be told."""
        wait_until(lambda: all(state.inbox for state in self.client_states()), 30, "all inboxes")

    # What can happen at any time

    @precondition(lambda self: not self.drop_replies)
    @rule()
    def lose_replies(self) -> None:
        """The next request of each side is answered, and the answer lost."""
        self.drop_replies = True

    @rule()
    def flush_scripts(self) -> None:
        self.server.command("SCRIPT", "FLUSH")

    # What is true at any time

    @invariant()
    def nobody_waits_and_every_key_ends(self) -> None:
        assert keys_without_ttl(self.server.admin, f"{self.namespace}:") == []
        left = leftover_keys(self.server.admin, f"{self.namespace}:")
        assert not [key for key in left if key.endswith(b":queue")]


def told(caught: list[warnings.WarningMessage]) -> list[str]:
    """The warnings of dropped leases."""
    return [str(warning.message) for warning in caught if "was dropped" in str(warning.message)]
