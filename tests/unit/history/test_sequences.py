"""How stories and rebalances show themselves, and which of them are behind an event."""

from __future__ import annotations

from connectx.history.render.figure import timeline_figure
from connectx.history.sequences import Rebalances, Stories
from connectx.model.events import EventKind
from tests.support.histories import History, kill_of_source


def test_a_story_begins_with_the_seconds_of_the_timelines_axis() -> None:
    reported = Stories.of(kill_of_source().events, since=0)
    assert repr(reported).startswith("10.0 s: worker-2 was killed while it ran flights-in-0; the group removed it")
    assert repr(reported).endswith("after the kill.")
    assert reported._repr_html_().count("<li>10.0 s: worker-2 was killed") == len(reported) == 1


def test_only_what_began_behind_the_event_is_told() -> None:
    history = kill_of_source()
    (kill,) = [event for event in history.events if event.kind is EventKind.FAULT_INJECTED]
    assert len(Stories.of(history.events, since=kill.seq - 1)) == 1
    assert Stories.of(history.events, since=kill.seq) == ()
    assert [round_.generation for round_ in Rebalances.of(history.events, since=kill.seq)] == [3, 4]


def test_rebalances_are_a_table_by_generation() -> None:
    reported = Rebalances.of(kill_of_source().events, since=0)
    heading, *lines = repr(reported).splitlines()
    assert heading.split("  ")[0] == "generation"
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert "flights-out and flights-in-0, waits 3.0 s" in lines[2]
    assert reported._repr_html_().count("<tr>") == 5


def test_an_empty_history_tells_nothing() -> None:
    empty: History = History()
    for reported in (Stories.of(empty.events, since=0), Rebalances.of(empty.events, since=0)):
        assert "so far" in repr(reported)
        assert "so far" in reported._repr_html_()


def test_a_timeline_has_a_picture_for_pages_without_plotly() -> None:
    bundle = timeline_figure(kill_of_source().events)._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg ")


def test_the_clock_begins_behind_the_event_in_words_and_in_the_picture() -> None:
    events = kill_of_source().events
    (kill,) = [event for event in events if event.kind is EventKind.FAULT_INJECTED]
    assert repr(Stories.of(events, since=kill.seq - 1)).startswith("0.0 s: worker-2 was killed")
    whole, part = (timeline_figure(events, since=seq)._picture for seq in (0, kill.seq - 1))
    assert "gen 1<" in whole
    assert "gen 1<" not in part
