"""REST of the registry: Confluent's paths, parameters and answers, over the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from connectx.data.protobuf.files import encoded, file_of
from connectx.schema_registry.catalog import KINDS, Catalog, Change
from connectx.schema_registry.records import Version
from connectx.schema_registry.refusals import RefusedError
from connectx.schema_registry.store import SchemaStore

_JSON: Final = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES: Final = 4 * 1024 * 1024

_Method = Callable[["_Asked"], Any]


class _Asked:
    """One request: path parameters, query, body."""

    def __init__(self, store: SchemaStore, request: Request, body: bytes) -> None:
        self.store = store
        self._request = request
        self._body = body

    @property
    def subject(self) -> str:
        """Subject in the path."""
        return unquote(self._request.path_params["subject"])

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return unquote(self._request.path_params[name])

    @property
    def schema_id(self) -> int:
        """Id in the path."""
        text = self.path("id")
        if not text.isdigit():
            raise RefusedError(404, 404, "HTTP 404 Not Found")
        return int(text)

    def flag(self, name: str) -> bool:
        """A parameter of the query that is true or false."""
        return self._request.query_params.get(name, "").lower() == "true"

    def text(self, name: str) -> str:
        """A parameter of the query."""
        return self._request.query_params.get(name, "")

    @property
    def body(self) -> Mapping[str, Any]:
        """The JSON object of the body."""
        try:
            found = json.loads(self._body)
        except ValueError as error:
            raise RefusedError(400, 400, f"Unable to parse the body as JSON: {error}") from error
        if not isinstance(found, dict):
            raise RefusedError(400, 400, "The body is not a JSON object")
        for name in ("id", "version"):
            if not isinstance(found.get(name) or 0, int):
                raise RefusedError(400, 400, f"{name} is not a number")
        return found

    def ask(self, question: Callable[[Catalog], Any]) -> Any:
        """The catalog's answer."""
        return self.store.ask(question)

    def ask_all(self, question: Callable[[Catalog], Any]) -> Any:
        """As `ask`; what is not there may have been written by another registry, which is read first."""
        try:
            return self.store.ask(question)
        except RefusedError as refused:
            if refused.status != 404:
                raise
            self.store.refresh()
            return self.store.ask(question)

    def change(self, decide: Callable[[Catalog], Change]) -> Any:
        """The answer to a change."""
        return self.store.change(decide)


def create_app(store: SchemaStore) -> ASGIApp:
    """The application that serves a store."""
    routes = [_route(store, path, methods) for path, methods in _PATHS.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False

    async def encoded(scope: Scope, receive: Receive, send: Send) -> None:
        # Matched while still encoded, so that a subject with a slash in it stays one segment.
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0].rstrip("/") or "/"
        await app({**scope, "path": path}, receive, send)

    return encoded


def _route(store: SchemaStore, path: str, methods: Mapping[str, _Method]) -> Route:
    async def endpoint(request: Request) -> Response:
        method = methods["GET" if request.method == "HEAD" else request.method]
        try:
            body = await _body(request)
            answer = await run_in_threadpool(method, _Asked(store, request, body))
        except RefusedError as refused:
            return _answer({"error_code": refused.code, "message": refused.message}, refused.status)
        return answer if isinstance(answer, Response) else _answer(answer)

    return Route(path, endpoint, methods=list(methods))


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > _MOST_BYTES:
            raise RefusedError(413, 413, f"The body has more than {_MOST_BYTES} bytes")
    return bytes(found)


def _answer(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), status, media_type=_JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"}, error.status_code
    )


def _compatible(asked: _Asked, number: str | None) -> dict[str, Any]:
    body = asked.body
    found = asked.ask(lambda catalog: catalog.check(asked.subject, body, number))
    return {"is_compatible": not found} | ({"messages": found} if asked.flag("verbose") else {})


def _subjects_of_id(asked: _Asked) -> list[Any]:
    return [
        one
        for one in asked.ask_all(lambda catalog: catalog.by_id(asked.schema_id))
        if not one.deleted or asked.flag("deleted")
    ]


def _in_format(asked: _Asked, version: Version) -> Version:
    """A version in the format that the query names: `serialized` is a Protobuf schema as base64 of its descriptor."""
    if version.kind != "PROTOBUF" or asked.text("format") != "serialized":
        return version
    return replace(version, text=encoded(file_of(version.text)))


def _of_id(asked: _Asked) -> Version:
    return _in_format(asked, asked.ask_all(lambda catalog: catalog.by_id(asked.schema_id))[0])


def _one_version(asked: _Asked) -> Version:
    deleted, number = asked.flag("deleted"), asked.path("version")
    return _in_format(asked, asked.ask_all(lambda catalog: catalog.version(asked.subject, number, deleted=deleted)))


def _referenced_by(asked: _Asked) -> list[int]:
    version = _one_version(asked)
    found = asked.ask(lambda catalog: catalog.referencing(version.subject, version.version))
    return sorted({one.schema_id for one in found})


