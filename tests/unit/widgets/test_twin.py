"""The static twin: the live drawing's geometry, and readable where tags are taken away (GitHub, no trust)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from connectx_widgets.elements import timeline_elements

from connectx.api.forms import html_form
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import timeline
from tests.support.histories import History, crowded, kill_of_source, pause_with_fence, small_cluster

STATIC = Path(__file__).parents[3] / "widgets" / "connectx_widgets" / "static"
SVG = "{http://www.w3.org/2000/svg}"
WIDTH = 960
HISTORIES = {"small": small_cluster, "killed": kill_of_source, "fenced": pause_with_fence, "crowded": crowded}
LAYOUT = """
import {{ emptyStore, layout, take }} from {module};
import {{ readFileSync }} from "node:fs";
const {{ elements, window, width }} = JSON.parse(readFileSync(0, "utf8"));
const store = emptyStore();
take(store, {{ kind: "all", seq: 1, first: true, last: true, set: elements, now: window.to }}, window.to);
console.log(JSON.stringify(layout(store, window, width, window.to)));
"""


class Left(HTMLParser):
    """What is left when only these tags stay: their names, and all text, as sanitizers leave it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.references: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def form(history: History) -> str:
    workers = [{"worker": "worker-1", "state": "up"}]
    return html_form("Cluster", {"generation": 4}, workers, [{"connector": "flights-in"}], history.events, None)


def live(history: History, left: float, right: float) -> dict[str, Any]:
    """The page's layout of the same window on the same width."""
    shown = timeline(history.events)
    asked = {
        "elements": timeline_elements(shown),
        "window": {"from": shown.start_ms, "to": shown.end_ms},
        "width": right - left,
    }
    node = shutil.which("node")
    assert node, "the panel's tests need Node 20 or later on PATH"
    program = LAYOUT.format(module=json.dumps(str(STATIC / "geometry.mjs")))
    command = [node, "--input-type=module", "-e", program]
    ran = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def drawn_bars(svg: ET.Element) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """Worker, task, state and event to x, width and y; an outlined bar is drawn half its line smaller."""
    bars = {}
    for group in svg.iter(f"{SVG}g"):
        if group.get("data-task") and group.get("data-state"):
            box = group.find(f"{SVG}rect")
            assert box is not None
            key = tuple(str(group.get(f"data-{name}")) for name in ("worker", "task", "state", "event"))
            bars[key] = (float(box.get("x", 0)), float(box.get("width", 0)), float(box.get("y", 0)))
    return bars


def below_first(bars: dict[tuple[str, ...], tuple[float, float, float]]) -> dict[tuple[str, ...], float]:
    """How far below the first bar of its worker each is: rows may be of different height, their inside not."""
    first: dict[str, float] = {}
    for (worker, *_), (_, _, y) in bars.items():
        first[worker] = min(first.get(worker, y), y)
    return {key: y - first[key[0]] for key, (_, _, y) in bars.items()}


@pytest.mark.parametrize("name", HISTORIES)
def test_the_twin_has_the_live_drawings_geometry(name: str) -> None:
    history = HISTORIES[name]()
    svg = ET.fromstring(timeline_svg(timeline(history.events), width=WIDTH))
    grid = [
        float(re.split("[MV ]", path.get("d", ""))[1]) for path in svg.iter(f"{SVG}path") if path.get("class") == "grid"
    ]
    left, right = min(grid), WIDTH - 14.0
    page = live(history, left, right)
    twin = drawn_bars(svg)
    keys = {(bar["worker"], bar["task"], bar["state"], str(bar["seq"])): bar for bar in page["bars"]}
    assert sorted(twin) == sorted(keys)
    for key, (x, width, _) in twin.items():
        assert x - left == pytest.approx(keys[key]["x"], abs=0.8), key
        assert width == pytest.approx(keys[key]["width"], abs=1.4), key
    offsets = below_first({key: (0.0, 0.0, bar["y"]) for key, bar in keys.items()})
    assert below_first(twin) == pytest.approx(offsets, abs=1.3)
    bands = [float(group[1].get("x", 0)) - left for group in svg.iter(f"{SVG}g") if group.get("data-generation")]
    assert bands == pytest.approx([band["x"] for band in page["bands"]], abs=0.2)
    marks = [group.get("data-mark") for group in svg.iter(f"{SVG}g") if group.get("data-mark")]
    assert sorted(marks) == sorted(mark["mark"] for mark in page["marks"])


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_tags_the_twin_is_still_its_facts_and_sentences(name: str) -> None:
    history = HISTORIES[name]()
    left = Left(form(history))
    assert left.tags <= {
        "div",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "img",
        "details",
        "summary",
        "ul",
        "li",
    }
    assert left.attributes <= {"style", "scope", "alt", "src"}
    assert all(reference.startswith("data:image/svg+xml;base64,") for reference in left.references)
    drawing = ET.fromstring(timeline_svg(timeline(history.events)))
    titles = {title.text or "" for title in drawing.iter(f"{SVG}title")}
    assert [title for title in titles if title in left.text] == [], "texts of the drawing run into each other"


def test_the_twins_image_is_the_drawing() -> None:
    history = pause_with_fence()
    [reference] = Left(form(history)).references
    drawing = b64decode(reference.partition(",")[2]).decode()
    assert drawing == timeline_svg(timeline(history.events)).replace('width="100%"', 'width="960"', 1)
    assert "<li>worker-2" in form(history) or "worker-2" in Left(form(history)).text
