"""House rules about files: their size, what they must not contain, and what must be there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 400
LONGER_WITH_A_REASON: dict[str, str] = {}
"""Path of a Python file that may have more than `LONGEST` lines -> why splitting it would make it harder to read."""

MACHINE_PATH = re.compile(r"(?<![\w.}*])/(?:work|root|home/\w+|Users/\w+)(?:/|\b)")
NEVER_CLAIMED = re.compile(r"\b(guarante\w+|exactly[- ]once|proven|bullet-?proof)\b", re.IGNORECASE)
DENIED = re.compile(r"\b(no|not|never|nothing|nobody|neither|cannot)\b", re.IGNORECASE)


def tracked_files() -> list[Path]:
    """Every file that git tracks or would track; skips where there is no git repository (a source archive)."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git repository here: the rules about tracked files were not checked")
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def lua_files() -> list[Path]:
    return sorted((ROOT / "src" / "tenure" / "core" / "lua").glob("*.lua"))


def header(script: Path) -> str:
    """Return the comment lines before the first line of code."""
    lines: list[str] = []
    for line in script.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("--"):
            break
        lines.append(line)
    return "\n".join(lines)


def test_python_files_stay_readable_in_one_sitting() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("src", "tests", "tools", "bench", "examples")
        for path in (ROOT / folder).rglob("*.py")
    }
    too_long = {name: n for name, n in lengths.items() if n > LONGEST and name not in LONGER_WITH_A_REASON}
    assert not too_long, f"more than {LONGEST} lines; split them, or give a reason in LONGER_WITH_A_REASON"


def test_exceptions_from_the_size_rule_are_needed_and_have_a_reason() -> None:
    for name, reason in LONGER_WITH_A_REASON.items():
        assert len(reason.split()) >= 4, f"{name}: say why"
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) > LONGEST, f"{name} no longer needs it"


def test_no_path_of_somebodys_machine_is_in_a_tracked_file() -> None:
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures hold no paths that anybody would run into
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATH.search(line)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "hit"),
    [
        ("cd /" + "work/main", True),
        ("cd '/" + "root/x'", True),
        ("/" + "home/jo/venv", True),
        ("docs/" + "work/x", False),
        ("https://example.org/home", False),
        ("/etc/valkey", False),
    ],
)
def test_machine_paths_are_recognised(line: str, hit: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is hit


def test_what_users_read_claims_no_more_than_a_lease_can_keep() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path.suffix == ".md"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NEVER_CLAIMED.search(line) and not DENIED.search(line)
    ]
    assert not found, "words that no lease can keep:\n" + "\n".join(found)


@pytest.mark.parametrize("name", ["LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "ARCHITECTURE.md"])
def test_a_newcomers_files_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 100


def test_changelog_is_where_towncrier_writes() -> None:
    assert "<!-- towncrier release notes start -->" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    kinds = ("added", "changed", "fixed", "removed", "security")
    for note in (ROOT / "changes").iterdir():
        if note.name != "README.md":
            assert re.fullmatch(rf"(?:\d+|\+[\w-]+)\.(?:{'|'.join(kinds)})(?:\.\d+)?\.md", note.name), note.name


def test_there_are_lua_files() -> None:
    assert lua_files()


@pytest.mark.parametrize("script", lua_files(), ids=lambda path: path.name)
def test_a_lua_file_says_what_it_takes_answers_and_keeps(script: Path) -> None:
    head = header(script)
    for word in ("KEYS", "ARGV", "Reply:", "Invariant:"):
        assert word in head, f"the header of {script.name} does not name {word}"


@pytest.mark.parametrize("script", lua_files(), ids=lambda path: path.name)
def test_a_lua_file_has_no_shebang(script: Path) -> None:
    # With a `#!lua` line the server applies the stricter rules of functions: no script runs on a full server then.
    assert "#!" not in script.read_text(encoding="utf-8")
