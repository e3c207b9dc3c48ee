"""The kernel side of a panel: header, timeline, workers and connectors with their actions, wherever its page is.

One thread per panel, the pump, follows the history and sends what changed, at most ten times a second and nothing while
nothing changes. Calls run on separate threads, so that a slow one (stopping a worker) delays nothing. Numbers
(records, lag) are read once a second at most.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from connectx.errors.base import ConnectxError
from connectx.history.folds.snapshot import SnapshotFold
from connectx.history.folds.totals import COMMITS, Totals, TotalsFold
from connectx.history.render.palette import colour
from connectx.history.render.timeline import TimelineFold
from connectx.history.sentences.stories import Story, stories
from connectx.model.events import Event, EventKind
from connectx.views import masked_text
from connectx_widgets.actions import ReadOnlyError, describe_action, parse
from connectx_widgets.elements import (
    Elements,
    changes,
    chunks,
    connector_elements,
    failures,
    flow_elements,
    is_running,
    lost_elements,
    newest,
    size,
    story_elements,
    task_elements,
    timeline_elements,
)
from connectx_widgets.last_actions import LastActions
from connectx_widgets.numbers import MOVEMENTS_MS, Numbers
from connectx_widgets.questions import answer

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster
    from connectx.api.movement import MovementReader

BEAT_S = 5.0
TICK_S = 0.1
NUMBERS_S = 1.0
BACKLOG_S = 10.0
SNAPSHOT_S = 1.0
SNAPSHOT_BYTES = 64_000
SNAPSHOT_RATE = 8_000
"""Bytes a second that snapshots take on average."""
MESSAGE_BYTES = 256_000
KEPT = 1_000
"""About so many bars, bands and marks of each stay in the picture, the newest; `cluster.timeline()` shows more."""
STORIES = 40
STORIES_S = 1.0
_STORY_EVENTS = 600
"""Stories are found in so many events, the newest, without those of `_NO_STORY`."""
_NO_STORY = (
    *COMMITS,
    EventKind.RECORDS_SKIPPED,
    EventKind.RECORDS_FILTERED,
    EventKind.BULK_STARTED,
    EventKind.BULK_STAGED,
)
_CALLS = 4
_JOIN_S = 2.0
log = logging.getLogger(__name__)


class Panel:
    """Follows a cluster, sends its pages what they show, and makes the calls that they ask for.

    Args:
        cluster: what it shows and acts on. The panel ends with it.
        send: called from several threads with each message for the pages.
        keep: called with each snapshot: what a page gets that was opened after the messages. Pages that always
            ask for everything first need none.
        read_only: refuse every call.
    """

    def __init__(
        self,
        cluster: ConnectCluster,
        send: Callable[[dict[str, Any]], None],
        keep: Callable[[dict[str, Any]], None] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self._cluster = cluster
        self._send = send
        self._keep = keep
        self._read_only = read_only
        self._timeline = TimelineFold(KEPT)
        self._snapshot_fold = SnapshotFold(KEPT)
        self._numbers = Numbers(cluster)
        self._movements = cluster.movement_reader()
        self._movements_s = -math.inf
        self._reads_movements = threading.Lock()
        self._totals = TotalsFold()
        self._totals_read: dict[tuple[str, int | None], Totals] = {}
        self._actions = LastActions()
        self._acted = threading.Event()
        self._elements: Elements = {}
        self._failures: Mapping[str, Mapping[str, str]] = {}
        self._backlogs: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}
        self._story_events: deque[Event] = deque(maxlen=_STORY_EVENTS)
        self._stories: list[Story] = []
        self._stories_s = -STORIES_S
        self._stories_seq = 0
        self._sizes: dict[str, int] = {}
        self._sized: dict[str, Any] = {}
        self._sized_s = -BACKLOG_S
        self._seq = 0
        self._inbox: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._news = cluster.events.subscribe(0)
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="connectx-panel-call")
        self._thread = threading.Thread(target=self._pump, name="connectx-panel", daemon=True)
        self._ended = threading.Event()

    def start(self) -> None:
        """Show what there is and begin to follow the cluster."""
        self._follow(0.0)
        self._read_totals()
        self._take_stories(time.monotonic())
        self._update()
        self._take_snapshot()
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether it follows its cluster no more."""
        return self._ended.is_set()

    def stop(self) -> None:
        """Stop following; what was shown last stays on the page."""
        self._ended.set()
        if self._thread.ident is None:  # it was not started
            self._release()
        elif threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of a page, on any thread; the pump answers it."""
        self._inbox.put(message)

    def _pump(self) -> None:
        try:
            self._run()
            self._follow(0.0)
            self._read_totals()
            self._take_stories(math.inf)
            self._update()
            self._take_snapshot(ended=True)
            self._publish({"kind": "ended"})
        except Exception as error:  # a frozen picture without a message would be worse
            log.exception("The panel has failed")
            self._ended.set()
            self._result({"id": None}, "", 0.0, error)
        finally:
            self._release()

    def _release(self) -> None:
        """Close what the pump uses: by the pump itself, since `stop` does not wait for a slow one."""
        self._news.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        if self._movements is not None:
            self._movements.close()

    def _run(self) -> None:
        beat_s = numbers_s = snapshot_s = time.monotonic()
        is_late = False
        while not self._ended.is_set():
            happened = self._follow(TICK_S)
            now_s = time.monotonic()
            if now_s - numbers_s >= NUMBERS_S:
                happened |= self._numbers.read(_now_ms()) | self._read_totals()
                numbers_s = now_s
            if self._acted.is_set():
                self._acted.clear()
                happened = True
            happened |= self._take_stories(now_s)
            if happened and self._update():
                is_late = True
            self._ask_movements(now_s)
            self._ask_backlogs(now_s)
            self._ask_sizes(now_s)
            if is_late and now_s >= snapshot_s:
                snapshot_s, is_late = now_s + max(SNAPSHOT_S, self._take_snapshot() / SNAPSHOT_RATE), False
            if now_s - beat_s >= BEAT_S and is_running(self._elements):
                self._beat()
                beat_s = now_s
            self._answer()

    def _follow(self, timeout_s: float) -> bool:
        """Take what has happened; after something has, wait for what comes with it, so that it is sent together.

        Returns whether there was more than commits: those are sent with the numbers, for each may bring a new epoch.
        """
        began_s = time.monotonic()
        events = self._news.get(timeout_s)
        for event in events:
            self._timeline.take(event)
            self._snapshot_fold.take(event)
            self._totals.take(event)
            self._actions.take(event)
            if event.kind not in _NO_STORY:
                self._story_events.append(event)
        if events and timeout_s:
            self._ended.wait(max(0.0, timeout_s - (time.monotonic() - began_s)))
        return any(event.kind not in _NO_STORY for event in events)

    def _take_stories(self, now_s: float) -> bool:
        """Find the stories of what has happened, once a second at most; True when they have changed."""
        if (
            not self._story_events
            or self._story_events[-1].seq == self._stories_seq
            or now_s - self._stories_s < STORIES_S
        ):
            return False
        self._stories_s, self._stories_seq = now_s, self._story_events[-1].seq
        before, self._stories = self._stories, stories(self._story_events)[-STORIES:]
        return before != self._stories

    def _read_totals(self) -> bool:
        """Once a second, as numbers: each commit changes them. True when one changed."""
        before, self._totals_read = self._totals_read, {work: replace(one) for work, one in self._totals.of.items()}
        return before != self._totals_read

    def _ask_movements(self, now_s: float) -> None:
        """For a cluster that runs elsewhere: only offsets show how its records move."""
        if self._movements is not None and now_s - self._movements_s >= MOVEMENTS_MS / 1000:
            self._movements_s = now_s
            self._calls.submit(self._read_movements, self._movements)

    def _read_movements(self, reader: MovementReader) -> None:
        if not self._reads_movements.acquire(blocking=False):
            return  # the last reading takes long
        try:
            self._numbers.take(reader.read_all())
        except ConnectxError as error:
            log.debug("How records move is not known: %s", error)
        finally:
            self._reads_movements.release()

    def _ask_backlogs(self, now_s: float) -> None:
        """The lag of what has failed is known by no task."""
        for connector in self._failures:
            if now_s - self._asked_s.get(connector, -BACKLOG_S) >= BACKLOG_S:
                self._asked_s[connector] = now_s
                self._calls.submit(self._read_backlog, connector)
        for connector in [name for name in self._asked_s if name not in self._failures]:
            del self._asked_s[connector]
            self._backlogs.pop(connector, None)

    def _read_backlog(self, connector: str) -> None:
        try:
            self._backlogs[connector] = self._cluster.backlog(connector)
        except ConnectxError as error:  # a source, for example
            log.debug("The lag of %s is not known: %s", connector, error)
        self._acted.set()

    def _ask_sizes(self, now_s: float) -> None:
        """Topics grow only while records move, so that a quiet cluster is not asked."""
        moved = {name: numbers.get("moved") for name, numbers in self._numbers.by_connector.items()}
        topics = [element["topic"] for element in self._elements.values() if element["kind"] == "flow"]
        if topics and moved != self._sized and now_s - self._sized_s >= BACKLOG_S:
            self._sized_s, self._sized = now_s, moved
            self._calls.submit(self._read_sizes, topics)

    def _read_sizes(self, topics: list[str]) -> None:
        try:
            self._sizes = self._cluster.topic_sizes(topics)
        except ConnectxError as error:
            log.debug("The sizes of topics are not known: %s", error)
        self._acted.set()

    def _numbers_of_connectors(self) -> dict[str, dict[str, Any]]:
        """Those of the tasks; the lag of a sink that has failed as Kafka knows it."""
        lags = {name: {"lag": lag} for name, lag in self._backlogs.copy().items() if name in self._failures}
        known = self._numbers.by_connector
        return {name: {**known.get(name, {}), **lags.get(name, {})} for name in {**known, **lags}}

    def _update(self) -> bool:
        """Send what differs from what the page has; False when nothing does."""
        snapshot = self._snapshot_fold.snapshot()
        self._failures = failures(snapshot)
        drawn = self._timeline.timeline(stories=self._stories)
        colours = {connector: colour(place) for place, connector in enumerate(drawn.connectors)}
        head = {key: _shown(value) for key, value in self._cluster.overview().items()}
        after: Elements = {
            "head": {
                "kind": "head",
                "facts": head,
                "faults": self._cluster.has_faults and not self._read_only,
                "read_only": self._read_only,
            },
            **timeline_elements(drawn, self._numbers.late),
            **connector_elements(snapshot, self._numbers_of_connectors(), self._totals_read, colours, self._actions.of),
            **task_elements(snapshot, self._numbers.by_task, self._totals_read),
            **story_elements(self._stories),
            **lost_elements(filter(None, (getattr(worker, "lost", None) for worker in self._cluster.workers))),
            **flow_elements(self._numbers.flows([each.connector for each in snapshot.connectors]), self._sizes),
        }
        changed, replaced, dropped = changes(self._elements, after)
        self._elements = after
        if not changed and not replaced and not dropped:
            return False
        parts = list(chunks(changed, MESSAGE_BYTES)) or [{}]
        for number, part in enumerate(parts):
            base, self._seq = self._seq, self._seq + 1
            rest = {"patch": replaced, "drop": dropped} if number == 0 else {"patch": {}, "drop": []}
            self._publish({"kind": "change", "base": base, "seq": self._seq, "set": part, **rest})
        return True

    def _take_snapshot(self, *, ended: bool = False) -> int:
        """What a page gets that has missed messages: opened later, or with the cell out of sight.

        Returns its size in bytes.
        """
        if self._keep is None:
            return 0
        shown, whole = newest(self._elements, SNAPSHOT_BYTES)
        self._keep({"seq": self._seq, "now": _now_ms(), "whole": whole, "ended": ended, "elements": shown})
        return size(shown.items())

    def _beat(self) -> None:
        """A sign of life, with the last heartbeats of the workers, out of which the page makes their ages."""
        self._publish({"kind": "beat", "heartbeats": self._numbers.heartbeats()})

    def _publish(self, message: dict[str, Any]) -> None:
        self._send({**message, "now": _now_ms()})

    def _answer(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return
            match message.get("kind"):
                case "hello":
                    self._beat()
                case "resync":
                    self._send_all()
                case "call":
                    self._call(message)
                case "ask":
                    self._calls.submit(self._run_question, dict(message))
                case _:
                    pass  # a page of another version asks for it

    def _send_all(self) -> None:
        parts = list(chunks(self._elements, MESSAGE_BYTES)) or [{}]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            self._publish({"kind": "all", "seq": self._seq, "first": number == 0, "last": last, "set": part})

    def _call(self, message: Mapping[str, Any]) -> None:
        try:
            if self._read_only:
                raise ReadOnlyError
            call = parse(self._cluster, message)
        except ConnectxError as error:
            self._result(message, "", 0.0, error)
            return
        self._publish({"kind": "called", "id": message.get("id"), "text": call.text})
        self._calls.submit(self._run_call, dict(message), call.text, call.run)

    def _run_call(self, message: Mapping[str, Any], text: str, run: Any) -> None:
        began_s = time.monotonic()
        failure: Exception | None = None
        try:
            run()
        except Exception as error:  # the page must show any error
            failure = error
        took_s = time.monotonic() - began_s
        if connector := message.get("connector"):
            what, took_ms = describe_action(message), round(took_s * 1e3)
            self._actions.done(str(connector), what, _now_ms(), took_ms, error=failure is not None)
            self._acted.set()
        self._result(message, text, took_s, failure)

    def _run_question(self, message: Mapping[str, Any]) -> None:
        try:
            value = answer(self._cluster, message, self._failures)
            self._publish({"kind": "answer", "id": message.get("id"), "value": value})
        except Exception as error:
            self._result(message, "", 0.0, error)

    def _result(self, message: Mapping[str, Any], text: str, took_s: float, error: Exception | None) -> None:
        took_ms = round(took_s * 1e3)
        result: dict[str, Any] = {"kind": "result", "id": message.get("id"), "text": text, "took_ms": took_ms}
        if error is not None:
            problem = error.message if isinstance(error, ConnectxError) else f"{type(error).__name__}: {error}"
            result["error"] = masked_text(problem)  # it may quote a URL of a configuration
            result["next"] = error.next_step if isinstance(error, ConnectxError) else ""
        self._publish(result)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _shown(value: object) -> str:
    return "" if value is None else str(value)
