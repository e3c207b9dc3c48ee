"""Merges the small files of a sink's tables, while the sink continues. Offsets stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.errors.clusters import CompactionError
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.settings import sink_connector_settings
from connectx.plugins.stored import Compaction
from connectx.views import Listed

if TYPE_CHECKING:
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient


def compact(client: RestClient, plugins: Plugins, worker: WorkerConfig, sink: str) -> Listed[Compaction]:
    """Merge the files of the tables of all topics of a sink, one table after the other.

    Raises:
        CompactionError: the connector has no files that can be merged.
        ConnectorNotFoundError, RetriableError, LakeError: see their docstrings.
    """
    config = plugins.providers(worker).resolve(client.config(sink))
    cls = plugins.connector_class(config.get("connector.class") or "")
    done: dict[str, Compaction] = {}
    if issubclass(cls, SinkConnector):
        for topic in sink_connector_settings(config).topics or tuple(client.topics(sink)):
            found = cls.compact(config, topic)
            if found is not None and (found.place not in done or found.files_before != found.files_after):
                done[found.place] = found
    if not done:
        raise CompactionError(
            f"{sink} ({cls.__name__}) has no files that can be merged.",
            next_step="Compact tables of DeltaSink or IcebergSink.",
        )
    return Listed(list(done.values()), f"compactions of {sink}")
