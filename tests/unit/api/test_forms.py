"""Every object that a user can get hold of has a text form and an HTML form: escaped, without script, secrets hidden.

The objects are found by walking: from the public names of `connectx` over what their public methods and properties
return, and what their fields hold. Whoever adds one gives it forms (`connectx.views.Shown`), and an entry in MADE.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa
import pytest

import connectx as cx
from connectx.api.attached.cluster import AttachedCluster
from connectx.api.attached.workers import AttachedWorker, AttachedWorkers
from connectx.api.connect_cluster import ConnectCluster
from connectx.api.connector import ConnectorConfig, ConnectorOffsets, Task
from connectx.api.faults.after import After
from connectx.api.faults.agenda import Scheduled
from connectx.api.faults.chaos import Chaos, ChaosFault
from connectx.api.movement import Movement, MovementReader
from connectx.api.peek import DeadLetters, Record
from connectx.api.transfer.exporter import Backup, Exported
from connectx.api.transfer.importer import Imported, ImportReport
from connectx.api.workers import Worker, Workers
from connectx.core.invariants import Rule
from connectx.core.rules import BrokenRule
from connectx.history.folds.lost import LostWork
from connectx.history.folds.rates import LagSample
from connectx.history.folds.rebalances import Rebalance, rebalances
from connectx.history.folds.tracks import Samples
from connectx.history.log import Subscription
from connectx.history.sentences.stories import Story
from connectx.history.sequences import Rebalances, Stories
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.causes import CAUSES, Cause
from connectx.model.configdef import ConfigKey, ConfigValue, Secret, Validator
from connectx.model.events import Event, EventKind, Sighting
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.payloads import PAYLOADS, MemberWork, Payload, SourceRange
from connectx.model.places import Place
from connectx.model.worker_config import StorageTopic, WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.plugins.slices import BulkSlice
from connectx.plugins.stored import Compaction, Held, RowChange
from connectx.recording.file import Entry, Recording
from connectx.rest.client import RestClient
from connectx.verify.audit.findings import Audit, Severity
from connectx.verify.audit.findings import Finding as AuditFinding
from connectx.verify.audit.gather import AuditInput
from connectx.verify.audit.inventory import AuditedWorker
from connectx.verify.check.verdict import Anomaly, Checked, Example, Finding, Moment
from connectx.verify.doctor.report import Checkup, Status
from connectx.verify.doctor.report import Finding as CheckupFinding
from connectx.views import Listed
from tests.support.histories import transition

CARD = '<div style="border-left:3px solid currentColor'
NOTHING: Any = None
BAD = "<script>alert('x')</script>"
PASSWORD = "s3cret-pw"
URL = f"postgresql://me:{PASSWORD}@db/flights"
CONFIG = {"connector.class": "FileStreamSource", "file": BAD, "connection.password": PASSWORD, "connection.url": URL}
RECORD = Record(BAD, 0, 1, 0, BAD, {"url": URL}, {BAD: BAD}, None, None, BAD)
CLASSES: list[type] = [value for name in cx.__all__ if isinstance(value := getattr(cx, name), type)]


@cache
def names_of(module: Any) -> dict[str, Any]:
    """What annotations of a module can name: also what it imports only for them."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for found in ast.walk(node):
                if isinstance(found, ast.ImportFrom):
                    home = importlib.import_module(found.module or "")
                    names |= {alias.asname or alias.name: getattr(home, alias.name) for alias in found.names}
                elif isinstance(found, ast.Import):
                    names |= {alias.asname or alias.name: importlib.import_module(alias.name) for alias in found.names}
    return names


def annotations_of(cls: type) -> Iterator[tuple[str, Any]]:
    """Public fields, what public methods and properties return, and what a sequence holds: name and annotation."""
    yield from (("[]", base) for base in getattr(cls, "__orig_bases__", ()))
    for base in cls.__mro__:
        if not base.__module__.startswith("connectx"):
            continue
        names = names_of(sys.modules[base.__module__])
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            is_public = not name.startswith("_") or name in ("__getitem__", "__iter__", "__enter__")
            if is_public and inspect.isfunction(function):
                yield name, eval(str(function.__annotations__.get("return", None)), names)
        for name, annotation in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_"):
                yield name, eval(str(annotation), names)


def classes_in(annotation: Any) -> Iterator[type]:
    origin = get_origin(annotation)
    found = [origin, *get_args(annotation)] if origin is not None else [annotation]
    for one in found:
        if isinstance(one, type) and get_origin(one) is None:
            yield one
        elif one is not annotation and not isinstance(one, str):
            yield from classes_in(one)


