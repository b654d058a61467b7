"""Draws the pictures of the pages from the code's own tables: `python docs/pictures.py` writes docs/pictures/*.svg.

The states of a lease are those of `lease_state.TRANSITIONS`. What is sent in an acquire is listed below; a test plays
both stories on a real server and compares, so that a picture cannot tell of requests that nobody sends. The same input
gives the same bytes, so that a test can see whether the files are current.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tenure.core.lease_state import TRANSITIONS, State

if TYPE_CHECKING:
    from collections.abc import Iterable

Point = tuple[float, float]

FOLDER = Path(__file__).resolve().parent / "pictures"

REASONS = {
    (State.HELD, State.RELEASING): "release() is sent",
    (State.HELD, State.LOST): "deadline, or told by the server",
    (State.RELEASING, State.RELEASING): "no answer: tried again",
    (State.RELEASING, State.RELEASED): "the server says: released",
    (State.RELEASING, State.LOST): "the server says: gone or taken",
    (State.HELD, State.MOVED): "exported, or adopted elsewhere",
    (State.RELEASING, State.MOVED): "the server says: moved",
}
"""Why a lease changes its state; each row of `TRANSITIONS` needs a reason, and no other."""


class Step(NamedTuple):
    """An arrow of a story: who sends what to whom. An `answer` is no request of its own."""

    sender: str
    receiver: str
    what: str
    more: str = ""
    answer: bool = False


class Story(NamedTuple):
    """What travels between some clients and the server, from top to bottom."""

    title: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]


FREE = Story(
    "An acquire when the lock is free",
    ("your program", "server"),
    (
        Step("your program", "server", "acquire", "token, ttl, not-after"),
        Step("server", "your program", "granted", "fence, time that is left", answer=True),
        Step("your program", "your program", "your work; renewed at each third of the ttl"),
        Step("your program", "server", "release", "token"),
        Step("server", "your program", "released", answer=True),
    ),
)

CONTENDED = Story(
    "An acquire while somebody else holds the lock",
    ("holder", "server", "waiter"),
    (
        Step("holder", "server", "acquire"),
        Step("server", "holder", "granted", "fence 7", answer=True),
        Step("waiter", "server", "acquire"),
        Step("server", "waiter", "subscribe", "listen to your inbox first", answer=True),
        Step("waiter", "server", "ssubscribe", "its inbox"),
        Step("waiter", "server", "acquire"),
        Step("server", "waiter", "queued", "place 0", answer=True),
        Step("waiter", "waiter", "sleeps, and asks nothing"),
        Step("holder", "server", "release"),
        Step("server", "holder", "released", answer=True),
        Step("server", "waiter", "granted", "fence 8: a message to the inbox", answer=True),
        Step("waiter", "waiter", "its work"),
        Step("waiter", "server", "release"),
        Step("server", "waiter", "released", answer=True),
    ),
)

STORIES = {"acquire-free": FREE, "acquire-contended": CONTENDED}

_INK, _SOFT, _PAPER, _BOX = "#1f2937", "#64748b", "#ffffff", "#eef2ff"
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}" '
    'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">\n'
    "<title>{title}</title>\n"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="' + _INK + '"/></marker></defs>\n'
    '<rect width="{width}" height="{height}" rx="8" fill="' + _PAPER + '"/>\n'
)


def _document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    return "\n".join(
        [_HEAD.format(width=width, height=height, title=escape(title)) + "\n".join(parts), "</svg>", ""],
    )


def _text(at: Point, text: str, *, colour: str = _INK, anchor: str = "middle", weight: str = "normal") -> str:
    style = f'fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{at[0]:g}" y="{at[1]:g}" {style}>{escape(text)}</text>'


def _line(begin: Point, end: Point, *, dashed: bool = False, tip: bool = True) -> str:
    style = f'stroke="{_INK}" stroke-width="1.3"'
    style += ' stroke-dasharray="5 4"' if dashed else ""
    style += ' marker-end="url(#tip)"' if tip else ""
    return f'<line x1="{begin[0]:g}" y1="{begin[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" {style}/>'


def _box(x: float, y: float, width: float, height: float, text: str) -> str:
    frame = f'fill="{_BOX}" stroke="{_INK}" stroke-width="1.3"'
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {frame}/>'
    return shape + _text((x + width / 2, y + height / 2 + 4.5), text, weight="bold")


def sequence(story: Story) -> str:
    """The picture of a story: a lane for each party, time from top to bottom."""
    gap, row, top = 300, 40, 62
    centre = {lane: 105 + gap * number for number, lane in enumerate(story.lanes)}
    width, height = 210 + gap * (len(story.lanes) - 1), top + row * len(story.steps) + 20
    parts = [_box(x - 75, 14, 150, 30, lane) for lane, x in centre.items()]
    parts += [_line((x, 44), (x, height - 12), dashed=True, tip=False) for x in centre.values()]
    for number, step in enumerate(story.steps):
        y = top + row * (number + 0.6)
        here, there = centre[step.sender], centre[step.receiver]
        if here == there:
            # Something that a party does by itself, written beside its lane, towards the middle of the picture.
            beside, anchor = (here - 14, "end") if here > width / 2 else (here + 14, "start")
            words = _text((beside, y), step.what, colour=_SOFT, anchor=anchor)
            parts += [f'<circle cx="{here:g}" cy="{y - 4:g}" r="4" fill="{_SOFT}"/>', words]
            continue
        words = f"{step.what} ({step.more})" if step.more else step.what
        parts.append(_text(((here + there) / 2, y - 7), words))
        inset = 3 if there > here else -3
        parts.append(_line((here, y), (there - inset, y), dashed=step.answer))
    return _document(width, height, story.title, parts)


def states() -> str:
    """The picture of `TRANSITIONS`: a lease begins on the left, and has ended where no arrow leaves."""
    if {(a, b) for a, after in TRANSITIONS.items() for b in after} != REASONS.keys():
        message = "REASONS must have a sentence for each transition of lease_state.TRANSITIONS, and no other"
        raise ValueError(message)
    column: dict[State, int] = {State.HELD: 0}
    for state in TRANSITIONS:  # in the order of a lease's life, so that each state is reached before it is left
        for after in sorted(TRANSITIONS[state], key=lambda other: other.value):
            column.setdefault(after, column[state] + 1)
    final = [state for state in TRANSITIONS if not TRANSITIONS[state]]
    rows = {State.LOST: 1, State.MOVED: 2}
    width, height = 890, 380
    at = {state: (30 + 335 * column[state], 50 + 130 * rows.get(state, 0)) for state in TRANSITIONS}
    parts: list[str] = []
    for (before, after), why in REASONS.items():
        (x1, y1), (x2, y2) = at[before], at[after]
        if before is after:
            loop = f"M{x1 + 45} {y1} C{x1 + 30} {y1 - 42} {x1 + 120} {y1 - 42} {x1 + 105} {y1 - 2}"
            parts.append(f'<path d="{loop}" fill="none" stroke="{_INK}" stroke-width="1.3" marker-end="url(#tip)"/>')
            parts.append(_text((x1 + 75, y1 - 36), why, colour=_SOFT))
        elif x1 == x2 and rows.get(after, 0) - rows.get(before, 0) > 1:  # around what stands between them
            bow = f"M{x1 + 150} {y1 + 30} C{x1 + 210} {y1 + 60} {x2 + 210} {y2 - 10} {x2 + 152} {y2 + 16}"
            parts.append(f'<path d="{bow}" fill="none" stroke="{_INK}" stroke-width="1.3" marker-end="url(#tip)"/>')
            parts.append(_text((x2 + 200, (y1 + y2) / 2 + 22), why, colour=_SOFT, anchor="start"))
        elif x1 == x2:
            parts.append(_line((x1 + 75, y1 + 40), (x2 + 75, y2 - 2)))
            parts.append(_text((x1 + 85, (y1 + y2) / 2 + 22), why, colour=_SOFT, anchor="start"))
        elif y1 == y2:
            parts.append(_line((x1 + 150, y1 + 20), (x2 - 2, y2 + 20)))
            parts.append(_text(((x1 + 150 + x2) / 2, y1 + 12), why, colour=_SOFT))
        else:
            parts.append(_line((x1 + 75, y1 + 40), (x2 - 2, y2 + 20)))
            parts.append(_text((x1 + 20, y2 + 32), why, colour=_SOFT, anchor="start"))
    for state, (x, y) in at.items():
        parts.append(_box(x, y, 150, 40, state.name.lower()))
        if state in final:
            parts.append(
                f'<rect x="{x - 4}" y="{y - 4}" width="158" height="48" rx="8" fill="none" stroke="{_INK}"/>',
            )
    return _document(width, height, "The states of a lease", parts)


def pictures() -> dict[str, str]:
    """Every picture's file name and content."""
    drawn = {f"{name}.svg": sequence(story) for name, story in STORIES.items()}
    return {"lease-states.svg": states(), **drawn}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in pictures().items():
        (FOLDER / file).write_text(content, encoding="utf-8")
