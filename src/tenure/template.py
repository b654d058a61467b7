"""Names with fields: `@locks.lock("report:{user_id}")` takes plain arguments of each call, and nothing else."""

from __future__ import annotations

import inspect
import string
from typing import TYPE_CHECKING, Any

from . import options
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Template:
    """The names of a lock that decorates a function, whose arguments fill their fields."""

    def __init__(self, names: Sequence[str], function: Callable[..., object]) -> None:
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            msg = f"{called(function)} cannot be decorated: it is no function whose arguments are known"
            raise ConfigError(msg) from None
        self._parts = [(name, _fields(name, function, self._signature)) for name in names]

    def filled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The names for one call; raises `ConfigError` when an argument is missing or makes no name."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values.pop(parameter.name, {}))
        names: list[str] = []
        for name, fields in self._parts:
            missing = [field for field in fields if field not in values]
            if missing:
                msg = f"the template {name!r} needs the argument {missing[0]!r}"
                raise ConfigError(msg)
            names.append(options.lock_name(name.format_map({field: str(values[field]) for field in fields})))
        return tuple(names)


def _fields(name: str, function: Callable[..., object], signature: inspect.Signature) -> list[str]:
    """The plain fields of a name, checked against the function's parameters."""
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    fields: list[str] = []
    try:
        parts = list(string.Formatter().parse(name))
    except ValueError as error:
        msg = f"the name {name!r} is no template: {error}; write {{{{ and }}}} for braces"
        raise ConfigError(msg) from None
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        if not field.isidentifier() or spec or conversion:
            msg = (
                f"the template {name!r} may use only plain arguments like {{user_id}}, "
                f"not {{{field}}} (no attributes, indexes or formats)"
            )
            raise ConfigError(msg)
        if field not in signature.parameters and not takes_any:
            msg = f"the template {name!r} uses {field!r}, which is no argument of {called(function)}"
            raise ConfigError(msg)
        fields.append(field)
    return fields


def called(function: object) -> str:
    """What to call something that is being decorated."""
    return getattr(function, "__qualname__", None) or options.shown(function)


def refuse_generator(function: Callable[..., object]) -> None:
    """A generator's body runs when the lock has been given back."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        msg = f"{called(function)} is a generator function: the lock would be released before its body runs"
        raise ConfigError(msg)
