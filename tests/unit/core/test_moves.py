"""Tables of moves: what they hold, what they refuse, and the diagrams that are generated from them."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.core.moves import IllegalMoveError, Moves, moved
from connectx.core.tasks import TASK_MOVES, TaskPhase
from tests.support.state_diagrams import PICTURES, TABLES, graph, graph_in


@pytest.mark.parametrize("moves", TABLES.values(), ids=TABLES)
def test_a_table_has_a_row_for_each_phase_and_reaches_all_of_them(moves: Moves[Any]) -> None:
    first = next(iter(moves))
    phases: Any = type(first)
    assert list(moves) == list(phases)
    reached = {first}
    while more := {phase for before in reached for phase in moves[before]} - reached:
        reached |= more
    assert reached == set(moves)


def test_a_move_that_the_table_does_not_have_is_refused_with_its_subject() -> None:
    assert moved(TASK_MOVES, TaskPhase.PREPARING, TaskPhase.FENCING, "c-0") is TaskPhase.FENCING
    assert moved(TASK_MOVES, TaskPhase.ACTIVE, TaskPhase.ACTIVE, "c-0") is TaskPhase.ACTIVE
    with pytest.raises(IllegalMoveError, match="c-0 cannot go from preparing to active"):
        moved(TASK_MOVES, TaskPhase.PREPARING, TaskPhase.ACTIVE, "c-0")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_a_picture_of_each_table_as_it_is(name: str) -> None:
    page = (PICTURES.parent / "how-it-works.md").read_text(encoding="utf-8")
    assert f"(phases/{name}.svg)" in page
    picture = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert graph_in(picture) == graph(name), "run python -m tests.support.state_diagrams"
