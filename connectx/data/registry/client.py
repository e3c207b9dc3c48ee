"""Client of a schema registry: that of confluent-kafka, with connectx's errors and without its waits.

Registries are asked once for each schema: what they answered is kept. An answer that may change, such as the latest
version of a subject, is kept as long as the converter. Mirrors Confluent's CachedSchemaRegistryClient.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from connectx.errors.plugins import (
    ConfigError,
    ConversionError,
    RegistryUnavailableError,
    SchemaIncompatibleError,
    SchemaNotFoundError,
)
from connectx.extras import require
from connectx.responses import BodyError, Limit, limit_client
from connectx.values import Value

_TIMEOUT_S: Final = 5.0
_BODY: Final = Limit(most_bytes=16 * 1024 * 1024, within_s=30.0)
_INCOMPATIBLE: Final = 409
_REFUSED: Final = (401, 403)
_NOT_FOUND: Final = 404
_TOO_LONG: Final = 400
"""Characters of a registry's answer that a message repeats."""

_Answer = TypeVar("_Answer")


class KnownSchema(Value):
    """A schema of the registry, with the texts of those it refers to by name, their own references first."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class RegistryClient:
    """Asks one registry, or several as one tries the next.

    Args:
        settings: parsed keys of `connectx.data.registry.keys`.
        converter: for messages, such as `AvroConverter`; `side` is key or value.

    Raises:
        MissingExtraError: the packages of the extra `registry` are not installed.
        ConfigError: a URL, a login or a certificate cannot be used.
    """

    def __init__(self, settings: Mapping[str, Any], converter: str, side: str) -> None:
        require(converter, "registry", "httpx2", "authlib", "attr", "cachetools", "certifi")
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._made_of = settings, converter, side
        self._converter = converter
        self._setting = f"{side}.converter.schema.registry.url"
        self._url = ", ".join(map(without_login, settings["schema.registry.url"]))
        self._known: dict[int, KnownSchema] = {}
        try:
            self._client = SchemaRegistryClient.new_client(_client_config(settings))
            limit_client(self._client._rest_client.session, _BODY)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError([f"The client of {self._url} ({self._setting}) cannot be made: {error}"]) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Executors make their own client."""
        return type(self), self._made_of

    def schema(self, schema_id: int) -> KnownSchema:
        """The schema of an id.

        Raises:
            SchemaNotFoundError: the registry has no such schema.
            RegistryUnavailableError: it cannot be asked now.
            ConversionError: it refuses.
        """
        if schema_id not in self._known:
            found = self._asked(lambda: self._client.get_schema(schema_id), f"the schema {schema_id}")
            self._known[schema_id] = self._with_references(schema_id, found)
        return self._known[schema_id]

    def register(self, subject: str, kind: str, text: str, *, normalize: bool = False) -> int:
        """Id of a schema, which becomes the subject's latest unless it is there already.

        Raises:
            SchemaIncompatibleError: the subject's compatibility does not allow it.
            RegistryUnavailableError, ConversionError: as `schema`.
        """
        made = self._schema(kind, text)
        return int(
            self._asked(
                lambda: self._client.register_schema(subject, made, normalize),
                f"a schema of {subject}",
                lambda: self._versions(subject),
            )
        )

    def lookup(self, subject: str, kind: str, text: str, *, normalize: bool = False) -> int:
        """Id of a schema that the subject has.

        Raises:
            SchemaNotFoundError: it has no such schema.
            RegistryUnavailableError, ConversionError: as `schema`.
        """
        made = self._schema(kind, text)
        found = self._asked(lambda: self._client.lookup_schema(subject, made, normalize), f"the schema in {subject}")
        return int(found.schema_id or 0)

    def latest(self, subject: str) -> KnownSchema:
        """The latest schema of a subject.

        Raises:
            SchemaNotFoundError: there is no such subject.
            RegistryUnavailableError, ConversionError: as `schema`.
        """
        found = self._asked(lambda: self._client.get_latest_version(subject), f"the latest schema of {subject}")
        schema_id = int(found.schema_id or 0)
        if schema_id not in self._known:
            self._known[schema_id] = self._with_references(schema_id, found.schema)
        return self._known[schema_id]

    def close(self) -> None:
        self._client.close()

    def _schema(self, kind: str, text: str) -> Any:
        from confluent_kafka.schema_registry import Schema

        return Schema(text, kind)

    def _with_references(self, schema_id: int, schema: Any) -> KnownSchema:
        found: dict[str, str] = {}
        self._collect(schema, found)
        return KnownSchema(schema_id, str(schema.schema_type or "AVRO"), str(schema.schema_str), tuple(found.items()))

    def _collect(self, schema: Any, found: dict[str, str]) -> None:
        for one in schema.references or ():
            if one.name in found:
                continue
            known = self._asked(
                lambda one=one: self._client.get_version(one.subject, one.version, True),  # type: ignore[misc]
                f"version {one.version} of {one.subject}",
            )
            self._collect(known.schema, found)
            found[one.name] = str(known.schema.schema_str)

    def _versions(self, subject: str) -> str:
        """The subject's latest version, for a message."""
        try:
            return f"version {self._client.get_latest_version(subject).version}"
        except Exception:
            return "its latest version"

    def _asked(self, call: Callable[[], _Answer], what: str, version: Callable[[], str] = str) -> _Answer:
        import httpx
        import httpx2
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return call()
        except SchemaRegistryError as error:
            status, answer = error.http_status_code, self._masked(str(error.error_message or ""))
            if status >= 500 or status == 429:
                raise self._unavailable(f"it answered {status}: {answer}") from error
            if status == _INCOMPATIBLE:
                raise SchemaIncompatibleError(
                    f"{self._converter} cannot register {what}: it is not compatible with {version()}: {answer}.",
                    next_step="Change the rows, or the subject's compatibility, and restart the task.",
                ) from error
            if status == _NOT_FOUND:
                raise SchemaNotFoundError(
                    f"The schema registry {self._url} does not have {what}: {answer}.",
                    next_step="Register it, set auto.register.schemas=true, or correct schema.registry.url.",
                ) from error
            if status in _REFUSED:
                raise ConversionError(
                    f"The schema registry {self._url} refuses the login ({status}).",
                    next_step=f"Correct basic.auth.user.info beside {self._setting}.",
                ) from error
            raise ConversionError(
                f"The schema registry {self._url} refuses {what} ({status}): {answer}.",
                next_step=f"Correct the schema or {self._setting}, and restart the task.",
            ) from error
        except (httpx.HTTPError, httpx2.HTTPError, OSError, json.JSONDecodeError) as error:
            raise self._unavailable(self._masked(str(error)) or type(error).__name__) from error
        except (BodyError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            why = str(error) if isinstance(error, BodyError) else "JSON that is no answer of a schema registry"
            raise ConversionError(
                f"The schema registry {self._url} answers with {why} when asked for {what}.",
                next_step=f"Correct {self._setting}, or what is in front of the registry, and restart the task.",
            ) from error

    def _unavailable(self, why: str) -> RegistryUnavailableError:
        return RegistryUnavailableError(self._url, self._setting, why)

    def _masked(self, text: str) -> str:
        """The message of a registry or a client, short and without a login in a URL."""
        return re.sub(r"//[^/@\s]+@", "//", text)[:_TOO_LONG].rstrip(". ")


def without_login(url: str) -> str:
    """A URL without user and password."""
    parts = urlsplit(url.strip())
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _client_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of confluent-kafka's client. It tries again once: waiting is the task's part, which can be stopped."""
    given = {
        "ssl.ca.location": settings["schema.registry.ssl.truststore.location"],
        "ssl.certificate.location": settings["schema.registry.ssl.keystore.location"],
        "cache.capacity": settings["schemas.cache.config"],
        "timeout": _TIMEOUT_S,
        "max.retries": 1,
        "retries.wait.ms": 50,
        "retries.max.wait.ms": 200,
        "url": ",".join(url.strip() for url in settings["schema.registry.url"]),
    }
    password = settings["schema.registry.ssl.key.password"]
    given["ssl.key.password"] = None if password is None else password.value
    if settings["basic.auth.credentials.source"] == "USER_INFO":
        login = settings["basic.auth.user.info"]
        given["basic.auth.user.info"] = "" if login is None else login.value
    return {key: value for key, value in given.items() if value is not None}
