"""The figures of the examples' tests, as JSON in build/examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[2] / "build" / "examples"


def write(name: str, figures: Mapping[str, Any]) -> None:
    """Writes the figures of one example, replacing those of an earlier run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