def is_ours(cls: type) -> bool:
    is_named_value = issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False) or is_typeddict(cls)
    return cls.__module__.startswith("connectx") and not is_named_value


@cache
def reachable() -> dict[type, str]:
    """Every class of connectx that a user can get hold of, and where."""
    functions = [value for name in cx.__all__ if inspect.isfunction(value := getattr(cx, name))]
    returned = {f: eval(f.__annotations__["return"], names_of(sys.modules[f.__module__])) for f in functions}
    found = dict.fromkeys(CLASSES, "connectx")
    found |= {cls: f"{f.__name__}()" for f, hint in returned.items() for cls in classes_in(hint) if is_ours(cls)}
    todo = list(found)
    while todo:
        cls = todo.pop()
        for name, annotation in annotations_of(cls):
            for reached in classes_in(annotation):
                if is_ours(reached) and reached not in found:
                    found[reached] = f"{cls.__name__}.{name}"
                    todo.append(reached)
    return found


class Answers:
    """What a REST client would answer."""

    def impatient(self) -> Answers:
        return self

    def connectors(self) -> list[str]:
        return [BAD]

    def config(self, name: str) -> Mapping[str, str]:
        return CONFIG

    def offsets(self, name: str) -> list[dict[str, Any]]:
        return [{"partition": {"filename": BAD}, "offset": {"position": 7}}]

    def status(self, name: str) -> dict[str, Any]:
        task = {"id": 0, "state": "FAILED", "worker_id": BAD, "trace": f"Error: {URL} {BAD}"}
        return {"name": name, "connector": {"state": "RUNNING", "worker_id": BAD}, "tasks": [task], "type": "source"}


class StandIn(ConnectCluster):
    """A cluster without workers, whose connectors are told by `Answers`."""

    def __init__(self) -> None:
        super().__init__(log(), now)
        self.workers = Workers()
        self._client = Answers()  # type: ignore[assignment]

    def overview(self) -> dict[str, object]:
        return {"kafka": BAD}

    def audit_input(self) -> AuditInput:
        return AUDITED

    def _check_class(self, name: str) -> None: ...

    @property
    def config(self) -> Any:
        return None

    @property
    def spark(self) -> Any:
        return None

    def _worker_rows(self) -> list[Mapping[str, object]]:
        return [{"worker": BAD}]


class Ticks(cx.SourceConnector):
    pass


class Rows(cx.SinkConnector):
    pass


class Upper(cx.Transform):
    def configure(self) -> None:
        self.settings = dict(CONFIG)


class Never(cx.Predicate):
    pass


def now() -> int:
    """The time of every cluster here."""
    return 1_700_000_000_000


def log() -> cx.EventLog:
    """A worker that started, was told to join, and is dead."""
    made = cx.EventLog(clock=now)
    made.append(transition(EventKind.WORKER_STARTED, cause=f"{URL} {BAD}", data={"url": BAD}), BAD)
    made.append(transition(EventKind.REBALANCE_STARTED, cause=f"{URL} {BAD}"), BAD)
    made.append(transition(EventKind.WORKER_FAILED, data={"error": f"{URL} {BAD}"}), f"{BAD}2")
    return made


def started(plugin: Any) -> Any:
    plugin.start(CONFIG, None)
    return plugin


def worker() -> Worker:
    handle = SimpleNamespace(
        isolation="thread",
        name=BAD,
        state=SimpleNamespace(value="running"),
        alive=True,
        url="http://127.0.0.1:1/",
        task_metrics=dict,
        view=lambda: {"state": "stable", "tasks": [{"connector": BAD, "task": 0}], "connectors": [BAD]},
    )
    return Worker(handle, None, lambda transition, name: None, lambda name: None, now)


def workers() -> Workers:
    made = Workers()
    made.add(worker())
    return made


def attached() -> AttachedWorkers:
    seen = SimpleNamespace(worker_id=BAD, url=BAD, connectors=[BAD], tasks=[BAD], is_leader=True)
    return AttachedWorkers(lambda: SimpleNamespace(workers=[seen], generation=3))  # type: ignore[arg-type, return-value]


def settings() -> cx.ConfigDef:
    return cx.ConfigDef().define("connection.password", "password", default=Secret(PASSWORD), doc=BAD)


