"""Fencing rounds: what is fenced and recorded when (KIP-618), who is told what, and what ends a round."""

from __future__ import annotations

import pytest

from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.context import Context
from connectx.core.fencing import FencingRounds
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    Effect,
    FenceProducers,
    ProducersFenced,
    ReadConfigToEnd,
    SetTimer,
    WriteConfigRecords,
)
from connectx.core.signals import FencingOrigin, FencingOutcome, LocalWaiter, RequestWaiter, WriteKind, WriteOutcome
from connectx.core.timer_keys import TaskCountRetry
from connectx.model.config_records import ConnectorConfigRecord, TaskCountRecord
from connectx.model.events import EventKind
from tests.support.core_parts import (
    C0,
    SOURCE,
    a_context,
    both,
    commit,
    configure,
    effects,
    read,
    signals_of,
    transitions,
)
from tests.support.histories import Recorded

LOCAL, REMOTE = LocalWaiter(C0, 1), RequestWaiter(8)


def begun(recorded: int | None = 2, tasks: int = 3, *, pending: bool = True) -> tuple[Context, FencingRounds]:
    """A round of connector c has read the config topic: `recorded` tasks before, `tasks` now."""
    context = a_context()
    read(context, ConnectorConfigRecord("s", SOURCE))
    connector = "s" if recorded is None else "c"
    if recorded is not None:
        read(context, TaskCountRecord(connector, recorded))
    if pending:
        commit(context, connector, tasks)
    rounds = FencingRounds(context, ConfigWriter(context, Claim.HELD))
    rounds.request(connector, LOCAL)
    assert both(context) == ([], [ReadConfigToEnd(1, 3_000)])
    rounds.on_read(connector, ConfigReadToEnd(1))
    return context, rounds


def fenced(recorded: int = 2, tasks: int = 3) -> tuple[Context, FencingRounds]:
    """The same round after all older producers were fenced; it waits to read before it writes the record."""
    context, rounds = begun(recorded, tasks)
    both(context)
    rounds.on_producers_fenced("c", ProducersFenced(2))
    return context, rounds


def recorded(context: Context, rounds: FencingRounds, error: str | None = None) -> list[Effect]:
    """Carry out the write of the record that waits; what was ordered meanwhile."""
    done: list[Effect] = []
    while ordered := effects(context):
        for effect in ordered:
            done.append(effect)
            if isinstance(effect, ReadConfigToEnd):
                rounds.writer.on_read(ConfigReadToEnd(effect.request_id))
            elif isinstance(effect, WriteConfigRecords):
                if error is None:
                    read(context, *effect.records)
                rounds.writer.on_written(ConfigRecordsWritten(effect.request_id, error))
    for outcome in signals_of(context, WriteOutcome):
        context.signals.remove(outcome)
        rounds.on_record_written(outcome)
    return done


# ------------------------------------------------------------------------------------------- what a round has to do


@pytest.mark.rule("618.2.1")
def test_nothing_is_to_be_done_when_the_record_follows_the_task_configs() -> None:
    context, rounds = begun(pending=False)
    assert both(context) == ([], [])
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 200, None)]
    assert rounds.rounds == {}


@pytest.mark.rule("618.2.1")
@pytest.mark.parametrize(
    ("before", "now"), [(None, 3), (0, 3), (1, 1)], ids=["first use", "no tasks before", "one task fences itself"]
)
def test_the_record_is_written_without_fencing(before: int | None, now: int) -> None:
    context, rounds = begun(before, now)
    assert transitions(context) == []
    done = recorded(context, rounds)
    connector = "s" if before is None else "c"
    assert [type(effect) for effect in done] == [ReadConfigToEnd, WriteConfigRecords, ReadConfigToEnd]
    assert done[1] == WriteConfigRecords(3, (TaskCountRecord(connector, now),), privileged=True)
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 204, None)]


@pytest.mark.rule("618.2.2")
@pytest.mark.parametrize(("before", "now"), [(2, 3), (3, 1), (1, 2), (2, 2), (2, 0)])
def test_all_producers_of_the_recorded_tasks_are_fenced_before_the_record_is_written(before: int, now: int) -> None:
    context, rounds = begun(before, now)
    ids = tuple(f"g-c-{number}" for number in range(before))
    started = Recorded(
        EventKind.FENCING_STARTED,
        "c",
        None,
        3,
        None,
        "new task configs follow the last task count record",
        {"task_count": before, "transactional_ids": list(ids)},
    )
    assert both(context) == ([started], [FenceProducers(2, "c", SOURCE, ids)])
    rounds.on_producers_fenced("c", ProducersFenced(2))
    done = recorded(context, rounds)
    assert done[1] == WriteConfigRecords(4, (TaskCountRecord("c", now),), privileged=True)
    completed = Recorded(EventKind.FENCING_COMPLETED, "c", None, 3, None, "", {"task_count": now})
    assert transitions(context) == [completed]
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 204, None)]


# -------------------------------------------------------------------------------------------------- who is told


