"""Server URLs: what is taken, what is refused before any I/O, and that no message shows a password."""

from __future__ import annotations

import pytest

import tenure
from tenure.clients.url import client_of, masked

SECRET = "s3cret"

BAD: list[tuple[str, str]] = [
    (f"http://jo:{SECRET}@h:7/0", "the scheme must be redis, rediss"),
    (f"jo:{SECRET}@h:7", "the scheme must be"),
    ("h:7", "the scheme must be"),
    ("redis:h", "the scheme must be"),
    ("redis+sentinel://h/master", "not supported by this version"),
    ("rediss+cluster://h", "not supported by this version"),
    ("redis://", "the host is missing"),
    (f"redis://jo:{SECRET}@/0", "the host is missing"),
    ("redis://h:0", "the port must be a number from 1 to 65535"),
    ("redis://h:70000", "the port must be a number from 1 to 65535"),
    ("redis://h:port", "the port must be a number"),
    ("redis://h:-1", "the port must be a number"),
    ("redis://[::1", "the port must be a number"),
    (f"redis://jo:{SECRET}:x@h:y", "the port must be a number"),
    (f"redis://jo:{SECRET}@b@h:7", "percent-encoded as %40"),
    (f"redis://jo:{SECRET}/b@h:7", "percent-encode"),
    (f"redis://jo:{SECRET}?b@h:7", "percent-encode"),
    (f"redis://jo:{SECRET}#b@h:7", "percent-encode"),
    (f"redis://h:7/0#{SECRET}", "'#' must be percent-encoded"),
    ("redis://h:7/x", "the database must be a number, not 'x'"),
    ("redis://h:7/-1", "the database must be a number, not '-1'"),
    ("redis://h:7/1/2", "the database must be a number"),
    ("redis://h:7/٣", "the database must be a number"),
    ("redis://h:7?db=x", "the database must be a number"),
    ("redis://h:7?db=1&db=2", "'db' is given twice"),
    (f"redis://h:7?password={SECRET}&bogus=1", "unknown option 'bogus'"),
    (f"redis://h:7?{SECRET}", "the options after"),
    ("redis://h:7?socket_timeout=5", "unknown option 'socket_timeout'"),
    ("redis://h:7?ssl_ca_certs=/ca.crt", "ssl_ca_certs needs TLS: use rediss://"),
    ("unix://h/path", "three slashes"),
    (f"unix://:{SECRET}@h/path", "three slashes"),
    ("unix://", "the path of the socket is missing"),
    ("", "the server URL is empty"),
]

GOOD: list[tuple[str, str]] = [
    ("redis://h", "h:6379"),
    ("redis://h:7/3", "h:7"),
    ("redis://h/?db=3", "h:6379"),
    (f"redis://:{SECRET}@h:7/0", "h:7"),
    ("redis://jo:s3%40cret%2F%23@h:7", "h:7"),
    ("redis://[::1]:7", "::1:7"),
    ("rediss://h:7?ssl_ca_certs=/ca.crt&ssl_check_hostname=true", "h:7"),
    ("valkey://h:7", "h:7"),
    ("valkeys://h:7", "h:7"),
    ("unix:///run/redis.sock", "/run/redis.sock"),
    (f"unix://jo:{SECRET}@/run/redis.sock?db=2", "/run/redis.sock"),
]


@pytest.mark.parametrize(("url", "words"), BAD)
def test_bad_urls_are_refused_without_showing_a_password(url: str, words: str) -> None:
    with pytest.raises(tenure.ConfigError, match=words) as caught:
        tenure.Locks(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    # What was raised while this was handled is not shown below the error either.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(("url", "node"), GOOD)
@pytest.mark.parametrize("cls", [tenure.Locks, tenure.AsyncLocks])
def test_good_urls_are_taken_without_any_io(cls: type[tenure.Locks | tenure.AsyncLocks], url: str, node: str) -> None:
    assert client_of(url).node == node
    text = repr(cls(url, namespace="n"))
    assert text == f"<{cls.__name__} 'n' at {node}>"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://jo:{SECRET}@h:7/0?password={SECRET}#{SECRET}", "redis://h:7/0"),
        (f"unix://:{SECRET}@/run/s", "unix:///run/s"),
        (f"jo:{SECRET}@h", "***"),
        (SECRET, "***"),
        (f"redis://jo:{SECRET}@x@h:7", "redis://h:7"),
    ],
)
def test_a_masked_url_has_neither_user_nor_options(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_tls_is_known_from_the_scheme() -> None:
    assert [client_of(url).tls for url in ("rediss://h", "valkeys://h", "redis://h", "valkey://h")] == [
        *(True, True, False, False)
    ]
