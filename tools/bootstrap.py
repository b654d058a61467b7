"""Make or refresh `.venv` with nothing but the standard library; a no-op when nothing it depends on has changed.

Usage: `python bootstrap.py run` installs tenure with all its extras, `dev` also what tests and checks need.

An interrupted installation can leave a package that pip takes for complete, so `.venv` carries a marker while anything
is being written to it, and a `.venv` with the marker is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = Path(__file__).resolve().parent.parent
INSTALLS = {
    "run": ["--editable", ".[all]"],
    "dev": ["--editable", ".[all]", "--requirement", "requirements-dev.txt", "--constraint", "constraints-dev.txt"],
}
INCLUDED_IN = {"run": ("run", "dev"), "dev": ("dev",)}
SHOWN = ("Collecting ", "Installing build dependencies", "Building wheel", "Installing collected packages")
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeoutError|ReadTimeoutError"
    r"|ProxyError|Connection refused|SSLError|Network is unreachable"
)
# What pip does not try again by itself: a download that breaks off in the middle.
BROKEN_OFF = re.compile(
    r"IncompleteRead|ProtocolError|RemoteDisconnected|Connection reset|ConnectionResetError|DO NOT MATCH THE HASHES"
    r"|located at .+ is invalid|50[0234] Server Error|HTTP error 50[0234]"
)
PAUSES = (5, 15)
"""Seconds between the tries of an installation that the network has stopped."""
NO_MATCH = re.compile(r"No matching distribution found for ([^\s;(]+)")
NOT_BUILT = re.compile(r"(?:Failed building wheel for |Failed to build |Could not build wheels for )([\w.-]+)")


class Missing(Exception):
    """Something has to be installed, or reachable, before tenure can be."""


class Unreachable(Missing):
    """The network has failed, which may pass."""


def main(arguments: list[str]) -> int:
    """Bring `.venv` up to date and return the exit status. Blocks; needs the package index when something changed."""
    if len(arguments) != 1 or arguments[0] not in INSTALLS:
        return fail(f"usage: bootstrap.py {'|'.join(INSTALLS)}")
    # Two makes started at once must not install into the same folder; the lock leaves no file behind.
    with (ROOT / "pyproject.toml").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            prepare(arguments[0], ROOT / ".venv")
        except (Missing, OSError) as error:
            return fail(str(error))
        except KeyboardInterrupt:
            return fail("interrupted; the next run starts .venv afresh", status=130)
    return 0


def fail(message: str, status: int = 1) -> int:
    """Tell the user on stderr and hand back the exit status."""
    print(f"bootstrap: {message}", file=sys.stderr)
    return status


def prepare(profile: str, venv: Path) -> None:
    """Make `venv` if it is absent, broken or half-made; install `profile` unless it is there unchanged."""
    marker = venv / "tenure-unfinished"
    sound = not marker.exists() and usable(venv)
    wanted = fingerprint(venv)
    if sound and any(read(venv / f"tenure-{name}.stamp") == wanted for name in INCLUDED_IN[profile]):
        return
    if not sound:
        require_venv_module()
        say(f"making {venv.name} with Python {sys.version.split()[0]}")
        # The interpreter goes first: whatever an interrupted removal leaves is then not taken for usable.
        (venv / "bin" / "python").unlink(missing_ok=True)
        if venv.exists():
            shutil.rmtree(venv)
        venv.mkdir()
        marker.touch()
        run([sys.executable, "-m", "venv", str(venv)], "could not make a virtual environment")
    marker.touch()
    say("installing tenure and what it needs (a minute or two the first time)")
    try:
        install(venv, INSTALLS[profile])
    except Missing:
        marker.unlink()  # pip ended in good order: what it had begun it has also undone
        raise
    (venv / f"tenure-{profile}.stamp").write_text(wanted)
    marker.unlink()


def fingerprint(venv: Path) -> str:
    """Tell apart every state of the world that asks for a new installation."""
    digest = hashlib.sha256()
    # The path: an editable installation in a folder that was moved or copied points to the old place.
    digest.update(f"{venv.resolve()}\n".encode())
    for name in ("pyproject.toml", "requirements-dev.txt", "constraints-dev.txt", "tools/bootstrap.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def read(path: Path) -> str | None:
    """Return the text of a small file, or None when there is none."""
    return path.read_text() if path.is_file() else None


def usable(venv: Path) -> bool:
    """Tell whether the virtual environment's Python starts, is new enough and has pip."""
    python = venv / "bin" / "python"
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([str(python), "-c", probe], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def require_venv_module() -> None:
    """Raise `Missing` when this Python cannot make virtual environments (Debian ships that part as a package)."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            message = (
                f"Python's {module!r} module is missing from {sys.executable}, so no virtual environment can be made.\n"
                f"  Debian, Ubuntu: apt install python{VERSION}-venv\n"
                f"  elsewhere: install a complete Python {VERSION}, or name one: make try PYTHON=/path/to/python3.11"
            )
            raise Missing(message)


def install(venv: Path, requirements: list[str]) -> None:
    """Let the virtual environment's pip install; raise `Missing` that names what could not be had."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    command += ["--prefer-binary", "--disable-pip-version-check", *requirements]
    for pause in PAUSES:
        try:
            return run(command, "pip could not install everything")
        except Unreachable:
            say(f"the network has failed; trying again in {pause} s")
            time.sleep(pause)
    return run(command, "pip could not install everything")


def explain(lines: list[str]) -> str:
    """Turn a failed command's output into what is missing and what to do about it."""
    output = "\n".join(lines)
    name = next((match.group(1) for match in NO_MATCH.finditer(output)), None)
    if UNREACHABLE.search(output):
        return (
            f"the package index cannot be reached{f' (needed first: {name})' if name else ''}. Connect to the network, "
            "or point pip at a mirror (PIP_INDEX_URL) or at a folder of wheels (PIP_NO_INDEX=1 PIP_FIND_LINKS=folder)."
        )
    if name:
        return (
            f"no wheel of {name} is to be had for this Python and machine; look at the index that pip is set up "
            "with, or put the wheel into a folder and name it: PIP_FIND_LINKS=folder."
        )
    if match := NOT_BUILT.search(output):
        return (
            f"there is no ready-made wheel of {match.group(1)} for this Python and machine, and building it failed. "
            "Install a C compiler and Python's headers (Debian, Ubuntu: apt install build-essential "
            f"python{VERSION}-dev), or use another Python: make try PYTHON=/path/to/python3.11"
        )
    return "the lines above say why."


def run(command: list[str], problem: str) -> None:
    """Run a command, showing its milestones; raise `Missing` with what it lacked when it fails."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"):
        environment.pop(name, None)  # each would send the installation somewhere else
    lines: list[str] = []
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,  # pip starts processes of its own: an interrupt has to end them all
    )
    try:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if line.startswith(SHOWN):
                say(f"  {line.rstrip()[:110]}")
        process.wait()
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in lines[-15:])
        output = "\n".join(lines)
        kind = Unreachable if UNREACHABLE.search(output) or BROKEN_OFF.search(output) else Missing
        raise kind(f"{problem}; its last words:\n{tail}\nbootstrap: {explain(lines)}")


def end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started: politely, so that it removes its temporary files, then for good."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


def say(message: str) -> None:
    """Tell the user how far it is; at once, also into a pipe."""
    print(f"bootstrap: {message}", flush=True)


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
