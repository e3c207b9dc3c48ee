"""What an operation of the REST API is: one declaration, from which its route, the client's call and OpenAPI follow.

Most operations are one verb of the core (`of_verb`): the fields of its class are the parameters, `Asks` has the type of
the response's body, and the docstring is the summary. Others are handlers (`operation`), whose annotations have
the types.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlencode

from connectx.core.verbs import Verb
from connectx.values import Value

T = TypeVar("T")

TASK: Final = "task"
"""The only parameter of paths that is a number."""


class Query(Value):
    """A query parameter. `field`: the verb's field that it sets."""

    name: str
    description: str
    type: Any = bool
    default: Any = False
    field: str = ""


class Answer(Value, Generic[T]):
    """A success: None as body is an empty response."""

    body: T
    status: int = 200
    headers: Mapping[str, str] | None = None


Handler = Callable[..., Awaitable[Answer[T]]]


class Operation(Value, Generic[T]):
    """One method on one path.

    Attributes:
        statuses: of a success.
        body: type of a success's body (None: there is none).
        handler: called with a `Call`, and with the request's body if `takes` has its type; None for a verb.
        errors: statuses besides those that every operation may have.
        forwarded: another worker may have to answer it.
        admin: an operation of `admin.listeners`.
        internal: between workers, signed (KIP-507).
        media_type: of a body that is not JSON.
    """

    method: str
    path: str
    summary: str
    statuses: tuple[int, ...]
    body: Any = None
    handler: Handler[T] | None = None
    verb: Callable[..., Verb] | None = None
    takes: Any = None
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()
    forwarded: bool = False
    admin: bool = False
    internal: bool = False
    deprecated: bool = False
    media_type: str | None = None

    def target(self, parameters: Mapping[str, Any]) -> str:
        """Path and query of a request with these parameters, by the names of the path's and of the query's fields."""
        path = self.path.format_map({name: quote(str(value), safe="") for name, value in parameters.items()})
        query = {
            one.name: str(value).lower() if one.type is bool else value
            for one in self.query
            if (value := parameters.get(one.field or one.name, one.default)) != one.default
        }
        return f"{path}?{urlencode(query, doseq=True)}" if query else path


def of_verb(method: str, path: str, verb: type[Verb], *statuses: int, **more: Any) -> Operation[Any]:
    """The operation that is a verb of the core."""
    (asked,) = get_args(verb.__orig_bases__[0])  # type: ignore[union-attr]
    return Operation(method, path, _summary(verb), statuses or (200,), _without_none(asked), verb=verb, **more)


def operation(method: str, path: str, *statuses: int, **more: Any) -> Callable[[Handler[T]], Operation[T]]:
    """Make an operation of a handler. Its second parameter is the request's body, `Answer[...]` the response's."""

    def make(handler: Handler[T]) -> Operation[T]:
        hints = get_type_hints(handler, include_extras=True)
        body = _without_none(*get_args(hints.pop("return")))
        takes = hints.get("body")
        return Operation(method, path, _summary(handler), statuses or (200,), body, handler, takes=takes, **more)

    return make


def _summary(of: object) -> str:
    """The first sentence of a docstring."""
    return re.split(r"\.(?:\s|$)", inspect.getdoc(of) or "", maxsplit=1)[0]


def _without_none(body: Any) -> Any:
    """The type of a body that only some statuses have; None for no body at all."""
    if get_origin(body) is not UnionType and body is not NoneType:
        return body
    kinds = [kind for kind in get_args(body) if kind is not NoneType]
    return None if not kinds else kinds[0] if len(kinds) == 1 else body
