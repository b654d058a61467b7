"""What these tests share."""

from __future__ import annotations

import pytest

from tenure.embedded.binary import find_server
from tenure.errors import ConfigError


def need_embedded() -> None:
    """Skip, loudly, where there is no server to embed."""
    try:
        find_server()
    except ConfigError as error:
        pytest.skip(str(error))


def run_pytest(pytester: pytest.Pytester, source: str, *arguments: str) -> tuple[dict[str, int], list[str]]:
    """Run tests as a user would, in a process of its own with the plugin loaded by pytest itself."""
    pytester.makepyfile(source)
    quick = [
        word for name in ("cacheprovider", "randomly", "anyio", "hypothesispytest") for word in ("-p", f"no:{name}")
    ]
    result = pytester.runpytest_subprocess(*quick, "-rs", *arguments, timeout=110)
    return result.parseoutcomes(), result.outlines
