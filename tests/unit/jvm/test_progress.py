"""Long work is shown where somebody can see it, and nowhere else."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import IPython.display
import pytest

from connectx.jvm import progress
from connectx.jvm.progress import VARIABLE, notebook_progress, shown, silent, step


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the output of a cell shows, one text after the other."""
    seen: list[str] = []

    def take(output: Any) -> None:
        seen.append(re.sub(r"\d+\.\d s", "T", output.data))

    def display(output: Any, *, display_id: bool) -> Any:
        assert display_id
        take(output)
        return SimpleNamespace(update=take)

    monkeypatch.setattr(IPython.display, "display", display)
    return seen


def test_a_notebook_has_one_output_with_a_line_for_each_piece_of_work(outputs: list[str]) -> None:
    with notebook_progress() as show:
        show("Fetching <jars>", 0, 45)
        show("Fetching <jars>", 7, 45)
        show("Fetching <jars>", 45, 45)
        with step(show, "Starting Kafka"):
            pass
        show("Reading, rows", 2_000, 0)
    assert outputs == [
        "Fetching &lt;jars&gt; …",
        'Fetching &lt;jars&gt;: <progress value="7" max="45"></progress> 7 of 45, T',
        "Fetching &lt;jars&gt;: 45, T",
        "Fetching &lt;jars&gt;: 45, T<br>Starting Kafka …",
        "Fetching &lt;jars&gt;: 45, T<br>Starting Kafka: T",
        "Fetching &lt;jars&gt;: 45, T<br>Starting Kafka: T<br>Reading, rows: 2,000, T",
    ]


def test_what_an_interrupt_has_ended_does_not_look_as_if_it_went_on(outputs: list[str]) -> None:
    def start() -> None:
        with notebook_progress() as show:
            show("Fetching jars", 45, 45)
            with step(show, "Starting Kafka"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    assert outputs[-1] == "Fetching jars: 45, T<br>Starting Kafka: ended after T"


def test_a_given_progress_is_used_and_a_kernel_shows_lines_unless_they_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, outputs: list[str]
) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr(progress, "in_kernel", lambda: True)
    with shown(silent) as given:
        assert given is silent
    with shown(None) as lines:
        lines("Starting Kafka", 0, 1)
    assert outputs == ["Starting Kafka …"]
    monkeypatch.setenv(VARIABLE, "off")
    with shown(None) as off:
        assert off is silent


def test_without_a_terminal_and_a_kernel_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with shown(None) as show:
        assert show is silent
