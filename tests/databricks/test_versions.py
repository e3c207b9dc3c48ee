"""`make databricks` tests with the versions that it says, in this process and in a notebook's kernel."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PINNED = dict(
    line.split("==")
    for line in (Path(__file__).parent / "requirements.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def test_this_environment_has_the_versions_of_databricks_images() -> None:
    assert {name: metadata.version(name) for name in PINNED} == PINNED


def test_the_check_up_in_a_kernel_knows_its_versions_and_that_clicks_wait() -> None:
    code = """
import os
os.environ["DATABRICKS_RUNTIME_VERSION"] = "17.3"
import connectx as cx
found = cx.doctor()
print(found["Front end"].found, "|", found["Live panel"].status, "|", found["Live panel"].why)
print(found["Packages"].found)
"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    panel, packages = book.cells[0].outputs[0].text.splitlines()
    assert panel == (
        f"Databricks 17.3 | limited | With ipykernel {PINNED['ipykernel']} clicks wait until the running cell ends; "
        "the panel shows a note."
    )
    for name in ("ipykernel", "ipywidgets", "pandas", "numpy", "pyarrow"):
        assert f"{name} {PINNED[name]}" in packages
