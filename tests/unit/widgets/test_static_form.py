"""The static form of a cluster: readable where its tags are removed (GitHub, a notebook without trust)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from base64 import b64decode
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest

from connectx.api.forms import html_form
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import timeline
from connectx.history.sentences.stories import stories
from tests.support.histories import History, crowded, kill_of_source, pause_with_fence, small_cluster

SVG = "{http://www.w3.org/2000/svg}"
HISTORIES = {"small": small_cluster, "killed": kill_of_source, "fenced": pause_with_fence, "crowded": crowded}


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
    workers: list[Mapping[str, object]] = [{"worker": "worker-1", "state": "up"}]
    return html_form("Cluster", {"generation": 4}, workers, [{"connector": "flights-in"}], history.events, None)


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
    expected = timeline(history.events, stories=stories(history.events))
    assert drawing == timeline_svg(expected).replace('width="100%"', 'width="960"', 1)
    assert "<li>worker-2" in form(history) or "worker-2" in Left(form(history)).text
