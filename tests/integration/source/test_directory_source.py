"""DirectorySource against Kafka: files that come while it runs, restarts, kills, and files that are moved."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import connectx as cx
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import EOS, JSON
from tests.support.task_harness import Place
from tests.support.waiting import WAIT_S, until


def test_files_become_records_once_over_a_restart_and_are_moved_after_their_commit(
    place: Place, tmp_path: Path
) -> None:
    inbox, done, topic = tmp_path / "in", tmp_path / "done", f"{place.group}-t"
    inbox.mkdir()

    def arrive(name: str, first: int, count: int) -> None:
        (tmp_path / name).write_text("".join(f'{{"id":{at},"more":"x"}}\n' for at in range(first, first + count)))
        (tmp_path / name).rename(inbox / name)

    config = {
        **{"connector.class": "DirectorySource", "path": str(inbox), "topic": topic, "format": "json"},
        **{"schema": "id BIGINT", "cleanup": "move", "cleanup.dir": str(done)},
        **{"slice.rows": "100", "poll.interval.ms": "50", **JSON},
    }
    arrive("b.json", 0, 250)
    task = place.task(config, instance=1).begin()
    place.wait_for_values(topic, 250)
    arrive("a.json", 250, 50)
    place.wait_for_values(topic, 300)
    until(lambda: len(list(done.glob("*.json"))) == 2, "both files were moved")
    task.stop()
    arrive("c.json", 300, 120)
    task = place.task(config, instance=2).begin()
    values = [json.loads(value) for value in place.wait_for_values(topic, 420)]
    until(lambda: not list(inbox.iterdir()), "the last file was moved")
    task.stop()
    assert [value["id"] for value in values] == list(range(420))
    assert values[0] == {"id": 0, "more": "x", "_rescued_data": None}
    assert place.committed({"filename": str(inbox / "c.json")}) == {
        **{"filename": str(inbox / "c.json"), "finished": True, "position": 120},
        **{"size": (done / "c.json").stat().st_size, "modified_ns": (done / "c.json").stat().st_mtime_ns},
    }


def test_a_file_that_cannot_be_parsed_is_moved_with_its_reason_in_the_history_and_others_are_read(
    place: Place, tmp_path: Path
) -> None:
    inbox, bad, topic = tmp_path / "in", tmp_path / "bad", f"{place.group}-t"
    inbox.mkdir()
    (inbox / "a.json.gz").write_bytes(gzip.compress(b'{"id":1}\n' * 100_000)[:-500])
    (inbox / "b.json").write_text('{"id":2}\n')
    config = {
        **{"connector.class": "DirectorySource", "path": str(inbox), "topic": topic, "format": "json"},
        **{"error.dir": str(bad), "slice.rows": "1000", "poll.interval.ms": "50", **JSON},
    }
    task = place.task(config).begin()
    until((bad / "a.json.gz").exists, "the damaged file was moved")
    values = until(lambda: [value for value in place.values(topic) if '"id":2' in value], "the other file")
    (skipped,) = task.recorded(EventKind.RECORDS_SKIPPED)
    position = (place.committed({"filename": str(inbox / "a.json.gz")}) or {})["position"]
    assert len(values) == 1
    assert f"It is moved to {bad}, with {position} rows of it in Kafka" in str(skipped.data["reason"])
    assert sum('"id":1' in value for value in place.values(topic)) == position
    task.stop()


def test_a_killed_worker_loses_and_doubles_no_row_of_files_and_of_a_generator(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    for file in range(4):
        (inbox / f"{file}.csv").write_text("id\n" + "".join(f"{file * 500 + row}\n" for row in range(500)))
    with make_cluster(workers=2, config=EOS) as cluster:
        files = {"connector.class": "DirectorySource", "path": str(inbox), "topic": "files", "format": "csv"}
        rows = {"connector.class": "Generator", "topic": "generated", "rate": "400", "max.rows": "2000"}
        cluster.create("files", {**files, "slice.rows": "20", "poll.interval.ms": "50", **JSON})
        cluster.create("generated", {**rows, **JSON})
        cluster.wait_committed("files", 20, timeout=WAIT_S)
        owner_of(cluster, "files-0").kill()
        (tmp_path / "4.csv").write_text("id\n2000\n")
        (tmp_path / "4.csv").rename(inbox / "4.csv")
        for topic, count in (("files", 2001), ("generated", 2000)):
            read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=count, timeout=WAIT_S)
            assert sorted(int(json.loads(value)["id"]) for value in read["value"]) == list(range(count)), topic
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
        assert {checked.place: checked.found for checked in verdict.checked} == {
            **{"topic files": 2001, "topic generated": 2000},
        }
