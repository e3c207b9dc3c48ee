"""Lanes of the tasks of connectors that run elsewhere, from the metrics of their workers.

Workers of Kafka Connect have no lanes, and no such metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from connectx.errors.base import ConnectxError
from connectx.rest.client import RestClient

_BULK: Final = "connectx_bulk"
_PARTS, _DONE = "connectx_bulk_job_parts", "connectx_bulk_job_parts_done"
_ANSWER_S: Final = 2.0


def read_lanes(client: RestClient, urls: Iterable[str]) -> dict[str, str]:
    """Lanes by connector, as `lanes_in` words them. Workers that do not answer in time are left out."""
    texts = []
    for url in urls:
        with suppress(ConnectxError):
            texts.append(client.of(url, answer_s=_ANSWER_S).metrics())
    return lanes_in(texts)


def lanes_in(texts: Iterable[str]) -> dict[str, str]:
    """Lanes by connector: "tail", "bulk", "1 of 2 bulk", and the parts of jobs that run: "bulk 3/16"."""
    tasks: defaultdict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for text in texts:
        own = "\n".join(line for line in text.splitlines() if line.startswith(_BULK))
        for family in text_string_to_metric_families(f"{own}\n"):
            for sample in family.samples:
                tasks[sample.labels["connector"]][sample.labels["task"]][sample.name] = sample.value
    return {connector: _worded(list(found.values())) for connector, found in tasks.items()}


def _worded(tasks: list[Mapping[str, float]]) -> str:
    known = [task for task in tasks if _BULK in task]
    bulk = [task for task in known if task[_BULK]]
    if not bulk:
        return "tail"
    lane = "bulk" if len(bulk) == len(known) else f"{len(bulk)} of {len(known)} bulk"
    parts, done = (int(sum(task.get(name, 0) for task in bulk)) for name in (_PARTS, _DONE))
    return f"{lane} {done}/{parts}" if parts else lane
