"""redis-py's own tests of its locks: from its source distribution, fetched when they are needed, never committed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLUGIN = "upstream_plugin"
ASYNC_PLUGIN = "pytest-asyncio==1.5.0"
"""Their asyncio tests need it. Fetched for them alone: loaded into our own runs it would take over our event loops."""

_FETCH_SECONDS = 80
_RUN_SECONDS = 110


def _pip(*words: str) -> None:
    """Run pip with few tries; skips the test, with pip's own words, when it cannot get what was asked for."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    command += ["--quiet", "--no-deps", "--retries", "1", "--timeout", "10"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"redis-py's own tests cannot be had: `pip {words[0]}` has not ended within {_FETCH_SECONDS} s")
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.startswith("ERROR")] or ["no reason was given"]
        pytest.skip(f"redis-py's own tests cannot be had: `pip {words[0]}` says {said[-1]}")


def source(cache: Path) -> Path:
    """The unpacked source distribution of the installed redis-py, with what its tests need beside it."""
    version = importlib.metadata.version("redis")
    ready = cache / f"redis-{version}"
    if not ready.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            folder = Path(name)
            # Its build is not needed, only its metadata: hatchling is here, and an environment for it takes a minute.
            _pip("download", "--no-binary", ":all:", "--no-build-isolation", "--dest", name, f"redis=={version}")
            _pip("install", "--target", str(folder / "plugins"), ASYNC_PLUGIN)
            (archive,) = folder.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            shutil.move(folder / "plugins", folder / ready.name / "plugins")
            try:
                (folder / ready.name).rename(ready)
            except OSError:
                # Another process was faster.
                if not ready.exists():
                    raise
    return ready


def run(folder: Path, tests: list[str], url: str) -> dict[str, str]:
    """Run test files of theirs, or single tests, with the drop-in classes; the outcome of each test by its id."""
    with tempfile.TemporaryDirectory() as name:
        report = Path(name, "report.json")
        # Without the root: their tests are a package called `tests` as well.
        path = os.pathsep.join([str(folder / "plugins"), str(ROOT / "src"), str(Path(__file__).parent)])
        command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:randomly", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--redis-url", url, *tests],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "UPSTREAM_REPORT": str(report)},
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
        if not report.exists():
            pytest.fail(f"their tests did not run:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return json.loads(report.read_text())
