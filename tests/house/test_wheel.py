"""What users install is the wheel, not the tree: it must hold the Lua files, the type marker and the entry point."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=110,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.Path(built)


def test_everything_of_the_package_is_in_the_wheel(wheel: zipfile.Path) -> None:
    source = ROOT / "src" / "tenure"
    files = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert {name for name in files if not (wheel / "tenure" / name).exists()} == set()
    assert "py.typed" in files


def test_the_wheel_has_the_lua_files(wheel: zipfile.Path) -> None:
    scripts = [path.name for path in (wheel / "tenure" / "core" / "lua").iterdir()]
    assert [name for name in scripts if name.endswith(".lua")]


def test_the_wheel_has_nothing_but_the_package(wheel: zipfile.Path) -> None:
    assert sorted(path.name.split("-")[0] for path in wheel.iterdir()) == ["tenure", "tenure"]


def test_the_command_and_the_dependencies(wheel: zipfile.Path) -> None:
    (info,) = [path for path in wheel.iterdir() if path.name.endswith(".dist-info")]
    assert "tenure = tenure.cli:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text(encoding="utf-8")
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [line.split()[1].split("<")[0].split(">")[0] for line in required] == ["redis[hiredis]"]
    assert "License-Expression: MIT" in metadata
