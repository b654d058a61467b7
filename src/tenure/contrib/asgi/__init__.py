"""Locks for web requests: a middleware for any ASGI application, and a dependency for FastAPI and Starlette.

A request that cannot have its resource is answered 423 Locked, with Retry-After and a JSON body; one that finds no
usable server 503, which is another thing. With `takeover` a request that waits asks the one in progress, whose
application sees its client disconnect, saves what it has, and ends.
"""

from .dependency import Refused, held, locked, respond
from .middleware import LockMiddleware
from .rules import Rule

__all__ = ["LockMiddleware", "Refused", "Rule", "held", "locked", "respond"]