def _register(asked: _Asked) -> Any:
    body, normalize = asked.body, asked.flag("normalize")
    return asked.change(lambda catalog: catalog.register(asked.subject, body, normalize=normalize))


def _find(asked: _Asked) -> Any:
    body, normalize, deleted = asked.body, asked.flag("normalize"), asked.flag("deleted")
    return asked.ask_all(
        lambda catalog: catalog.find(asked.subject, body, deleted=deleted, normalize=normalize)
    ).to_json()


def _schemas(asked: _Asked) -> list[dict[str, Any]]:
    found = asked.ask(lambda catalog: catalog.all(asked.text("subjectPrefix"), deleted=asked.flag("deleted")))
    if asked.flag("latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return [one.to_json() for one in found]


def _settings(of_subject: bool) -> tuple[dict[str, _Method], dict[str, _Method]]:
    """Methods of /config and of /mode, of a subject or of all."""

    def subject(asked: _Asked) -> str | None:
        return asked.subject if of_subject else None

    level: dict[str, _Method] = {
        "GET": lambda asked: {
            "compatibilityLevel": asked.ask(
                lambda catalog: catalog.level(subject(asked), inherited=asked.flag("defaultToGlobal"))
            )
        },
        "PUT": lambda asked: _set_level(asked, subject(asked)),
        "DELETE": lambda asked: asked.change(lambda catalog: catalog.remove_level(subject(asked))),
    }
    mode: dict[str, _Method] = {
        "GET": lambda asked: {
            "mode": asked.ask(lambda catalog: catalog.mode(subject(asked), inherited=asked.flag("defaultToGlobal")))
        },
        "PUT": lambda asked: _set_mode(asked, subject(asked)),
        "DELETE": lambda asked: asked.change(lambda catalog: catalog.remove_mode(subject(asked))),
    }
    return level, mode


def _set_level(asked: _Asked, subject: str | None) -> Any:
    wanted = asked.body.get("compatibility")
    return asked.change(lambda catalog: catalog.set_level(subject, wanted))


def _set_mode(asked: _Asked, subject: str | None) -> Any:
    wanted, force = asked.body.get("mode"), asked.flag("force")
    return asked.change(lambda catalog: catalog.set_mode(subject, wanted, force=force))


_LEVEL, _MODE = _settings(False)
_SUBJECT_LEVEL, _SUBJECT_MODE = _settings(True)
_PATHS: Final[Mapping[str, Mapping[str, _Method]]] = {
    "/": {"GET": lambda asked: {}},
    "/subjects": {
        "GET": lambda asked: asked.ask(
            lambda catalog: catalog.subjects(asked.text("subjectPrefix"), deleted=asked.flag("deleted"))
        )
    },
    "/subjects/{subject}": {
        "POST": _find,
        "DELETE": lambda asked: asked.change(
            lambda catalog: catalog.delete_subject(asked.subject, permanent=asked.flag("permanent"))
        ),
    },
    "/subjects/{subject}/versions": {
        "GET": lambda asked: asked.ask_all(
            lambda catalog: catalog.versions(asked.subject, deleted=asked.flag("deleted"))
        ),
        "POST": _register,
    },
    "/subjects/{subject}/versions/{version}": {
        "GET": lambda asked: _one_version(asked).to_json(),
        "DELETE": lambda asked: asked.change(
            lambda catalog: catalog.delete_version(
                asked.subject, asked.path("version"), permanent=asked.flag("permanent")
            )
        ),
    },
    "/subjects/{subject}/versions/{version}/schema": {
        "GET": lambda asked: PlainTextResponse(_one_version(asked).text, media_type=_JSON)
    },
    "/subjects/{subject}/versions/{version}/referencedby": {"GET": _referenced_by},
    "/schemas": {"GET": _schemas},
    "/schemas/types": {"GET": lambda asked: list(KINDS)},
    "/schemas/ids/{id}": {"GET": lambda asked: _of_id(asked).schema_json()},
    "/schemas/ids/{id}/schema": {"GET": lambda asked: PlainTextResponse(_of_id(asked).text, media_type=_JSON)},
    "/schemas/ids/{id}/subjects": {"GET": lambda asked: sorted({one.subject for one in _subjects_of_id(asked)})},
    "/schemas/ids/{id}/versions": {
        "GET": lambda asked: [{"subject": one.subject, "version": one.version} for one in _subjects_of_id(asked)]
    },
    "/compatibility/subjects/{subject}/versions": {"POST": lambda asked: _compatible(asked, None)},
    "/compatibility/subjects/{subject}/versions/{version}": {
        "POST": lambda asked: _compatible(asked, asked.path("version"))
    },
    "/config": _LEVEL,
    "/config/{subject}": _SUBJECT_LEVEL,
    "/mode": _MODE,
    "/mode/{subject}": _SUBJECT_MODE,
    "/contexts": {"GET": lambda asked: ["."]},
}
