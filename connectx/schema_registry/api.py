"""REST of the registry: Confluent's paths, parameters and answers, over the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from connectx.data.protobuf.files import encoded, file_of
from connectx.errors.rest import RestError
from connectx.model.decoding import reason_of, whole_number
from connectx.protocol import compact_json
from connectx.rest.app import Endpoint, routed
from connectx.rest.call import JsonResponse, read_body
from connectx.schema_registry.catalog import Catalog
from connectx.schema_registry.records import KINDS, LARGEST, Version
from connectx.schema_registry.refusals import RefusedError
from connectx.schema_registry.store import SchemaStore

_JSON: Final = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_BODY_S: Final = 90.0

_Method = Callable[["_Asked"], Any]


class _Asked:
    def __init__(self, store: SchemaStore, request: Request, body: bytes) -> None:
        self._store = store
        self._request = request
        self._body = body
        self.change = store.change
        self.ask = store.ask

    @property
    def subject(self) -> str:
        return self.path("subject")

    @property
    def scope(self) -> str | None:
        """Subject whose settings are meant; None for those of all subjects."""
        return self.subject if "subject" in self._request.path_params else None

    def path(self, name: str) -> str:
        return unquote(self._request.path_params[name])

    @property
    def schema_id(self) -> int:
        number = whole_number(self.path("id"))
        if number is None:
            raise RefusedError(404, 404, "HTTP 404 Not Found")
        return number

    def flag(self, name: str) -> bool:
        """A parameter of the query that is true or false."""
        return self.text(name).lower() == "true"

    def text(self, name: str) -> str:
        return self._request.query_params.get(name, "")

    @property
    def body(self) -> Mapping[str, Any]:
        try:
            found = compact_json.loads(self._body)
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, 400, f"Unable to parse the body as JSON: {reason_of(error)}") from error
        if not isinstance(found, dict):
            raise RefusedError(400, 400, "The body is not a JSON object")
        for name in ("id", "version"):
            if not (isinstance(given := found.get(name) or 0, int) and given <= LARGEST):
                raise RefusedError(400, 400, f"{name} is not a number of 31 bits")
        return found

    def ask_all(self, question: Callable[[Catalog], Any]) -> Any:
        """As `ask`; what is not there may have been written by another registry, which is read first."""
        try:
            return self._store.ask(question)
        except RefusedError as refused:
            if refused.status != 404:
                raise
            self._store.refresh()
            return self._store.ask(question)


def create_app(store: SchemaStore) -> ASGIApp:
    def endpoint(method: _Method) -> Endpoint:
        async def answering(request: Request) -> Response:
            try:
                body = await read_body(request, _MAX_BODY_BYTES, _BODY_S)
                answer = await run_in_threadpool(method, _Asked(store, request, body))
            except RefusedError as refused:
                return _answer({"error_code": refused.code, "message": refused.message}, refused.status)
            except RestError as error:
                return _error(error.status, error.message)
            return answer if isinstance(answer, Response) else _answer(answer)

        return answering

    return routed(
        {path: {name: endpoint(one) for name, one in found.items()} for path, found in _PATHS.items()}, _error
    )


def _answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return JsonResponse(content, status, headers, media_type=_JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return _answer({"error_code": status, "message": message}, status, headers)


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


def _level(asked: _Asked) -> Any:
    inherited = asked.flag("defaultToGlobal")
    return {"compatibilityLevel": asked.ask(lambda catalog: catalog.level(asked.scope, inherited=inherited))}


def _set_level(asked: _Asked) -> Any:
    wanted = asked.body.get("compatibility")
    return asked.change(lambda catalog: catalog.set_level(asked.scope, wanted))


def _mode(asked: _Asked) -> Any:
    inherited = asked.flag("defaultToGlobal")
    return {"mode": asked.ask(lambda catalog: catalog.mode(asked.scope, inherited=inherited))}


def _set_mode(asked: _Asked) -> Any:
    wanted, force = asked.body.get("mode"), asked.flag("force")
    return asked.change(lambda catalog: catalog.set_mode(asked.scope, wanted, force=force))


_LEVEL: Final[Mapping[str, _Method]] = {
    "GET": _level,
    "PUT": _set_level,
    "DELETE": lambda asked: asked.change(lambda catalog: catalog.remove_level(asked.scope)),
}
_MODE: Final[Mapping[str, _Method]] = {
    "GET": _mode,
    "PUT": _set_mode,
    "DELETE": lambda asked: asked.change(lambda catalog: catalog.remove_mode(asked.scope)),
}
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
    "/config/{subject}": _LEVEL,
    "/mode": _MODE,
    "/mode/{subject}": _MODE,
    "/contexts": {"GET": lambda asked: ["."]},
}
