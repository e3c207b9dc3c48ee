"""Notes beside a connector's state: why it waits, how often it retries, how many records it skipped.

In Kafka Connect these numbers are only metrics of each worker.
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
        """`waits` (a sentence), `retries`, `skipped` and `dead_letters` (numbers) of a connector, if any.

        `retries` counts those of the task instances that exist. `task_metrics` has the metrics of each worker's tasks.
        """
        with self._lock:
            for event in self._news.get(0):
                self._totals.take(event)
            totals = self._totals.of.get((connector, None), Totals())
        own = [
            metrics
            for of_worker in task_metrics
            for name, metrics in of_worker.items()
            if (task := task_of(name)) is not None and task.connector == connector
        ]
        reason = next((str(why) for metrics in own if (why := metrics.get("waits") or metrics.get("retrying"))), "")
        counts = [metrics.get("retries") for metrics in own]
        found = {
            "waits": masked_text(reason),
            "retries": sum(count for count in counts if isinstance(count, int)),
            "skipped": totals.skipped,
            "dead_letters": totals.dead_letters,
        }
        return {name: value for name, value in found.items() if value}
