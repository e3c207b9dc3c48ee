"""Sinks of tables in files on an emulator of Azure Blob Storage that checks keys and creates blobs exclusively."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.parquet import ParquetSink
from connectx.connectors.lake.task import LakeSink
from connectx.connectors.shared.errors import LakeAccessError, LakeStorageError
from tests.support.azurite import CONTAINER, KEY, Azurite, azurite
from tests.support.lake import Lake, batch, partition, refusal, rows, write

SINKS: Mapping[str, type[LakeSink]] = {
    "parquet": ParquetSink,
    "partitioned": ParquetSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
}
WRONG = "d3Jvbmc="


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def lakes(azure: Azurite, tmp_path: Path) -> Lakes:
    return Lakes(azure, tmp_path)


class Lakes:
    """A lake of each format in a folder of the container that only this test uses."""

    def __init__(self, server: Azurite, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def lake(self, name: str, key: str = KEY, container: str = CONTAINER) -> Lake:
        """Tasks of a sink without Kafka."""
        place = f"{container}/{self._folder.name}/{name}"
        if name == "iceberg":
            given = self._server.catalog(self._folder / "catalog.db", f"abfs://{place}", key)
        else:
            given = {"path": f"az://{place}", **self._server.storage(key)}
        more = {"partition.by": "name"} if name == "partitioned" else {}
        sink: Any = SINKS[name]
        return Lake(sink.Task, {**given, **more})

    def rows(self, name: str) -> list[int]:
        """The ids in the data files, as Arrow's Azure client reads them."""
        files = self._server.files()
        found = files.get_file_info(fs.FileSelector(f"{CONTAINER}/{self._folder.name}/{name}", recursive=True))
        paths = [info.path for info in found if info.path.endswith(".parquet")]
        tables = [pq.read_table(path, filesystem=files, partitioning=None) for path in paths]
        return sorted(number for table in tables for number in table["id"].to_pylist())


@pytest.mark.parametrize("name", SINKS)
def test_a_zombies_commit_is_refused_and_its_successor_continues(lakes: Lakes, name: str) -> None:
    lake = lakes.lake(name)
    write(lake.opened(partition()), batch(0, rows(1, 2)))
    zombie, successor = lake.opened(partition()), lake.opened(partition())
    zombie.put(batch(2, rows(3, 4)))
    write(successor, batch(2, rows(3)))
    assert refusal(zombie.flush).committed == {partition(): 3}
    write(successor, batch(3, rows(4)))
    assert lake.task().open([partition()]) == {partition(): 4}
    if name.startswith("p"):  # the others leave what the zombie has written, outside their tables
        assert lakes.rows(name) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", SINKS)
def test_of_tasks_that_commit_at_the_same_time_one_is_served(lakes: Lakes, name: str) -> None:
    lake = lakes.lake(name)
    write(lake.opened(partition()), batch(0, rows(0)))
    tasks = [lake.opened(partition()) for _ in range(4)]
    for number, task in enumerate(tasks):
        task.put(batch(1, rows(*range(1, 2 + number))))
    with ThreadPoolExecutor(len(tasks)) as pool:
        results = [pool.submit(task.flush) for task in tasks]
    (served,) = [number for number, result in enumerate(results) if result.exception() is None]
    assert lake.task().open([partition()]) == {partition(): 2 + served}


@pytest.mark.parametrize("name", SINKS)
def test_a_wrong_key_and_a_missing_container_are_named_and_not_tried_again(lakes: Lakes, name: str) -> None:
    if name == "iceberg":
        write(lakes.lake(name).opened(partition()), batch(0, rows(1)))  # a catalog elsewhere is asked first
    with pytest.raises(LakeAccessError) as refused:
        write(lakes.lake(name, key=WRONG).opened(partition()), batch(0, rows(1)))
    assert not refused.value.retriable
    assert not {KEY, WRONG} & set(str(refused.value).split())
    if name != "iceberg":  # the tables of its catalog name their containers
        with pytest.raises(LakeStorageError, match="the bucket does not exist"):
            write(lakes.lake(name, container="nowhere").opened(partition()), batch(0, rows(1)))