MOMENT = Moment(seq=1, time_ms=0, worker=BAD, sentence=BAD)
EXAMPLE = Example(BAD, moment=MOMENT)
FINDING = Finding(Anomaly.LOST, 1, BAD, (BAD,), BAD, (EXAMPLE,), (MOMENT,))
CHECK = CheckupFinding(BAD, Status.OK, f"{URL} {BAD}", BAD, BAD)
FLAW = AuditFinding("lag", Severity.ERROR, BAD, BAD, BAD, BAD)
AUDITED = AuditInput(
    BAD, RestClient([]), None, CONFIG, {"config": BAD}, {BAD: BAD}, lambda: (), [], now, Plugins().find_connector
)
CHECKED = Checked(BAD, (BAD,), 1, None)
EXPORTED = Exported(BAD, "source", "running", CONFIG, (), [{"partition": {"x": BAD}, "offset": {}}], (BAD,))
IMPORTED = Imported(BAD, ("created",), f"{URL} {BAD}")
PLACES = {TopicPartition(BAD, 0): (1, 2)}

MADE: dict[type, Callable[[], Any]] = {
    cx.Cluster: StandIn,
    AttachedCluster: StandIn,
    cx.CommitRefusedError: lambda: cx.CommitRefusedError(f"{URL} {BAD}", {}, next_step=BAD),
    cx.ConfigDef: settings,
    cx.Connector: lambda: cx.Connector(BAD, Answers()),  # type: ignore[arg-type]
    cx.ConnectxError: lambda: cx.ConnectxError(f"{URL} {BAD}", next_step=BAD),
    cx.EventLog: log,
    cx.Predicate: lambda: Never({}),
    cx.RetriableError: lambda: cx.RetriableError(BAD),
    cx.SinkBatch: lambda: cx.SinkBatch(pa.table({BAD: [1]}), PLACES),
    cx.SinkConnector: lambda: started(Rows()),
    cx.SinkTask: lambda: started(cx.SinkTask()),
    BulkSlice: lambda: BulkSlice(BAD, 2, lambda task: iter(()), lambda read: [({}, {"token": PASSWORD})]),
    cx.Slice: lambda: cx.Slice(pa.table({BAD: [1]}), {"position": 7, "token": PASSWORD}, BAD),
    cx.SourceConnector: lambda: started(Ticks()),
    cx.SourceTask: lambda: started(cx.SourceTask()),
    Compaction: lambda: Compaction(BAD, 3, 1),
    Held: lambda: Held(iter(()), lambda key, value: None, lambda offset: True),
    RowChange: lambda: RowChange({BAD: 1}, after={"url": URL, BAD: BAD}, kept=(BAD,)),
    cx.Stored: lambda: cx.Stored(BAD, lambda: iter(())),
    cx.Transform: lambda: Upper({}),
    cx.Verdict: lambda: cx.Verdict("invalid", (FINDING,), (BAD,), (CHECKED,)),
    After: lambda: After(None, None, 5),  # type: ignore[arg-type]
    AttachedWorker: lambda: attached()[0],
    AttachedWorkers: attached,
    Audit: lambda: Audit((FLAW,), (BAD,), (BAD,)),
    AuditedWorker: lambda: AuditedWorker(BAD, connectors=(BAD,)),
    AuditFinding: lambda: FLAW,
    AuditInput: lambda: AUDITED,
    BrokenRule: lambda: BrokenRule(Rule.SIGNALS_ROUTED, f"{URL} {BAD}"),
    Entry: lambda: Entry(0, {"$": "TaskId", "connector": BAD}, []),
    Recording: lambda: Recording(BAD, BAD, {}, {}, (), {}, f"{URL} {BAD}"),
    Backup: lambda: Backup({"version": BAD}, BAD, (EXPORTED,)),
    Chaos: lambda: Chaos(NOTHING, NOTHING, (), seed=7, kinds=(BAD,), every_s=2, for_s=None, keep=1),
    ChaosFault: lambda: ChaosFault(1, "kill", BAD, 1.0, skipped=BAD),
    Checkup: lambda: Checkup([CHECK], [CHECK]),
    CheckupFinding: lambda: CHECK,
    Checked: lambda: CHECKED,
    ConfigKey: lambda: settings().keys["connection.password"],
    ConfigValue: lambda: settings().validate({"connection.password": PASSWORD})[0],
    ConnectorConfig: lambda: ConnectorConfig(BAD, CONFIG, Answers()),  # type: ignore[arg-type]
    ConnectorOffsets: lambda: ConnectorOffsets(BAD, Answers()),  # type: ignore[arg-type]
    EmbeddedKafka: EmbeddedKafka,
    Event: lambda: log()[0],
    Example: lambda: EXAMPLE,
    Exported: lambda: EXPORTED,
    Finding: lambda: FINDING,
    ImportReport: lambda: ImportReport([IMPORTED]),
    Imported: lambda: IMPORTED,
    Place: lambda: Place(BAD),
    Listed: lambda: Listed([{"class": BAD, "password": PASSWORD}], BAD),
    LagSample: lambda: LagSample(0, TaskId(BAD, 0), 5),
    Samples: lambda: Samples({TaskId(BAD, 0): [(0, 5)]}, [LagSample(0, TaskId(BAD, 0), 5)]),
    LostWork: lambda: LostWork(BAD, "was killed", 0, (BAD,), (TaskId(BAD, 0),), 5, (BAD,)),
    Moment: lambda: MOMENT,
    DeadLetters: lambda: DeadLetters([RECORD], BAD, BAD, lambda letters: None),
    Record: lambda: RECORD,
    Rebalance: lambda: rebalances(log())[-1],
    Rebalances: lambda: log().rebalances(),
    Movement: lambda: Movement(1.5, 3, 0, topics=(BAD,)),
    MovementReader: lambda: MovementReader(RestClient(["http://127.0.0.1:1/"]), None),
    RestClient: lambda: RestClient(["http://127.0.0.1:1/"]),
    Scheduled: lambda: Scheduled(BAD, 5, lambda: None),
    StorageTopic: lambda: StorageTopic(BAD, 1, 1, {"x": BAD}),
    Stories: lambda: log().stories(),
    Story: lambda: Story(0, 1, "kill", BAD, BAD),
    Subscription: lambda: log().subscribe(),
    Task: lambda: Task(TaskId(BAD, 0), Answers().status(BAD)["tasks"][0], BAD, Answers()),  # type: ignore[arg-type]
    TaskId: lambda: TaskId(BAD, 0),
    TopicPartition: lambda: TopicPartition(BAD, 0),
    Validator: lambda: Validator(lambda value: None, BAD),
    Worker: worker,
    WorkerConfig: lambda: WorkerConfig.parse(
        {**embedded_config({}), "bootstrap.servers": "127.0.0.1:1", "sasl.jaas.config": PASSWORD, "no.key": BAD}
    ),
    Workers: workers,
}


