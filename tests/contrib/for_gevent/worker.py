"""Starts the programs of `holding.py` and `ending.py`, in processes that gevent has patched before anything else."""

from __future__ import annotations

from tests.faults.programs import STRICT
from tests.harness.processes import Worker

PATCHED = """
from gevent import monkey
monkey.patch_all()
from tests.contrib.for_gevent import ending, greens, holding
greens.main()
"""


def start(program: str, url: str, namespace: str, **env: str) -> Worker:
    """Starts a program."""
    return Worker.start(PATCHED, program, url, namespace, env=STRICT | env)
