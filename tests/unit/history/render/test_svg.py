"""The SVG: well-formed, no script, nothing from outside, attributes and titles on every element, labels that fit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from connectx.history.render.palette import OKABE_ITO, colour, text_on
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import timeline
from connectx.model.events import EventKind
from tests.support.histories import History, crowded, kill_of_source, pause_with_fence, small_cluster

SVG = "{http://www.w3.org/2000/svg}"
HISTORIES = [History(), small_cluster(), kill_of_source(), pause_with_fence(), crowded(), crowded(12, 60, 1800.0)]


def drawn(history: History, **options: object) -> ET.Element:
    return ET.fromstring(timeline_svg(timeline(history.events), **options))  # type: ignore[arg-type]


def groups(svg: ET.Element, attribute: str) -> list[ET.Element]:
    return [group for group in svg.iter(f"{SVG}g") if group.get(attribute) is not None]


@pytest.mark.parametrize("history", HISTORIES)
def test_no_script_and_nothing_from_outside(history: History) -> None:
    text = timeline_svg(timeline(history.events))
    ET.fromstring(text)
    assert "<script" not in text
    assert not re.search(r'\son\w+="', text)
    outside = re.findall(r"https?://[^\"' ]+", text)
    assert outside == ["http://www.w3.org/2000/svg"]
    assert all(reference.startswith("#cx") for reference in re.findall(r"url\(([^)]*)\)", text))


@pytest.mark.parametrize("history", HISTORIES)
def test_every_group_has_a_title_that_says_something(history: History) -> None:
    for group in drawn(history).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        assert title is not None
        assert title.text


def test_a_small_history_is_small() -> None:
    assert len(timeline_svg(timeline(kill_of_source().events))) < 11_000


def test_elements_carry_worker_task_and_event() -> None:
    svg = drawn(kill_of_source())
    bars = [group for group in groups(svg, "data-state") if group.get("data-task")]
    zombie = next(bar for bar in bars if bar.get("data-state") == "zombie")
    assert (zombie.get("data-worker"), zombie.get("data-task")) == ("worker-2", "flights-in-0")
    event = kill_of_source().events[int(zombie.get("data-event") or 0) - 1]
    assert event.kind is EventKind.FAULT_INJECTED
    [mark] = groups(svg, "data-mark")
    assert (mark.get("data-mark"), mark.get("data-worker"), mark.get("data-event")) == (
        "fault",
        "worker-2",
        str(event.seq),
    )
    assert [band.get("data-generation") for band in groups(svg, "data-generation")] == ["1", "2", "3", "4"]


def test_form_is_the_state_and_colour_the_connector() -> None:
    svg = drawn(crowded())
    forms = {}
    for group in groups(svg, "data-task"):
        if group.get("data-state"):
            rects = group.findall(f"{SVG}rect")
            forms[group.get("data-state") or ""] = [rect.get("fill") or "" for rect in rects]
            assert rects[0].get("fill") == colour(0 if (group.get("data-task") or "").startswith("orders") else 1)
    assert sorted(forms) == ["failed", "paused", "running", "starting", "zombie"]
    assert forms["zombie"][1].startswith("url(#cx")
    assert forms["paused"][1].startswith("url(#cx")
    zombie = next(g for g in groups(svg, "data-task") if g.get("data-state") == "zombie")
    assert zombie.findall(f"{SVG}rect")[1].get("stroke-dasharray")


def test_hatches_are_in_the_colour_of_the_text() -> None:
    for pattern in drawn(small_cluster()).iter(f"{SVG}pattern"):
        assert [path.get("stroke") for path in pattern] == ["currentColor"]


def test_the_legend_shows_every_form() -> None:
    texts = [text.text for text in drawn(History()).iter(f"{SVG}text")]
    for word in ("starting", "running", "paused", "failed", "zombie", "fault", "fenced", "aborted", "rebalance"):
        assert word in texts


def test_a_generation_that_has_no_room_for_its_name_is_a_number() -> None:
    texts = [text.text for text in drawn(small_cluster().at(20).fault("kill", "worker-1")).iter(f"{SVG}text")]
    assert "gen 1" in texts
    assert "2" in texts


def test_names_are_escaped() -> None:
    history = History().started('<w&"1>').at(1).start('<w&"1>', "a<b>-0").at(9).fault("kill", '<w&"1>')
    svg = drawn(history)
    assert any(group.get("data-worker") == '<w&"1>' for group in svg.iter(f"{SVG}g"))
    assert "a<b>-0" in [text.text for text in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("history", HISTORIES)
def test_texts_stay_inside_the_picture(history: History) -> None:
    svg = drawn(history)
    width = float((svg.get("viewBox") or "").split()[2])
    for text in svg.iter(f"{SVG}text"):
        length = 6.2 * len(text.text or "")
        x = float(text.get("x") or 0)
        left = x - length if text.get("text-anchor") == "end" else x - length / 2 if text.get("text-anchor") else x
        assert left >= 0
        assert left + length <= width + 2


def test_long_names_are_shortened_in_the_middle_so_that_the_task_number_stays() -> None:
    history = History().started("w").at(0.1).start("w", "a-very-long-connector-name-in-a-busy-cluster-7")
    history.at(30).state("w", "a-very-long-connector-name-in-a-busy-cluster-7", "RESTARTING")
    history.at(100).add(EventKind.CLUSTER_STOPPED)
    texts = [text.text or "" for text in drawn(history, width=480).iter(f"{SVG}text")]
    [label] = [text for text in texts if "…" in text]
    assert label.startswith("a-very")
    assert label.endswith("-7")


def test_a_short_bar_is_labelled_beside_itself() -> None:
    history = small_cluster().at(60).start("worker-1", "late-0").at(60.2).add(EventKind.CLUSTER_STOPPED)
    label = next(text for text in drawn(history).iter(f"{SVG}text") if text.text == "late-0")
    assert label.get("text-anchor") == "end"


def test_marks_that_would_cover_each_other_are_one_with_a_count() -> None:
    titles = [mark.findtext(f"{SVG}title") or "" for mark in groups(drawn(crowded(seconds=60)), "data-mark")]
    assert "orders-warehouse-replica-eu-0 on worker-1: a transaction was aborted (3 times)" in titles


def test_a_fence_and_the_abort_that_follows_it_are_one_sign() -> None:
    history = small_cluster().at(8).fenced("worker-2", "flights-in-0", epoch=0)
    history.add(EventKind.TRANSACTION_ABORTED, "worker-2", "flights-in-0", records=9, reason="fenced").at(20)
    history.add(EventKind.CLUSTER_STOPPED)
    [mark] = groups(drawn(history), "data-mark")
    assert mark.get("data-mark") == "fenced"
    assert mark.findtext(f"{SVG}title") == (
        "flights-in-0 on worker-2: its write at epoch 0 was rejected; "
        "flights-in-0 on worker-2: a transaction was aborted (fenced)"
    )


def axis(history: History, **options: object) -> list[str]:
    texts = [text.text or "" for text in drawn(history, **options).iter(f"{SVG}text")]
    return [text for text in texts if re.fullmatch(r"[\d.]+ (s|min)", text)]


def test_the_axis_counts_from_the_start() -> None:
    assert axis(crowded()) == ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]
    assert axis(crowded(seconds=1800.0))[-1] == "30 min"


def test_two_drawings_on_one_page_do_not_share_ids() -> None:
    ids = [
        {pattern.get("id") for pattern in drawn(history).iter(f"{SVG}pattern")}
        for history in (small_cluster(), kill_of_source())
    ]
    assert not ids[0] & ids[1]


def test_the_same_history_gives_the_same_text() -> None:
    assert timeline_svg(timeline(crowded().events)) == timeline_svg(timeline(crowded().events))


def test_text_can_be_read_on_every_colour() -> None:
    assert {name: text_on(name) for name in OKABE_ITO}["#0072b2"] == "#fff"
    assert text_on("#f0e442") == "#000"


def test_colours_come_again_after_three_tones_of_each_hue() -> None:
    assert len({colour(place) for place in range(21)}) == 21
    assert [colour(place) for place in (0, 7, 14, 21)] == ["#e69f00", "#7e5700", "#f4d48c", "#e69f00"]


def test_a_moment_is_no_division_by_zero() -> None:
    svg = drawn(History().started("w"))
    assert len(groups(svg, "data-worker")) == 1
