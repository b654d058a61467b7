"""The `tenure` command. Needs the extra `cli` (click and rich), which the library itself does without."""

from __future__ import annotations

import importlib.util
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the `tenure` command with the arguments of this process, and end the process with its exit code."""
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"tenure: the command needs {' and '.join(missing)}: pip install 'tenure[cli]'\n")
        sys.exit(2)
    from .app import app  # noqa: PLC0415 - click may be absent, and then the line above is all that a user should see

    app(prog_name="tenure")
    raise AssertionError("click ends the process")
