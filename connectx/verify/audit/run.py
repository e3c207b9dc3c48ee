"""`cx.audit`: gathers the facts of clusters, one after the other, and judges them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.verify.audit.gather import gather
from connectx.verify.audit.rules import judge

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster
    from connectx.verify.audit.findings import Audit


def audit(*clusters: ConnectCluster) -> Audit:
    """What is wrong, or will go wrong, with these clusters; also between them: sources, targets, groups, topics.

    It only reads. Findings have evidence without secrets, a consequence and a remedy; `unseen` says what was not seen.

    Raises:
        WorkersUnreachableError: a cluster of which no worker answers.
        ClusterClosedError: one that is closed.
    """
    if not clusters:
        raise ValueError("audit needs a cluster: cx.audit(cluster, ...)")
    return judge([gather(cluster.audited()) for cluster in clusters])
