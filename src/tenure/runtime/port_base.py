"""What the ports of both flavours share: the settings and the state of one client, and no way to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import clock

if TYPE_CHECKING:
    from .client_state import ClientState
    from .hub import Hub


class PortBase:
    """The part of `core.ports.Port` that neither sends nor sleeps."""

    def __init__(self, state: ClientState, hub: Hub) -> None:
        self._state = state
        self._hub = hub
        self.node = state.client.node
        self.server_timeout = state.server_timeout
        self.request_timeout = state.request_timeout
        self.server_time = state.server_time
        self.random = state.random
        self.register = hub.register
        self.unregister = hub.unregister
        self.keep = hub.keep
        self.forget = hub.remove

    def now(self) -> float:
        """The local clock."""
        return clock.now()

    def epoch(self) -> int:
        """How often a connection was lost."""
        return self._state.epoch

    def inbox(self) -> str:
        """The inbox while it is confirmed."""
        return self._state.inbox
