"""DirectorySource with several tasks: which files each reads, and that nothing is lost or repeated whatever happens."""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from connectx.connectors.files import bulk, ranges
from connectx.connectors.files.directory import DirectorySource
from tests.support.directories import NO_SPARK, Source, rows_of, write
from tests.support.jdbc import Context

STEPS = 120


def lines(first: int, count: int) -> bytes:
    return "".join(json.dumps({"id": number}) + "\n" for number in range(first, first + count)).encode()


def test_each_file_belongs_to_one_task_whose_share_is_in_its_configuration(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / f"{number}.json", lines(number, 1))
    tasks = [Source(tmp_path, "json", share=(task, 3)) for task in range(3)]
    shares = [[row["id"] for row in task.values()] for task in tasks]
    assert sorted(number for share in shares for number in share) == list(range(40))
    assert all(shares)
    for number, task in enumerate(tasks):  # the same in every process, so no hash() of Python's
        assert {zlib.crc32(os.fsencode(str(one["filename"]))) % 3 for one in task.task.partitions()} == {number}
    named = [{str(one["filename"]) for one in task.task.partitions()} for task in tasks]
    assert [len(names) for names in named] == [len(share) for share in shares]
    assert len(set.union(*named)) == 40


def test_a_single_task_has_the_configuration_of_the_connector_as_before(tmp_path: Path) -> None:
    connector = DirectorySource()
    connector.settings = {"path": str(tmp_path)}
    assert connector.task_configs(1) == [{"path": str(tmp_path)}]
    assert len(connector.task_configs(3)) == 3


@pytest.mark.parametrize("tasks", [1, 3])
def test_files_that_a_single_task_has_finished_or_begun_are_not_repeated_by_several(tmp_path: Path, tasks: int) -> None:
    old: dict[str, Any] = {}
    for number in range(20):
        path = write(tmp_path / f"{number}.json", lines(number * 10, 10))
        read = {0: 10, 1: 4}.get(number % 3, 0)
        offset = {"position": read, "finished": read == 10, "size": path.stat().st_size, "filename": str(path)}
        old |= {json.dumps({"filename": str(path)}): offset} if read else {}
    found = []
    for task in range(tasks):
        source = Source(tmp_path, "json", share=(task, tasks), context=Context(old))
        found += [row["value"]["id"] for row in (source.bulk() or [])]
    left = {0: 10, 1: 4, 2: 0}
    assert sorted(found) == [n * 10 + row for n in range(20) for row in range(left[n % 3], 10)]


def test_offsets_of_all_files_are_looked_up_together_and_those_of_finished_ones_once(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"{number}.json", lines(number, 1))
    source = Source(tmp_path, "json")
    source.bulk()
    source.restart()
    source.context.asked_for = 0
    assert source.values() == []
    assert source.context.asked_for == 20
    assert source.values() == []
    assert source.context.asked_for == 20


@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize("lane", ["tail", "bulk"])
def test_a_file_that_is_removed_after_it_was_found_is_skipped(tmp_path: Path, lane: str, begun: int) -> None:
    gone = write(tmp_path / "a.json", lines(0, 9), age=9)
    write(tmp_path / "b.json", lines(9, 1))
    source = Source(tmp_path, "json", slice_rows="1")
    assert source.task.waiting_bytes(None)
    source.values(most=begun)
    gone.unlink()
    found = source.values() if lane == "tail" else [row["value"] for row in source.run_next() or []]
    assert [row["id"] for row in found] == [9]


class Cluster:
    """Tasks of one connector, their committed offsets and the topic. A kill drops what is not committed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder / "in"
        self.folder.mkdir(parents=True)
        cleanup = self.random.choice(["none", "delete", "mark", "move"])
        self.config = {
            "cleanup": cleanup,
            "cleanup_dir": str(folder / "done"),
            "slice_rows": "7",
            "poll_interval_ms": "10",
        }
        self.committed: dict[str, Any] = {}
        self.topic: list[int] = []
        self.made = self.files = 0
        self.tasks: list[Source] = []
        self.divide()

    def divide(self) -> None:
        """Other tasks.max, or a rebalance: all tasks start again."""
        count = self.random.choice([1, 2, 3, 5])
        self.tasks = [self.started(task, count) for task in range(count)]

    def started(self, task: int, count: int) -> Source:
        return Source(self.folder, "json", share=(task, count), context=Context(self.committed), **self.config)

    def arrive(self) -> None:
        count = self.random.choice([0, 1, 20, 150])
        content = lines(self.made, count)
        is_packed = self.random.random() < 0.3
        name = f"{self.files}.json{'.gz' if is_packed else ''}"
        write(self.folder / name, gzip.compress(content) if is_packed else content, age=self.random.randrange(100))
        self.made += count
        self.files += 1

    def work(self) -> None:
        """One transaction of a task, in either lane; it may be killed before, in or after the commit."""
        number = self.random.randrange(len(self.tasks))
        source = self.tasks[number]
        if source.task.waiting_bytes(None) and self.random.random() < 0.6:
            found = source.task.poll_bulk(NO_SPARK, None, self.random.choice([100, 1_000, 5_000]))
            if found is None:
                return
            if self.random.random() < 0.2:
                return  # the job fails, and commits nothing
            ids = [row["value"]["id"] for row in source.run(found)]
            moved = source.last
        else:
            piece = next(source.slices(1), None)
            if piece is None:
                return
            ids, moved = [row["value"]["id"] for row in rows_of(piece)], [(piece.partition or {}, piece.offset)]
        outcome = self.random.random()
        if outcome > 0.2:
            self.topic += ids
            self.committed |= {json.dumps(dict(partition)): offset for partition, offset in moved}
        if outcome > 0.3:
            for _, offset in moved:
                source.task.committed(offset)
        else:
            self.tasks[number] = self.started(number, len(self.tasks))


@pytest.mark.parametrize("seed", range(12))
def test_no_row_is_lost_or_repeated_by_arrivals_kills_failed_jobs_and_other_numbers_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in (ranges, bulk):
        monkeypatch.setattr(module, "PART_BYTES", 300)
    cluster = Cluster(tmp_path, seed)
    for _ in range(STEPS):
        action = cluster.random.random()
        if action < 0.2:
            cluster.arrive()
        elif action < 0.25:
            cluster.divide()
        else:
            cluster.work()
    for source in cluster.tasks:
        for piece in source.slices():
            cluster.topic += [row["value"]["id"] for row in rows_of(piece)]
            source.task.committed(piece.offset)
    assert sorted(cluster.topic) == list(range(cluster.made))
