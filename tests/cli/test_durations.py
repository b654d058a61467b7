from __future__ import annotations

import pytest

from tenure.cli.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("0", 0),
        ("1.5", 1.5),
        (".5s", 0.5),
        ("500ms", 0.5),
        ("10m", 600),
        ("1h", 3600),
        ("2 H", 7200),
        (" 1d ", 86400),
    ],
)
def test_a_number_with_a_unit_becomes_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "+1", "1e3", "nan", "inf", "1x", "1h30m", "1,5", "1.", "٣", "0x1", "None", "1_000"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 30, 30s, 500ms, 10m or 1h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.45, "450 ms"),
        (12.3, "12 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_length_of_time_reads_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
