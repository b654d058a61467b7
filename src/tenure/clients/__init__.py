"""Ways to a server: the public protocol `Client`, how its connections may fail, and one adapter a file."""

from ..core.ports import NotSent, Refused, Unanswered
from .base import AsyncConnection, Client, Connection

__all__ = ["AsyncConnection", "Client", "Connection", "NotSent", "Refused", "Unanswered"]
