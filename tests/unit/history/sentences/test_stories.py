"""Stories: every kind of sentence, word by word, on hand-written histories."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from connectx.history.folds.failovers import failovers
from connectx.history.sentences.stories import stories
from connectx.model.events import EventKind
from connectx.model.payloads import WorkerStarted
from tests.support.histories import START_MS, History, kill_of_source, pause_with_fence, small_cluster

PYTHON_TRACE = """Traceback (most recent call last):
  File "a.py", line 3, in put
    write(rows)
connectx.errors.databases.TableMismatchError: No column x.
"""


def reported(history: History) -> list[str]:
    return [story.sentence for story in stories(history.events)]


def without_worker_2(history: History, generation: int = 3) -> History:
    work = {"worker-1": ["flights-in", "flights-out-1"], "worker-3": ["flights-out", "flights-out-0", "flights-in-0"]}
    return history.rebalance(generation, 0.1, leader="worker-1", work=work)


def test_nothing_happened() -> None:
    assert stories(small_cluster().events) == []
    assert stories([]) == []


def test_death_and_return_of_the_broker() -> None:
    history = small_cluster().at(10).add(EventKind.FAULT_INJECTED, fault="broker_kill")
    assert reported(history) == ["the broker was killed; it was not started again"]
    history.at(13.5).add(EventKind.FAULT_INJECTED, fault="broker_restart")
    assert reported(history) == ["the broker was killed; it was started again after 3.5 s"]


def test_changes_of_lanes_and_failed_jobs() -> None:
    history, changed, failed = small_cluster().at(10), EventKind.LANE_CHANGED, EventKind.BULK_FAILED
    waits = {"lane": "bulk", "reason": "104.9 MB wait, and Spark has 8 cores"}
    history.add(changed, "worker-3", "flights-out-0", **waits)
    history.add(failed, "worker-3", "flights-out-0", error="ValueError: no\ntrace")
    history.add(changed, "worker-3", "flights-out-0", lane="tail", reason="ValueError: no")
    history.add(changed, "worker-1", "flights-out-1", lane="tail", reason="20 bytes wait")
    history.add(changed, "worker-3", "flights-out-0", **waits)
    history.add(changed, "worker-3", "flights-out-0", lane="tail", reason="20 bytes wait")
    to_bulk = "flights-out-0 on worker-3 changed to the bulk lane: 104.9 MB wait, and Spark has 8 cores"
    assert reported(history) == [
        to_bulk,
        "a bulk job of flights-out-0 failed on worker-3: ValueError: no",
        "flights-out-1 on worker-1 changed to the tail lane: 20 bytes wait",
        to_bulk,
        "flights-out-0 on worker-3 changed to the tail lane: 20 bytes wait",
    ]


def test_kill_of_a_source_task() -> None:
    assert reported(kill_of_source()) == [
        "worker-2 was killed while it ran flights-in-0; the group removed it after 3.0 s, generation 3; its "
        "work waited up to 3.0 s for its return; flights-in-0 moved to worker-3 (generation 4), epoch 0 to 1, and ran "
        "6.6 s after the kill; its threads ended 0.4 s after the kill"
    ]


def test_numbers_of_that_kill() -> None:
    [failover] = failovers(kill_of_source().events)
    assert (failover.worker, failover.fault, failover.time_ms) == ("worker-2", "kill", START_MS + 10_000)
    assert failover.held == ("flights-in-0",)
    assert (failover.detected_ms, failover.moved_ms, failover.zombie_ms) == (3_000, 6_600, 400)
    assert (failover.fenced, failover.rejections, failover.ended_ms) == (1, (), None)
    [move] = failover.moves
    assert (move.task, move.from_worker, move.to_worker, move.generation) == ("flights-in-0", "worker-2", "worker-3", 4)
    assert (move.from_epoch, move.to_epoch, move.shut_out) == (0, 1, True)


def test_pause_and_resume_of_a_zombie_that_is_fenced() -> None:
    assert reported(pause_with_fence()) == [
        "worker-2 was paused while it ran flights-in-0; the group removed it after 3.0 s, generation 3; its "
        "work waited up to 3.0 s for its return; flights-in-0 moved to worker-3 (generation 4), epoch 0 to 1, and ran "
        "6.6 s after the pause; worker-2 resumed after 12.0 s; worker-2 continued as a zombie for 9.0 s; worker-2's "
        "write for flights-in-0 at epoch 0 was rejected"
    ]
    [failover] = failovers(pause_with_fence().events)
    assert (failover.fenced, len(failover.rejections), failover.ended_ms) == (1, 1, START_MS + 22_000)


def test_a_short_pause_moves_nothing() -> None:
    history = small_cluster().at(5).fault("pause", "worker-3").at(6).fault("resume", "worker-3")
    assert reported(history) == [
        "worker-3 was paused while it ran flights-out-0; worker-3 resumed after 1.0 s and kept flights-out-0"
    ]
    [failover] = failovers(history.events)
    assert (failover.kept, failover.moved_ms, failover.detected_ms) == (("flights-out-0",), None, None)


def test_a_fault_just_now_says_only_what_is_known() -> None:
    for fault, words in [
        ("kill", "was killed"),
        ("pause", "was paused"),
        ("stall", "stalled (heartbeats stopped)"),
        ("partition", "was cut off from Kafka"),
        ("stop", "was stopped"),
    ]:
        assert reported(small_cluster().at(5).fault(fault, "worker-3")) == [
            f"worker-3 {words} while it ran flights-out-0; flights-out-0 has not moved so far"
        ]


def test_a_worker_without_tasks_can_be_killed_too() -> None:
    history = small_cluster().started("worker-4").at(5).fault("kill", "worker-4")
    assert reported(history) == ["worker-4 was killed while it ran no task"]
    assert failovers(history.events)[0].moved_ms is None


def test_stop_is_graceful() -> None:
    history = small_cluster().at(5).fault("stop", "worker-2").step("worker-2", "flights-in-0", "stop")
    history.at(5.3).state("worker-2", "flights-in-0", "UNASSIGNED").add(EventKind.WORKER_STOPPED, "worker-2")
    without_worker_2(history.at(5.4)).start("worker-3", "flights-in-0", instance=2, epoch=1)
    assert reported(history) == [
        "worker-2 was stopped while it ran flights-in-0; the group removed it after 0.4 s, generation 3; "
        "flights-in-0 moved to worker-3 (generation 3), epoch 0 to 1, and ran 0.6 s after the stop"
    ]


def test_a_move_names_the_older_producers_last_epoch_and_the_newer_ones_first() -> None:
    history = small_cluster().at(4)
    history.add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", instance=1, producer_epoch=7)
    history.at(5).fault("kill", "worker-2")
    without_worker_2(history.at(5.4)).start("worker-3", "flights-in-0", instance=2, epoch=9)
    history.add(EventKind.TRANSACTION_COMMITTED, "worker-3", "flights-in-0", instance=2, producer_epoch=12)
    [failover] = failovers(history.events)
    assert [(move.from_epoch, move.to_epoch, move.shut_out) for move in failover.moves] == [(7, 9, True)]


def test_a_sink_task_moves_without_epochs_and_its_zombies_commit_is_refused() -> None:
    history = small_cluster().at(5).fault("stall", "worker-3")
    work = {"worker-1": ["flights-out-0", "flights-out-1"], "worker-2": ["flights-in-0"]}
    history.at(8).rebalance(3, 0.2, leader="worker-1", work=work).start("worker-1", "flights-out-0", instance=2)
    history.at(9).add(EventKind.COMMIT_REFUSED, "worker-3", "flights-out-0", reason="the table's offset is ahead.")
    history.at(9.5).fault("resume", "worker-3").ended("worker-3", "flights-out-0")
    assert reported(history) == [
        "worker-3 stalled (heartbeats stopped) while it ran flights-out-0; the group removed it after 3.0 s, "
        "generation 3; flights-out-0 moved to worker-1 (generation 3), and ran 3.3 s after the stall; worker-3 resumed "
        "after 4.5 s; worker-3 continued as a zombie for 1.3 s; worker-3's commit for flights-out-0 was refused (the "
        "table's offset is ahead)"
    ]
    assert failovers(history.events)[0].fenced == 1


def test_partitions_of_a_killed_sink_task_go_to_another_task_first() -> None:
    history = small_cluster().at(2)
    for worker, task, partitions in [
        ("worker-3", "flights-out-0", ["flights-0", "flights-1", "flights-2"]),
        ("worker-1", "flights-out-1", ["flights-3"]),
    ]:
        history.add(EventKind.PARTITIONS_ASSIGNED, worker, task, partitions=partitions)
    history.at(3).add(EventKind.PARTITIONS_REVOKED, "worker-3", "flights-out-0", partitions=["flights-2"])
    history.add(EventKind.PARTITIONS_ASSIGNED, "worker-1", "flights-out-1", partitions=["flights-2"])
    history.at(5).fault("kill", "worker-3")
    everything = ["flights-0", "flights-1", "flights-2", "flights-3"]
    history.at(8).add(EventKind.PARTITIONS_ASSIGNED, "worker-1", "flights-out-1", partitions=everything)
    history.at(11).rebalance(3, leader="worker-1", work={"worker-1": [], "worker-2": ["flights-out-0"]})
    history.start("worker-2", "flights-out-0", took=0)
    history.at(12).add(EventKind.PARTITIONS_ASSIGNED, "worker-2", "flights-out-0", partitions=everything[:2])
    assert reported(history) == [
        "worker-3 was killed while it ran flights-out-0; the group removed it after 6.0 s, generation 3; "
        "flights-0 and flights-1 went to flights-out-1 on worker-1 after 3.0 s; flights-out-0 moved to worker-2 "
        "(generation 3), and ran 6.2 s after the kill"
    ]
    [handover] = failovers(history.events)[0].handovers
    assert (handover.partitions, handover.from_task) == (("flights-0", "flights-1"), "flights-out-0")


def test_tasks_that_move_to_different_workers_are_told_apart_and_together_count_the_last() -> None:
    history = small_cluster().at(2).start("worker-2", "audit-0").start("worker-2", "audit-1")
    history.at(5).fault("kill", "worker-2").ended("worker-2", "flights-in-0")
    without_worker_2(history.at(8)).start("worker-1", "audit-0", 2, took=0).start("worker-1", "audit-1", 2, took=0)
    history.at(9).start("worker-3", "flights-in-0", instance=2, epoch=1)
    assert reported(history) == [
        "worker-2 was killed while it ran audit-0, audit-1 and flights-in-0; the group removed it after 3.0 s, "
        "generation 3; audit-0 and audit-1 moved to worker-1 (generation 3), and ran 3.1 s after the kill; "
        "flights-in-0 moved to worker-3 (generation 3), epoch 0 to 1, and ran 4.1 s after the kill"
    ]
    assert failovers(history.events)[0].moved_ms == 4_100


def test_an_aborted_transaction_is_told_only_when_an_event_shows_it() -> None:
    history = small_cluster().at(5).fault("stop", "worker-2")
    history.add(EventKind.TRANSACTION_ABORTED, "worker-2", "flights-in-0", records=1200, producer_epoch=0)
    assert reported(history)[0].endswith("; an open transaction of 1,200 records of worker-2 was aborted")


def test_a_cut_worker_is_connected_again() -> None:
    history = small_cluster().at(5).fault("partition", "worker-3").at(7).fault("heal", "worker-3")
    assert reported(history)[0].endswith("; worker-3 was connected again after 2.0 s and kept flights-out-0")


def delayed(requests: list[str] | None = None) -> History:
    return small_cluster().at(5).fault("delay", "worker-3", requests=requests, for_s=2.0)


def test_a_delay_is_told_with_what_arrived_late() -> None:
    assert reported(delayed(["EndTxn", "Produce"])) == [
        "the next EndTxn or Produce on each connection of worker-3 to Kafka was held, and the connection cut; the "
        "delayed requests have not arrived yet"
    ]
    history = delayed().at(6).fault("delay", "worker-3", for_s=0.5).at(6.5)
    history.fault("deliver", "worker-3", requests={}, for_s=0.5)
    history.at(7).fault("deliver", "worker-3", requests={"EndTxn": 1, "Produce": 2}, for_s=2.0)
    begin = "the next request on each connection of worker-3 to Kafka was held, and the connection cut; "
    assert reported(history) == [
        f"{begin}1 EndTxn and 2 Produce arrived after 2.0 s",
        f"{begin}nothing arrived after 0.5 s",
    ]


def test_a_second_life_under_the_same_name_is_not_part_of_the_story() -> None:
    history = kill_of_source().at(30).started("worker-2").start("worker-2", "flights-out-1", instance=1)
    history.fenced("worker-2", "flights-in-0", epoch=0)
    assert failovers(history.events)[0].rejections == ()


def test_what_a_later_instance_on_the_same_worker_does_is_another_story() -> None:
    history = pause_with_fence().at(24).start("worker-2", "flights-in-0", instance=3, epoch=2)
    history.at(26).fault("stall", "worker-2").at(30).start("worker-3", "flights-in-0", instance=4, epoch=3)
    history.at(31).fenced("worker-2", "flights-in-0")
    first, second = failovers(history.events)
    assert [len(failover.rejections) for failover in (first, second)] == [1, 1]
    assert reported(history)[0].count("rejected") == 1
    assert reported(history)[1].endswith("worker-2's write for flights-in-0 at epoch 2 was rejected")


def test_a_rejected_write_has_the_epoch_that_it_was_rejected_with() -> None:
    history = pause_with_fence().at(24).start("worker-2", "flights-in-0", instance=3, epoch=2)
    history.at(26).fault("stall", "worker-2").at(30).start("worker-3", "flights-in-0", instance=4, epoch=4)
    history.at(31).fenced("worker-2", "flights-in-0", epoch=3)
    assert reported(history)[1].endswith("worker-2's write for flights-in-0 at epoch 3 was rejected")


def test_a_newcomer_takes_over_in_a_second_round() -> None:
    history = small_cluster().at(20).started("worker-4").fault("add_worker", "worker-4")
    history.at(21).rebalance(3, leader="worker-1", work={"worker-1": ["flights-out-1"], "worker-2": [], "worker-4": []})
    history.at(22).state("worker-2", "flights-in-0", "UNASSIGNED")
    history.rebalance(4, leader="worker-1", work={"worker-1": ["flights-out-1"], "worker-4": ["flights-in-0"]})
    history.start("worker-4", "flights-in-0", epoch=1)
    assert reported(history) == [
        "worker-4 was added and joined the group in generation 3; it took over flights-in-0 from worker-2 (generation "
        "4), epoch 0 to 1"
    ]


def test_a_newcomer_without_work_and_one_that_has_not_joined() -> None:
    history = small_cluster().at(20).started("worker-4").fault("add_worker", "worker-4")
    assert reported(history) == ["worker-4 was added and has not joined the group"]
    history.at(21).rebalance(3, leader="worker-1", work={"worker-1": [], "worker-4": []})
    assert reported(history) == ["worker-4 was added and joined the group in generation 3; no task moved to it"]


def test_what_a_newcomer_gets_after_the_next_fault_is_that_faults_story() -> None:
    history = small_cluster().at(20).started("worker-4").fault("add_worker", "worker-4")
    history.at(21).rebalance(3, leader="worker-1", work={"worker-1": [], "worker-3": ["flights-out-0"], "worker-4": []})
    history.at(25).fault("kill", "worker-3").at(28)
    history.rebalance(4, leader="worker-1", work={"worker-1": [], "worker-2": [], "worker-4": ["flights-out-0"]})
    history.start("worker-4", "flights-out-0")
    first, second = reported(history)
    assert first.endswith("no task moved to it")
    assert "flights-out-0 moved to worker-4 (generation 4)" in second


def test_another_leader() -> None:
    history = small_cluster().at(5).fault("kill", "worker-1")
    history.at(8).rebalance(3, leader="worker-3", work={"worker-2": [], "worker-3": []})
    assert reported(history)[1] == (
        "worker-3 became leader in generation 3, replacing worker-1, which had left the group"
    )
    history.at(9).rebalance(4, leader="worker-2", work={"worker-2": [], "worker-3": []})
    assert reported(history)[2] == "worker-2 became leader in generation 4, replacing worker-3"


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ("\n  ValueError: no such column.\n  at poll", "ValueError: no such column"),
        ("", "no reason was given"),
        (PYTHON_TRACE, "connectx.errors.databases.TableMismatchError: No column x"),
    ],
)
def test_a_failed_task_says_why(trace: str, why: str) -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "FAILED", trace=trace)
    assert reported(history) == [f"flights-out-0 failed on worker-3: {why}"]


def test_a_task_that_failed_because_it_was_fenced_is_told_once() -> None:
    history = small_cluster().at(5).fenced("worker-2", "flights-in-0", epoch=0)
    history.at(5.1).state("worker-2", "flights-in-0", "FAILED", trace="fenced")
    assert reported(history) == ["worker-2's write for flights-in-0 at epoch 0 was rejected"]


@pytest.mark.rule("618.7.4")
def test_a_rejected_write_names_who_took_over_and_since_when_once_that_is_known() -> None:
    history = small_cluster().at(5).fenced("worker-2", "flights-in-0", epoch=0)
    history.add(EventKind.FENCED_BY, "worker-2", "flights-in-0", known=False)
    assert reported(history) == ["worker-2's write for flights-in-0 at epoch 0 was rejected"]
    took_over = "worker-3 took over flights-in-0 in generation 3 (epoch 1), RUNNING there since 12:00:01 UTC"
    url = next(e.payload.url for e in history.events if e.worker == "worker-3" and isinstance(e.payload, WorkerStarted))
    by = {"by": urlsplit(url).netloc, "by_generation": 3, "newer_epoch": 1, "state": "RUNNING", "since_ms": 43_201_000}
    history.add(EventKind.FENCED_BY, "worker-2", "flights-in-0", known=True, **by)
    assert reported(history) == [f"worker-2's write for flights-in-0 at epoch 0 was rejected: {took_over}"]


def test_a_rejection_that_names_no_epoch_has_that_of_its_task() -> None:
    history = small_cluster().at(5).fenced("worker-2", "flights-in-0")
    assert reported(history) == ["worker-2's write for flights-in-0 at epoch 0 was rejected"]
    history = small_cluster().at(4).fault("stall", "worker-2").at(5).fenced("worker-2", "flights-in-0")
    assert reported(history)[0].endswith("worker-2's write for flights-in-0 at epoch 0 was rejected")


def test_a_failed_worker_says_why() -> None:
    history = small_cluster().at(5).add(EventKind.WORKER_FAILED, "worker-3", error="the group protocol is inconsistent")
    assert reported(history) == ["worker-3 failed: the group protocol is inconsistent"]


def test_stories_come_in_the_order_in_which_they_began() -> None:
    history = kill_of_source().at(12).state("worker-1", "flights-out-1", "FAILED", trace="late")
    assert [story.kind for story in stories(sorted(history.events, key=lambda e: e.time_ms))] == ["kill", "task_failed"]


def test_a_goodbye_for_a_worker_whose_process_has_ended_is_one_story() -> None:
    history = small_cluster().at(10).fault("kill", "worker-2").at(10.1)
    for group in ("connectx", "connect-flights-out"):
        cause = "its process has ended"
        history.add(EventKind.MEMBER_REMOVED, "worker-2", group=group, members=["m"], cause=cause)
    [reported] = [story for story in stories(history.events) if story.kind == "removed"]
    assert reported.sentence == (
        "group connectx and group connect-flights-out were informed 0.1 s after its end that worker-2 had left,"
        " because its process has ended, without waiting for session.timeout.ms"
    )
