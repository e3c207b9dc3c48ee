"""`connectx ui`: the panel as a page of a real browser, of a real worker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.stage import shoot
from tests.support.worker_processes import WorkerProcess

LOGIN = "ana:geheim"
ROW = 'tr[data-connector="{}"]'


@dataclass
class Ui:
    """A `connectx ui` process."""

    process: subprocess.Popen[str]
    url: str
    errors: list[str] = field(default_factory=list)

    def open(self, browser: Browser) -> Page:
        """The page, once it shows the worker."""
        page = browser.new_page(viewport={"width": 1300, "height": 800})
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(self.url)
        page.wait_for_selector(".cxp-worker")
        return page

    def end(self) -> int:
        """Press Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(15)


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a worker's login."""
    path = tmp_path_factory.mktemp("login") / "basic"
    path.write_text(f"{LOGIN}\n")
    return path


@pytest.fixture(scope="module")
def worker(kafka: EmbeddedKafka, login: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """URL of a `connectx worker` that wants a login, and the options of commands on it."""
    topics = {f"{storage}_storage_topic": f"page-{storage}" for storage in ("config", "offset", "status")}
    folder = tmp_path_factory.mktemp("worker") / "0"
    own = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": "page", "rest_auth_basic_file": str(login)}
    made = WorkerProcess(folder, **own, **topics)
    settings = folder / "connect-distributed.properties"
    yield [made.wait_url(), "--basic-file", str(login), "--worker-config", str(settings)]
    assert made.end(signal.SIGTERM) == 0


@pytest.fixture
def start_ui(worker: list[str]) -> Iterator[Callable[..., Ui]]:
    """`start_ui(*options)`: a page of that worker."""
    started: list[Ui] = []

    def start(*options: str) -> Ui:
        program = [sys.executable, "-c", "from connectx.cli import main; main()", "ui"]
        command = [*program, *worker, "--no-browser", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        started.append(Ui(process, url))
        return started[-1]

    yield start
    for ui in started:
        if ui.process.poll() is None:
            ui.process.kill()
            ui.process.wait()
        assert ui.errors == []


def test_a_connector_is_made_and_paused_by_the_keyboard_and_the_page_says_when_the_command_has_ended(
    start_ui: Callable[..., Ui], browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    ui = start_ui()
    page = ui.open(browser)
    assert page.title() == "connectx: page"
    page.focus('button[data-form="new"]')
    page.keyboard.press("Enter")
    page.select_option('[data-field="connector.class"]', label="FileStreamSourceConnector (source)")
    page.fill('[data-field="name"]', "lines")
    page.fill('[data-field="file"]', str(tmp_path / "lines.txt"))
    page.fill('[data-field="topic"]', "page-lines")
    page.focus('button[data-form="send"]:not([disabled])')
    page.keyboard.press("Enter")
    page.wait_for_selector(f'{ROW.format("lines")}[data-state="RUNNING"]')
    page.wait_for_selector('.cxp-svg [data-task="lines-0"][data-state="running"]')
    shoot(page, "page")
    page.focus('button[data-verb="pause"][data-connector="lines"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(f'{ROW.format("lines")}[data-state="PAUSED"]')
    page.reload()
    page.wait_for_selector(f'{ROW.format("lines")}[data-state="PAUSED"]')
    assert page.locator("#lost").is_hidden()
    assert ui.errors == []
    assert ui.end() == 0
    page.wait_for_selector("#lost:visible")
    ui.errors.clear()  # those of the connection that has ended
    page.close()


def test_a_read_only_page_has_no_button_that_changes_something(start_ui: Callable[..., Ui], browser: Browser) -> None:
    page = start_ui("--read-only").open(browser)
    page.wait_for_selector('button[data-open="lines"]')
    assert page.locator("[data-verb]:visible, [data-form]:visible, [data-edit]:visible").count() == 0
    page.click('button[data-open="lines"]')
    page.wait_for_selector('.cxp-config td:has-text("page-lines")')
    shoot(page, "page-read-only")
    page.close()
