"""The same commands as `make`, each in an environment of its own and on every Python that is installed."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "types", "tests"]

PYTHONS = ["3.11", "3.12", "3.13"]


def install(session: nox.Session) -> None:
    """Install what `make test` installs."""
    session.install("--editable", ".[all]", "--requirement", "requirements-dev.txt")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The whole test suite; arguments after `--` go to pytest."""
    install(session)
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=PYTHONS[0])
def lint(session: nox.Session) -> None:
    """Ruff and the import rules."""
    install(session)
    session.run("python", "tools/check.py", "ruff check", "ruff format", "import-linter")


@nox.session(python=PYTHONS[0])
def types(session: nox.Session) -> None:
    """Types, as we check ours (pyright) and as a user may check theirs (mypy)."""
    install(session)
    session.run("python", "tools/check.py", "pyright", "mypy")
