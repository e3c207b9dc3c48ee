"""Keys of HttpSink: those of Confluent's HTTP sink connector, and what they mean together."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from connectx.connectors.http.oauth import OAuthSettings
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.validators import at_least, matching, one_of
from connectx.values import Value

_TEXT_ESCAPES: Final = {r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_LOGINS: Final = {
    "basic": ["connection.user", "connection.password"],
    "bearer": ["bearer.token"],
    "oauth2": ["oauth2.token.url", "oauth2.client.id", "oauth2.client.secret"],
}
_STATUS: Final = re.compile(r"([1-5]\d\d)(?:(-)([1-5]\d\d)?)?")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}")
"""A variable of http.api.url."""


def _url_problem(url: Any) -> str | None:
    try:
        parts = urlsplit(url or "")
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it is not an http:// or https:// URL"
    if parts.username is not None or parts.password is not None:
        return "it has a login in it, which connection.user and connection.password take"
    if VARIABLE.search(parts.netloc):
        return "the host cannot be a variable"
    return next((f"{name!r} is not a variable" for name in VARIABLE.findall(url) if not name.strip()), None)


def _token_url_problem(url: Any) -> str | None:
    if url is None:
        return None
    return "it cannot have variables" if VARIABLE.search(url) else _url_problem(url)


def _statuses_problem(entries: Any) -> str | None:
    wrong = next((entry for entry in entries or () if not _STATUS.fullmatch(entry)), None)
    return None if wrong is None else f"{wrong} is not a status code or a range such as 500-599 or 500-"


def _pem_problem(path: Any) -> str | None:
    if path is None:
        return None
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        return f"the file cannot be used as PEM certificates: {getattr(error, 'strerror', None) or error}"
    return None


CONFIG: Final = (
    ConfigDef()
    .group("Connection")
    .define(
        "http.api.url",
        str,
        doc="Where requests go. ${topic}, ${partition}, ${offset} and ${key} stand for those of the record, another "
        "name such as ${id} for a field of its value.",
        importance="HIGH",
        validator=_url_problem,
    )
    .define(
        "request.method",
        str,
        "POST",
        doc="Method of requests.",
        importance="HIGH",
        validator=one_of("POST", "PUT", "PATCH", ignore_case=True),
    )
    .define(
        "headers",
        str,
        "",
        doc="Headers of every request, as `name:value`, separated by header.separator. Hidden, since they often "
        "hold keys.",
        secret=True,
    )
    .define("header.separator", str, "|", doc="What separates headers.", importance="LOW")
    .define(
        "auth.type",
        str,
        "none",
        doc="How the sink logs in: none, basic (connection.user, connection.password), bearer (bearer.token) or oauth2 "
        "(client credentials, with the keys oauth2.*).",
        validator=one_of("none", "basic", "bearer", "oauth2", ignore_case=True),
    )
    .define("connection.user", str, None, doc="User for auth.type=basic.")
    .define("connection.password", str, None, doc="Password for auth.type=basic.", secret=True)
    .define("bearer.token", str, None, doc="Token for auth.type=bearer.", secret=True)
    .define(
        "oauth2.token.url",
        str,
        None,
        doc="Where auth.type=oauth2 gets its tokens. A token is renewed before it ends, and when it is refused (401).",
        validator=_token_url_problem,
    )
    .define("oauth2.client.id", str, None, doc="Client that asks for tokens.")
    .define("oauth2.client.secret", str, None, doc="Secret of the client.", secret=True)
    .define("oauth2.client.scope", str, "", doc="Scope of the tokens; empty: none is named.")
    .define(
        "oauth2.client.auth.mode",
        str,
        "header",
        doc="Where the client's id and secret go: header (HTTP Basic) or url (the form in the body of the request).",
        importance="LOW",
        validator=one_of("header", "url", ignore_case=True),
    )
    .define(
        "oauth2.token.property",
        str,
        "access_token",
        doc="Field of the token service's response that holds the token.",
        importance="LOW",
    )
    .define(
        "https.ssl.keystore.location",
        str,
        None,
        doc="PEM file with the private key and the certificates of the sink, for targets that ask for them.",
        importance="LOW",
    )
    .define("https.ssl.key.password", str, None, doc="Password of the private key.", importance="LOW", secret=True)
    .define(
        "https.ssl.truststore.location",
        str,
        None,
        doc="PEM file of the certificates to trust; left out: those of the system.",
        importance="LOW",
        validator=_pem_problem,
    )
    .define(
        "http.connect.timeout.ms",
        int,
        30_000,
        doc="How long to wait for a connection.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "http.request.timeout.ms",
        int,
        30_000,
        doc="How long to wait for a response.",
        importance="LOW",
        validator=at_least(1),
    )
    .group("Records")
    .define(
        "request.body.format",
        str,
        "string",
        doc="string: text is sent as it is, values with fields as JSON. json: text becomes a JSON string, too.",
        validator=one_of("string", "json", ignore_case=True),
    )
    .define(
        "batch.max.size",
        int,
        1,
        doc="Most records of one request. They come from one partition and have the same URL.",
        importance="HIGH",
        validator=at_least(1),
    )
    .define(
        "batch.json.as.array",
        bool,
        False,
        doc="Whether each body is a JSON array of records, even of one. Replaces batch.prefix, batch.separator and "
        "batch.suffix.",
    )
    .define("batch.prefix", str, "", doc=r"Text before the records of a body; \n is a line feed.")
    .define("batch.separator", str, ",", doc=r"Text between the records of a body; \n is a line feed.")
    .define("batch.suffix", str, "", doc=r"Text after the records of a body; \n is a line feed.")
    .define(
        "behavior.on.null.values",
        str,
        "ignore",
        doc="What a record without a value (a tombstone) does: ignore, log, fail (it is refused), or delete (a DELETE "
        "request to its URL, which must contain ${key}).",
        validator=one_of("ignore", "log", "fail", "delete", ignore_case=True),
    )
    .define(
        "idempotency.header",
        str,
        "Idempotency-Key",
        doc="Header that names the records of a request by topic, partition and offset, so that the target can drop a "
        "request that it has already accepted; empty: none.",
        validator=matching(f"({_HEADER.pattern})?"),
    )
    .group("Errors")
    .define(
        "retry.on.status.codes",
        list,
        "408,425,429,500-599",
        doc="Status codes after which the same request is sent again, such as 429,500-599 or 500-.",
        validator=_statuses_problem,
    )
    .define(
        "record.error.status.codes",
        list,
        "400,409,413,415,422",
        doc="Status codes with which the target refuses records. A refused batch is divided until the refused records "
        "are found; errors.tolerance decides about these. Other codes fail the task.",
        validator=_statuses_problem,
    )
    .define(
        "max.retries",
        int,
        10,
        doc="How often in a row a request is sent again before the task fails; -1: until it succeeds.",
        validator=at_least(-1),
    )
    .define(
        "retry.backoff.ms",
        int,
        3_000,
        doc="Pause before a request is sent again. It doubles up to errors.retry.delay.max.ms. A longer Retry-After of "
        "the target replaces it.",
        validator=at_least(0),
    )
)


class HttpSettings(Value):
    """What the sink does, typed. `headers` and `basic` hold secrets; `delay_max_ms` is errors.retry.delay.max.ms."""

    url: str
    method: str
    headers: Mapping[str, str]
    basic: tuple[str, str] | None
    oauth: OAuthSettings | None
    truststore: str | None
    keystore: tuple[str, str] | None
    """PEM file of the client, and the password of its key."""
    connect_timeout_s: float
    request_timeout_s: float
    as_json: bool
    batch_size: int
    prefix: str
    separator: str
    suffix: str
    on_null: str
    idempotency_header: str
    retry_on: frozenset[int]
    refused_on: frozenset[int]
    max_retries: int
    backoff_ms: int
    delay_max_ms: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> HttpSettings:
        """From a task's configuration.

        Raises:
            ConfigError: lists every problem.
        """
        values = CONFIG.parse(config)
        if found := problems(config):
            raise ConfigError([message for messages in found.values() for message in messages])
        prefix, separator, suffix = (_unescaped(values[f"batch.{name}"]) for name in ("prefix", "separator", "suffix"))
        if values["batch.json.as.array"]:
            prefix, separator, suffix = "[", ",", "]"
        headers, _ = _headers(values)
        auth = values["auth.type"].lower()
        as_json = values["request.body.format"].lower() == "json"
        is_json = as_json or values["batch.json.as.array"]
        default = {"Content-Type": "application/json" if is_json else "text/plain; charset=utf-8"}
        if auth == "bearer":
            default["Authorization"] = f"Bearer {values['bearer.token'].value}"
        named = {name.lower() for name in headers}
        return cls(
            url=values["http.api.url"].strip(),
            method=values["request.method"].upper(),
            headers=headers | {name: value for name, value in default.items() if name.lower() not in named},
            basic=(values["connection.user"], values["connection.password"].value) if auth == "basic" else None,
            oauth=_oauth(values) if auth == "oauth2" else None,
            truststore=values["https.ssl.truststore.location"],
            keystore=_keystore(values),
            connect_timeout_s=values["http.connect.timeout.ms"] / 1000,
            request_timeout_s=values["http.request.timeout.ms"] / 1000,
            as_json=as_json,
            batch_size=values["batch.max.size"],
            prefix=prefix,
            separator=separator,
            suffix=suffix,
            on_null=values["behavior.on.null.values"].lower(),
            idempotency_header=values["idempotency.header"],
            retry_on=_statuses(values["retry.on.status.codes"]),
            refused_on=_statuses(values["record.error.status.codes"]),
            max_retries=values["max.retries"],
            backoff_ms=values["retry.backoff.ms"],
            delay_max_ms=int(config.get("errors.retry.delay.max.ms") or 60_000),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may show."""
        tokens = [value.partition(" ")[2] for name, value in self.headers.items() if name.lower() == "authorization"]
        named = [value for name, value in self.headers.items() if name.lower() != "content-type"]
        return tuple(text for text in (*named, *tokens, self.basic[1] if self.basic else "") if text)

    @property
    def place(self) -> str:
        """The URL without its query, which may hold a key."""
        return self.url.partition("?")[0]


def problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What does not go together, by key. Reads only values that are valid on their own."""
    found: dict[str, list[str]] = {}
    values = {value.name: value.value for value in CONFIG.validate(config) if not value.errors}
    auth = (values.get("auth.type") or "").lower()
    for name in _LOGINS.get(auth, ()):
        if not values.get(name):
            found[name] = [f"auth.type={auth} needs {name}"]
    if values.get("headers") is not None and (problem := _headers(values)[1]):
        found["headers"] = [invalid_value("headers", "[hidden]", problem)]
    if (keystore := _keystore(values)) is not None and (problem := _keystore_problem(*keystore)):
        found["https.ssl.keystore.location"] = [invalid_value("https.ssl.keystore.location", keystore[0], problem)]
    url = values.get("http.api.url") or ""
    if (values.get("behavior.on.null.values") or "").lower() == "delete" and url and "${key}" not in url:
        found["behavior.on.null.values"] = ["behavior.on.null.values=delete needs ${key} in http.api.url"]
    both = _statuses(values.get("retry.on.status.codes") or ()) & _statuses(
        values.get("record.error.status.codes") or ()
    )
    if both:
        found["record.error.status.codes"] = [f"{min(both)} is in retry.on.status.codes, too"]
    return found


def _oauth(values: Mapping[str, Any]) -> OAuthSettings:
    return OAuthSettings(
        values["oauth2.token.url"].strip(),
        values["oauth2.client.id"],
        values["oauth2.client.secret"].value,
        values["oauth2.client.scope"],
        values["oauth2.token.property"],
        values["oauth2.client.auth.mode"].lower() == "header",
    )


def _keystore(values: Mapping[str, Any]) -> tuple[str, str] | None:
    location, password = values.get("https.ssl.keystore.location"), values.get("https.ssl.key.password")
    return (location, password.value if password else "") if location else None


def _keystore_problem(location: str, password: str) -> str | None:
    try:
        ssl.create_default_context().load_cert_chain(location, password=lambda: password)
    except (OSError, ssl.SSLError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        return f"the file cannot be used as PEM key and certificates, with https.ssl.key.password: {cause}"
    return None


def _headers(values: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    """Headers by name, and what is wrong with them; the sentence does not repeat a header's value."""
    text, separator = values["headers"], values.get("header.separator") or "|"
    parts = [part for part in (text.value if text else "").split(separator) if part.strip()]
    made: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not _HEADER.fullmatch(name):
            return made, f"header {number} of {len(parts)} is not of the form name:value"
        if not value.isascii() or not value.isprintable():
            return made, f"the value of header {name} is not printable ASCII"
        made[name] = value
    return made, None


def _statuses(entries: Iterable[str]) -> frozenset[int]:
    codes: set[int] = set()
    for entry in entries:
        if found := _STATUS.fullmatch(entry):
            last = found[3] or ("599" if found[2] else found[1])
            codes |= set(range(int(found[1]), int(last) + 1))
    return frozenset(codes)


def _unescaped(text: str) -> str:
    for escape, meant in _TEXT_ESCAPES.items():
        text = text.replace(escape, meant)
    return text
