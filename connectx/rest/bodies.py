"""Bodies of the REST API beside those of the core's verbs, which are in `connectx.core.replies`.

Requests are validated by these types, and OpenAPI and the client's types follow from them. Mirrors what Kafka Connect's
REST resources accept: scalars become strings in configurations, unknown fields of objects are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec

from connectx.errors.rest import RestError
from connectx.model.states import TargetState

T = TypeVar("T")

Config = dict[str, str | None]

Setting = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": ["string", "number", "boolean", "null"]})]
"""A value of a configuration, as it was written: numbers and booleans are taken as text."""

Settings = dict[str, Setting]


class InitialState(StrEnum):
    """State of a connector that is created (KIP-980), in capitals or not."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"

    @classmethod
    def _missing_(cls, value: object) -> InitialState | None:
        return cls.__members__.get(str(value).upper())

    @property
    def target(self) -> TargetState:
        return TargetState.STARTED if self is InitialState.RUNNING else TargetState(self.value)


class NewConnector(msgspec.Struct, forbid_unknown_fields=True):
    """A connector to create; without a state it runs."""

    name: str | None = None
    config: Settings | None = None
    initial_state: InitialState | None = None


class NewOffset(msgspec.Struct, forbid_unknown_fields=True):
    """An offset to set, or null to reset its partition. A source may have a partition that is null."""

    partition: dict[str, Any] | None = None
    offset: dict[str, Any] | None = None


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets to set (KIP-875), at least one."""

    offsets: list[NewOffset] | None = None


class NewLevel(msgspec.Struct):
    """Level to set, of log4j's."""

    level: str | None = None


class Error(TypedDict):
    """Body of every failure."""

    error_code: int
    message: str


class Root(TypedDict):
    """Kafka Connect's version whose API this is, the program and its Kafka cluster."""

    version: str
    commit: str
    kafka_cluster_id: str


class Health(TypedDict):
    """Whether the worker is ready (KIP-1017)."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class CommittedOffset(TypedDict):
    """A partition of a source or of Kafka, and its offset."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


class Offsets(TypedDict):
    """Committed offsets."""

    offsets: list[CommittedOffset]


class Message(TypedDict):
    """Outcome of a change of offsets."""

    message: str


Plugin = TypedDict("Plugin", {"class": str, "type": str, "version": NotRequired[str]})


class Logger(TypedDict):
    """Level in force of a logger, and when this worker changed it: ms since 1970."""

    level: str
    last_modified: int | None


def bad_request(message: str) -> RestError:
    return RestError(message, status=400)


def decode(content: bytes, kind: type[T]) -> T:
    """The body of a request.

    Raises:
        RestError: 400, it is not JSON, or none of this type.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise RestError(
            f"The request body is not valid: {error}", status=400, next_step="See the type in GET /openapi.json."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"The request body is not JSON: {error}") from error


def as_config(settings: Mapping[str, msgspec.Raw]) -> Config:
    """A configuration with every value as text; numbers keep the text that they were written as."""
    return {key: _text(key, bytes(setting)) for key, setting in settings.items()}


def _text(key: str, setting: bytes) -> str | None:
    if setting[:1] in (b"{", b"["):
        raise bad_request(f"The value of {key} must be a string, not an object or a list")
    return decode(setting, str | None) if setting[:1] in (b'"', b"n") else setting.decode()  # type: ignore[arg-type]


def with_name(config: Mapping[str, str | None], name: str) -> Config:
    """The configuration with the connector's name in it; a 400 when it has another one."""
    configured = config.get("name")
    if configured is not None and configured != name:
        raise bad_request(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}
