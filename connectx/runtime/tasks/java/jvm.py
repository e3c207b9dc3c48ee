"""The JVM of a worker: starts with the first Java connector, task or question, and takes its reports to who waits.

It decides nothing. When the JVM ends by itself, all that ran in it has failed, and the next order starts another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from connectx.core import messages
from connectx.errors.rest import RestError
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import OffsetsCommitted, Payload, TransactionCommitted
from connectx.model.payloads import PartitionsAssigned as Assigned
from connectx.model.payloads import PartitionsRevoked as Revoked
from connectx.runtime.tasks.java.link import JavaLink
from connectx.runtime.tasks.java.reports import (
    Committed,
    HistoryReport,
    PartitionsAssigned,
    PartitionsRevoked,
    Report,
)
from connectx.runtime.tasks.java.settings import link_plugins, worker_settings
from connectx.runtime.tasks.services import TaskServices

if TYPE_CHECKING:
    from connectx.plugins.registry import Plugins

_log = logging.getLogger(__name__)

Key = tuple[str | TaskId, int]
"""Connector or task, and instance."""


class Guest(Protocol):
    """A connector or task that runs in the JVM."""

    def take(self, report: Any) -> None:
        """A report about it."""

    def lost(self, reason: str) -> None:
        """The JVM has ended by itself."""


class WorkerJvm:
    """The JVM of one worker, and what runs in it.

    Args:
        services: of the worker.
        plugins: with the plugin path.
    """

    def __init__(self, services: TaskServices, plugins: Plugins) -> None:
        self.services = services
        self._plugins = plugins
        self._lock = threading.Lock()
        self._link: JavaLink | None = None
        self._guests: dict[Key, Guest] = {}
        self._ending = False

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, None while there is none."""
        link = self._link
        return None if link is None else link.pid

    def admit(self, key: Key, guest: Guest) -> None:
        """A connector or task that will order its start: from now on it gets its reports."""
        with self._lock:
            self._guests[key] = guest

    def remove(self, key: Key) -> None:
        """Its reports are dropped from now on, but for commits, which go into the history."""
        with self._lock:
            self._guests.pop(key, None)

    def order(self, key: Key, name: str, **fields: Any) -> None:
        """Send an order for what is admitted, to a JVM that is started for it. Never waits for the start."""
        with self._lock:
            if key in self._guests and (link := self._started()) is not None:
                link.order(name, fields)

    def ask(self, question: str, **fields: Any) -> Any:
        """Ask the JVM, which is started for it if there is none, and wait for the answer.

        Raises:
            RestError: with the JVM's refusal, or why there is no answer.
        """
        with self._lock:
            link = self._started()
        if link is None:
            raise RestError("The worker is ending.", status=500)
        return link.ask(question, fields)

    def freeze(self) -> None:
        """A fault: the JVM stands still."""
        if (link := self._link) is not None:
            link.freeze()

    def thaw(self) -> None:
        if (link := self._link) is not None:
            link.thaw()

    def kill(self) -> None:
        """End the JVM immediately, without a commit. What it had committed by then is in the history afterwards."""
        with self._lock:
            self._ending = True
            link = self._link
        if link is not None:
            link.kill()

    def _started(self) -> JavaLink | None:
        """The present JVM; called with the lock."""
        if self._link is None and not self._ending:
            services = self.services
            self._link = JavaLink(services.worker, self._settings, services.providers.masked, self._take, self._lost)
            self._link.start()
        return self._link

    def _settings(self, folder: Path) -> Mapping[str, str]:
        services, found = self.services, self._plugins.java.found
        plugins = link_plugins(found.locations, folder)
        return worker_settings(
            services.worker, services.config, services.clients, in_manifests=found.all_in_manifests, plugins=plugins
        )

    def _take(self, report: Report) -> None:
        match report:
            case Committed() | PartitionsAssigned() | PartitionsRevoked():
                self._record(report)
            case _ if self._ending:  # its worker is killed: it reports nothing more
                pass
            case messages.TopicUsed():
                self.services.post(report)
            case messages.OfTask(task, instance):
                self._hand(report, (task, instance))
            case messages.OfConnector(connector, instance):
                self._hand(report, (connector, instance))

    def _hand(self, report: Report, key: Key) -> None:
        guest = self._guests.get(key)
        if guest is None:
            _log.debug("%s: a report of what has ended: %s", self.services.worker, report)
        else:
            guest.take(report)

    def _record(self, report: HistoryReport) -> None:
        task, instance = report.task, report.instance
        payload: Payload
        match report:
            case Committed(_, _, records, True, offsets):
                payload = TransactionCommitted(records, offsets, instance)
            case Committed(_, _, records, _, offsets, ends):
                payload = OffsetsCommitted(records, offsets if ends is None else ends, instance)
            case PartitionsAssigned(partitions=partitions):
                payload = Assigned(partitions)
            case PartitionsRevoked(partitions=partitions):
                payload = Revoked(partitions)
        self.services.record(Transition(payload, task.connector, task.task))
        if isinstance(report, Committed) and (guest := self._guests.get((task, instance))) is not None:
            guest.take(report)

    def _lost(self, reason: str) -> None:
        """The JVM has ended by itself. Orders until now were for it, those from now on are for the next one."""
        with self._lock:
            if self._ending:
                return
            self._link = None
            guests, self._guests = self._guests, {}
        for guest in guests.values():
            guest.lost(reason)
