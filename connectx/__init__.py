"""connectx: Kafka Connect's distributed runtime in Python, with its data pipeline on Spark.

`import connectx as cx` stays light: Kafka, Spark, pandas and plotly are imported when they are first needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from connectx.errors.base import ConnectxError
from connectx.version import VERSION

if TYPE_CHECKING:
    from connectx import plugins
    from connectx.api.attached.cluster import AttachedCluster, attach
    from connectx.api.cluster import Cluster
    from connectx.api.connect_cluster import audit
    from connectx.api.connector import Connector
    from connectx.api.open_clusters import close_all, clusters
    from connectx.data.transforms.api import Predicate, Transform
    from connectx.history.log import EventLog
    from connectx.model.configdef import ConfigDef
    from connectx.plugins.connectors import SinkConnector, SourceConnector
    from connectx.plugins.errors import CommitRefusedError, RetriableError
    from connectx.plugins.slices import SinkBatch, Slice
    from connectx.plugins.stored import Stored
    from connectx.plugins.tasks import SinkTask, SourceTask
    from connectx.verify.audit.findings import Audit, Finding
    from connectx.verify.check.check import check
    from connectx.verify.check.topic_table import read_topic
    from connectx.verify.check.verdict import Verdict
    from connectx.verify.doctor.doctor import doctor

_HOMES = {
    "AttachedCluster": "connectx.api.attached.cluster",
    "Audit": "connectx.verify.audit.findings",
    "Cluster": "connectx.api.cluster",
    "CommitRefusedError": "connectx.plugins.errors",
    "ConfigDef": "connectx.model.configdef",
    "Connector": "connectx.api.connector",
    "EventLog": "connectx.history.log",
    "Finding": "connectx.verify.audit.findings",
    "Predicate": "connectx.data.transforms.api",
    "RetriableError": "connectx.plugins.errors",
    "SinkBatch": "connectx.plugins.slices",
    "SinkConnector": "connectx.plugins.connectors",
    "SinkTask": "connectx.plugins.tasks",
    "Slice": "connectx.plugins.slices",
    "SourceConnector": "connectx.plugins.connectors",
    "SourceTask": "connectx.plugins.tasks",
    "Stored": "connectx.plugins.stored",
    "Transform": "connectx.data.transforms.api",
    "Verdict": "connectx.verify.check.verdict",
    "attach": "connectx.api.attached.cluster",
    "audit": "connectx.api.connect_cluster",
    "check": "connectx.verify.check.check",
    "close_all": "connectx.api.open_clusters",
    "clusters": "connectx.api.open_clusters",
    "doctor": "connectx.verify.doctor.doctor",
    "read_topic": "connectx.verify.check.topic_table",
}

__all__ = [
    "AttachedCluster",
    "Audit",
    "Cluster",
    "CommitRefusedError",
    "ConfigDef",
    "Connector",
    "ConnectxError",
    "EventLog",
    "Finding",
    "Predicate",
    "RetriableError",
    "SinkBatch",
    "SinkConnector",
    "SinkTask",
    "Slice",
    "SourceConnector",
    "SourceTask",
    "Stored",
    "Transform",
    "Verdict",
    "__version__",
    "attach",
    "audit",
    "check",
    "close_all",
    "clusters",
    "doctor",
    "plugins",
    "read_topic",
]
__version__ = VERSION

# A library stays silent unless its user configures logging: nothing of ours may print from a background thread.
logging.getLogger("connectx").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "plugins":
        return import_module("connectx.plugins")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
