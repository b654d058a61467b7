"""A PostgreSQL of the tests' own: a cluster in a temporary folder, on a unix socket, as an unprivileged user.

The server refuses to run as root; then it runs as `nobody`, to whom the folder is given.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from tests.harness.waiting import wait_until

MISSING = "no PostgreSQL server programs on this machine (apt install postgresql)"

_READY_SECONDS = 60.0
_LAUNCHER = Path(__file__).parents[1] / "harness" / "launch.py"
_NOBODY = 65_534
_USER = "tester"


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`: on PATH, or where Debian keeps each version."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((path for path in folders if (path / "initdb").exists() and (path / "postgres").exists()), None)


class Postgres:
    """One server; `start` it, `stop` it. It ends with the test process in any case."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._process = process
        self._owner = os.getpid()

    @classmethod
    def start(cls) -> Self:
        """Make a cluster and return once it takes connections (about two seconds)."""
        binaries = programs()
        if binaries is None:
            raise RuntimeError(MISSING)
        # A unix socket's path may have about 100 characters.
        folder = Path(tempfile.mkdtemp(prefix="tn-pg-"))
        as_nobody: list[str] = []
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
            as_nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        data = folder / "data"
        settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off", "max_connections": 50}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            subprocess.run(
                [*as_nobody, binaries / "initdb", "-A", "trust", "-U", _USER, "-E", "UTF8", "--no-locale", "-N", data],
                check=True, timeout=_READY_SECONDS, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
            )  # fmt: skip
            # The kernel forgets the wish to die with the parent when the user changes: so it is made after that.
            wrapper = [*as_nobody, "--pdeathsig=QUIT"] if as_nobody else [sys.executable, "-I", "-S", str(_LAUNCHER)]
            wrapper += [] if as_nobody else [str(os.getpid())]
            process = subprocess.Popen(
                [*wrapper, binaries / "postgres", "-D", data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            )  # fmt: skip
        server = cls(folder, process)
        atexit.register(server.stop)
        wait_until(server._answers, _READY_SECONDS, f"PostgreSQL to start:\n{(folder / 'log').read_text()[-2000:]}")
        return server

    def conninfo(self, schema: str) -> str:
        """What `psycopg.connect` takes, with a schema that unqualified names are in."""
        return f"host={self._folder} user={_USER} dbname=postgres options='-c search_path={schema}'"

    def sqlalchemy_url(self, schema: str) -> str:
        """What `create_engine` takes."""
        return f"postgresql+psycopg://{_USER}@/postgres?host={self._folder}&options=-csearch_path%3D{schema}"

    def new_schema(self) -> str:
        """An empty schema of a name that nobody else uses."""
        schema = f"t{secrets.token_hex(6)}"
        with psycopg.connect(self.conninfo("public"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        return schema

    def stop(self) -> None:
        """End the server and delete its folder; harmless when repeated."""
        if self._owner != os.getpid():
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL has ended:\n{(self._folder / 'log').read_text()[-4000:]}")
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.conninfo("public")).close()
            return True
        return False
