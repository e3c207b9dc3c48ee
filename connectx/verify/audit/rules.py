"""All rules over the inventories of one or more clusters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from connectx.verify.audit.assignments import WORK_RULES
from connectx.verify.audit.findings import Audit, Finding, Severity
from connectx.verify.audit.foundations import SURROUNDINGS_RULES
from connectx.verify.audit.inventory import ClusterInventory
from connectx.verify.audit.overlaps import OVERLAP_RULES

_ORDER = list(Severity)


def judge(clusters: Sequence[ClusterInventory]) -> Audit:
    """Every finding, worst first; a cluster that was given twice (same Kafka, same group) counts once."""
    different: dict[tuple[str, str], ClusterInventory] = {}
    for cluster in clusters:
        known = bool(cluster.kafka_id and cluster.group_id)
        different.setdefault((cluster.kafka_id, cluster.group_id) if known else ("", cluster.name), cluster)
    looked_at = list(different.values())
    found: list[Finding] = []
    for cluster in looked_at:
        for rule in (*WORK_RULES, *SURROUNDINGS_RULES):
            found += [replace(finding, cluster=cluster.name) for finding in rule(cluster)]
    for overlap in OVERLAP_RULES:
        found += overlap(looked_at)
    several = len(looked_at) > 1
    unseen = [f"{one.name}: {text}" if several else text for one in looked_at for text in one.unseen]
    ordered = sorted(found, key=lambda finding: (_ORDER.index(finding.severity), finding.code, finding.subject))
    return Audit(tuple(dict.fromkeys(ordered)), tuple(one.name for one in looked_at), tuple(unseen))
