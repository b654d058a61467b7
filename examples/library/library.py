"""The library itself: archives, what is known of them, and categories; files, and no lock anywhere.

Everything here reads, changes and writes: whoever calls it holds `archive:NAME`, and `category:NAME` for a category.
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
from pathlib import Path
from typing import Any


def archive_lock(name: str) -> str:
    """The lock of one archive, for the web API, the watcher and all jobs."""
    return f"archive:{name}"


class Library:
    """A folder of archives, with a file of JSON beside each."""

    def __init__(self, folder: Path) -> None:
        self.archives = folder / "archives"
        self._metadata = folder / "metadata"
        self._categories = folder / "categories"
        for path in (self.archives, self._metadata, self._categories):
            path.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """All archives."""
        return sorted(path.stem for path in self.archives.glob("*.zip"))

    def path(self, name: str) -> Path:
        """Where an archive is; raises FileNotFoundError for a name that would lead elsewhere."""
        if Path(name).name != name or name.startswith("."):
            raise FileNotFoundError(name)
        return self.archives / f"{name}.zip"

    def add(self, name: str, pages: int = 3) -> None:
        """Stores an archive; the watcher finds it."""
        unfinished = self._own(self.path(name))
        with zipfile.ZipFile(unfinished, "w") as file:
            for page in range(pages):
                file.writestr(f"{page}.txt", f"page {page} of {name}")
        unfinished.rename(self.path(name))

    def read(self, name: str) -> dict[str, Any]:
        """What is known of an archive."""
        return _read(self._metadata / f"{name}.json") or {"tags": []}

    def write(self, name: str, metadata: dict[str, Any]) -> None:
        """Replaces what is known of an archive."""
        self._store(self._metadata / f"{name}.json", metadata)

    def known(self) -> set[str]:
        """The archives of which something is known."""
        return {path.stem for path in self._metadata.glob("*.json")}

    def tag(self, name: str, tag: str) -> dict[str, Any]:
        """Adds a tag; raises FileNotFoundError for an archive that is not there."""
        self.path(name).stat()
        metadata = self.read(name)
        metadata["tags"] = sorted({*metadata["tags"], tag})
        self.write(name, metadata)
        return metadata

    def index(self, name: str) -> dict[str, Any]:
        """Looks into an archive; raises FileNotFoundError when it has vanished."""
        with zipfile.ZipFile(self.path(name)) as file:
            pages = len(file.namelist())
        metadata = self.read(name) | {"pages": pages}
        self.write(name, metadata)
        return metadata

    def delete(self, name: str) -> None:
        """Removes an archive and what is known of it; raises FileNotFoundError when it is not there."""
        self.path(name).unlink()
        (self._metadata / f"{name}.json").unlink(missing_ok=True)

    def put_into(self, category: str, name: str) -> list[str]:
        """Adds an archive to a category; raises FileNotFoundError for an archive that is not there."""
        self.path(name).stat()
        path = self._categories / f"{category}.json"
        members: list[str] = sorted({*(_read(path) or []), name})
        self._store(path, members)
        return members

    def category(self, category: str) -> list[str]:
        """The archives of a category."""
        return _read(self._categories / f"{category}.json") or []

    def _store(self, path: Path, value: object) -> None:
        unfinished = self._own(path)
        unfinished.write_text(json.dumps(value), encoding="utf-8")
        unfinished.rename(path)

    @staticmethod
    def _own(path: Path) -> Path:
        # Under a name of its own first: whoever looks must not find half of it.
        return path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")


def _read(path: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
