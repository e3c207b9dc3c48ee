"""Records committed, skipped and sent to dead letter queues."""

from __future__ import annotations

from connectx.history.folds.totals import Totals, TotalsFold
from connectx.model.events import EventKind
from tests.support.histories import History, small_cluster


def totals(history: History) -> dict[tuple[str, int | None], Totals]:
    fold = TotalsFold()
    for event in history.events:
        fold.take(event)
    return fold.of


def test_commits_of_all_tasks_add_up_to_their_connector() -> None:
    history = small_cluster().add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", records=40)
    history.add(EventKind.OFFSETS_COMMITTED, "worker-3", "flights-out-0", records=30)
    history.add(EventKind.OFFSETS_COMMITTED, "worker-1", "flights-out-1", records=9)
    found = totals(history)
    assert {work: one.committed for work, one in found.items()} == {
        ("flights-in", None): 40,
        ("flights-in", 0): 40,
        ("flights-out", None): 39,
        ("flights-out", 0): 30,
        ("flights-out", 1): 9,
    }


def test_skipped_records_and_dead_letters_are_counted_apart() -> None:
    history = small_cluster().add(EventKind.RECORDS_SKIPPED, "worker-3", "flights-out-0", records=5, dead_letters=4)
    history.add(EventKind.RECORDS_SKIPPED, "worker-3", "flights-out-0", records=2)
    assert totals(history)["flights-out", None] == Totals(0, skipped=7, dead_letters=4)


def test_a_connector_of_the_same_name_starts_from_nothing() -> None:
    history = small_cluster().add(EventKind.OFFSETS_COMMITTED, "worker-3", "flights-out-0", records=30)
    history.add(EventKind.CONNECTOR_DELETED, "worker-1", "flights-out", config_offset=9)
    history.add(EventKind.RECORDS_SKIPPED, "worker-3", "flights-out-0", records=5, dead_letters=4)
    assert totals(history) == {}, "the last put of a task may end after its connector was deleted"
    history.add(EventKind.CONNECTOR_CONFIGURED, "worker-1", "flights-out", is_new=True, config_offset=10)
    history.add(EventKind.RECORDS_SKIPPED, "worker-3", "flights-out-0", records=2)
    history.add(EventKind.CONNECTOR_DELETED, "worker-2", "flights-out", config_offset=9)
    assert totals(history)["flights-out", None] == Totals(0, skipped=2), "a late worker repeats the deletion"