def test_later_requests_join_the_round_and_share_its_result() -> None:
    context, rounds = fenced()
    rounds.request("c", REMOTE)
    recorded(context, rounds)
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 204, None), FencingOutcome(REMOTE, 204, None)]


def test_rounds_of_two_connectors_do_not_meet() -> None:
    context, rounds = begun()
    configure(context, "d")
    commit(context, "d", 1)
    both(context)
    rounds.request("d", REMOTE)
    assert effects(context) == [ReadConfigToEnd(3, 3_000)]
    rounds.on_read("d", ConfigReadToEnd(3))
    assert effects(context) == [FenceProducers(4, "d", SOURCE, ("g-d-0", "g-d-1"))]


@pytest.mark.parametrize(
    ("record", "status", "error"),
    [
        (ConnectorConfigRecord("c", None), 404, "Connector c not found"),
        (ConnectorConfigRecord("c", {"connector.class": "Sink"}), 400, "Connector c is not a source connector"),
    ],
)
def test_a_round_for_no_source_connector_is_refused(record: ConnectorConfigRecord, status: int, error: str) -> None:
    context = a_context()
    rounds = FencingRounds(context, ConfigWriter(context, Claim.HELD))
    rounds.request("c", REMOTE)
    read(context, record)  # what the read finds
    rounds.on_read("c", ConfigReadToEnd(1))
    assert signals_of(context, FencingOutcome) == [FencingOutcome(REMOTE, status, error)]


# -------------------------------------------------------------------------------------------------- what goes wrong


def test_a_config_topic_that_cannot_be_read_ends_the_round_so_that_it_is_asked_for_again() -> None:
    context = a_context()
    rounds = FencingRounds(context, ConfigWriter(context, Claim.HELD))
    rounds.request("c", REMOTE)
    rounds.on_read("c", ConfigReadToEnd(1, "timed out"))
    error = "Failed to read the config topic to its end: timed out"
    assert signals_of(context, FencingOutcome) == [FencingOutcome(REMOTE, 503, error)]
    failed = Recorded(EventKind.FENCING_FAILED, "c", None, 3, None, "", {"error": error})
    assert transitions(context) == [failed]


def test_producers_that_cannot_be_fenced_end_the_round_with_500_and_no_record() -> None:
    context, rounds = begun()
    both(context)
    rounds.on_producers_fenced("c", ProducersFenced(2, "not authorised"))
    assert signals_of(context, FencingOutcome) == [
        FencingOutcome(LOCAL, 500, "Failed to fence older producers: not authorised")
    ]
    assert effects(context) == []


@pytest.mark.rule("618.2.4")
def test_a_record_that_cannot_be_written_is_written_again_without_end() -> None:
    context, rounds = fenced()
    (round_id,) = [fencing.round_id for fencing in rounds.rounds.values()]
    delays_ms = []
    for _ in range(7):
        recorded(context, rounds, error="timed out")
        assert signals_of(context, FencingOutcome) == []
        (timer,) = effects(context)
        assert isinstance(timer, SetTimer)
        assert timer.key == TaskCountRetry("c", round_id)
        delays_ms.append(timer.at_ms - context.now_ms)
        rounds.on_retry_timer(TaskCountRetry("c", round_id))
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]
    recorded(context, rounds)
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 204, None)]
    assert not context.timers.is_set(TaskCountRetry("c", round_id))


@pytest.mark.rule("618.2.3")
def test_newer_task_configs_cancel_the_round_and_no_record_is_written() -> None:
    context, rounds = fenced()
    effects(context)
    rounds.cancel("c", "new task configs")
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 409, "new task configs")]
    assert 3 not in context.pending.waiting
    assert (effects(context), rounds.writer.queue) == ([], [])


@pytest.mark.rule("618.2.3")
def test_task_configs_seen_only_by_the_read_before_the_record_refuse_it() -> None:
    context, rounds = fenced()
    commit(context)
    done = recorded(context, rounds)
    assert [type(effect) for effect in done] == [ReadConfigToEnd]
    error = "New task configs of connector c came during the fencing round"
    assert signals_of(context, FencingOutcome) == [FencingOutcome(LOCAL, 409, error)]


def test_all_rounds_end_when_this_worker_leads_no_more() -> None:
    context, rounds = begun()
    rounds.request("a", REMOTE)
    both(context)
    rounds.cancel_all("moved")
    assert signals_of(context, FencingOutcome) == [
        FencingOutcome(REMOTE, 409, "moved"),
        FencingOutcome(LOCAL, 409, "moved"),
    ]
    assert rounds.rounds == {}


def test_outcomes_and_timers_of_another_round_change_nothing() -> None:
    context, rounds = fenced()
    both(context)
    rounds.on_record_written(WriteOutcome(WriteKind.TASK_COUNT, FencingOrigin(99), "c", 204))
    rounds.on_retry_timer(TaskCountRetry("c", 99))
    assert both(context) == ([], [])
    assert signals_of(context, FencingOutcome) == []
    assert list(rounds.rounds) == ["c"]
