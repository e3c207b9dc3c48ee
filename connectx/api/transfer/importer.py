"""Restores an exported file: connectors with their configurations, offsets and target states.

Decides what is refused before anything is changed, and what remains to do after an interrupted import. Each
connector is STOPPED while its offsets are set, so that no task starts from the wrong offset. Works through REST alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from connectx.api.transfer.exporter import (
    Backup,
    Exported,
    hidden_values,
    put_state,
    secret_keys,
    target_state,
    wait_quiet,
    wait_stopped,
)
from connectx.core.replies import Config
from connectx.errors.base import ConnectxError
from connectx.errors.rest import ConfigRejectedError, ConnectorNotFoundError, RestError, WorkersUnreachableError
from connectx.errors.transfer import BackupFileError, ImportIncompleteError, ImportRefusedError
from connectx.history.wording import plural
from connectx.jvm.progress import Progress, silent
from connectx.rest.client import RestClient
from connectx.values import Value
from connectx.views import HIDDEN, Listed, Row, Shown, html_card, html_table, text_table

Secrets = Mapping[str, Mapping[str, str]]
"""Secret values by connector and key."""

Offsets = Sequence[Mapping[str, Any]]

_IMPORTING: Final = "Importing connectors"
_STOPPED_SINCE: Final = (3, 7)
_RETRY_S: Final = 30.0
_LOOK_S: Final = 0.5


class Imported(Shown, Value):
    """The result for one connector. `error` is None when the connector is as in the file."""

    name: str
    did: tuple[str, ...]
    error: str | None = None

    def row(self) -> Row:
        """One line of a table."""
        return {"connector": self.name, "done": ", ".join(self.did) or "nothing", "failed": self.error or ""}


class ImportReport(Sequence[Imported]):
    """What an import has done, connector by connector."""

    def __init__(self, connectors: Iterable[Imported]) -> None:
        self._connectors = tuple(connectors)

    @property
    def failed(self) -> Listed[Imported]:
        """Connectors that differ from the file."""
        return Listed(
            [one for one in self._connectors if one.error is not None], "connectors that differ from the file"
        )

    def __getitem__(self, index: Any) -> Any:
        return self._connectors[index]

    def __len__(self) -> int:
        return len(self._connectors)

    def __repr__(self) -> str:
        return text_table([connector.row() for connector in self._connectors]) or "no connectors"

    def _repr_html_(self) -> str:
        return html_card("Import", {}, html_table([connector.row() for connector in self._connectors]))


def import_from(
    client: RestClient,
    path: str | Path,
    *,
    secrets: Secrets | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> ImportReport:
    """Make the connectors of a file, with their offsets and target states; returns what was done.

    A connector is created STOPPED (or stopped), gets its offsets, and then its target state. One that is there and
    stopped is completed, so that an import which was cut short can be run again; one that runs with the same
    configuration is left as it is.

    Args:
        secrets: values of masked keys, `{connector: {key: value}}`; without one counts what was written into the file
            in the place of `[hidden]`, then what an existing connector has.
        overwrite: also change connectors that run: they are stopped, and continue from the offsets of the file.
        progress: called for each connector.

    Raises:
        BackupFileError: the file cannot be used.
        ImportRefusedError: masked secrets are missing, connectors run with another configuration, or the workers are
            too old; nothing was changed.
        ImportIncompleteError: some connectors could not be restored and are STOPPED; has the `report`.
        WorkersUnreachableError, RestError: as with every request.
    """
    backup = Backup.read(path)
    _check_version(client)
    existing = {connector.name: _config(client, connector.name) for connector in backup.connectors}
    configs = _with_secrets(client, backup.connectors, existing, secrets or {})
    at_work = [
        name for name, config in existing.items() if config is not None and target_state(client, name)[0] != "stopped"
    ]
    if not overwrite and (others := [name for name in at_work if existing[name] != configs[name]]):
        raise ImportRefusedError(
            f"Nothing was imported: {_listing(others)} not stopped and of another configuration.",
            next_step="Stop or delete what is to be replaced, or pass overwrite=True.",
        )
    done: list[Imported] = []
    for connector in backup.connectors:
        progress(_IMPORTING, len(done), len(backup.connectors))
        if connector.name in at_work and not overwrite:
            done.append(Imported(connector.name, ("left as it is: it has this configuration and is not stopped",)))
        else:
            done.append(_put_back(client, connector, configs[connector.name], existing[connector.name]))
    progress(_IMPORTING, len(done), len(done))
    report = ImportReport(done)
    if report.failed:
        first = report.failed[0]
        raise ImportIncompleteError(
            f"{len(report.failed)} of {len(report)} connectors were not imported; {first.name}: {first.error}", report
        )
    return report


def _put_back(client: RestClient, connector: Exported, config: Config, existing: Config | None) -> Imported:
    did: list[str] = []
    name = connector.name
    try:
        if existing is None:
            client.create(name, config, initial_state="STOPPED")
            did.append("created stopped")
        else:
            if target_state(client, name)[0] != "stopped":
                client.stop(name)
                did.append("stopped")
            if existing != config:
                client.put_config(name, config)
                did.append("configuration replaced")
            wait_stopped(client, name)
            if "stopped" in did:
                wait_quiet(client, name)
        if connector.offsets is None:
            error = "the file has no offsets of it, so it was left STOPPED; set them, then resume it"
            return Imported(name, tuple(did), error)
        if count := _put_offsets(client, name, connector.offsets):
            did.append(f"offsets of {plural(count, 'partition')} set")
        put_state(client, name, connector.state)
        if connector.state != "stopped":
            did.append("resumed" if connector.state == "running" else "paused")
    except WorkersUnreachableError:
        raise
    except ConnectxError as error:
        why = "; ".join(error.problems) if isinstance(error, ConfigRejectedError) else error.message
        return Imported(name, tuple(did), why)
    return Imported(name, tuple(did) or ("nothing: it was as in the file",))


def _put_offsets(client: RestClient, connector: str, wanted: Offsets) -> int:
    """Make the committed offsets those of the file, no more and no fewer; how many partitions were changed."""
    changes = _changes(client.offsets(connector), wanted)
    if not changes:
        return 0
    deadline_s = time.monotonic() + _RETRY_S
    while True:
        try:
            client.alter_offsets(connector, changes)
            break
        except RestError as error:
            # Kafka Connect's answer while a sink's tasks have not left their consumer group yet.
            if "safely retried" not in error.message or time.monotonic() >= deadline_s:
                raise
        time.sleep(_LOOK_S)
    if left := _changes(client.offsets(connector), wanted):
        raise BackupFileError(
            f"The cluster did not take the offsets of {plural(len(left), 'partition')} of the connector {connector}.",
            next_step="Check that the connector is stopped and no other program alters its offsets, and import again.",
        )
    return len(changes)


def _changes(current: Offsets, wanted: Offsets) -> list[dict[str, Any]]:
    """What to alter: new and other offsets, and None for partitions that the file does not have.

    A partition that is there keeps the order of its keys, by which the connector looks it up (Kafka Connect compares
    bytes); in a file of another cluster they may stand in another order.
    """

    def key(entry: Mapping[str, Any]) -> str:
        return json.dumps(entry["partition"], sort_keys=True)

    have = {key(entry): entry for entry in current}
    keep = {key(entry) for entry in wanted}
    partitions = {name: entry["partition"] for name, entry in have.items()}
    changes = [
        {"partition": partitions.get(key(entry), entry["partition"]), "offset": entry["offset"]}
        for entry in wanted
        if key(entry) not in have or have[key(entry)]["offset"] != entry["offset"]
    ]
    return changes + [{"partition": partitions[name], "offset": None} for name in have if name not in keep]


def _with_secrets(
    client: RestClient, connectors: Iterable[Exported], existing: Mapping[str, Config | None], secrets: Secrets
) -> dict[str, dict[str, str | None]]:
    """Configurations by connector, with real values of masked keys; ImportRefusedError names those that are missing."""
    configs: dict[str, dict[str, str | None]] = {}
    missing: list[str] = []
    known: dict[str, frozenset[str]] = {}
    for connector in connectors:
        config = {**connector.config, "name": connector.name}
        there = existing[connector.name] or {}
        kept = hidden_values(there, secret_keys(client, there, known)) if connector.masked and there else {}
        for key in connector.masked:
            given = secrets.get(connector.name, {}).get(key)
            if given is not None:
                config[key] = given
            elif kept.get(key) == config[key]:
                config[key] = there[key]
            elif HIDDEN in (config[key] or HIDDEN):  # otherwise the value was put into the file
                missing.append(f"{key} of {connector.name}")
        configs[connector.name] = config
    if missing:
        raise ImportRefusedError(
            f"Nothing was imported: the file has no value for {', '.join(missing)}.",
            next_step='Give them as secrets={"connector": {"key": "value"}}, or export again with secrets=True.',
        )
    return configs


def _config(client: RestClient, connector: str) -> Config | None:
    try:
        return client.config(connector)
    except ConnectorNotFoundError:
        return None


def _check_version(client: RestClient) -> None:
    version = str(client.root().get("version", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _STOPPED_SINCE:
        raise ImportRefusedError(
            f"Nothing was imported: the workers run Kafka Connect {version}, which cannot create a stopped connector.",
            next_step="Import into Kafka Connect 3.7 or later (KIP-980), or into connectx.",
        )


def _listing(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
