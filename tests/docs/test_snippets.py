"""Every Python block of every page runs, in order, against a real server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.docs.pages import ROOT, blocks, pages, title
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers import Server

OWN_PROCESS = {"django.md"}
"""Pages that set up something of which a process has one: Django's settings."""

WITH_CODE = [page for page in pages() if blocks(page, "python")]


def run(page: Path) -> dict[str, Any]:
    """Run a page's blocks in one namespace, and close the locks that it has made as a program does at its end."""
    # The reader presses Return at once.
    names: dict[str, Any] = {"__name__": "page", "input": lambda _prompt="": ""}
    sigterm = signal.getsignal(signal.SIGTERM)
    try:
        for block in blocks(page, "python"):
            # Blank lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), names)  # noqa: S102
    finally:
        signal.signal(signal.SIGTERM, sigterm)
        for made in names.values():
            if isinstance(made, tenure.Locks):
                made.close()
            elif isinstance(made, tenure.AsyncLocks):
                asyncio.run(made.close())
    return names


@pytest.mark.parametrize("page", WITH_CODE, ids=title)
def test_snippets_of_a_page_run(page: Path, valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", valkey_server.url)
    if page.name in OWN_PROCESS:
        command_line = "import pathlib, sys; from tests.docs.test_snippets import run; run(pathlib.Path(sys.argv[1]))"
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        environment = os.environ | {"PYTHONPATH": path}
        subprocess.run([sys.executable, "-c", command_line, str(page)], check=True, env=environment, timeout=100)
    else:
        run(page)
    # A lock's last fence stays for a day, python-redis-lock's signal for a second. A lease that was lost on purpose has
    # its key for the grace, and the release that the hub sends may come after the page's end.
    stays = re.compile(rb".*:(fence|again|moved:\w+)|lock-signal:.*")
    command = valkey_server.command
    wait_until(lambda: all(stays.fullmatch(key) for key in command("KEYS", "*")), 15, "the page's locks to be free")


def test_the_readme_runs_on_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_URL", raising=False)
    names = run(ROOT / "README.md")
    assert names["locks"].statistics is not None


def test_the_readme_shows_both_flavours() -> None:
    text = "".join(block.text for block in blocks(ROOT / "README.md", "python"))
    assert "tenure.Locks()" in text
    assert "tenure.AsyncLocks()" in text
