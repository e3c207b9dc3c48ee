"""Connectors to a file and back: nothing is lost, nothing is read twice, and nothing changes that was not asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import connectx as cx
from connectx.api.transfer.exporter import Backup, Exported
from connectx.errors.transfer import ImportIncompleteError, ImportRefusedError
from tests.support.flows import Lines
from tests.support.waiting import until

MakeLines = Callable[..., Lines]


def kept(backup: Backup, path: Path, *names: str) -> Path:
    """The file with these connectors alone: the cluster has those of other tests, too."""
    mine = tuple(connector for connector in backup.connectors if connector.name in names)
    assert len(mine) == len(names)
    return Backup(backup.source, backup.exported_at, mine).write(path)


def test_an_import_makes_connectors_anew_and_every_row_is_there_once(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, out, path = make_lines(cluster), tmp_path / "out.txt", tmp_path / "export.json"
    sink = f"{lines.name}-out"
    lines.append(30)
    source = lines.start()
    cluster.create(sink, {"connector.class": "FileStreamSink", "file": str(out), "topics": lines.topic})
    lines.wait_committed()
    until(lambda: out.exists() and out.read_text().splitlines() == lines.expected, "all lines in the file")
    cluster[sink].pause()
    cluster[sink].wait("PAUSED")
    source.stop()
    source.wait("STOPPED")
    behind = ([at(lines.topic, 30)], [at(lines.topic, 31)])  # the last line, or its transaction's marker
    until(lambda: cluster[sink].offsets.get() in behind, "the sink's commit")

    steps: list[tuple[str, int, int]] = []
    backup = cluster.export_to(path, progress=lambda *step: steps.append(step))
    total = len(backup.connectors)
    assert steps == [("Exporting connectors", done, total) for done in range(total + 1)]
    kept(backup, path, lines.name, sink)
    states = {connector.name: (connector.state, connector.type) for connector in backup.connectors}
    assert (states[lines.name], states[sink]) == (("stopped", "source"), ("paused", "sink"))
    assert any("not stopped" in note for c in backup.connectors if c.name == sink for note in c.notes)

    offsets = source.offsets.get()
    source.offsets.reset()
    for connector in (source, cluster[sink]):
        connector.delete()
    cluster.create(lines.name, {"connector.class": "FileStreamSource", "file": "none", "topic": "t"},
                   initial_state="STOPPED")  # fmt: skip
    source.offsets.alter([{"partition": {"filename": "none"}, "offset": {"position": 1}}])  # to be forgotten
    source.delete()

    steps.clear()
    done = {one.name: one.did for one in cluster.import_from(path, progress=lambda *step: steps.append(step))}
    assert steps == [("Importing connectors", done, 2) for done in range(3)]
    assert done[lines.name] == ("created stopped", "offsets of 2 partitions set")
    assert done[sink] == ("created stopped", "paused")
    assert source.offsets.get() == offsets
    again = {one.name: one.did for one in cluster.import_from(path)}
    assert again[lines.name] == ("nothing: it was as in the file",)
    assert again[sink] == ("left as it is: it has this configuration and is not stopped",)

    lines.append(20)
    for connector in (source, cluster[sink]):
        connector.resume()
        connector.wait("RUNNING", 90)
    lines.check_exactly_once()
    until(lambda: out.read_text().splitlines() == lines.expected, "the new lines in the file, once")


def at(topic: str, offset: int) -> dict[str, dict[str, object]]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": {"kafka_offset": offset}}


def test_a_connector_that_runs_is_overwritten_only_when_asked(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, path = make_lines(cluster), tmp_path / "export.json"
    connector = lines.start()
    kept(cluster.export_to(path), path, lines.name)
    connector.config.update({"batch.size": "7"})
    with pytest.raises(ImportRefusedError, match=rf"{lines.name} is not stopped and of another configuration"):
        cluster.import_from(path)
    assert connector.config["batch.size"] == "7"
    (one,) = cluster.import_from(path, overwrite=True)
    assert one.did == ("stopped", "configuration replaced", "resumed")
    assert "batch.size" not in connector.config
    connector.wait("RUNNING", 90)


def test_secrets_of_a_masked_file_come_from_the_caller_or_from_the_connector_that_is_there(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, path = make_lines(cluster), tmp_path / "export.json"
    connector = lines.start(**{"consumer.override.sasl.jaas.config": "x required password=geheim;"})
    connector.stop()
    connector.wait("STOPPED")
    key = "consumer.override.sasl.jaas.config"
    kept(cluster.export_to(path), path, lines.name)
    assert "geheim" not in path.read_text()
    (one,) = cluster.import_from(path)
    assert (one.did, connector.config[key]) == (
        ("nothing: it was as in the file",),
        "x required password=geheim;",
    )
    connector.delete()
    with pytest.raises(ImportRefusedError, match=rf"no value for {key} of {lines.name}\. Give them"):
        cluster.import_from(path)
    assert lines.name not in [connector.name for connector in cluster.connectors]
    cluster.import_from(path, secrets={lines.name: {key: "x required password=other;"}})
    assert connector.config[key] == "x required password=other;"
    kept(cluster.export_to(path, secrets=True), path, lines.name)
    assert "password=other" in path.read_text()


def test_an_import_that_fails_halfway_says_so_and_goes_on_when_it_is_run_again(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, path = make_lines(cluster), tmp_path / "export.json"
    lines.append(10)
    connector = lines.start()
    lines.wait_committed()
    connector.stop()
    connector.wait("STOPPED")
    kept(cluster.export_to(path), path, lines.name)
    connector.offsets.reset()
    path.write_text(path.read_text().replace('"stopped"', '"running"'))
    backup, bad = Backup.read(path), f"{lines.name}-bad"
    broken = {"connector.class": "FileStreamSource", "file": str(lines.path), "topic": "t", "batch.size": "x"}
    two = (Exported(bad, "source", "running", broken, offsets=[]), *backup.connectors)
    Backup(backup.source, backup.exported_at, two).write(path)
    with pytest.raises(
        ImportIncompleteError, match=rf"1 of 2 connectors were not imported; {bad}: .*batch.size"
    ) as failed:
        cluster.import_from(path)
    report: Any = failed.value.report
    assert [one.did for one in report] == [(), ("offsets of 1 partition set", "resumed")]
    path.write_text(path.read_text().replace('"batch.size": "x"', '"batch.size": "5"'))
    first, second = cluster.import_from(path)
    assert first.did == ("created stopped", "resumed")
    assert second.did == ("left as it is: it has this configuration and is not stopped",)
    lines.append(5)
    lines.check_exactly_once()
    for name in (lines.name, bad):
        cluster[name].delete()
