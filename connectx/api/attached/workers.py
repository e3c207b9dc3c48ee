"""Workers of an attached cluster, as far as they can be observed. No faults can be injected into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from connectx.api.attached.observation import Picture
from connectx.errors.clusters import UnknownWorkerError
from connectx.history.wording import duration
from connectx.values import Value
from connectx.views import Form, Row, text_table


class AttachedWorker(Value):
    """One worker as it was seen last; its name is its host:port.

    Attributes:
        generation: of the whole group: the highest that a status has named, None where statuses are polled.
    """

    name: str
    url: str
    connectors: list[str]
    tasks: list[str]
    generation: int | None
    is_leader: bool

    @property
    def state(self) -> str:
        """running: others are not seen."""
        return "running"

    @property
    def task_metrics(self) -> Mapping[str, Mapping[str, object]]:
        """Nothing: live numbers stay inside the worker."""
        return {}

    def row(self) -> Row:
        """One line of a table of workers."""
        return {
            "worker": self.name + (" (leader)" if self.is_leader else ""),
            "state": self.state,
            "generation": self.generation,
            "connectors": ", ".join(self.connectors),
            "tasks": ", ".join(self.tasks),
            "url": self.url,
        }

    def __repr__(self) -> str:
        work = ", ".join([*self.connectors, *self.tasks]) or "nothing"
        return f"<AttachedWorker {self.name}{', leader' if self.is_leader else ''}, runs {work}>"

    def _repr_html_(self) -> str:
        return Form(f"AttachedWorker {self.name}", self.row()).html


class AttachedWorkers:
    """The observed workers; iterate, or index by name (host:port) or position.

    Args:
        picture: the state at the last poll.
    """

    def __init__(self, picture: Callable[[], Picture]) -> None:
        self._picture = picture

    def __iter__(self) -> Iterator[AttachedWorker]:
        picture = self._picture()
        for seen in picture.workers:
            yield AttachedWorker(
                seen.worker_id, seen.url, list(seen.connectors), list(seen.tasks), picture.generation, seen.is_leader
            )

    def __len__(self) -> int:
        return len(self._picture().workers)

    def __getitem__(self, key: str | int) -> AttachedWorker:
        workers = list(self)
        if isinstance(key, int):
            return workers[key]
        found = next((worker for worker in workers if worker.name == key), None)
        if found is None:
            raise UnknownWorkerError(key, [worker.name for worker in workers])
        return found

    def __contains__(self, name: object) -> bool:
        return any(worker.name == name for worker in self)

    def name_of(self, worker_id: str) -> str:
        """Workers that were not started here have no other name than their host:port."""
        return worker_id

    def lost_on(self, worker_id: str) -> str | None:
        """Why the work that a status places on a worker is lost; None while the worker is a member of the group."""
        group = self._picture().group
        if group is None or worker_id in group.worker_ids:
            return None
        waits = f"; its work waits for scheduled.rebalance.max.delay.ms, {duration(group.delay_ms)} at the most"
        return f"{worker_id} is no member of the group {group.group_id}{waits if group.delay_ms else ''}"

    def __repr__(self) -> str:
        return text_table([worker.row() for worker in self])

    def _repr_html_(self) -> str:
        return Form("Workers", {}, [[worker.row() for worker in self]]).html
