"""The clusters that this process has started and not closed.

A cell that is run again makes a second cluster, and the first one keeps its Kafka, Spark and workers although no name
refers to it any more. Only the process as a whole knows of it, so this list is the process's.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from connectx.views import Listed

if TYPE_CHECKING:
    from connectx.kafka.broker.embedded import EmbeddedKafka
    from connectx.model.worker_config import WorkerConfig


class OpenCluster(Protocol):
    """A `connectx.Cluster`, as far as it matters here."""

    @property
    def kafka(self) -> EmbeddedKafka | None:
        """The embedded broker, None with your own Kafka."""

    @property
    def config(self) -> WorkerConfig:
        """Settings of the workers."""

    def close(self) -> None:
        """Stop what it started."""


_OPEN: Final[list[OpenCluster]] = []


def clusters() -> Listed[OpenCluster]:
    """The clusters of this process that are open, the oldest first: also those that no name refers to any more."""
    return Listed(list(_OPEN), "open clusters")


def close_all() -> None:
    """Close every open cluster of this process, the newest first, as `Cluster.close` does."""
    with ExitStack() as endings:
        for cluster in _OPEN:
            endings.callback(cluster.close)


def opened(cluster: OpenCluster) -> None:
    """List a cluster that has started."""
    _OPEN.append(cluster)


def closed(cluster: OpenCluster) -> None:
    """List it no more; nothing if it is not listed."""
    _OPEN[:] = [one for one in _OPEN if one is not cluster]


def warn_of_another(group_id: str) -> None:
    """Warn the caller of `Cluster` if an open one has an embedded Kafka and the same group, as after a second run."""
    if any(one.kafka is not None and one.config.group_id == group_id for one in _OPEN):
        warnings.warn(
            f"Another cluster with the group {group_id!r} is open in this process and keeps its Kafka and workers: "
            "cx.clusters() lists it. Close it with its close(), or all of them with cx.close_all().",
            stacklevel=3,
        )
