"""Run the static checks, the later ones also after an earlier one has failed, and say at the end which did.

Usage: `python tools/check.py [NAME...]`; without a name, all of them.
"""

from __future__ import annotations

import subprocess
import sys
import time

CHECKS = {
    "ruff check": ["-m", "ruff", "check", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
    "mypy": ["-m", "mypy"],
    "import-linter": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
    # A fresh environment each time: a warning of a page that is not read again would be missed.
    "docs": ["-m", "sphinx", "-W", "-n", "-E", "--keep-going", "-q", "-b", "html", "docs", "build/docs"],
}


def main(names: list[str]) -> int:
    """Run the checks one after the other; 0 when all passed, else 1. Blocks until the last one is done."""
    if unknown := [name for name in names if name not in CHECKS]:
        print(f"no such check: {', '.join(unknown)}; there are: {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in names or CHECKS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        if subprocess.run([sys.executable, *CHECKS[name]], check=False).returncode != 0:
            failed.append(name)
        print(f"== {name}: {'FAILED' if name in failed else 'ok'} ({time.monotonic() - began:.1f} s)", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
