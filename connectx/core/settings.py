"""Settings of one worker's core, from the worker's configuration and its environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from connectx.model.config_records import SessionKeyRecord
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig
from connectx.values import Value

ConnectorTypeOf = Callable[[Mapping[str, str | None]], ConnectorType]
SignatureCheck = Callable[[SessionKeyRecord | None, bytes, str | None, str | None], tuple[int, str] | None]


class CoreSettings(Value):
    """Settings of one worker's core.

    Attributes:
        url: advertised URL, with a trailing slash.
        worker: the worker's configuration.
        connector_type_of: returns a connector's direction from its configuration. Pure.
        check_signature: returns an HTTP status and a message for a wrong signature of an internal request (key, body,
            signature, algorithm). Pure.
    """

    url: str
    worker: WorkerConfig
    connector_type_of: ConnectorTypeOf
    check_signature: SignatureCheck

    @property
    def worker_id(self) -> str:
        """host:port of the advertised URL, as statuses carry it."""
        return urlsplit(self.url).netloc

    def __deepcopy__(self, memo: dict[int, Any]) -> CoreSettings:
        return self  # nothing changes in it, and its functions are not the core's to copy
