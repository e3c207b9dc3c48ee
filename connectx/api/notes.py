"""What the state of a connector does not show: why it waits, and how many records it has skipped.

Kafka Connect has these numbers as metrics of each worker only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from connectx.history.folds.totals import Totals, TotalsFold
from connectx.history.log import EventLog
from connectx.history.wording import task_of
from connectx.views import masked_text


class Notes:
    """Follows a history as far as it is asked. Any thread may ask."""

    def __init__(self, events: EventLog) -> None:
        self._news = events.subscribe(0)
        self._totals = TotalsFold()
        self._lock = threading.Lock()

    def of(self, connector: str, task_metrics: Iterable[Mapping[str, Mapping[str, object]]]) -> dict[str, object]:
        """`waits` (a sentence), `skipped` and `dead_letters` (numbers of records) of a connector, if any.

        `task_metrics` has the metrics of each worker's tasks by task.
        """
        with self._lock:
            for event in self._news.get(0):
                self._totals.take(event)
            totals = self._totals.of.get((connector, None), Totals())
        reasons = [
            str(metrics["waits"])
            for of_worker in task_metrics
            for name, metrics in of_worker.items()
            if metrics.get("waits") and (task := task_of(name)) is not None and task.connector == connector
        ]
        found = {"waits": masked_text(reasons[0]) if reasons else ""}
        return {
            name: value
            for name, value in {**found, "skipped": totals.skipped, "dead_letters": totals.dead_letters}.items()
            if value
        }
