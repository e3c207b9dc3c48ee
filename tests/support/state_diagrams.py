"""Draws the diagrams of phases in docs/phases from the tables of moves in the core, with Graphviz.

    python -m tests.support.state_diagrams

Each picture holds the graph that it was drawn from, so that a test without Graphviz sees whether it is up to date.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

from connectx.core.connectors import CONNECTOR_MOVES
from connectx.core.context import WORKER_MOVES
from connectx.core.fencing import ROUND_MOVES
from connectx.core.group.membership import MEMBERSHIP_MOVES
from connectx.core.group.rebalance import REBALANCE_MOVES
from connectx.core.moves import Moves
from connectx.core.producer.messages import PRODUCER_MOVES
from connectx.core.sink.loop import SINK_LOOP_MOVES
from connectx.core.source.loop import SOURCE_LOOP_MOVES
from connectx.core.tasks import TASK_MOVES

PICTURES: Final = Path(__file__).parents[2] / "docs/phases"
TABLES: Final[dict[str, Moves[Any]]] = {
    "worker": WORKER_MOVES,
    "membership": MEMBERSHIP_MOVES,
    "rebalance": REBALANCE_MOVES,
    "connector": CONNECTOR_MOVES,
    "task": TASK_MOVES,
    "fencing": ROUND_MOVES,
    "source": SOURCE_LOOP_MOVES,
    "sink": SINK_LOOP_MOVES,
    "producer": PRODUCER_MOVES,
}
_GRAPH: Final = re.compile(r"<!--\n(digraph .*?)-->\n", re.DOTALL)
_BY_GRAPHVIZ: Final = re.compile(r"<\?xml.*?<svg", re.DOTALL)


def graph(name: str) -> str:
    """Return a table of moves as a graph in the language of Graphviz; a point leads to the first phase."""
    moves = TABLES[name]
    lines = [
        'bgcolor="#ffffff" pad=0.2 rankdir=LR',
        'node [shape=box style="rounded,filled" fillcolor="#e8eaf6" color="#3f51b5" fontname="sans-serif" fontsize=12]',
        'edge [color="#616161" arrowsize=0.7]',
        'begin [shape=point fillcolor="#212121" color="#212121"]',
        *(f'"{phase}"' for phase in moves),
        f'begin -> "{next(iter(moves))}"',
    ]
    lines += [f'"{before}" -> "{phase}"' for before, after in moves.items() for phase in moves if phase in after]
    return "\n".join((f"digraph {name} {{", *lines, "}\n"))


def graph_in(picture: str) -> str | None:
    """Return the graph that a picture was drawn from; None if it names none."""
    found = _GRAPH.search(picture)
    return None if found is None else found[1]


def drawn(name: str) -> str:
    """Return the picture of a table as SVG. Needs the program `dot` of Graphviz."""
    source = graph(name)
    done = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, text=True, check=True)
    return _BY_GRAPHVIZ.sub(lambda _: f"<!--\n{source}-->\n<svg", done.stdout, count=1)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for table in TABLES:
        (PICTURES / f"{table}.svg").write_text(drawn(table), encoding="utf-8")
