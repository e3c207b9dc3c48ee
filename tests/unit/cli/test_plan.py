"""What a file of connectors would change, and what would move, by the real assignor."""

from __future__ import annotations

from connectx.cli.plan import Action, Declared, Move, Planned, Present, plan, planned
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId

LINES = {"connector.class": "FileStreamSource", "file": "in.txt"}


def held(*items: str) -> WorkSet:
    tasks = tuple(TaskId(name, int(number)) for name, _, number in (i.rpartition("-") for i in items if "-" in i))
    return WorkSet(tuple(item for item in items if "-" not in item), tasks)


def test_a_new_connector_is_created_with_all_tasks_that_it_may_have() -> None:
    found = planned(Declared("new", {**LINES, "tasks.max": "3"}), None, ())
    assert (found.action, found.tasks, found.diff["file"]) == (Action.CREATE, 3, (None, "in.txt"))
    assert planned(Declared("new", LINES, stopped=True), None, ()).tasks == 0
    assert planned(Declared("new", LINES), None, ["no"]).action is Action.INVALID


def test_a_connector_that_is_there_changes_by_the_keys_that_differ() -> None:
    there = Present({**LINES, "name": "a", "old": "1"}, 1)
    assert planned(Declared("a", {**LINES, "old": "1"}), there, ()).action is Action.KEEP
    found = planned(Declared("a", {**LINES, "file": "other.txt", "tasks.max": "4"}), there, ())
    assert (found.action, found.tasks) == (Action.CHANGE, 4)
    assert found.diff == {"file": ("in.txt", "other.txt"), "tasks.max": (None, "4"), "old": ("1", None)}
    fewer = Present({**LINES, "tasks.max": "4"}, 2)
    assert planned(Declared("a", {**LINES, "tasks.max": "8"}), fewer, ()).tasks == 2, "it had no use for more"
    assert planned(Declared("a", {**LINES, "tasks.max": "1"}), fewer, ()).tasks == 1
    assert planned(Declared("a", {**LINES, "x": "1"}, stopped=False), Present(LINES, 0, stopped=True), ()).tasks == 0


def test_new_work_goes_to_who_has_least_and_nothing_else_moves() -> None:
    work = {"w1": held("a", "a-0"), "w2": held()}
    outcome = plan([planned(Declared("b", LINES), None, ())], {"a": Present(LINES, 1)}, work)
    assert outcome.starts == (Move("connector b", None, "w2"), Move("task b-0", None, "w2"))
    assert (outcome.moves, outcome.restarts) == ((), ())
    assert outcome.is_valid


def test_work_above_an_even_share_moves_when_the_group_rebalances_anyway() -> None:
    work = {"w1": held("a", "a-0", "a-1", "a-2", "a-3"), "w2": held("b")}
    present = {"a": Present({**LINES, "tasks.max": "4"}, 4), "b": Present(LINES, 0, stopped=True)}
    outcome = plan([Planned("a", Action.CHANGE, {}, 4)], present, work)
    assert outcome.moves == (Move("task a-0", "w1", "w2"), Move("task a-1", "w1", "w2"))
    assert outcome.restarts == ("a-2", "a-3")
    assert outcome.rounds == 2, "one revokes, one assigns"


def test_tasks_that_a_change_takes_away_end() -> None:
    there = Present({**LINES, "tasks.max": "2"}, 2)
    change = planned(Declared("a", {**LINES, "tasks.max": "1"}), there, ())
    outcome = plan([change], {"a": there}, {"w1": held("a", "a-0", "a-1")})
    assert outcome.moves == (Move("task a-1", "w1", None),)
    assert outcome.to_json()["connectors"][0]["diff"] == {"tasks.max": {"old": "2", "new": "1"}}


def test_without_workers_nothing_is_predicted() -> None:
    outcome = plan([planned(Declared("b", LINES), None, ["wrong"])], {}, {})
    assert (outcome.starts, outcome.rounds, outcome.is_valid) == ((), 0, False)


def test_a_misspelled_key_is_shown_with_the_key_that_was_meant() -> None:
    config = {**LINES, "bacth.size": "5"}
    found = planned(Declared("a", config), None, (), ("connector.class", "file", "topic", "batch.size"))
    assert found.warnings == ("bacth.size has no effect: the connector does not know it. Did you mean batch.size?",)
    assert found.rows()[-1]["why"] == found.warnings[0]
    assert plan([found], {}, {}).to_json()["connectors"][0]["warnings"] == list(found.warnings)
    assert planned(Declared("a", {**config, "batch.size": "1"}), None, (), ("batch.size",)).warnings == ()
