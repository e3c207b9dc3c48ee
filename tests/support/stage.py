"""A panel on a plain page: the real kernel side and front end, on a hand-written history; no cluster, no Jupyter.

The colours are those of JupyterLab's own themes, read from the installed package.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from connectx_widgets.widget import ClusterPanel
from playwright.sync_api import Page

from connectx.api.peek import ERRORS, DeadLetters, Record
from connectx.errors.rest import ConnectorNotFoundError
from connectx.history.folds.lost import LostWork
from connectx.history.folds.snapshot import snapshot
from connectx.history.folds.tracks import Samples
from connectx.history.log import EventLog
from connectx.model.configdef import ConfigInfos
from connectx.model.events import Event, EventKind, Transition
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import Plugins
from connectx.plugins.validation import validate_connector
from connectx.views import Listed
from tests.support.histories import START_MS, transition
from tests.support.lab import SHOTS

THEMES = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
_TIMEOUT_S = 15.0
_WORKER = {
    **{"bootstrap.servers": "localhost:9092", "group.id": "flights"},
    **{f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")},
    **{f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")},
}
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>panel</title><style>{theme}</style>
<style>body {{ margin: 16px; background: var(--jp-layout-color0, Canvas) }}</style></head>
<body><main id="place"></main></body></html>"""
_MOUNT = """async ({esm, css, state}) => {
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  const listeners = { "msg:custom": new Set(), "change:snapshot": new Set() };
  const model = {
    get: (name) => state[name],
    send: (message) => window.toKernel(message),
    on: (name, listener) => listeners[name].add(listener),
    off: (name, listener) => listeners[name].delete(listener),
  };
  window.deliver = (message) => listeners["msg:custom"].forEach((listener) => listener(message));
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  const widget = module.default();
  widget.initialize({ model });
  widget.render({ model, el: document.getElementById("place") });
}"""


class StagedConnector:
    """What the panel's form and details ask of a connector."""

    def __init__(self, config: dict[str, str]) -> None:
        self.config = config
        self.deleted = 0

    def delete(self) -> None:
        self.deleted += 1


