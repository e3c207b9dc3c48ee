"""Writes the diagrams of phases in docs/how-it-works.md from the tables of moves in the core.

    python -m tests.support.state_diagrams

The page marks the place of a diagram by two comments that name the table. Text outside of them stays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from connectx.core.connectors import CONNECTOR_MOVES
from connectx.core.context import WORKER_MOVES
from connectx.core.fencing import ROUND_MOVES
from connectx.core.group.membership import MEMBERSHIP_MOVES
from connectx.core.group.rebalance import REBALANCE_MOVES
from connectx.core.moves import Moves
from connectx.core.tasks import TASK_MOVES

PAGE: Final = Path(__file__).parents[2] / "docs/how-it-works.md"
TABLES: Final[dict[str, Moves[Any]]] = {
    "worker": WORKER_MOVES,
    "membership": MEMBERSHIP_MOVES,
    "rebalance": REBALANCE_MOVES,
    "connector": CONNECTOR_MOVES,
    "task": TASK_MOVES,
    "fencing": ROUND_MOVES,
}
_DIAGRAM: Final = re.compile(r"(<!-- phases of (\w+): begin -->\n).*?(<!-- phases of \2: end -->)", re.DOTALL)


def described(page: str) -> list[str]:
    """Return the names of the tables whose diagrams the page shows."""
    return [match[2] for match in _DIAGRAM.finditer(page)]


def written(page: str) -> str:
    """Return the page with its diagrams written again."""
    return _DIAGRAM.sub(lambda match: match[1] + diagram(TABLES[match[2]]) + match[3], page)


def diagram(moves: Moves[Any]) -> str:
    """Return a table of moves as a Mermaid state diagram; the first phase is where it begins."""
    lines = [f"    [*] --> {next(iter(moves))}"]
    for before, after in moves.items():
        lines += [f"    {before} --> {phase}" for phase in moves if phase in after]
        lines += [] if after else [f"    {before} --> [*]"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
