"""`connectx watch` on real workers: rates, lag and lanes of connectors, a worker that goes, and the story of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import connectx as cx
from connectx.cli.watch import Watch
from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.waiting import until
from tests.support.worker_processes import WorkerProcess

SHORT = {
    **{"session_timeout_ms": "3000", "heartbeat_interval_ms": "500", "scheduled_rebalance_max_delay_ms": "0"},
    "offset_flush_interval_ms": "1000",
}


def test_watch_shows_rates_lag_a_worker_that_goes_and_what_happened(
    start_worker: Callable[..., WorkerProcess], kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    first, second = (start_worker(**SHORT) for _ in range(2))
    url, other = first.wait_url(), second.wait_url()
    group = f"cli-{tmp_path.name}"
    topics = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "status")}
    lines = tmp_path / "in.txt"
    lines.write_text("one\n" * 50)
    servers = kafka.bootstrap_servers
    with (
        cx.attach(url, bootstrap_servers=servers, group_id=group, config=topics, poll_s=0.5) as cluster,
        closing(Watch(cluster)) as watch,
    ):
        source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": group}
        cluster.create("lines-in", source).wait("RUNNING", 90)
        sink = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": group}
        cluster.create("lines-out", sink).wait("RUNNING", 90)

        def moving() -> re.Match[str] | None:
            with lines.open("a") as file:
                file.write("more\n" * 50)
            return re.search(r"^lines-in +RUNNING +1 RUNNING +[1-9]\d*", watch.text(), re.MULTILINE)

        until(moving, "a rate of the source")
        settled = r"^lines-out +RUNNING +1 RUNNING +\d+ +0 +tail$"
        until(lambda: re.search(settled, watch.text(), re.MULTILINE), "a sink that is not behind")

        gone = other.rpartition("/")[2]
        second.process.kill()
        second.process.wait()
        until(lambda: re.search(rf"^{gone} +gone for ", watch.text(), re.MULTILINE), "the worker that went")
        until(lambda: re.search(rf"^\d\d:\d\d:\d\d  .*{gone}", watch.text(), re.MULTILINE), "the story of it")
