"""Run tutorials and keep their output: `python -m tests.notebooks.execute notebooks/02-tasks.ipynb`; without names all.

What only a live kernel can show is left out: a page on GitHub would say that it cannot show
the widget, in place of the HTML beside it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from connectx.jvm.progress import VARIABLE

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_TIMEOUT_S = 300
_LIVE_ONLY = "application/vnd.jupyter.widget-view+json"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def quiet_environment() -> dict[str, str]:
    """This one, without progress, and without a warning of PostgreSQL's on machines without a desktop."""
    return {**os.environ, "PYTHONWARNINGS": "ignore:XDG_RUNTIME_DIR", VARIABLE: "off"}


def execute(path: Path) -> None:
    """Run a notebook from top to bottom in a new kernel and write it back. An error in a cell is raised."""
    notebook = nbformat.read(path, 4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env=quiet_environment())
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(_LIVE_ONLY, None)
    notebook.metadata = nbformat.from_dict(_METADATA)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for chosen in [Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS:
        began = time.monotonic()
        execute(chosen)
        print(f"{chosen.name}: {time.monotonic() - began:.0f} s")
