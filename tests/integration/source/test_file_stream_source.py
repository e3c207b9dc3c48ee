"""FileStreamSource from file to topic."""

from __future__ import annotations

from pathlib import Path

from connectx.core.messages import TopicUsed
from connectx.model.events import EventKind
from tests.integration.source.conftest import Place


def config(path: Path, topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, **more}


def test_lines_and_appended_lines_arrive_with_their_offsets_as_kafka_connect_writes_them(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\nhalf")
    task = place.task(config(path, f"{place.group}-lines")).begin()
    assert place.wait_for_values(f"{place.group}-lines", 2) == ["one", "two"]
    with path.open("a") as file:
        file.write(" a line\r\nthree\n")
    assert place.wait_for_values(f"{place.group}-lines", 4) == ["one", "two", "half a line", "three"]
    task.stop()
    assert place.committed({"filename": str(path)}) == {"position": path.stat().st_size}
    assert task.said(TopicUsed).topic == f"{place.group}-lines"
    commits = task.recorded(EventKind.TRANSACTION_COMMITTED)
    assert sum(commit.data["records"] for commit in commits) == 4
    assert commits[-1].producer_epoch == 0
