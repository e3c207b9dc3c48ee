"""The data folder of a new node, which a file in the cache begins, whatever Kafka formatted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.jvm.java import JavaHome
from connectx.kafka.broker.node import format_data

SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.mark.parametrize(
    ("kept", "written"), [("checkpoint", "bootstrap.checkpoint"), ("snapshot", SNAPSHOT)], ids=["4.3", "4.4"]
)
def test_feature_levels_are_where_the_version_of_kafka_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str, written: str
) -> None:
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "kafka").mkdir(parents=True)
    (tmp_path / "cache" / "kafka" / f"bootstrap-jars-1.{kept}").write_bytes(b"levels")
    format_data(JavaHome(Path("java"), 21, "here", "21.0"), [tmp_path / "jars-1" / "a.jar"], tmp_path, cluster_id="c")
    data = tmp_path / "data"
    files = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert files == {written, "meta.properties"}
    assert (data / written).read_bytes() == b"levels"
