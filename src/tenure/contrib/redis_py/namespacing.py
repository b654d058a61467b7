"""`namespaced`: a client whose commands stay in the namespace of one site.

The client, its pipelines and its subscriptions each get a class derived from their own, with the library's few methods
overridden through which every command and every reply goes. Nothing else of the library is done anew.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from ... import options
from ...command_table import NAMING, newer
from ...errors import ConfigError
from ...namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Client = TypeVar("Client")


def namespaced(
    client: Client, site: str, *, scripts: bool = False, commands: Mapping[str, Any] | None = None
) -> Client:
    """A client like `client` whose keys and channels all begin with `<site>:`, a prefix that its users never see.

    Args:
        client: a client of redis-py or valkey-py for one server, blocking or asyncio. Its connection pool is shared,
            and stays open when the returned client is closed.
        site: the namespace, 1 to 64 bytes without `:`, `{`, `}`.
        scripts: lets scripts and functions pass (EVAL, FCALL, `register_script`). The keys that they declare stay in
            the namespace; what else they touch is up to them.
        commands: what `client.command()` answers, for a server with newer commands than Redis 7.0 and Valkey 9.1 have:
            those that only the server's table knows then pass, if their keys have fixed places in it.

    Single commands, pipelines, `transaction()`, WATCH and subscriptions work as ever. A command whose keys cannot be
    determined, or that reaches beyond the namespace, raises `ConfigError` before anything is sent. No I/O here.

    Safety: this keeps apart sites that mean well. Against others, give each a user of the server with `~<site>:*`.
    """
    name = options.namespace(site)
    if not name:
        msg = "site must not be empty: every key would stay as it is"
        raise ConfigError(msg)
    _refuse_unfit(client)
    made = object.__new__(type(client))
    made.__dict__.update(client.__dict__)
    made.__dict__["auto_close_connection_pool"] = False
    encode = cast("Any", client).get_encoder().encode
    names = Namespace(name, lambda word: bytes(encode(word)), newer(commands or {}))
    inside = _Inside(names, scripts=scripts)
    return cast("Client", inside.client(made))


def _refuse_unfit(client: object) -> None:
    modules = {base.__module__.partition(".")[0] for base in type(client).__mro__}
    pool = getattr(client, "connection_pool", None)
    if not modules & {"redis", "valkey"} or pool is None or not hasattr(client, "pipeline"):
        msg = f"namespaced() takes a client of redis-py or valkey-py for one server, not {type(client).__name__}"
    elif hasattr(client, "command_stack"):
        msg = "namespaced() takes a client, not a pipeline; call pipeline() of the client that it returns"
    elif isinstance(client, _Names):
        msg = f"this client is in the namespace {client.site!r} already; pass the one that it was made from"
    elif getattr(pool, "cache", None) is not None:
        msg = "a client with a client-side cache cannot be namespaced: invalidations would name other keys"
    elif getattr(client, "connection", None) is not None or getattr(client, "single_connection_client", False):
        msg = "a client with a single connection cannot share it; namespace one with a pool, then call its client()"
    else:
        return
    raise ConfigError(msg)


class _Inside:
    """One namespace: what goes through it, and what is made in it."""

    def __init__(self, names: Namespace, *, scripts: bool) -> None:
        self.names = names
        self.scripts = scripts

    def args(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, ...]:
        """The words to send."""
        sent = self.names.command(args, scripts=self.scripts)
        if given.get("keys") is not None:
            given["keys"] = sent.keys
        return sent.args

    def callback(self, name: str, parse: Callable[..., Any] | None) -> Callable[..., Any]:
        """The library's parser of a reply, with the keys in it made bare before."""

        def bare(reply: object, **given: object) -> object:
            reply = self.names.reply(name, reply)
            return reply if parse is None else parse(reply, **given)

        return bare

    def client(self, made: Any) -> Any:  # noqa: ANN401 - any client of either library
        """Takes a new client in."""
        known = made.response_callbacks
        made.response_callbacks = cast("Any", type(known))(known)
        for name in NAMING:
            made.response_callbacks[name] = self.callback(name, known.get(name))
        return self.enter(made, _Client)

    def enter(self, made: Any, mixin: type) -> Any:  # noqa: ANN401 - any object of either library
        """Takes in what a client has made."""
        if not isinstance(made, mixin):
            made.__class__ = _derived(mixin, cast("Any", type(made)))
        made.inside = self
        return made

    def message(self, raw: Any) -> Any:  # noqa: ANN401 - a message, or nothing
        """What came on a subscription, with bare channels."""
        if not isinstance(raw, list):
            return raw
        kind, *rest = cast("list[Any]", raw)
        word = kind.decode() if isinstance(kind, bytes) else kind
        names = self.names
        if word == "pmessage":
            rest[:2] = [names.bare_pattern(rest[0]), names.bare(rest[1])]
        elif word in ("psubscribe", "punsubscribe"):
            rest[0] = names.bare_pattern(rest[0])
        elif word != "pong":
            rest[0] = names.bare(rest[0])
        return [kind, *rest]


