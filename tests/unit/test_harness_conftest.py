"""The house rules of `conftest.py`, seen from outside: a session of small tests that break them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

OFFENDERS = """
import os, re, socket, subprocess, sys, threading
import pytest

kept = []

def test_clean(valkey_server, namespace):
    assert re.fullmatch("test-clean-[0-9a-f]{8}", namespace)
    valkey_server.command("SET", namespace + ":a", 1, "PX", 60000)
    valkey_server.command("SET", "testdata:a", 1)

def test_fresh(valkey_server):
    assert valkey_server.command("DBSIZE") == 0

def test_everlasting_key(valkey_server, namespace):
    valkey_server.command("SET", namespace + ":a", 1)

def test_frozen_server(valkey_server):
    valkey_server.pause()

def test_dead_server(valkey_server):
    valkey_server.kill9()

def test_server_is_back(valkey_server):
    assert valkey_server.command("PING")

def test_socket():
    kept.append(socket.socket())

def test_hub_thread():
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, name="tenure-hub-1", daemon=True).start()

def test_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

@pytest.mark.allow_leaks("to see that it works")
def test_excused():
    kept.append(socket.socket())

@pytest.mark.allow_leaks
def test_excused_without_reason():
    pass

def test_end():
    kept[0].close(), kept[1].set(), kept[2].kill(), kept[2].communicate(), kept[3].close()

@pytest.mark.redis_server
def test_redis(server_pool):
    assert server_pool.get("redis").alive

@pytest.mark.parametrize("n", [1, 2])
def test_skipped(n):
    pytest.skip("the moon is down")

def test_environment():
    assert "TENURE_URL" not in os.environ
"""


def test_a_session_tells_what_its_tests_left_behind_and_what_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_offenders.py").write_text(OFFENDERS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = redis_server\naddopts = --strict-markers\n")
    without_redis = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "redis-server").exists()
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider", "-rA"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PATH": without_redis,
            "TENURE_URL": "redis://nowhere",
            "TESTS_GRACE_SECONDS": "2",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    said = done.stdout + done.stderr
    faults = {
        "test_everlasting_key": "a key without a TTL: b'test-everlasting-key",
        "test_frozen_server": "the shared valkey server dead or frozen",
        "test_dead_server": "the shared valkey server dead or frozen",
        "test_socket": "open socket:",
        "test_hub_thread": "thread 'tenure-hub-1'",
        "test_child": "child process",
        "test_excused_without_reason": "allow_leaks needs a reason",
    }
    for name, complaint in faults.items():
        assert f"ERROR test_offenders.py::{name} - " in said, said
        assert complaint in said, said
    assert f"13 passed, 3 skipped, {len(faults)} errors" in said, said
    assert "tests that did NOT run" in said
    assert "    2  the moon is down" in said
    assert "    1  no redis-server on this machine (apt install redis-server)" in said
    assert "server: Valkey server v=" in said
    assert "clients: redis 8" in said
