"""A JupyterLab with a separate home, an open notebook in it, and Debian's Chromium that shows it.

Screenshots go to test-artefacts/.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.systems import CHROMIUM

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "test-artefacts"
_HARMLESS = ("Connection lost, reconnecting in 0 seconds",)
_TIMEOUT_MS = 120_000
_SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser that has no window."""
    program = CHROMIUM.require()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_SWITCHES)
        yield started
        started.close()


class Lab:
    """A running JupyterLab and the folder that it shows."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "notebooks"
        self.folder.mkdir(parents=True)
        (home / "labconfig").mkdir()
        switched_off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        (home / "labconfig" / "page_config.json").write_text(json.dumps(switched_off))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        cache = os.environ.get("CONNECTX_CACHE_DIR") or str(Path.home() / ".cache" / "connectx")
        environment = {
            **os.environ,
            **{name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")},
            "HOME": str(home),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_CONFIG_PATH": str(home),
            "CONNECTX_CACHE_DIR": cache,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")]),
        }
        self._log = (home / "lab.log").open("w")
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--allow-root"]
        command += [
            f"--port={self.url.rpartition(':')[2]}",
            f"--notebook-dir={self.folder}",
            "--IdentityProvider.token=",
        ]
        command += ["--ServerApp.password=", "--ServerApp.disable_check_xsrf=True", "--LabApp.news_url=None"]
        command += ["--LabApp.extension_manager=readonly", "--expose-app-in-browser"]
        self._process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Until it answers."""
        transport = httpx.HTTPTransport(retries=60)
        with httpx.Client(transport=transport, timeout=60) as client:
            assert client.get(f"{self.url}/api").status_code == 200

    def stop(self) -> None:
        """End it and its kernels, as Ctrl-C twice would."""
        with httpx.Client(timeout=30) as client:
            for session in client.get(f"{self.url}/api/sessions").json():
                client.delete(f"{self.url}/api/sessions/{session['id']}")
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def write(self, name: str, cells: list[str], copy_of: Path | None = None) -> None:
        """Make a notebook of code cells, or of another."""
        if copy_of is not None:
            shutil.copy(copy_of, self.folder / name)
            return
        empty: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        made = [{**empty, "id": f"cell-{number}", "source": source} for number, source in enumerate(cells)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        notebook = {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (self.folder / name).write_text(json.dumps(notebook))


class Book:
    """An open notebook in a page."""

    def __init__(self, page: Page, lab: Lab, name: str) -> None:
        self.page = page
        self._lab = lab
        self.errors: list[str] = []
        self.recorded: list[tuple[float, str]] = []
        """Comm messages of the kernel: when it sent each, in seconds, and its kind (or "state")."""
        page.on("websocket", lambda socket: socket.on("framereceived", self._keep))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(_TIMEOUT_MS)
        self._url = f"{lab.url}/lab/workspaces/{Path(name).stem}/tree/{name}?reset"
        self.open()

    def open(self) -> None:
        """Load the page, and wait until the notebook's kernel is ready."""
        self.page.goto(self._url)
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.restored")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function(
            "() => document.querySelector('.jp-Dialog .jp-mod-accept') || (window.jupyterapp.shell.currentWidget"
            " && window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle')"
        )
        if self.page.locator(".jp-Dialog .jp-mod-accept").count():
            self.page.click(".jp-Dialog .jp-mod-accept")

    def restart_kernels(self) -> None:
        """Restart every kernel of the lab, as its menu does."""
        with httpx.Client(timeout=60) as client:
            for kernel in client.get(f"{self._lab.url}/api/kernels").json():
                client.post(f"{self._lab.url}/api/kernels/{kernel['id']}/restart").raise_for_status()

    def wait_for_all_cells(self) -> None:
        """Run every cell and wait for it; a cell that fails fails this."""
        self.command("notebook:run-all-cells")
        failed = self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
              .flatMap((cell) => cell.type === "code" ? cell.outputs.toJSON() : [])
              .filter((output) => output.output_type === "error").map((output) => output.evalue)"""
        )
        assert failed == []

    def command(self, name: str, **arguments: Any) -> None:
        """A command of JupyterLab, waited for."""
        run = "([name, given]) => window.jupyterapp.commands.execute(name, given).then(() => null)"
        self.page.evaluate(run, [name, arguments])

    def run_cell(self, number: int, times: int = 1) -> str:
        """Run a cell, wait for it, and give the text that it printed."""
        program = """async ([number, times]) => {
          const book = window.jupyterapp.shell.currentWidget.content;
          for (let time = 0; time < times; time += 1) {
            book.deselectAll();
            book.activeCellIndex = number;
            await window.jupyterapp.commands.execute("notebook:run-cell");
          }
          const outputs = book.model.cells.get(number).outputs;
          return outputs.length ? String(outputs.get(0).toJSON().text ?? "") : "";
        }"""
        return str(self.page.evaluate(program, [number, times]))

    def _keep(self, frame: str | bytes) -> None:
        text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
        if not re.search(r'"msg_type":\s*"comm_msg"', text):
            return
        sent = re.search(r'"date":\s*"([^"]+)"', text)
        kind = re.search(r'"method":\s*"custom".*?"kind":\s*"(\w+)"', text)
        assert sent
        self.recorded.append((datetime.fromisoformat(sent[1]).timestamp(), kind[1] if kind else "state"))

    def shoot(self, name: str) -> None:
        """Keep a screenshot."""
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"))

    @property
    def complaints(self) -> list[str]:
        """Errors of the page, but for those that mean nothing."""
        return [error for error in self.errors if not any(text in error for text in _HARMLESS)]
