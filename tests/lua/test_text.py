"""What the scripts' text must and must not contain, so that managed servers run them and readers understand them."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
import redis

from tests.lua.virtual import SCRIPTS, VirtualServer

if TYPE_CHECKING:
    from tests.harness.servers import Server

FOLDER = files("tenure.core") / "lua"
NAMES = sorted(entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".lua"))
# What the least privileged user of the documentation is permitted, and nothing else.
COMMANDS = frozenset(
    {"TIME", "GET", "SET", "DEL", "EXISTS", "TYPE", "PTTL", "PEXPIRE", "PEXPIREAT", "PUBSUB", "PUBLISH", "SPUBLISH"}
    | {"ZADD", "ZREM", "ZRANGE", "ZRANGEBYSCORE", "ZRANK", "ZSCORE", "ZCARD", "ZCOUNT", "HGET", "HSET", "HDEL"}
)


def test_every_file_is_a_script_or_shared_by_all() -> None:
    parts = {name.removesuffix(".lua") for name in NAMES} - SCRIPTS.keys()
    assert len(NAMES) == len(parts) + len(SCRIPTS)
    for part in parts:
        shared = (FOLDER / f"{part}.lua").read_bytes()
        assert any(shared in script.text for script in SCRIPTS.values()), part


@pytest.mark.parametrize("name", NAMES)
def test_header_names_keys_arguments_reply_and_invariant(name: str) -> None:
    lines = (FOLDER / name).read_text("ascii").splitlines()
    header = "\n".join(line for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))])
    for word in ("KEYS", "ARGV", "Reply", "Invariant"):
        assert f"-- {word}:" in header, word


@pytest.mark.parametrize("name", NAMES)
def test_only_known_commands_and_no_shebang(name: str) -> None:
    text = (FOLDER / name).read_text("ascii")
    assert not text.startswith("#!"), "with a shebang the server checks all keys before the first command runs"
    calls = re.findall(r"redis\.p?call\(\s*(.{0,20})", text)
    assert all(call.startswith("'") for call in calls), "a command's name is a literal"
    used = {call[1:].split("'")[0] for call in calls}
    # Written as `kind == 's' and ... or ...`: the subcommand, not the command.
    assert used <= COMMANDS
    for refused in ("replicate_commands", "set_repl", "redis.setresp", "os.", "math.random"):
        assert refused not in text


def test_no_script_writes_a_key_by_a_name_that_it_made_up(any_server: Server) -> None:
    # The comparison with the model runs every call behind this check; here is the proof that it strikes.
    real = VirtualServer(any_server)
    with pytest.raises(redis.ResponseError, match="undeclared key"):
        real.run("release", (b"ns:a",), (b"token",))