@functools.cache
def _derived(mixin: type, base: type) -> type:
    return type(f"Namespaced{base.__name__}", (mixin, base), {"__module__": __name__})


def _refused(what: str, why: str) -> Callable[..., NoReturn]:
    def refuse(self: _Names, *_args: object, **_given: object) -> NoReturn:
        msg = f"{what} cannot be used inside the namespace {self.site!r}: {why}"
        raise ConfigError(msg)

    return refuse


_MODULES = "the commands of modules are unknown, and so are their keys"


class _Names:
    """What clients and pipelines have in common: what they make stays in the namespace."""

    inside: _Inside

    @property
    def site(self) -> str:
        """The namespace."""
        return self.inside.names.site

    def pipeline(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        return self.inside.enter(cast("Any", super()).pipeline(*args, **given), _Pipeline)

    def pubsub(self, **given: Any) -> Any:  # noqa: ANN401
        handler = given.get("push_handler_func")
        if handler is not None:
            given["push_handler_func"] = lambda raw: handler(self.inside.message(raw))  # pyright: ignore[reportUnknownLambdaType]
        return self.inside.enter(cast("Any", super()).pubsub(**given), _PubSub)

    def client(self) -> Any:  # noqa: ANN401
        return self.inside.client(cast("Any", super()).client())

    def lock(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        make = cast("Any", super()).lock
        if inspect.signature(make).bind(*args, **given).arguments.get("lock_class") is None and not self.inside.scripts:
            msg = (
                f"the library's own lock runs scripts, which are not sent inside the namespace {self.site!r}: "
                f"pass lock_class=tenure.contrib.redis_py.Lock, or make the client with scripts=True"
            )
            raise ConfigError(msg)
        return make(*args, **given)

    def set_response_callback(self, command: str, callback: Callable[..., Any]) -> None:
        name = command.upper()
        parse = self.inside.callback(name, callback) if name in NAMING else callback
        cast("Any", super()).set_response_callback(command, parse)

    monitor = _refused("monitor()", "it shows everybody's commands")
    keyspace_notifications = _refused("keyspace_notifications()", "they come on channels of the whole server")
    json = _refused("json()", _MODULES)
    ft = _refused("ft()", _MODULES)
    ts = _refused("ts()", _MODULES)
    bf = _refused("bf()", _MODULES)
    cf = _refused("cf()", _MODULES)
    cms = _refused("cms()", _MODULES)
    topk = _refused("topk()", _MODULES)
    tdigest = _refused("tdigest()", _MODULES)
    vset = _refused("vset()", _MODULES)
    graph = _refused("graph()", _MODULES)


class _Client(_Names):
    def execute_command(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        # In asyncio this is the library's coroutine, and a refusal comes at the call.
        return cast("Any", super()).execute_command(*self.inside.args(args, given), **given)


class _Pipeline(_Names):
    # `execute_command` of a pipeline calls one of these two; so does all else that sends through it.

    def immediate_execute_command(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        return cast("Any", super()).immediate_execute_command(*self.inside.args(args, given), **given)

    def pipeline_execute_command(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        return cast("Any", super()).pipeline_execute_command(*self.inside.args(args, given), **given)


class _PubSub:
    inside: _Inside

    def execute_command(self, *args: Any) -> Any:  # noqa: ANN401
        return cast("Any", super()).execute_command(*self.inside.args(args, {}))

    def parse_response(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        raw = cast("Any", super()).parse_response(*args, **given)
        return self._awaited(raw) if inspect.isawaitable(raw) else self.inside.message(raw)

    async def _awaited(self, raw: Awaitable[Any]) -> Any:  # noqa: ANN401
        return self.inside.message(await raw)
