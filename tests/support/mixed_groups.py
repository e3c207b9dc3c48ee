"""Groups of Java and Python workers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import connectx as cx
from connectx.errors.rest import ConnectorNotFoundError
from connectx.rest.client import RestClient
from tests.support.java_worker import JavaWorker
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120.0


@dataclass
class Group:
    """One group: settings, and what was started in it."""

    config: dict[str, str]
    folder: Path
    spark: SparkSession
    java: list[JavaWorker] = field(default_factory=list)
    python: list[cx.Cluster] = field(default_factory=list)
    endings: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start_java(self, count: int = 1) -> list[JavaWorker]:
        """More Java workers; returns when they have joined."""
        started = [JavaWorker(self.config, self.folder / f"java-{len(self.java) + n}") for n in range(count)]
        self.java += started
        return [worker.wait_ready() for worker in started]

    def start_python(self, count: int = 1) -> cx.Cluster:
        """More Python workers; returns when they have joined."""
        cluster = cx.Cluster(count, config=self.config, spark=self.spark, join=True)
        self.python.append(cluster)
        return cluster

    @property
    def client(self) -> RestClient:
        """A client of the running workers."""
        return self.client_of(*self._urls())

    def client_of(self, *urls: str) -> RestClient:
        """A client of the first of these workers that answers."""
        client = RestClient(urls)
        self.endings.callback(client.close)
        return client

    def _urls(self) -> list[str]:
        java = [worker.url for worker in self.java if worker.process.poll() is None]
        return java + [worker.url for cluster in self.python for worker in cluster.workers if worker.state == "running"]

    def homes(self, connector: str) -> dict[str, str]:
        """Where a connector and its tasks are RUNNING: worker id by "connector" or the task's number."""
        try:
            status = self.client.status(connector)
        except ConnectorNotFoundError:
            return {}
        parts = {"connector": status["connector"], **{str(task["id"]): task for task in status["tasks"]}}
        return {part: shown["worker_id"] for part, shown in parts.items() if shown["state"] == "RUNNING"}

    def wait_on(self, connector: str, workers: list[str], tasks: int) -> dict[str, str]:
        """Wait until connector and tasks are RUNNING, all of them on `workers`."""

        def settled() -> dict[str, str]:
            homes = self.homes(connector)
            return homes if len(homes) == tasks + 1 and set(homes.values()) <= set(workers) else {}

        return until(settled, f"{connector} to run on {workers}", WAIT_S)
