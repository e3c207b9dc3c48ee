"""Make the pictures of README and docs from a real run: `python -m tests.browser.pictures`.

Needs Chromium on PATH, and Pillow (`pip install pillow`). One run makes all: a cluster with three workers, whose panel
is served as a page. A worker is killed, which is filmed. Another one is stalled until its zombies are fenced.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from connectx_widgets.page import PanelPage
from PIL import Image
from playwright.sync_api import Page

import connectx as cx
from tests.support.lab import ROOT, chromium

DOCS = ROOT / "docs"
FRAME_S = 0.45
FILM_PX = 520
COLORS = 48
WORKER = '.cxp-worker[data-worker="{}"]'
RUNS = '.cxp-svg [data-worker="{}"][data-state="running"]'
CONFIG = {"scheduled.rebalance.max.delay.ms": "2000", "session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
ORDERS = {"connector.class": "Generator", "topic": "orders", "rate": "200", "tasks.max": "3"}


def film(page: Page, seconds: float) -> Iterator[Image.Image]:
    """Frames of the panel."""
    end_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < end_s:
        yield Image.open(BytesIO(page.screenshot(clip={"x": 0, "y": 0, "width": 1000, "height": FILM_PX})))
        time.sleep(max(0.0, FRAME_S - (time.monotonic() - began_s)))


def save(frames: list[Image.Image], file: Path) -> None:
    """Save a film whose frames share their colors: with a palette for each, pixels that stay would change."""
    width, height = frames[0].size
    strip = Image.new("RGB", (width, height * len(frames)))
    for number, frame in enumerate(frames):
        strip.paste(frame, (0, number * height))
    palette = strip.quantize(COLORS)
    first, *rest = (frame.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    pause = [round(FRAME_S * 1000)] * len(rest)
    first.save(file, save_all=True, append_images=rest, duration=[*pause, 3000], loop=0, optimize=True)


def click(page: Page, verb: str, worker: str) -> None:
    """Press the button of a worker."""
    page.hover(WORKER.format(worker))
    page.click(f'button[data-verb="{verb}"][data-worker="{worker}"]')


def wait_moved(page: Page, to: str, tasks: int) -> None:
    """Wait until a worker runs so many tasks."""
    running = "[...document.querySelectorAll(runs)].filter((bar) => /-\\d+$/.test(bar.dataset.task))"
    page.wait_for_function(f"([runs, tasks]) => {running}.length >= tasks", arg=[RUNS.format(to), tasks])


def shoot(page: Page, name: str) -> None:
    """Save the panel, in light and in dark."""
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.mouse.move(5, 5)
        page.wait_for_timeout(300)
        page.locator(".cxp").screenshot(path=str(DOCS / f"{name}{suffix}.png"))
    page.emulate_media(color_scheme="light")


def main() -> None:
    """Make them all."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        cx.Cluster(workers=3, config=CONFIG) as cluster,
        PanelPage(cluster) as served,
        chromium() as browser,
    ):
        out = Path(temporary) / "orders.txt"
        cluster.create("orders", ORDERS).wait("RUNNING", 120)
        sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": "orders"}
        cluster.create("orders-out", sink).wait("RUNNING", 120)
        cluster.wait_stable()
        cluster.wait_committed("orders-out", 500, timeout=120)
        page = browser.new_page(viewport={"width": 1000, "height": 1000})
        page.goto(served.url)
        page.wait_for_selector(RUNS.format("worker-2"))
        page.add_style_tag(content="h1{display:none} main{padding:0}")
        page.click('[data-span="30000"]')

        frames = list(film(page, 1.5))
        page.hover(WORKER.format("worker-2"))
        frames += film(page, 0.9)
        click(page, "kill", "worker-2")
        frames += film(page, 9.0)
        save(frames, DOCS / "kill.gif")

        click(page, "stall", "worker-3")
        page.wait_for_selector('.cxp-svg [data-worker="worker-3"][data-mark="fenced"]')
        wait_moved(page, "worker-1", 4)
        page.click('[data-span="null"]')
        shoot(page, "panel")

        page.click('button[data-form="new"]')
        page.select_option('[data-field="connector.class"]', label="FileStreamSinkConnector (sink)")
        page.fill('[data-field="name"]', "archive")
        page.wait_for_selector('.cxp-field [role="alert"]')
        page.locator(".cxp-form").screenshot(path=str(DOCS / "form.png"))


if __name__ == "__main__":
    main()
