"""The file of an export: what is hidden in it, how it is written and read, and what an import would change."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from connectx.api.transfer.exporter import Backup, Exported, hidden_values
from connectx.api.transfer.importer import _changes, _with_secrets, import_from
from connectx.errors.transfer import BackupFileError, ImportRefusedError
from connectx.rest.client import RestClient

ENTRY: dict[str, Any] = {"name": "a", "type": "source", "state": "running", "config": {"topic": "t"}, "masked": [],
                         "offsets": [{"partition": {"z": 1, "a": 2}, "offset": {"position": 7}}]}  # fmt: skip
HEAD: dict[str, Any] = {"format": "connectx-export", "version": 1}


def test_passwords_are_hidden_by_definition_by_name_and_in_urls() -> None:
    config = {"pin": "1234", "api.token": "geheim", "connection.url": "postgresql://u:geheim@h/db", "topic": "t",
              "empty.password": "", "none.password": None}  # fmt: skip
    assert hidden_values(config, frozenset({"pin", "not.given"})) == {
        "pin": "[hidden]",
        "api.token": "[hidden]",
        "connection.url": "postgresql://u:[hidden]@h/db",
    }


@pytest.mark.parametrize(
    "value",
    [
        "${file:/run/secrets:password}",
        "${env:USER}${env:PASSWORD}",
        'org.x.PlainLoginModule required username="app" password="${file:/run/secrets:password}";',
    ],
)
def test_placeholders_stay_as_they_are(value: str) -> None:
    assert hidden_values({"sasl.jaas.config": value}, frozenset({"sasl.jaas.config"})) == {}


@pytest.mark.parametrize(
    "value",
    [
        "prefix${env:PASSWORD}",
        'org.x.PlainLoginModule required username="${env:USER}" password="geheim";',
        'org.x.PlainLoginModule required username="${env:USER}" password="${env:HALF}half";',
        "org.x.PlainLoginModule required username=${env:USER} password=geheim;",
    ],
)
def test_a_secret_beside_a_placeholder_is_hidden(value: str) -> None:
    assert hidden_values({"sasl.jaas.config": value}, frozenset()) == {"sasl.jaas.config": "[hidden]"}


def test_a_file_is_read_as_it_was_written_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text("an older one")
    one = Exported("a", "sink", "paused", {"k": "v", "p": "[hidden]"}, ("p",), None, ("a note",))
    two = Exported("b", "source", "stopped", {"k": None}, offsets=ENTRY["offsets"])
    written = Backup({"version": "4.3.0"}, "2026-11-21T20:00:00Z", (one, two))
    assert written.write(path) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["export.json"]
    read = Backup.read(path)
    assert read == written
    assert list((read.connectors[1].offsets or [])[0]["partition"]) == ["z", "a"], "Kafka Connect compares bytes"


def test_a_file_that_cannot_be_written_leaves_the_older_one(tmp_path: Path) -> None:
    with pytest.raises(BackupFileError, match="cannot be written"):
        Backup({}, "", ()).write(tmp_path / "none" / "export.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BackupFileError, match="cannot be written"):
        Backup({}, "", ()).write(tmp_path / "folder")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("content", "recorded"),
    [
        ("{", "cannot be read"),
        ([], "no export"),
        ({"format": "other"}, "no export"),
        ({**HEAD, "version": 2}, "has version 2, and this connectx reads version 1"),
        (HEAD, 'no list "connectors"'),
        ({**HEAD, "connectors": [ENTRY, ENTRY]}, "the connector a more than once"),
        ({**HEAD, "connectors": [{}]}, r'connectors\[0\] of .* no "name"'),
        ({**HEAD, "connectors": [{**ENTRY, "state": "RUNNING"}]}, "running, paused, stopped, not 'RUNNING'"),
        ({**HEAD, "connectors": [{**ENTRY, "config": {"tasks.max": 1}}]}, "object of texts"),
        ({**HEAD, "connectors": [{**ENTRY, "masked": ["other"]}]}, "keys of"),
        ({**HEAD, "connectors": [{**ENTRY, "masked": [["topic"]]}]}, "keys of"),
        ({**HEAD, "connectors": [{**ENTRY, "offsets": [{"partition": {}}]}]}, '"offsets" must be'),
    ],
)
def test_what_is_no_export_is_told_in_one_sentence(content: Any, recorded: str, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BackupFileError, match=recorded) as found:
        Backup.read(path)
    assert found.value.next_step
    with pytest.raises(BackupFileError, match="cannot be read"):
        Backup.read(tmp_path / "none.json")


def test_a_secret_that_was_written_into_the_file_by_hand_is_taken() -> None:
    nobody, config = RestClient([]), {"k": "written", "t": "x"}
    one = Exported("a", "source", "running", config, ("k",), offsets=[])
    assert _with_secrets(nobody, [one], {"a": None}, {}) == {"a": {**config, "name": "a"}}
    for left in ("[hidden]", "postgresql://app:[hidden]@db"):
        hidden = Exported("a", "source", "running", {**config, "k": left}, ("k",), offsets=[])
        with pytest.raises(ImportRefusedError, match="no value for k of a"):
            _with_secrets(nobody, [hidden], {"a": None}, {})


def test_an_import_changes_only_offsets_that_differ_and_forgets_those_that_the_file_lacks() -> None:
    def at(partition: int, offset: int | None) -> dict[str, Any]:
        return {"partition": {"p": partition}, "offset": None if offset is None else {"o": offset}}

    assert _changes([at(1, 1), at(2, 2), at(3, 3)], [at(1, 1), at(2, 9), at(4, 4)]) == [at(2, 9), at(4, 4), at(3, None)]
    assert _changes([at(1, 1)], [at(1, 1)]) == []


def test_a_partition_is_the_same_whatever_the_order_of_its_keys_and_keeps_the_one_it_has() -> None:
    def at(partition: dict[str, int], offset: int) -> dict[str, Any]:
        return {"partition": partition, "offset": {"o": offset}}

    assert _changes([at({"a": 1, "b": 2}, 1)], [at({"b": 2, "a": 1}, 1)]) == []
    (change,) = _changes([at({"a": 1, "b": 2}, 1)], [at({"b": 2, "a": 1}, 7)])
    assert (list(change["partition"]), change["offset"]) == (["a", "b"], {"o": 7})
    (new,) = _changes([], [at({"b": 2, "a": 1}, 7)])
    assert list(new["partition"]) == ["b", "a"]


class Late:
    """A connector that runs; once it is stopped, one last commit of its task comes after the first look."""

    def __init__(self) -> None:
        self.state, self.position, self.looks = "RUNNING", 5, 0

    def __getattr__(self, name: str) -> Any:
        answers = {
            "root": {"version": "4.3.0"},
            "config": {"name": "a", "k": "v"},
            "status": {"connector": {"state": self.state}, "tasks": []},
            "connectors": ["a"],
        }
        return lambda *args: answers[name]

    def stop(self, connector: str) -> None:
        self.state = "STOPPED"

    def resume(self, connector: str) -> None:
        if self.looks < 2:  # nobody has waited for it
            self.position = 9
        self.state = "RUNNING"

    def offsets(self, connector: str) -> list[dict[str, Any]]:
        self.looks += 1
        if self.looks == 2:
            self.position = 9
        return [{"partition": {"p": 1}, "offset": {"o": self.position}}]

    def alter_offsets(self, connector: str, offsets: list[dict[str, Any]]) -> None:
        self.position = offsets[0]["offset"]["o"]


def test_an_import_over_a_running_connector_waits_for_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectx.api.transfer.exporter._QUIET_S", 0)
    there = Exported("a", "source", "running", {"k": "v"}, offsets=[{"partition": {"p": 1}, "offset": {"o": 5}}])
    Backup({}, "", (there,)).write(tmp_path / "export.json")
    client: Any = Late()
    import_from(client, tmp_path / "export.json", overwrite=True)
    assert (client.position, client.state) == (5, "RUNNING")
