"""Python worker processes for tests: started from a function or a source text, talked to by lines, always reaped."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.harness.launch import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]

_CHUNK = 65_536
_TAIL = 4000


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie that waits to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        # The state is the first field after the program's name, which is in brackets and may contain any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return not Path("/proc/self").exists()


def say(*words: object) -> None:
    """Write one line to standard output at once: how a worker's function answers."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Worker:
    """One child process with its standard input and output; use `Worker.start`, best as a context manager.

    On leaving the block it is killed if it still runs, and reaped in any case. On Linux it dies with the test process.
    """

    def __init__(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | dict(env or {})
        # Not a pipe: a worker that writes much to it would block, for nobody reads it meanwhile.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._buffer = bytearray()
        self.lines: list[str] = []
        """The lines that were read so far."""

    @classmethod
    def start(
        cls, what: Callable[..., object] | str, *args: float | str | None, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start a worker.

        Args:
            what: a function of a module that can be loaded from its file, such as a tests module; or a source text,
                which finds `args` in `sys.argv[1:]`.
            args: handed to the function; numbers, strings, booleans or `None`.
            env: environment variables on top of this process's own.
        """
        if isinstance(what, str):
            texts = [str(arg) for arg in args]
            return cls([sys.executable, "-c", _PREFIX.format(parent=os.getpid()) + what, *texts], env)
        file = inspect.getsourcefile(what)
        if file is None or "<" in what.__qualname__:
            raise ValueError(f"{what!r} is no function at the top of a module's file")
        command = [sys.executable, "-m", __name__, str(os.getpid()), file, what.__qualname__, json.dumps(args)]
        return cls(command, env)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    # Talking

    def read_line(self, timeout: float = 30.0) -> str:
        """Return the next line of its standard output, without the line's end.

        Raises:
            AssertionError: none came within `timeout` seconds, or the worker ended; says what it wrote to stderr.
        """
        give_up = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if not self._read_some(max(give_up - time.monotonic(), 0)):
                raise AssertionError(f"no line from worker {self.pid} within {timeout:g} s; {self._story()}")
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        self.lines.append(line.decode())
        return self.lines[-1]

    def wait_for(self, start: str, timeout: float = 30.0) -> str:
        """Read lines until one begins with `start`, and return it; errors as `read_line`."""
        give_up = time.monotonic() + timeout
        while True:
            line = self.read_line(max(give_up - time.monotonic(), 0))
            if line.startswith(start):
                return line

    def write_line(self, line: str = "") -> None:
        """Send a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def errors(self) -> str:
        """Return what it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    # Signals and the end

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it has ended."""
        self._process.send_signal(number)

    def kill9(self) -> None:
        """Kill it at once and reap it."""
        self.signal(signal.SIGKILL)
        self._process.wait(timeout=30)

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end and return its exit code (a negative signal number if one ended it).

        Its output is read meanwhile, into `lines`. AssertionError when it still runs after `timeout` seconds.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        give_up = time.monotonic() + timeout
        while self._read_some(max(give_up - time.monotonic(), 0)):
            pass
        try:
            code = self._process.wait(max(give_up - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {self.pid} still runs after {timeout:g} s; {self._story()}") from None
        self.lines += self._buffer.decode().splitlines()
        self._buffer.clear()
        return code

    def close(self) -> None:
        """Kill it if it still runs, reap it, close the pipes; harmless when repeated."""
        self.kill9()
        for stream in (self._process.stdin, self._process.stdout):
            # Closing flushes, which fails if the process died before it read everything.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_some(self, timeout: float) -> bool:
        """Wait for output; false at the deadline and at the output's end."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            return False
        chunk = os.read(self._process.stdout.fileno(), _CHUNK)
        self._buffer += chunk
        return bool(chunk)

    def _story(self) -> str:
        code = self._process.poll()
        state = "it still runs" if code is None else f"it ended with code {code}"
        return f"{state}; lines so far: {self.lines[-5:]}; stderr: {self.errors()[-_TAIL:]}"


_PREFIX = "from tests.harness.launch import die_with_parent; die_with_parent({parent}); del die_with_parent\n"


def _main(parent: str, file: str, qualname: str, args: str) -> None:
    die_with_parent(int(parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    target: Any = module
    for name in qualname.split("."):
        target = getattr(target, name)
    target(*json.loads(args))


if __name__ == "__main__":
    _main(*sys.argv[1:])
