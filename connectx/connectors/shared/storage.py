"""Where tables in files are: a local directory or a URL, and what an error of the storage means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from connectx.connectors.shared.errors import (
    LakeAccessError,
    LakeError,
    LakeNotExclusiveError,
    LakeStorageError,
    LakeUnavailableError,
)
from connectx.errors.base import ConnectxError
from connectx.errors.transient import LASTING, is_of_database, is_transient
from connectx.views import masked_text

if TYPE_CHECKING:
    from obstore.store import ObjectStore

STORAGE: Final = "storage."
"""Prefix of settings that go to the storage library."""

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)|\[Errno (\d+)\]")

_CLIENT: Final = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    )
)
"""Options of the HTTP client, which obstore takes separately; it aborts where it finds them among the others."""

_ABOUT_TRUST: Final = re.compile(r"ssl|tls|cert|verif|trust")

_QUERY: Final = re.compile(r"(://[^\s?]*)\?\S*")
"""Of a URL; it can hold a signature."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_NOISE: Final = re.compile(r"<\?xml .*|Debug source:.*", re.DOTALL)
"""What libraries add for their authors."""

_STATUS: Final = re.compile(r"status code:?\s*(\d{3})\b")
_CAUSE: Final = re.compile(r"<Code>(\w+)</Code>")
_ARROW_ERROR: Final = re.compile(
    r"AWS Error (?P<aws>[A-Z_]+)(?: \(HTTP status (?P<aws_status>\d{3})\))? during"
    r"|Azure Error: \[(?P<azure>\w+)\] (?P<azure_status>\d{3})\b"
)
"""Errors of pyarrow."""

_UNKNOWN_BUCKET: Final = ("NoSuchBucket", "NO_SUCH_BUCKET", "ContainerNotFound")
_PASSING: Final = ("404", "408", "409", "412", "429")
"""Answers between 400 and 499 after which the same request may succeed later, or that a caller expects."""

_REFUSALS: Final = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "MISSING_AUTHENTICATION_TOKEN",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_SIGNATURE",
    "UNRECOGNIZED_CLIENT",
    "ACCOUNT_PROBLEM",
    "OPT_IN_REQUIRED",
)

_CHECKED: Final = "_connectx.txt"


Errors = tuple[type[Exception], ...]


def url_of(path: str) -> str:
    """A local path as URL; a URL as it is."""
    return path if "://" in path else Path(path).absolute().as_uri()


def is_remote(path: str) -> bool:
    """Whether tables are in an object store, and not in a directory."""
    return not url_of(path).startswith("file:")


def check_directory(url: str, setting: str) -> None:
    """Raise LakeStorageError unless a local directory exists and can be written; other storage is not asked."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return
    path = unquote(parts.path)
    if not os.path.isdir(path):
        raise LakeStorageError(f"The directory {path}", "it does not exist, or is not a directory", setting)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise LakeStorageError(f"The directory {path}", "it cannot be written", setting)


def options(config: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """Settings with this prefix, without it: they go to the library as they are.

    Raises:
        LakeError: a setting of the storage about trust that the library would ignore.
    """
    given = {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix) and text}
    about_trust = [name for name in given if _ABOUT_TRUST.search(name.lower())] if prefix == STORAGE else []
    if unknown := [name for name in about_trust if name.lower().removeprefix("aws_") not in _CLIENT]:
        raise LakeError(
            f"The storage has no setting {prefix}{unknown[0]}.",
            next_step="Trust is set by storage.root_certificate and storage.allow_invalid_certificates.",
        )
    return given


def store_of(path: str, given: Mapping[str, str]) -> ObjectStore:
    """The files below a path.

    Raises:
        LakeError: no such kind of storage, or a wrong setting of it.
    """
    from obstore.store import LocalStore, from_url

    with storage_errors(f"The storage {path}", "storage.*" if given else "path", final=(Exception,)):
        url = url_of(path)
        if url.startswith("file:"):
            return LocalStore.from_url(url, automatic_cleanup=True, mkdir=True)
        plain = {name.lower().removeprefix("aws_"): text for name, text in given.items()}
        client = {name: text for name, text in plain.items() if name in _CLIENT}
        rest = {name: text for name, text in given.items() if name.lower().removeprefix("aws_") not in _CLIENT}
        return from_url(url, config=rest, client_options=client)  # type: ignore[call-overload,no-any-return]


def check_exclusive(store: ObjectStore, path: str) -> None:
    """Create an object twice; the storage must refuse that, as it must refuse all but one of several writers.

    The object stays, so that later checks are one request.

    Raises:
        LakeNotExclusiveError: the storage overwrites the object.
        LakeUnavailableError, LakeError: the storage cannot be reached, or refuses the request.
    """
    from obstore import put
    from obstore.exceptions import AlreadyExistsError, BaseError

    text = b"With this object connectx checks that the storage refuses to create an object that exists."
    with storage_errors(f"The storage {path}", "path", later=(BaseError,)):
        try:
            for _ in range(2):
                put(store, _CHECKED, text, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return
    raise LakeNotExclusiveError(path)


@contextmanager
def storage_errors(
    place: str, setting: str, *, access: str = "storage.*", later: Errors = (), final: Errors = (ValueError,)
) -> Iterator[None]:
    """Turn errors of a library into those of connectx.

    Args:
        place: begins the sentence, for example "The table flights".
        setting: what the reader can correct.
        access: settings with the credentials and the endpoint.
        later: classes of errors besides OSError after which the same call may succeed later.
        final: classes of errors after which it will not.
    """
    try:
        yield
    except ConnectxError:
        raise
    except Exception as error:
        if not isinstance(error, (OSError, *later, *final)):
            raise
        plain = _COLOURS.sub("", str(error))
        shown = _QUERY.sub(r"\1", _NOISE.sub("", plain))
        text = masked_text(" ".join(shown.split()))[:500].rstrip(".: ")
        if refused := _refusal(plain):
            if refused.endswith(_UNKNOWN_BUCKET):
                raise LakeStorageError(place, f"the bucket does not exist ({refused})", setting) from error
            raise LakeAccessError(place, refused, access) from error
        code = _code(error)
        if code in LASTING:
            raise LakeStorageError(place, os.strerror(code).lower(), setting) from error
        lasts = is_of_database(error) and not is_transient(error)
        if lasts or isinstance(error, final) or "not yet implemented" in text:
            step = f"Correct `{setting}` or the table, and restart the task."
            raise LakeError(f"{place} cannot be used: {text}.", next_step=step) from error
        step = f"The task tries again; if this lasts, check the endpoint in `{access}`."
        raise LakeUnavailableError(f"{place} cannot be reached: {text}.", next_step=step) from error


def _refusal(text: str) -> str | None:
    """Status and cause of an answer that an object store gives until a setting changes; None for others."""
    if found := _ARROW_ERROR.search(text):
        name, status = found["aws"] or found["azure"], found["aws_status"] or found["azure_status"] or ""
    else:
        answer, cause = _STATUS.search(text), _CAUSE.search(text)
        name, status = cause[1] if cause else "", answer[1] if answer else ""
    is_refused = status[:1] in ("3", "4") and status not in _PASSING
    return f"{status} {name}".strip() if is_refused or name in _REFUSALS or name in _UNKNOWN_BUCKET else None


def _code(error: BaseException) -> int:
    """The system's error number, also of libraries that only name it in their text; 0: none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return int(found[1] or found[2]) if found else 0
