"""Which locks a request needs: rules on its path, and names with fields of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ...errors import ConfigError
from ...options import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

READING = frozenset({"GET", "HEAD"})
UNLOCKED = frozenset({"OPTIONS", "TRACE"})
WAIT = 0.5
"""Seconds that a request waits when nobody says how long: a moment, which one's own last request needs to end."""
_NAME_FIELD = re.compile(r"\{(\w+)\}")
_PATH_FIELD = re.compile(r"\{([^\W\d]\w*)(:path)?\}")
_BRACE = re.compile(r"[{}]")


def filled(names: Iterable[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Names with the values of a request in their fields; raises `ConfigError` for a field that it does not have."""
    missing = [part for text in names for part in _NAME_FIELD.findall(text) if part not in values]
    if missing:
        msg = f"the name of a lock uses the field {missing[0]!r}, which the path does not have"
        raise ConfigError(msg)
    return tuple(_NAME_FIELD.sub(lambda part: str(values[part[1]]), text) for text in names)


def path_of(scope: MutableMapping[str, Any]) -> str:
    """The path below where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and f"{path}/".startswith(f"{root}/") else path


@dataclass(frozen=True)
class Rule:
    """Which locks a request needs.

    Args:
        path: a path with fields, `/archives/{id}`; a field is one segment, `{name:path}` is one or more. A path that
            ends with `*` matches all that begins like it.
        names: the names of the locks, with the same fields: `archive:{id}`.
        methods: those for which it holds; None for all but OPTIONS and TRACE.
        operation: what the request does, for the answer 423; None is its method in lower case.

    The path is compared as the application gets it: below where it is mounted, and with `%41` as `A`. Raises
    `ConfigError` for what cannot match.
    """

    path: str
    names: Sequence[str]
    methods: Iterable[str] | None = None
    operation: str | None = None
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("names", _texts(self.names, "names", "archive:{id}"))
        if self.methods is not None:
            self._set("methods", frozenset(each.upper() for each in _texts(self.methods, "methods", "PUT")))
        self._set("_pattern", _compiled(self.path))
        unknown = {part for text in self.names for part in _NAME_FIELD.findall(text)} - set(self._pattern.groupindex)
        if unknown:
            msg = (
                f"the names of the rule for {self.path!r} use the field {min(unknown)!r}, which its path does not have"
            )
            raise ConfigError(msg)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def applies(self, method: str, path: str) -> tuple[str, ...] | None:
        """The names of the locks for a request; None when it needs none of this rule."""
        if (method in UNLOCKED) if self.methods is None else (method not in self.methods):
            return None
        found = self._pattern.fullmatch(path)
        return None if found is None else filled(self.names, found.groupdict())


def _texts(value: object, what: str, example: str) -> tuple[str, ...]:
    """A list of texts, and no single text, which would be taken letter by letter."""
    texts = () if isinstance(value, str) else tuple(cast("Iterable[object]", value))
    if not texts or not all(isinstance(text, str) for text in texts):
        msg = f"a rule's {what} must be a list like [{example!r}], not {shown(value)}"
        raise ConfigError(msg)
    if what == "names" and any(_BRACE.search(_NAME_FIELD.sub("", cast("str", text))) for text in texts):
        msg = f"a rule's names have fields like {{id}} and no other braces, not {shown(value)}"
        raise ConfigError(msg)
    return cast("tuple[str, ...]", texts)


def _compiled(path: object) -> re.Pattern[str]:
    if not isinstance(path, str) or not path.startswith("/"):
        msg = f"a rule's path must begin with '/', not {shown(path)}"
        raise ConfigError(msg)
    text, at = "", 0
    fields: set[str] = set()
    whole = path.removesuffix("*")
    for found in _PATH_FIELD.finditer(whole):
        if found[1] in fields:
            msg = f"the field {found[1]!r} is twice in the path {path!r}"
            raise ConfigError(msg)
        fields.add(found[1])
        text += _literal(whole[at : found.start()], path) + f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})"
        at = found.end()
    text += _literal(whole[at:], path) + (".*" if whole != path else "")
    return re.compile(text, re.DOTALL)


def _literal(text: str, path: str) -> str:
    # What looks like a field and is none would match nothing, and the request go on without its lock.
    if _BRACE.search(text) or "*" in text:
        msg = f"a rule's path has fields like {{id}} or {{name:path}}, and '*' only at its end, not {path!r}"
        raise ConfigError(msg)
    return re.escape(text)
