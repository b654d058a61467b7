"""A blocking connection on the socket that a client library has opened and authenticated."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

import hiredis

from ..core.ports import Refused, Unanswered
from ..patches import original

if TYPE_CHECKING:
    import socket

_NOT_YET = object()
_CHUNK = 65536


class SocketConnection:
    """Sends a command and reads its reply on the caller's thread, parsed by hiredis.

    After any failure between the first byte out and the last byte in it is closed: a reply that comes later must never
    be taken for the answer to another command.
    """

    def __init__(self, sock: socket.socket, owner: object) -> None:
        self._sock: socket.socket | None = sock
        # The client library's own connection object closes the socket when it is collected.
        self._owner = owner
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._timeout = -1.0
        self._poll = original("select", "poll")()
        self._poll.register(sock, select.POLLIN)

    def call(self, packed: bytes, timeout: float) -> Any:
        """Sends one packed command and returns its reply."""
        sock = self._sock
        if sock is None:
            msg = "the connection is closed"
            raise Unanswered(msg)
        try:
            if timeout != self._timeout:
                sock.settimeout(timeout)
                self._timeout = timeout
            sock.sendall(packed)
            self._reader.feed(sock.recv(_CHUNK))
            reply = self._reader.gets()
            if reply is _NOT_YET:
                reply = self._rest(sock, timeout)
        except TimeoutError:
            self.close()
            msg = f"no reply within {timeout:.2f} s"
            raise Unanswered(msg) from None
        except (OSError, hiredis.HiredisError) as error:
            self.close()
            raise Unanswered(str(error) or type(error).__name__) from None
        except BaseException:
            self.close()
            raise
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply))
        return reply

    def _rest(self, sock: socket.socket, timeout: float) -> Any:
        """What is not there yet of a reply."""
        # A reply that trickles in must not stretch the time-out of the whole.
        until = time.monotonic() + timeout
        while True:
            self._timeout = until - time.monotonic()
            if self._timeout <= 0:
                raise TimeoutError
            sock.settimeout(self._timeout)
            data = sock.recv(_CHUNK)
            if not data:
                msg = "the server closed the connection"
                raise ConnectionError(msg)
            self._reader.feed(data)
            reply = self._reader.gets()
            if reply is not _NOT_YET:
                return reply

    def usable(self) -> bool:
        """Whether it is open and silent: bytes or an end that nobody asked for mean that the server has gone."""
        return self._sock is not None and not self._poll.poll(0)

    def close(self) -> None:
        """Closes the socket; may be called twice."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def abandon(self) -> None:
        """Replaces the descriptor in a forked child: the connection stays the parent's alone.

        The number stays taken, so that the objects that still refer to it cannot close somebody else's file.
        """
        sock, self._sock = self._sock, None
        if sock is not None:
            replace_descriptor(sock.fileno())


def replace_descriptor(fd: int) -> None:
    """Makes `fd` of this process refer to nothing, without a word to the other side."""
    if fd >= 0:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, fd, inheritable=False)
        os.close(null)
