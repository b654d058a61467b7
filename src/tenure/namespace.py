"""Commands inside a namespace: keys get a prefix, keys in replies lose it, and what might escape is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import command_table
from .command_table import Kind, Unclear
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_GLOB = {ord(char): f"\\{char}" for char in "*?[\\"}


class Sent(NamedTuple):
    """A command as it may be sent."""

    name: str
    """Its name in capitals, with the subcommand if it has one."""
    kind: Kind
    args: tuple[Any, ...]
    words: list[bytes]
    """The same, encoded, one word each."""
    keys: list[bytes]
    """The keys in it, as the server knows them."""


class Namespace:
    """The part of a server whose keys and channels begin with `<site>:`; the whole server when `site` is empty.

    `encode` makes bytes of a word, as the client library does; `more` are commands that the table lacks.
    """

    def __init__(
        self, site: str, encode: Callable[[Any], bytes], more: Mapping[str, command_table.Command] | None = None
    ) -> None:
        self.site = site
        self.encode = encode
        self._more = more
        self._text = f"{site}:" if site else ""
        self._prefix = encode(self._text)
        self._pattern_text = self._text.translate(_GLOB)
        self._pattern = encode(self._pattern_text)

    def command(self, args: Sequence[Any], *, scripts: bool = False) -> Sent:
        """The words to send for a command.

        Raises `ConfigError` when its keys cannot be told, or when it reaches beyond the namespace. `scripts` lets
        scripts and functions pass, with the keys that they declare.
        """
        # The client library splits the first word at spaces, so there may be keys in it.
        head = (args[0].encode() if isinstance(args[0], str) else bytes(args[0])).split() if args else []
        if not head:
            raise self._refusal("", "it has no name")
        words = [*head, *(bytes(self.encode(arg)) for arg in args[1:])]
        command = command_table.lookup(words, self._more)
        if command is None:
            raise self._refusal(_shown(words[0]), "this command is unknown, and so are its keys")
        if command.kind is Kind.REFUSED:
            raise self._refusal(command.name, command.why)
        if command.kind is Kind.SCRIPT and not scripts:
            raise self._refusal(command.name, "a script may use keys that it does not declare")
        try:
            spots = command.find(words)
        except Unclear as unclear:
            raise self._refusal(command.name, str(unclear)) from None
        if spots.templates and b"*" in self._prefix:
            raise self._refusal(command.name, "its patterns cannot be told from a '*' in the namespace")
        for at in (*spots.keys, *spots.templates):
            words[at] = self._prefix + words[at]
        for at in spots.patterns:
            words[at] = self._pattern + words[at]
        moved = {*spots.keys, *spots.templates, *spots.patterns}
        return Sent(
            command.name, command.kind, self._args(command.name, head, args, words, moved), words,
            [words[at] for at in spots.keys],
        )  # fmt: skip

    def _args(
        self, name: str, head: list[bytes], args: Sequence[Any], words: list[bytes], moved: set[int]
    ) -> tuple[Any, ...]:
        """The command for the client library: its own objects where they are as they were."""
        given = [*head, *args[1:], *words[len(head) + len(args) - 1 :]]
        for at in moved:
            given[at] = words[at]
        if name in command_table.NAMING:
            # Under this name, however it was spelled, the reply is looked through for keys.
            return (name, *given[len(name.split()) :])
        if any(at < len(head) for at in moved):
            return tuple(given)
        return (args[0], *given[len(head) :])

    def reply(self, name: str, reply: Any) -> Any:  # noqa: ANN401 - whatever the command answers
        """The reply to the command `name` with keys and channels as its caller knows them."""
        shape = command_table.NAMING.get(name)
        if shape is None or not reply or not isinstance(reply, list | tuple | dict):
            return reply
        if isinstance(reply, dict):
            return {self.bare(key): value for key, value in cast("dict[Any, Any]", reply).items()}
        return shape(self.bare, list(cast("Sequence[Any]", reply)))

    def bare(self, name: Any) -> Any:  # noqa: ANN401 - bytes or text, as the client decodes
        """A key or channel without the prefix."""
        if isinstance(name, bytes):
            return name.removeprefix(self._prefix)
        return name.removeprefix(self._text) if isinstance(name, str) else name

    def bare_pattern(self, pattern: Any) -> Any:  # noqa: ANN401 - bytes or text, as the client decodes
        """A pattern without the prefix."""
        if isinstance(pattern, bytes):
            return pattern.removeprefix(self._pattern)
        return pattern.removeprefix(self._pattern_text) if isinstance(pattern, str) else pattern

    def _refusal(self, name: str, why: str) -> ConfigError:
        where = f"inside the namespace {self.site!r}" if self.site else "here"
        return ConfigError(f"{name or 'a command'} is not sent {where}: {why}")


def _shown(word: bytes) -> str:
    text = word.decode(errors="replace")
    return ascii(text if len(text) <= 40 else f"{text[:40]}…")  # noqa: PLR2004 - enough to be recognised
