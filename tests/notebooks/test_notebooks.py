"""The tutorials say what they print: nbval runs each and compares, and is itself seen to notice a wrong output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.execute import CELL_TIMEOUT_S, NOTEBOOKS, quiet_environment

IGNORED = "nbval-ignore-output"
"""The tag of cells whose output is different each time: it stays out of what a reader sees."""

PLACES = ("/tmp/", "/home/", "/root/", "/Users/", "/work/", "site-packages")


def _nbval(notebook: Path) -> subprocess.CompletedProcess[str]:
    timeout = f"--nbval-cell-timeout={CELL_TIMEOUT_S}"
    command = [sys.executable, "-m", "pytest", "-p", "nbval.plugin", "--nbval", timeout, "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [*command, "--rootdir", str(notebook.parent), "-o", "addopts=", str(notebook)],
        capture_output=True,
        text=True,
        check=False,
        env=quiet_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the import of the others takes seconds
    )


def _code_cells(notebook: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_executed_or_nbval_would_compare_nothing(notebook: Path) -> None:
    assert [cell.execution_count for cell in _code_cells(notebook)] == list(range(1, len(_code_cells(notebook)) + 1))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_most_cells_are_compared(notebook: Path) -> None:
    compared = [cell for cell in _code_cells(notebook) if IGNORED not in cell.metadata.get("tags", ()) and cell.outputs]
    assert len(compared) >= len(_code_cells(notebook)) / 2


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_output_holds_no_path_of_a_machine_and_no_warning(notebook: Path) -> None:
    outputs = [output for cell in _code_cells(notebook) for output in cell.outputs]
    text = "".join(str(output) for output in outputs)
    assert not [place for place in PLACES if place in text]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_answer_to_a_question_is_folded_until_a_reader_opens_it(notebook: Path) -> None:
    asked, open_answers = False, []
    for cell in nbformat.read(notebook, 4).cells:
        if cell.cell_type == "markdown":
            if asked and not cell.source.startswith(("<details>", "#")):
                open_answers.append(cell.source[:60])
            asked = "**Predict" in cell.source
        elif asked and IGNORED not in cell.metadata.get("tags", ()) and not cell.metadata.get("jupyter"):
            open_answers.append(cell.source[:60])
    assert open_answers == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_waits_by_verbs_and_shows_a_picture(notebook: Path) -> None:
    source = "\n".join(cell.source for cell in _code_cells(notebook))
    assert "lambda event" not in source
    assert re.search(r"^(cluster|other)$|\.timeline\(|\.throughput\(", source, re.MULTILINE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_prints_what_it_shows(notebook: Path) -> None:
    done = _nbval(notebook)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("print(1 + 1)", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="3\n")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    broken = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    path = tmp_path / "broken.ipynb"
    nbformat.write(broken, path)
    assert _nbval(path).returncode == 1
