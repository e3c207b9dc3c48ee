"""Text and HTML forms that the public objects share: tables, cards, states.

Pure functions of plain values. The HTML has no script and no style sheet, takes its colours from the page (light or
dark) and stays readable where inline styles are dropped, as on GitHub. Everything is escaped; what may hold secrets
comes masked (`connectx.model.worker_config`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from connectx.model.states import LOST, State

Row = Mapping[str, object]

_SIGNS: Mapping[str, str] = {
    State.RUNNING: "●",
    State.PAUSED: "‖",
    State.FAILED: "✕",
    State.STOPPED: "■",
    State.RESTARTING: "↻",
    State.UNASSIGNED: "○",
    State.DESTROYED: "·",
    LOST: "◌",
}
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"


def shown_state(state: str) -> str:
    """A state as a sign and its word, so that it can be told without colour."""
    sign = _SIGNS.get(state)
    return f"{sign} {state}" if sign else state


def text_table(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under their headings, those of the first row. Empty without rows."""
    if not rows:
        return ""
    headings = list(rows[0])
    lines = [headings, *([_cell(row.get(heading)) for heading in headings] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def text_facts(facts: Mapping[str, object]) -> str:
    """Names and values, one pair a line."""
    width = max((len(name) for name in facts), default=0)
    return "\n".join(f"{name.ljust(width)}  {_cell(value)}".rstrip() for name, value in facts.items())


def html_table(rows: Sequence[Row], caption: str = "") -> str:
    """Rows as an HTML table under their headings, those of the first row. Empty without rows."""
    if not rows:
        return ""
    headings = list(rows[0])
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{_html_cells(row.get(heading) for heading in headings)}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(facts: Mapping[str, object]) -> str:
    """Names and values as a table of two columns."""
    lines = (
        f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th>{_html_cells([value])}</tr>'
        for name, value in facts.items()
    )
    return f"<table><tbody>{''.join(lines)}</tbody></table>" if facts else ""


def html_details(summary: str, text: str) -> str:
    """Long text, such as a trace, behind a line that opens it without a script."""
    preformatted = f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'
    return f"<details><summary>{escape(summary)}</summary>{preformatted}</details>"


def html_list(summary: str, lines: Sequence[str]) -> str:
    """Sentences behind a line that opens them without a script. Empty without sentences."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{escape(summary)}</summary><ul>{items}</ul></details>" if lines else ""


def html_card(title: str, facts: Mapping[str, object], *parts: str) -> str:
    """A heading, facts, and parts that are HTML already."""
    inner = "".join([f"<strong>{escape(title)}</strong>", html_facts(facts), *parts])
    return f'<div style="border-left:3px solid currentColor;padding-left:10px">{inner}</div>'


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def _html_cells(values: Iterable[object]) -> str:
    return "".join(f'<td style="{_CELL}">{escape("" if value is None else str(value))}</td>' for value in values)
