"""`connectx worker` in the place of Kafka Connect's process: groups, signals, exit codes, log."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil

from connectx.history.log import EventLog
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from connectx.rest.client import RestClient
from tests.support.records import Reader
from tests.support.waiting import until
from tests.support.worker_processes import START_S, WorkerProcess

StartWorker = Callable[..., WorkerProcess]
QUICK = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "500", "scheduled_rebalance_max_delay_ms": "0",
         "exactly_once_source_support": "enabled",
         "value_converter": "org.apache.kafka.connect.storage.StringConverter"}  # fmt: skip


def test_workers_form_a_group_and_what_one_leaves_by_sigterm_or_sigkill_another_goes_on_with(
    start_worker: StartWorker, kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    lines, history, name = tmp_path / "in.txt", tmp_path / "history.jsonl", topic("cli-lines")
    lines.write_text("1\n2\n")
    workers = [start_worker("--history", str(history), **QUICK), start_worker(**QUICK)]
    urls = {worker: worker.wait_url() for worker in workers}
    client = RestClient(lambda: [urls[worker] for worker in workers if worker.process.poll() is None])
    reader = Reader(kafka.bootstrap_servers, name, 1, "read_committed")

    def owner() -> WorkerProcess:
        def found() -> list[WorkerProcess]:
            states = [task for task in client.status("lines")["tasks"] if task["state"] == "RUNNING"]
            live = [worker for worker in workers if worker.process.poll() is None]
            return [w for w in live for task in states if urls[w] == f"http://{task['worker_id']}"]

        return until(found, "a worker that runs the task", START_S)[0]

    try:
        client.create("lines", {"connector.class": "FileStreamSource", "file": str(lines), "topic": name})
        until(lambda: reader.values() == ["1", "2"], "the first lines", START_S)
        for worker in workers:
            children = [" ".join(child.cmdline()) for child in psutil.Process(worker.process.pid).children()]
            assert children == [], "no Spark is started for a task that needs none"
        first = owner()
        assert first.end(signal.SIGTERM) == 0
        assert "SIGTERM: stopping" in first.log
        with lines.open("a") as file:
            file.write("3\n")
        until(lambda: reader.values() == ["1", "2", "3"], "the third line, from the other worker", START_S)
        workers.append(start_worker(**QUICK))
        urls[workers[-1]] = workers[-1].wait_url()
        second = owner()
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        with lines.open("a") as file:
            file.write("4\n")
        until(lambda: reader.values() == ["1", "2", "3", "4"], "the fourth line, from the newcomer", START_S)
        last = owner()
        assert last.end(signal.SIGINT) == 0
        assert "SIGINT: stopping" in last.log
    finally:
        client.close()
        reader.close()
    assert all("Traceback" not in worker.log for worker in workers)
    if workers[0] is not second:
        assert [e.kind for e in EventLog.from_jsonl(history)][-1] is EventKind.WORKER_STOPPED


def test_a_port_that_is_taken_is_told_and_has_an_exit_code(start_worker: StartWorker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        worker = start_worker(listeners=f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert worker.process.wait(START_S) == 3
    assert "of the setting `listeners` is taken by another program" in worker.log
    assert "Traceback" not in worker.log


def test_a_kafka_that_does_not_answer_is_told_and_has_an_exit_code(start_worker: StartWorker) -> None:
    dead, ended = (start_worker("--kafka-timeout", wait_s, bootstrap_servers="127.0.0.1:1") for wait_s in ("1", "60"))
    ended.wait_log("Starting a Kafka Connect worker")
    assert ended.end(signal.SIGTERM) == 0, "a signal counts also while it waits for Kafka"
    assert dead.process.wait(START_S) == 4
    assert "No Kafka broker at 127.0.0.1:1 answered" in dead.log
    assert "Traceback" not in dead.log + ended.log


def test_settings_that_are_wrong_are_told_all_at_once_and_what_has_no_effect_is_told(start_worker: StartWorker) -> None:
    wrong = start_worker(session_timeout_ms="soon", connect_protocol="polite", ssl_key_password="geheim")
    odd = start_worker(bootstrap_servers="127.0.0.1:1", foo_bar="1", ssl_key_password="geheim")
    assert wrong.process.wait(START_S) == 2
    assert "Invalid value soon for configuration session.timeout.ms" in wrong.log
    assert "Invalid value polite for configuration connect.protocol" in wrong.log
    odd.wait_log(r"WARN foo.bar is not a key of a Kafka Connect worker and has no effect\.")
    odd.wait_log(r"ssl.key.password = \[hidden\]")
    assert odd.end(signal.SIGTERM) == 0
