"""Internal topics of one or more workers on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from connectx.core.messages import (
    AbandonConfigWrites,
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ReadConfigToEnd,
    StatusRecordRead,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.errors.kafka import ClientClosedError, ReadToEndError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.config_records import (
    ConnectorConfigRecord,
    IgnoredRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
)
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)
from connectx.model.worker_config import WorkerConfig
from tests.support.options import GATE
from tests.support.waiting import until

Make = Callable[..., Any]
CONFIG = ConnectorConfigRecord("ü c", {"file": "/a", "empty": None})
PAUSED = TargetStateRecord("ü c", TargetState.PAUSED)
RUNNING = TaskStatusRecord(TaskId("c", 0), Status(State.RUNNING, "host:1", 3, None, "1.0"))


@pytest.fixture(params=["enabled", "preparing", "disabled"])
def any_support(request: pytest.FixtureRequest, kafka: EmbeddedKafka, own_config: Make) -> WorkerConfig:
    """Settings with each kind of exactly-once support."""
    config: WorkerConfig = own_config(kafka.bootstrap_servers, {"exactly.once.source.support": request.param})
    return config


def started(adapters: Make, name: str, config: WorkerConfig | None = None) -> Any:
    worker = adapters(name, config)
    worker.topics.start()
    return worker


def claim(worker: Any) -> None:
    assert worker.ask(ClaimConfigWrites, ConfigWritesClaimed).error is None


def write(worker: Any, *records: Any, privileged: bool = True) -> ConfigRecordsWritten:
    written: ConfigRecordsWritten = worker.ask(WriteConfigRecords, ConfigRecordsWritten, records, privileged)
    return written


def read_back(worker: Any, timeout_ms: int | None = 30_000) -> list[Any]:
    """Records that come before the answer to a read to the end."""
    request_id = worker.send(ReadConfigToEnd, timeout_ms)
    answer, before = worker.inbox.until(ConfigReadToEnd, lambda stimulus: stimulus.request_id == request_id)
    assert answer.error is None
    return [stimulus.record for stimulus in before if isinstance(stimulus, ConfigRecordRead)]


def seen_after_write(worker: Any, *records: Any, privileged: bool = True) -> list[Any]:
    """Records that are seen between a write and the end of its read-back."""
    request_id = worker.send(WriteConfigRecords, records, privileged)
    answer, before = worker.inbox.until(ConfigRecordsWritten, lambda stimulus: stimulus.request_id == request_id)
    assert answer.error is None
    early = [stimulus.record for stimulus in before if isinstance(stimulus, ConfigRecordRead)]
    return early + read_back(worker)


def test_what_is_written_is_read_back_before_the_answer_and_by_every_other_worker(
    adapters: Make, any_support: WorkerConfig
) -> None:
    leader, other = started(adapters, "w1", any_support), started(adapters, "w2", any_support)
    claim(leader)
    assert seen_after_write(leader, PAUSED, CONFIG) == [PAUSED, CONFIG]
    assert seen_after_write(leader, PAUSED, privileged=False) == [PAUSED]
    assert seen_after_write(leader, ConnectorConfigRecord("ü c", None)) == [ConnectorConfigRecord("ü c", None)]
    other.inbox.until(ConfigRecordRead, lambda stimulus: stimulus.record == ConnectorConfigRecord("ü c", None))
    assert read_back(other, None) == []


def test_a_worker_that_starts_later_reads_everything_in_order_before_start_returns(adapters: Make) -> None:
    first = started(adapters, "w1")
    claim(first)
    tasks = tuple(TaskConfigRecord(TaskId("c", number), {"n": str(number)}) for number in range(3))
    for records in ((CONFIG,), tasks, (TaskCommitRecord("c", 3),)):
        write(first, *records)
    first.topics.execute(WriteStatus(RUNNING))
    first.inbox.until(StatusRecordRead)
    late = started(adapters, "w2")
    stimuli = []
    while not late.inbox.queue.empty():
        stimuli.append(late.inbox.queue.get())
    config = [stimulus for stimulus in stimuli if isinstance(stimulus, ConfigRecordRead)]
    assert [stimulus.record for stimulus in config] == [CONFIG, *tasks, TaskCommitRecord("c", 3)]
    assert [stimulus.log_offset for stimulus in config] == [0, 2, 3, 4, 6]  # transaction markers lie between
    assert [stimulus.record for stimulus in stimuli if isinstance(stimulus, StatusRecordRead)] == [RUNNING]


@GATE
def test_a_write_that_kafka_does_not_answer_ends_when_it_is_abandoned_and_the_next_claim_writes_again(
    kafka: EmbeddedKafka, adapters: Make
) -> None:
    gate = kafka.gate
    assert gate is not None
    worker = started(adapters, "w-abandons")
    claim(worker)
    gate.cut("w-abandons")
    writing = worker.send(WriteConfigRecords, (CONFIG,), True)
    worker.topics.execute(AbandonConfigWrites(writing))
    assert worker.inbox.answer(ConfigRecordsWritten, writing).fenced
    gate.heal("w-abandons")
    claim(worker)
    assert write(worker, PAUSED).error is None


@pytest.mark.rule("618.7.3")
def test_a_former_leader_is_fenced_by_the_claim_of_the_next(adapters: Make) -> None:
    old, new = started(adapters, "w1"), started(adapters, "w2")
    claim(old)
    assert write(old, CONFIG).error is None
    claim(new)
    refused = write(old, PAUSED)
    assert refused.fenced
    assert "fenced" in (refused.error or "")
    assert write(old, PAUSED).fenced  # not claimed any more
    assert read_back(old) == [CONFIG]
    assert seen_after_write(new, PAUSED)[-1] == PAUSED
    claim(old)
    assert write(old, PAUSED).error is None


def test_records_of_an_aborted_transaction_are_never_posted_and_do_not_hold_up_a_read(adapters: Make) -> None:
    worker = started(adapters, "w1")
    config = worker.config
    producer = Producer(worker.clients.leader_producer())
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(config.config_topic.name, key="connector-ghost", value=b'{"properties":{}}')
    producer.flush(30)
    producer.abort_transaction(30)
    assert read_back(worker) == []
    claim(worker)
    assert seen_after_write(worker, CONFIG) == [CONFIG]


def test_an_open_transaction_holds_a_read_to_the_end_back_until_it_ends(adapters: Make) -> None:
    worker = started(adapters, "w1")
    producer = Producer(worker.clients.leader_producer())
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(worker.config.config_topic.name, key="commit-c", value=b'{"tasks":1}')
    producer.flush(30)
    waiting = worker.send(ReadConfigToEnd, None)
    timed = worker.send(ReadConfigToEnd, 300)
    error = worker.inbox.answer(ConfigReadToEnd, timed).error
    assert "was not read to its end within 0.3 s" in error
    producer.commit_transaction(30)
    answer, before = worker.inbox.until(ConfigReadToEnd)
    assert (answer.request_id, answer.error) == (waiting, None)
    assert [stimulus.record for stimulus in before] == [TaskCommitRecord("c", 1)]


def test_a_value_that_is_not_json_is_skipped_and_an_unknown_key_is_posted_as_ignored(adapters: Make) -> None:
    worker = started(adapters, "w1")
    producer = Producer(worker.clients.config_producer())
    for key, value in ((b"connector-c", b"{no json"), (b"future-thing", b"{}"), (b"commit-c", b'{"tasks":0}')):
        producer.produce(worker.config.config_topic.name, key=key, value=value)
    producer.flush(30)
    ignored, commit = read_back(worker)
    assert isinstance(ignored, IgnoredRecord)
    assert commit == TaskCommitRecord("c", 0)


def test_statuses_of_every_kind_reach_every_worker(adapters: Make) -> None:
    workers = [started(adapters, name) for name in ("w1", "w2")]
    records: list[StatusRecord] = [
        RUNNING,
        ConnectorStatusRecord("c", Status(State.FAILED, "host:1", 3, "trace")),
        TopicStatusRecord("t", "c", 0, 17),
        TaskStatusRecord(TaskId("c", 0), None),
    ]
    for record in records:
        workers[0].topics.execute(WriteStatus(record))
    for worker in workers:
        seen = [worker.inbox.until(StatusRecordRead)[0].record for _ in records]
        assert sorted(map(repr, seen)) == sorted(map(repr, records))


def commit_offset(worker: Any, key: bytes, value: bytes | None) -> None:
    producer = Producer(worker.clients.source_task_producer(TaskId("c", 0), {}, True))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(worker.config.offset_topic.name, key=key, value=value)
    producer.commit_transaction(30)


def test_a_read_of_source_offsets_sees_whatever_was_committed_before_it(adapters: Make) -> None:
    worker = started(adapters, "w1")
    for position in range(5):
        commit_offset(worker, b'["c",{"b":1,"a":null}]', b'{"position":%d}' % position)
        assert worker.topics.offsets.read("c", [{"b": 1, "a": None}]) == [{"position": position}]
    assert worker.topics.offsets.read("c", [{"a": None, "b": 1}, {}]) == [None, None]  # the order of properties counts
    assert worker.topics.offsets.connector_offsets("c") == [({"b": 1, "a": None}, {"position": 4})]
    commit_offset(worker, b'["c",{"b":1,"a":null}]', None)
    assert worker.topics.offsets.connector_offsets("c") == []
    assert worker.topics.offsets.partitions("c") == []


def test_an_open_transaction_holds_a_read_of_source_offsets_back_until_it_is_cancelled(adapters: Make) -> None:
    worker = started(adapters, "w1")
    producer = Producer(worker.clients.source_task_producer(TaskId("c", 0), {}, True))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(worker.config.offset_topic.name, key=b'["c",{}]', value=b"{}")
    producer.flush(30)
    with pytest.raises(ReadToEndError, match="open transaction"):
        worker.topics.offsets.read("c", [{}], timeout_s=0.3)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(ClientClosedError):
        worker.topics.offsets.read("c", [{}], cancel=cancel)
    producer.abort_transaction(30)
    assert worker.topics.offsets.read("c", [{}]) == [None]


def test_a_worker_starts_when_the_open_transaction_of_a_killed_task_has_timed_out(adapters: Make) -> None:
    task = started(adapters, "w1")
    settings = task.clients.source_task_producer(TaskId("c", 0), {}, True)
    producer = Producer({**settings, "transaction.timeout.ms": 3_000, "message.timeout.ms": 3_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(task.config.offset_topic.name, key=b'["c",{}]', value=b"{}")
    producer.flush(30)
    worker = adapters("w2")
    worker.topics.start(timeout_s=1.0)
    assert worker.topics.offsets.read("c", [{}]) == [None]


def test_a_killed_worker_writes_and_says_nothing_more_and_its_transaction_is_not_committed(adapters: Make) -> None:
    killed, witness = started(adapters, "w1"), started(adapters, "w2")
    claim(killed)
    killed.topics.abandon()
    killed.topics.execute(WriteStatus(RUNNING))
    killed.send(WriteConfigRecords, (CONFIG,), True)
    killed.send(ReadConfigToEnd, 1_000)
    with pytest.raises(ClientClosedError):
        killed.topics.offsets.read("c", [{}])
    claim(witness)
    assert seen_after_write(witness, PAUSED) == [PAUSED]
    assert killed.inbox.empty()


def test_closing_ends_every_thread_and_sends_what_was_queued(adapters: Make) -> None:
    witness = started(adapters, "w1")
    before = psutil.Process().num_threads()
    worker = started(adapters, "w2")
    worker.topics.execute(WriteStatus(RUNNING))
    worker.topics.close()
    witness.inbox.until(StatusRecordRead, lambda stimulus: stimulus.record == RUNNING)
    until(lambda: psutil.Process().num_threads() <= before, "the end of every thread")
    worker.topics.close()


def test_a_read_that_waits_when_the_worker_ends_is_answered_to_nobody_and_blocks_nobody(adapters: Make) -> None:
    worker = started(adapters, "w1")
    producer = Producer(worker.clients.leader_producer())
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(worker.config.config_topic.name, key="commit-c", value=b'{"tasks":1}')
    producer.flush(30)
    worker.send(ReadConfigToEnd, None)
    worker.topics.close()
    assert worker.inbox.empty()
    producer.abort_transaction(30)
