"""Logins of a worker's REST API, from files: `rest.auth.basic.file`, `rest.auth.bearer.file`.

Decides which Authorization headers are known. Files are read again when they change, so that a password can be
replaced or revoked while the worker runs: the logins of a file that is removed or emptied are no longer valid, and
those of one with a wrong line stay. Compares in constant time; nothing of a login is ever logged or shown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from connectx.errors.rest import NoLoginError, RestAuthError
from connectx.model.worker_config import WorkerConfig

logger = logging.getLogger(__name__)


class Credentials:
    """Logins of one worker.

    Args:
        basic_file: lines `user:password`; empty lines and those that begin with # are left out.
        bearer_file: lines with one token each, likewise.

    Raises:
        RestAuthError: a file cannot be read, has no login, or a line is none.
    """

    def __init__(self, basic_file: str | None, bearer_file: str | None) -> None:
        self._files = {scheme: Path(name) for scheme, name in (("Basic", basic_file), ("Bearer", bearer_file)) if name}
        self._reading = threading.Lock()
        self._stamps = self._file_stamps()
        self._of_files = {scheme: _headers(scheme, path) for scheme, path in self._files.items()}

    @classmethod
    def of(cls, config: WorkerConfig) -> Credentials | None:
        """The logins that the settings name; None when they name none: then everyone may ask."""
        basic, bearer = config.rest_auth_basic_file, config.rest_auth_bearer_file
        return cls(basic, bearer) if basic or bearer else None

    @property
    def challenge(self) -> Mapping[str, str]:
        """The header of a 401."""
        return {"www-authenticate": ", ".join(f'{scheme} realm="Kafka Connect"' for scheme in self._files)}

    @property
    def schemes(self) -> Mapping[str, Mapping[str, str]]:
        """OpenAPI's security schemes."""
        return {scheme.lower(): {"type": "http", "scheme": scheme.lower()} for scheme in self._files}

    @property
    def own(self) -> str:
        """What clients of this worker's cluster show: the first login; empty when all are revoked."""
        self._read_again()
        return self._headers[0].decode() if self._headers else ""

    def accept(self, authorization: str | None) -> bool:
        """True when a request has a login of the files; takes as long for one that is nearly right."""
        self._read_again()
        scheme, _, secret = (authorization or "").partition(" ")
        shown = hashlib.sha256(f"{scheme.title()} {secret.strip()}".encode()).digest()
        known = [hmac.compare_digest(shown, hashlib.sha256(header).digest()) for header in self._headers]
        return any(known)

    @property
    def _headers(self) -> list[bytes]:
        return [header for headers in self._of_files.values() for header in headers]

    def _file_stamps(self) -> list[tuple[int, ...] | None]:
        found = (os.stat(path) if path.exists() else None for path in self._files.values())
        return [stat and (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size) for stat in found]

    def _read_again(self) -> None:
        with self._reading:
            if (stamps := self._file_stamps()) == self._stamps:
                return
            self._stamps = stamps
            for scheme, path in self._files.items():
                try:
                    self._of_files[scheme] = _headers(scheme, path)
                except NoLoginError as error:
                    self._of_files[scheme] = []
                    logger.error("%s The logins that were read before are revoked.", error.message)
                except RestAuthError as error:
                    logger.error("%s The logins that were read before stay in force.", error)


def _headers(scheme: str, path: Path) -> list[bytes]:
    """The Authorization header of each login in a file."""
    key = f"rest.auth.{scheme.lower()}.file"
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise NoLoginError(
            f"{key}={path} cannot be read: {type(error).__name__}.", next_step="Check the path and who may read it."
        ) from None  # the cause may quote the file
    logins = [line for line in lines if line and not line.startswith("#")]
    if scheme == "Basic":
        if wrong := [number for number, line in enumerate(lines, 1) if line in logins and not all(line.partition(":"))]:
            raise RestAuthError(f"{key}={path} has no user:password in line {wrong[0]}.", next_step="Correct the line.")
        logins = [base64.b64encode(login.encode()).decode() for login in logins]
    if not logins:
        raise NoLoginError(f"{key}={path} has no login.", next_step="Add a line, or remove the setting.")
    return [f"{scheme} {login}".encode() for login in logins]
