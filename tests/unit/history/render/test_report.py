"""The page and the figure."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from connectx.errors.history import EventLogError
from connectx.history.render.figure import timeline_figure
from connectx.history.render.report import Table, Verdict, rebalance_table, report_page, write_report
from tests.support.histories import History, crowded, kill_of_source

GOOD = Verdict(True, "Nothing lost & nothing duplicated.", Table(("what", "file", "table"), [("rows", 336776, None)]))


def page(history: History, verdict: Verdict = GOOD) -> str:
    return report_page(
        history.events,
        title="flights <demo>",
        lead="From a file.",
        shown={"workers": "3"},
        verdict=verdict,
        footer="end",
    )


class Balance(HTMLParser):
    """Fails when an element is closed that was not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone() -> None:
    text = page(kill_of_source())
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert not parser.seen & {"script", "link", "img", "iframe"}
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_page_has_verdict_timeline_stories_and_rebalances() -> None:
    text = page(kill_of_source())
    assert "flights &lt;demo&gt;" in text
    assert '<p class="verdict good">✓ Nothing lost &amp; nothing duplicated.</p>' in text
    assert '<td class="n">336,776</td><td class="n"></td>' in text
    assert "<svg" in text
    assert "<time>10.0 s</time><span>worker-2 was killed while it ran flights-in-0;" in text
    assert "flights-out and flights-in-0, waits 3.0 s" in text


def test_a_bad_verdict_is_said_in_a_sign_and_a_class() -> None:
    assert '<p class="verdict bad">✕ 3 lost</p>' in page(kill_of_source(), Verdict(False, "3 lost", Table((), [])))


def test_a_page_without_events_is_still_a_page() -> None:
    text = page(History())
    assert "No fault, no failure." in text
    assert "<p>None.</p>" in text


def test_the_rebalance_table_has_a_row_per_generation() -> None:
    table = rebalance_table(kill_of_source().events)
    assert [row[0] for row in table.rows] == ["1", "2", "3", "4"]
    assert table.rows[2][1:6] == ("13.0 s", "0.2 s", "worker-2 was lost (killed)", "worker-1", "worker-1, worker-3")


def test_the_figure_draws_what_the_svg_draws() -> None:
    figure = timeline_figure(crowded().events)
    hovers = [trace.hovertemplate or "" for trace in figure.data]
    assert any("zombie" in hover for hover in hovers)
    assert any("fault: stall worker-1" in hover for hover in hovers)
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == [
        "orders-warehouse-replica-eu",
        "audit",
    ]
    assert figure.layout.yaxis.ticktext[1] == "worker-1"
    assert len(figure.layout.shapes) == 4


def test_an_empty_figure_can_be_shown() -> None:
    assert len(timeline_figure([]).data) == 0


def test_a_report_without_a_verdict_says_how_things_stand(tmp_path: Path) -> None:
    text = write_report(kill_of_source().events, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "worker-1 (up), worker-2 (killed), worker-3 (up)" in text
    assert "<h2>Verdict</h2>" not in text
    with pytest.raises(EventLogError, match="could not be written"):
        write_report([], tmp_path / "no" / "report.html")


def test_names_are_no_markup_in_a_figure() -> None:
    """plotly takes some tags in its texts for formatting."""
    history = History().started("<i>w").at(1).start("<i>w", "a<b>-0").at(9).state("<i>w", "a<b>-0", "PAUSED")
    figure = timeline_figure(history.events)
    shown = [*(trace.name for trace in figure.data), *(text for trace in figure.data for text in trace.text or ())]
    assert [text for text in (*shown, *figure.layout.yaxis.ticktext) if "<" in text] == []
    assert "a&lt;b&gt;" in shown