class StagedCluster:
    """A history that ends now, and connectors to look at; its calls fail, as those of a broken cluster."""

    has_faults = True

    def __init__(
        self,
        events: list[Event],
        configs: dict[str, dict[str, str]],
        samples: Callable[[list[Event]], Samples] | None = None,
    ) -> None:
        shift_ms = time.time_ns() // 1_000_000 - 500 - events[-1].time_ms
        times = iter([event.time_ms + shift_ms for event in events])
        self.events = EventLog(clock=lambda: next(times, time.time_ns() // 1_000_000))
        for event in events:
            self.events.append(
                Transition(
                    event.payload, event.connector, event.task, event.generation, event.producer_epoch, event.why
                ),
                event.worker,
            )
        self.workers: list[Any] = []
        self.sent: list[Record] = []
        self.sampled = None if samples is None else samples(list(self.events))
        self._connectors = {name: StagedConnector(config) for name, config in configs.items()}
        self._plugins = Plugins()
        self._config = WorkerConfig.parse(_WORKER)

    def movement_reader(self) -> None:
        """None: tasks report their records, as those of a cluster that was started here."""

    def delete(self, name: str) -> None:
        """A connector is deleted, not by the panel."""
        del self._connectors[name]
        self.events.append(transition(EventKind.CONNECTOR_DELETED, name), "worker-1")

    def overview(self) -> dict[str, object]:
        return {
            **{"kafka": "127.0.0.1:9092 (embedded)", "group": "flights", "generation": 4, "leader": "worker-1"},
            **{"exactly-once sources": "enabled", "spark": "4.0.0"},
        }

    def plugins(self) -> list[dict[str, Any]]:
        return [{"class": found.name, "type": found.type} for found in self._plugins.describe()]

    def validate(self, config: dict[str, str]) -> ConfigInfos:
        return validate_connector(self._plugins, config, self._config)

    def status(self, name: str) -> dict[str, Any]:
        tasks = [{"id": 0, "state": "RUNNING", "worker_id": "worker-2"}]
        return {"name": name, "connector": {"state": "RUNNING"}, "tasks": tasks, "type": "source"}

    def task_state(self, name: str, state: str, trace: str | None = None) -> None:
        """A task changes its state on the worker that runs it."""
        before = snapshot(self.events)
        task = next(task for task in before.tasks if f"{task.connector}-{task.task}" == name)
        data = {"state": state} if trace is None else {"state": state, "trace": trace}
        self.events.append(transition(EventKind.TASK_STATE, task.connector, task.task, data=data), task.worker)

    def peek(self, name: str, rows: int) -> Listed[Record]:
        """The newest records of any topic."""
        flight = '{{"flight": "UA{0}", "origin": "EWR", "delay": {0}}}'
        made = [
            Record(name, n % 3, n, START_MS + n, f"UA{n}", flight.format(n), {"trace": f"t-{n}"}, None, None)
            for n in range(rows)
        ]
        return Listed(made, "records")

    def dead_letters(self, sink: str, rows: int) -> DeadLetters:
        """Two letters; what is sent again is kept in `sent`."""
        reason = {f"{ERRORS}exception.message": "the field delay is no number"}
        made = [
            Record(f"{sink}-dead", 0, n, START_MS + n, None, f'{{"delay": "{n}x"}}', reason, None, b'{"delay": "?"}')
            for n in range(2)
        ]
        return DeadLetters(made, sink, f"{sink}-dead", self.sent.extend)

    def samples(self) -> Samples | None:
        """What was sampled before the panel was opened."""
        return self.sampled

    def topic_sizes(self, topics: list[str]) -> dict[str, int]:
        """What Kafka knows of topics."""
        return dict.fromkeys(topics, 27_004)

    def backlog(self, name: str) -> int:
        """What Kafka knows of a sink's lag."""
        return 50

    def commit(self, name: str, records: int) -> None:
        """A task commits records."""
        connector, _, task = name.rpartition("-")
        self.events.append(transition(EventKind.OFFSETS_COMMITTED, connector, int(task), data={"records": records}))

    def skip(self, name: str, records: int, dead_letters: int = 0) -> None:
        """A task skips records because of errors."""
        connector, _, task = name.rpartition("-")
        data = {"records": records, "dead_letters": dead_letters}
        self.events.append(transition(EventKind.RECORDS_SKIPPED, connector, int(task), data=data))

    def runs(self, worker: str, metrics: dict[str, Any], generation: int = 2) -> None:
        """A worker runs these tasks, with these numbers."""
        others = [one for one in self.workers if one.name != worker]
        state = {"state": "running", "heartbeat_ms": None, "generation": generation}
        self.workers = [*others, SimpleNamespace(name=worker, task_metrics=metrics, **state)]

    def loses(self, worker: str, lost: LostWork | None) -> None:
        """A worker is dead, and its work waits, or all of it has moved."""
        self.workers = [one for one in self.workers if one.name != worker]
        state = {"state": "killed", "generation": 2, "task_metrics": {}}
        self.workers.append(SimpleNamespace(name=worker, lost=lost, **state))

    def configure(self, name: str, config: dict[str, str]) -> None:
        """A connector gets another configuration, and a worker reads it."""
        self._connectors[name].config = config
        self.events.append(transition(EventKind.CONNECTOR_CONFIGURED, name), "worker-1")

    def __getitem__(self, name: str) -> StagedConnector:
        if name not in self._connectors:
            raise ConnectorNotFoundError(f"Connector {name} not found", status=404)
        return self._connectors[name]

    def kill(self, worker: str) -> None:
        self.events.append(transition(EventKind.FAULT_INJECTED, data={"fault": "kill"}), worker)

    def stop(self, worker: str) -> None:
        raise ValueError(f"{worker} does not answer")


class StagedPanel(ClusterPanel):
    """The kernel side; what it would send is kept until the page is ready to take it."""

    def __init__(self, cluster: StagedCluster) -> None:
        self.recorded: list[dict[str, Any]] = []
        super().__init__(cluster)  # type: ignore[arg-type]

    def send(self, content: dict[str, Any], buffers: object = None) -> None:
        self.recorded.append(content)


class Stage:
    """A page with one panel on it."""

    def __init__(self, page: Page, cluster: StagedCluster, theme: str = "light") -> None:
        self.page, self.cluster = page, cluster
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(_TIMEOUT_S * 1000)
        css = (THEMES / f"theme-{theme}-extension" / "index.css").read_text(encoding="utf-8") if theme else ""
        page.set_content(_PAGE.format(theme=css))
        self.panel = StagedPanel(cluster)
        self._given = 0
        self.panel.start()
        page.expose_function("toKernel", lambda message: self.panel._on_message(None, message, []))
        state = {"snapshot": self.panel.snapshot, "look": self.panel.look}
        known = {"esm": str(ClusterPanel._esm), "css": str(ClusterPanel._css), "state": state}
        page.evaluate(_MOUNT, known)
        self.until(".cxp-svg [data-task]")
        self.wait(lambda: page.locator(".cxp-still").inner_text() == "")

    def wait(self, condition: Callable[[], bool]) -> None:
        """Give the page what the kernel side sends, until `condition`."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"not reached; the page shows: {self.page.inner_text('body')}"
            while self._given < len(self.panel.recorded):
                self.page.evaluate("message => window.deliver(message)", self.panel.recorded[self._given])
                self._given += 1
            self.page.wait_for_timeout(30)

    def until(self, selector: str) -> None:
        """Until something matches and can be seen."""
        self.wait(self.page.locator(selector).first.is_visible)

    def close(self) -> None:
        self.panel.close()


def shoot(page: Page, name: str) -> None:
    """Save a screenshot of the whole page."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=True)


Show = Callable[..., Stage]
"""Makes a stage of a history."""


def joined(first: list[Event], then: list[Event]) -> list[Event]:
    """Two histories, one after the other, as one."""
    gap_ms = first[-1].time_ms - then[0].time_ms + 500
    rest = [replace(event, seq=event.seq + len(first), time_ms=event.time_ms + gap_ms) for event in then]
    return [*first, *rest]