def filled(cls: type) -> Any:
    """A value with BAD in each field that takes a text."""
    hints = get_type_hints(cls)
    texts = {item.name: BAD for item in fields(cls) if hints[item.name] in (str, str | None)}
    required = [item.name for item in fields(cls) if item.name not in texts and item.default is MISSING]
    rest = {name: hints[name]() if hints[name] in (int, float) else None for name in required}
    return cls(**texts, **rest)


OF_EVENTS = (*PAYLOADS.values(), *CAUSES.values(), MemberWork, SourceRange, Sighting)
MADE |= {cls: partial(filled, cls) for cls in OF_EVENTS}


def test_every_object_that_a_user_can_get_hold_of_is_here() -> None:
    missing = {f"{cls.__module__}.{cls.__qualname__}": where for cls, where in reachable().items() if cls not in MADE}
    assert missing.keys() <= {f"{base.__module__}.{base.__qualname__}" for base in (Cause, Payload)}, (
        "give them forms, and an entry in MADE"
    )


@pytest.mark.parametrize("cls", MADE, ids=lambda cls: cls.__name__)
def test_it_shows_itself_as_text_and_as_a_card_escaped_without_script_and_without_secrets(cls: type) -> None:
    made = MADE[cls]()
    text, html = repr(made), made._repr_html_()
    assert type(made)._repr_html_ is cls._repr_html_, "the form that is looked at is that of the class"  # type: ignore[attr-defined]
    assert "object at 0x" not in text
    assert html.startswith(CARD)
    assert "<script" not in html.replace("<svg", "").lower()
    assert "onerror" not in html
    assert PASSWORD not in html
    assert PASSWORD not in text
    if not issubclass(cls, BaseException):
        assert str(made)


def test_public_lists_of_objects_show_themselves_as_tables() -> None:
    plain = [
        f"{cls.__name__}.{name}"
        for cls in reachable()
        for name, annotation in annotations_of(cls)
        if get_origin(annotation) is list and any(is_ours(found) for found in classes_in(annotation))
    ]
    assert plain == [], "return a Listed"


def test_a_listed_is_a_list() -> None:
    listed = Listed([TaskId("a", 0), TaskId("a", 1)], "tasks")
    assert listed == [TaskId("a", 0), TaskId("a", 1)]
    assert repr(listed) == "2 tasks\nconnector  task\na          0\na          1"
    assert repr(Listed([], "tasks")) == "0 tasks"
