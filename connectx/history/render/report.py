"""A history as one HTML page that needs nothing else: facts, verdict, timeline, stories, rebalances. No script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from connectx.errors.history import EventLogError
from connectx.history.folds.snapshot import snapshot
from connectx.history.folds.tracks import Samples
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import timeline
from connectx.history.sentences.stories import stories
from connectx.history.sequences import REBALANCE_COLUMNS, Rebalances
from connectx.history.wording import duration
from connectx.model.events import Event
from connectx.owned_files import owned_file
from connectx.values import Value

_STYLE = """
:root{color-scheme:light dark;--f:#1b1b1b;--d:#5f5f66;--b:#fff;--l:#dcdce2;--a:#f4f4f6;--good:#00694d;--bad:#b00018}
@media(prefers-color-scheme:dark){:root{--f:#ececec;--d:#a5a5a5;--b:#161616;--l:#3a3a3f;--a:#222225;--good:#4cc9a0;
--bad:#ff7a85}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--f);background:var(--b);max-width:1080px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .6rem}p.lead{color:var(--d);margin:.2rem 0 1rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:.6rem 1.2rem;margin:0}
dt{color:var(--d);font-size:.8rem;overflow-wrap:anywhere}dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.verdict{font-size:1.1rem;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}
.wide{overflow-x:auto}table{border-collapse:collapse;min-width:50%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--l);vertical-align:top}
th{color:var(--d);font-weight:600;font-size:.85rem}td.n,th.n{text-align:right}
td:not(.t),th{white-space:nowrap}
ol{padding:0;list-style:none;margin:0}li{display:grid;grid-template-columns:5.5rem 1fr;padding:.35rem 0;
border-bottom:1px solid var(--l)}li time{color:var(--d);font-variant-numeric:tabular-nums}
.timeline{border:1px solid var(--l);border-radius:4px;overflow-x:auto}.timeline svg{display:block;min-width:720px}
footer{color:var(--d);font-size:.85rem;margin-top:2rem}
""".strip()


class Table(Value):
    """A table of a report. Cells that are numbers are set to the right, with thousands separated."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]


class Verdict(Value):
    """A measured result and whether it is as expected; `sentence` is its text."""

    is_good: bool
    sentence: str
    table: Table


def report_page(
    events: Iterable[Event],
    *,
    title: str,
    lead: str,
    shown: Mapping[str, str],
    verdict: Verdict | None = None,
    footer: str = "",
    samples: Samples | None = None,
) -> str:
    """The whole page as text.

    Args:
        events: the history, in order.
        title, lead: headline and the sentence below it.
        shown: name to value, as a header of facts.
        verdict: shown before the timeline, if there is one.
        footer: a last line in small print.
        samples: throughput and lag, drawn below the tasks.
    """
    listed = list(events)
    start_ms = listed[0].time_ms if listed else 0
    named = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in shown.items())
    found = stories(listed)
    items = "".join(
        f'<li data-event="{story.seq}"><time>{(story.time_ms - start_ms) / 1000:.1f} s</time>'
        f"<span>{escape(story.sentence)}.</span></li>"
        for story in found
    )
    drawing = timeline_svg(timeline(listed, stories=found, samples=samples))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><dl>{named}</dl></header>'
        f"{_verdict(verdict) if verdict else ''}"
        f'<section><h2>Tasks over workers</h2><div class="timeline">{drawing}</div></section>'
        f"<section><h2>What happened</h2>{f'<ol>{items}</ol>' if items else '<p>No fault, no failure.</p>'}</section>"
        f"<section><h2>Rebalances</h2>{_table(rebalance_table(listed))}</section>"
        f"<footer>{escape(footer)}</footer></body></html>"
    )


def write_report(
    events: Iterable[Event], path: str | Path, *, title: str = "connectx", samples: Samples | None = None
) -> Path:
    """Write the page of a history without a verdict: how things stand, timeline, stories, rebalances.

    Raises:
        EventLogError: the file cannot be written.
    """
    listed = list(events)
    now = snapshot(listed)
    shown = {
        "workers": ", ".join(f"{worker.name} ({worker.standing.description})" for worker in now.workers),
        "generation": str(now.generation or "none"),
        "leader": now.leader or "none",
        "rebalances": str(now.rebalances),
        "faults": str(now.faults),
        "rejected writes": str(now.fenced),
    }
    span = duration(listed[-1].time_ms - listed[0].time_ms) if listed else "0 s"
    lead = f"{len(listed):,} events in {span}."
    return save_page(report_page(listed, title=title, lead=lead, shown=shown, samples=samples), path)


def save_page(page: str, path: str | Path) -> Path:
    """Write a page to a file that only its owner can read. Raises EventLogError when that cannot be done."""
    target = Path(path)
    try:
        with owned_file(target) as file:
            file.write(page)
    except OSError as error:
        raise EventLogError(
            f"The report could not be written to {target}: {error.strerror}.",
            next_step="Name a file in a folder that you may write to.",
        ) from error
    return target


def rebalance_table(events: Iterable[Event]) -> Table:
    """One row per generation: when, how long, why, who leads, who is in it, what was lost and waits."""
    rounds = Rebalances.of(list(events), since=0)
    return Table(REBALANCE_COLUMNS, [tuple(row.values()) for row in rounds.rows()])


def _verdict(verdict: Verdict) -> str:
    sign, grade = ("✓", "good") if verdict.is_good else ("✕", "bad")
    return (
        f'<section><h2>Verdict</h2><p class="verdict {grade}">{sign} {escape(verdict.sentence)}</p>'
        f"{_table(verdict.table)}</section>"
    )


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>"
    numeric = [
        all(isinstance(row[place], (int, float)) or row[place] is None for row in table.rows)
        for place in range(len(table.columns))
    ]
    head = "".join(
        f"<th{_cell_class('', is_number)}>{escape(name)}</th>"
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_cell_class(cell, is_number)}>{escape(cell_text(cell))}</td>"
            for cell, is_number in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell_class(cell: object, is_number: bool) -> str:
    if is_number:
        return ' class="n"'
    return ' class="t"' if len(str(cell)) > 24 else ""  # long text may wrap


def cell_text(value: str | int | float | None) -> str:
    """A cell of a table; numbers have separators."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,}"
