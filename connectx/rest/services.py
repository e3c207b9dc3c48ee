"""The interfaces that a worker's REST server needs: the core's replies, and services beside the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from connectx.core.messages import Reply
from connectx.core.replies import Expanded
from connectx.core.verbs import Verb
from connectx.model.configdef import ConfigInfos, ConfigKeyInfo
from connectx.model.states import ConnectorType
from connectx.rest.bodies import CommittedOffset, NewOffset, Plugin, Root
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.stages import Stage
from connectx.version import KAFKA_VERSION

API_VERSION: Final = KAFKA_VERSION
"""Version of Kafka Connect whose REST API this is; clients decide by it what they may ask."""


class Asked(Future[Reply]):
    """The reply of a request, and what the worker does for it meanwhile; None: what the worker does at all."""

    stage: Stage | None = None


Ask = Callable[[Verb], Asked]
"""Puts a request (verb, connector, args) to the worker's core; never blocks. The future is never cancelled by REST."""


class Services(Protocol):
    """Information of a worker outside of its core.

    All but `masked`, `ready`, `in_touch` and `stage` may block: REST calls them on its own threads, several at a time.
    A failure is a `RestError` with its HTTP status; any other error is a 500 with its message.
    """

    @property
    def loggers(self) -> WorkerLoggers:
        """Levels of loggers."""

    def masked(self, text: str) -> str:
        """Text without secrets. Never blocks."""

    def ready(self) -> bool:
        """True when start-up has ended (KIP-1017). Never blocks."""

    def in_touch(self) -> bool:
        """True while the worker is a member of its group and the group answers it. Never blocks."""

    def stage(self) -> Stage:
        """What the worker does now, for requests that time out. Never blocks."""

    def root(self) -> Root:
        """Version, commit and Kafka cluster."""

    def plugins(self, connectors_only: bool) -> list[Plugin]:
        """Plugins that can be named, or of them the connectors."""

    def plugin_config(self, plugin: str) -> list[ConfigKeyInfo]:
        """Key definitions of a plugin, by class or alias; RestError 404 when there is none."""

    def validate(self, config: Mapping[str, str | None]) -> ConfigInfos:
        """Validate a connector configuration.

        RestError 400 when `connector.class` is missing.
        """

    def read_offsets(
        self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]
    ) -> list[CommittedOffset]:
        """Committed offsets: source offsets of the offsets topic, or the offsets of the sink's group."""

    def alter_offsets(
        self,
        connector: str,
        kind: ConnectorType,
        config: Mapping[str, str | None],
        offsets: Sequence[NewOffset],
    ) -> str:
        """Set offsets (None: reset that partition); returns the message for the user.

        The core has given its permission (ModifyOffsets) just before.
        """

    def reset_offsets(self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]) -> str:
        """Forget all offsets; returns the message for the user. Permission as with `alter_offsets`."""

    def metrics(self, connectors: Mapping[str, Expanded]) -> bytes:
        """Metrics in Prometheus's text format; `connectors`: what ListConnectors shows with `expand`."""
