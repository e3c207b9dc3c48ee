"""Judgements about the notebook: the front end by its signs, and what versions mean for the panel."""

from __future__ import annotations

import pytest

from connectx.verify.doctor.notebook import FrontEnd, judge_front_end, judge_packages, judge_panel, judge_session
from connectx.verify.doctor.report import Status

GOOD = {
    "ipykernel": "7.4.0",
    "ipywidgets": "8.1.9",
    "anywidget": "0.11.0",
    "pandas": "2.3.3",
    "plotly": "6.0",
    "pyarrow": "26.0.1",
}


@pytest.mark.parametrize(
    ("env", "modules", "shell", "expected"),
    [
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, set(), "kernel", FrontEnd.DATABRICKS),
        ({"DATABRICKS_RUNTIME_VERSION": "client.3"}, set(), "", FrontEnd.DATABRICKS),
        ({"COLAB_RELEASE_TAG": "x"}, set(), "kernel", FrontEnd.COLAB),
        ({}, {"google.colab"}, "kernel", FrontEnd.COLAB),
        ({"VSCODE_PID": "1"}, set(), "kernel", FrontEnd.VS_CODE),
        ({"JPY_SESSION_NAME": "a.ipynb"}, set(), "kernel", FrontEnd.JUPYTER),
        ({}, set(), "kernel", FrontEnd.KERNEL),
        ({}, set(), "terminal", FrontEnd.IPYTHON),
        ({"VSCODE_PID": "1"}, set(), "", FrontEnd.TERMINAL),
        ({}, set(), "", FrontEnd.TERMINAL),
    ],
)
def test_the_front_end_is_known_by_its_signs(
    env: dict[str, str], modules: set[str], shell: str, expected: FrontEnd
) -> None:
    assert judge_front_end(env, modules, shell=bool(shell), kernel=shell == "kernel") is expected


def test_on_databricks_the_browser_needs_the_network_of_widgets() -> None:
    found = judge_session(FrontEnd.DATABRICKS, "17.3")
    assert found.found == "Databricks 17.3"
    assert "network" in found.why
    assert judge_session(FrontEnd.JUPYTER, "").why == ""


@pytest.mark.parametrize(
    ("changed", "status", "reported"),
    [
        ({}, Status.OK, ""),
        ({"ipykernel": "7.0.0"}, Status.LIMITED, "ipykernel!=7.0.0"),
        ({"ipykernel": "6.29.5"}, Status.LIMITED, "cluster.after(5)"),
        ({"anywidget": None}, Status.OFF, "%pip install 'connectx[notebook]'"),
        ({"ipywidgets": None, "anywidget": None}, Status.OFF, "%pip install 'connectx[notebook]'"),
    ],
)
def test_versions_decide_whether_the_panel_lives_and_its_clicks_are_served(
    changed: dict[str, str | None], status: Status, reported: str
) -> None:
    found = judge_panel(FrontEnd.JUPYTER, {**GOOD, **changed})
    assert found.status is status
    assert reported in found.next_step


def test_without_a_notebook_there_is_no_panel() -> None:
    assert judge_panel(FrontEnd.TERMINAL, GOOD).status is Status.OFF


def test_packages_that_everything_needs_are_missed() -> None:
    assert judge_packages(GOOD).status is Status.OK
    assert judge_packages({**GOOD, "pyarrow": None}).status is Status.BROKEN
    without = judge_packages({**GOOD, "pandas": None})
    assert (without.status, without.next_step) == (Status.LIMITED, "pip install 'connectx[notebook]'")
