"""The directory is all the access control that the server has: only one that nobody else can enter is used."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.embedded import directory, join
from tenure.errors import ConfigError, ServerUnavailable


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_created_for_its_owner_alone_and_opened_close_on_exec(runtime: Path) -> None:
    fd = directory.open_private(runtime / "new")
    try:
        assert mode_of(runtime / "new") == 0o700
        assert fd > 2
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


def test_wider_permissions_are_narrowed(runtime: Path) -> None:
    wide = runtime / "wide"
    wide.mkdir()
    wide.chmod(0o777)
    os.close(directory.open_private(wide))
    assert mode_of(wide) == 0o700


def test_permissions_that_cannot_be_narrowed_are_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = runtime / "wide"
    wide.mkdir()
    wide.chmod(0o755)

    def refuse(fd: int, mode: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(ConfigError, match=rf"{wide} is open to other users and stays so \(Read-only file system\)"):
        directory.open_private(wide)


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_symbolic_link_is_refused(runtime: Path, target: str) -> None:
    (runtime / "elsewhere").mkdir()
    (runtime / "tenure").symlink_to(runtime / target)
    with pytest.raises(ConfigError, match=f"needs a real directory at {runtime}/tenure"):
        join()


def test_a_link_in_place_of_the_inner_directory_is_refused(runtime: Path) -> None:
    (runtime / "tenure").mkdir()
    (runtime / "tenure" / "v1").symlink_to("/tmp")
    with pytest.raises(ConfigError, match=f"needs a real directory at {runtime}/tenure/v1"):
        join()


def test_a_file_in_its_place_is_refused(runtime: Path) -> None:
    (runtime / "tenure").touch()
    with pytest.raises(ConfigError, match=f"needs a real directory at {runtime}/tenure"):
        join()


def test_somebody_elses_directory_is_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(ConfigError, match=rf"{runtime}/theirs belongs to uid {uid}, not to you \(uid {uid + 1}\)"):
        directory.open_private(runtime / "theirs")


def test_a_refused_directory_is_not_left_open(runtime: Path) -> None:
    (runtime / "tenure").symlink_to(runtime)
    probe = os.open(runtime, os.O_RDONLY)
    os.close(probe)
    for _ in range(3):
        with pytest.raises(ConfigError):
            join()
    again = os.open(runtime, os.O_RDONLY)
    os.close(again)
    assert again == probe


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_unwritable_file_system_is_named(runtime: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(self: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ServerUnavailable, match=f"directory {runtime}/tenure cannot be used: {os.strerror(number)}"):
        join()


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_created(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = runtime / ("x" * 90)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(ConfigError, match=r"but a unix socket can have 103.*XDG_RUNTIME_DIR.*TENURE_URL"):
        join()
    assert not list(deep.iterdir())


def test_the_users_runtime_directory_comes_first(runtime: Path) -> None:
    assert directory.base_directory() == runtime / "tenure"


@pytest.mark.parametrize("unusable", ["", "relative", "/nowhere/at/all", "a file", "open to all"])
def test_an_unusable_runtime_directory_is_passed_over(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, unusable: str
) -> None:
    if unusable == "a file":
        (runtime / unusable).touch()
    elif unusable == "open to all":
        (runtime / unusable).mkdir()
        (runtime / unusable).chmod(0o777)
    if " " in unusable:
        unusable = str(runtime / unusable)
    monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
    uid = os.geteuid()
    assert directory.base_directory() in {Path(f"/run/user/{uid}/tenure"), Path(f"/tmp/tenure-{uid}")}


def test_without_any_runtime_directory_tmp_is_used_with_the_uid_in_the_name(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A uid without a session of its own, whose /run/user does not exist; TMPDIR differs between processes of one user.
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    monkeypatch.setenv("TMPDIR", str(runtime))
    assert directory.base_directory() == Path("/tmp/tenure-987654")


def test_windows_is_told_what_to_use_instead() -> None:
    source = Path(directory.__file__).parents[2]
    # The package itself first: on this machine it can only be imported as what it is.
    steps = (
        f"sys.path.insert(0, {str(source)!r})",
        "import tenure",
        "sys.platform = 'win32'",
        "import tenure.embedded",
    )
    program = "import sys; " + "; ".join(steps)
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert (
        "ConfigError: The embedded server needs Linux or macOS. On Windows name a server in TENURE_URL." in done.stderr
    )
