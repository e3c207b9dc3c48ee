"""Export and import: configurations, target states and offsets of a cluster's connectors, in one JSON file and back.

Works through REST alone, on ours and on Kafka Connect (3.5 or later to export offsets, 3.7 or later to import: KIP-875,
KIP-980). Decides what is a secret, what a connector's target state is, and in which order a connector is restored so
that no row is read twice or lost: STOPPED, then its offsets, then its target state. The file (version 1):

    {"format": "connectx-export", "version": 1, "exported_at": "2026-11-21T20:00:00Z",
     "source": {"version": "4.3.0", "kafka_cluster_id": "..."},
     "connectors": [{
        "name": "orders", "type": "source", "state": "running",     running, paused or stopped
        "config": {"connector.class": "...", ...},                  placeholders as they are; secrets `[hidden]`
        "masked": ["connection.password"],                          keys whose value in "config" is not the real one
        "offsets": [{"partition": {...}, "offset": {...}}],         as in REST; null: they could not be read
        "notes": ["..."]}]}                                         what an import cannot know from the rest
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from connectx.core.replies import Config
from connectx.errors.base import ConnectxError
from connectx.errors.rest import ConnectorNotFoundError, RestError, WaitTimeoutError
from connectx.errors.transfer import BackupFileError
from connectx.history.wording import plural
from connectx.jvm.progress import Progress, silent
from connectx.model.placeholders import replaced
from connectx.model.states import State
from connectx.owned_files import owned_file
from connectx.rest.client import RestClient
from connectx.values import Value
from connectx.views import HIDDEN, Row, Shown, html_card, html_table, masked, text_table

FORMAT: Final = "connectx-export"
VERSION: Final = 1
STATES: Final = ("running", "paused", "stopped")

_SETTLE_S: Final = 60.0
_LOOK_S: Final = 0.2
_QUIET_S: Final = 1.0
_ANOTHER: Final = "Name a file that export_to or `connectx export` wrote."
_OPTION: Final = re.compile(r'([\w.-]+)\s*=\s*"([^"]*)"')
_WORDS: Final[Mapping[str, str]] = {State.RUNNING: "running", State.PAUSED: "paused", State.STOPPED: "stopped"}
_EXPORTING: Final = "Exporting connectors"
_CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")


class Exported(Shown, Value):
    """One connector of the file. The module's docstring describes the attributes."""

    name: str
    type: str
    state: str
    config: Config
    masked: tuple[str, ...] = ()
    offsets: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = ()

    def row(self) -> Row:
        """One line of a table."""
        offsets = "unknown" if self.offsets is None else plural(len(self.offsets), "partition")
        notes = "; ".join([*self.notes, *([f"masked: {', '.join(self.masked)}"] if self.masked else [])])
        return {"connector": self.name, "type": self.type, "state": self.state, "offsets": offsets, "notes": notes}


class Backup(Value):
    """What a file holds."""

    source: Mapping[str, Any]
    exported_at: str
    connectors: tuple[Exported, ...]

    @classmethod
    def read(cls, path: str | Path) -> Backup:
        """Read a file that `export_to` wrote.

        Raises:
            BackupFileError: it cannot be read, or is no such file; the message names the place.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BackupFileError(f"The export {path} cannot be read: {error}.", next_step=_ANOTHER) from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise BackupFileError(
                f'{path} is no export of connectors: it has no "format": "{FORMAT}".', next_step=_ANOTHER
            )
        if content.get("version") != VERSION:
            known = f"this connectx reads version {VERSION}"
            raise BackupFileError(
                f"The export {path} has version {content.get('version')!r}, and {known}.",
                next_step="Use the connectx that wrote it, or export again with this one.",
            )
        entries = content.get("connectors")
        if not isinstance(entries, list):
            raise BackupFileError(f'The export {path} has no list "connectors".', next_step=_ANOTHER)
        connectors = tuple(_entry(f"connectors[{at}] of {path}", entry) for at, entry in enumerate(entries))
        names = [connector.name for connector in connectors]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BackupFileError(
                f"The export {path} has the connector {twice[0]} more than once.", next_step="Remove all but one."
            )
        return cls(content.get("source") or {}, str(content.get("exported_at", "")), connectors)

    def write(self, path: str | Path) -> Path:
        """Write the file whole or not at all, for its owner's eyes only; an older one is replaced."""
        target = Path(path)
        head = {"format": FORMAT, "version": VERSION, "exported_at": self.exported_at, "source": dict(self.source)}
        # The order of keys is kept: it matters in the partitions of source offsets (Kafka Connect compares bytes).
        text = json.dumps({**head, "connectors": [asdict(one) for one in self.connectors]}, indent=2)
        try:
            with owned_file(target) as file:
                file.write(text + "\n")
        except OSError as error:
            raise BackupFileError(
                f"The export cannot be written to {target}: {error}.",
                next_step="Choose a folder that can be written to.",
            ) from error
        return target

    def __repr__(self) -> str:
        return text_table([connector.row() for connector in self.connectors]) or "no connectors"

    def _repr_html_(self) -> str:
        return html_card(f"Export of {self.exported_at}", {}, html_table([one.row() for one in self.connectors]))


def export_to(
    client: RestClient,
    path: str | Path,
    *,
    secrets: bool = False,
    stop: bool = False,
    progress: Progress = silent,
) -> Backup:
    """Write configurations, target states and offsets of all connectors to one file; returns its content.

    Args:
        secrets: write passwords, too. Without it they are `[hidden]` and listed under "masked"; placeholders of config
            providers stay as they are either way.
        stop: stop the connectors first and leave them stopped, so that the offsets are final, for a move to
            another cluster; the file has the states from before. If the export fails, or is interrupted,
            they are restored.
        progress: called for each connector.

    Raises:
        BackupFileError: the file cannot be written.
        WaitTimeoutError: with `stop`, a connector did not stop in time.
        WorkersUnreachableError, RestError: as with every request.
    """
    known: dict[str, frozenset[str]] = {}
    root, stopped = client.root(), list[tuple[str, str]]()
    try:
        before = [(name, *target_state(client, name)) for name in client.connectors()]
        for name, state, _ in before if stop else ():
            if state != "stopped":
                stopped.append((name, state))
                client.stop(name)
        connectors = []
        progress(_EXPORTING, 0, len(before))
        for done, (name, state, notes) in enumerate(before, start=1):
            with suppress(ConnectorNotFoundError):  # deleted meanwhile
                if stop:
                    wait_stopped(client, name)
                    wait_quiet(client, name)
                elif state != "stopped":
                    notes.append("it was not stopped: what it did after the export is not in these offsets")
                connectors.append(_exported(client, name, state, notes, known, secrets=secrets))
            progress(_EXPORTING, done, len(before))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        source = {key: root.get(key) for key in ("version", "kafka_cluster_id")}
        backup = Backup(source, now, tuple(connectors))
        backup.write(path)
    except BaseException:
        for name, state in stopped:
            with suppress(ConnectxError):
                put_state(client, name, state)
        raise
    return backup


def target_state(client: RestClient, connector: str) -> tuple[str, list[str]]:
    """A connector's target state, derived from its status because REST has none, and notes on what is uncertain."""
    deadline_s = time.monotonic() + _SETTLE_S
    while True:
        try:
            status: Mapping[str, Any] = client.status(connector)
        except ConnectorNotFoundError:  # gone, or not started by a worker yet
            status = {"connector": {"state": State.UNASSIGNED}, "tasks": []}
        own = status["connector"]["state"]
        if own in _WORDS:
            return _WORDS[own], []
        tasks = [task["state"] for task in status["tasks"]]
        if own == State.FAILED and State.PAUSED in tasks:
            return "paused", []
        if own == State.FAILED or time.monotonic() >= deadline_s or connector not in client.connectors():
            sure = State.RUNNING in tasks
            return "running", [] if sure else [f"it was {own}, so its target state is taken to be running"]
        time.sleep(_LOOK_S)


def put_state(client: RestClient, connector: str, state: str) -> None:
    """Request a target state of the file and wait until the status shows it; nothing for stopped.

    Raises:
        WaitTimeoutError: not within a minute.
    """
    if state == "stopped":
        return
    ask = client.resume if state == "running" else client.pause
    ask(connector)
    deadline_s = time.monotonic() + _SETTLE_S
    while target_state(client, connector)[0] != state:
        if time.monotonic() >= deadline_s:
            raise WaitTimeoutError(
                f"Connector {connector} is not {state} after {_SETTLE_S:g} s.",
                next_step="See its status; it needs a worker that takes it.",
            )
        time.sleep(_LOOK_S)


def wait_stopped(client: RestClient, connector: str) -> None:
    """Wait until a connector is STOPPED and none of its tasks is at work.

    Raises:
        WaitTimeoutError: not within a minute.
    """
    deadline_s = time.monotonic() + _SETTLE_S
    while True:
        with suppress(ConnectorNotFoundError):  # it has no status yet
            status = client.status(connector)
            at_work = [task for task in status["tasks"] if task["state"] not in (State.UNASSIGNED, State.FAILED)]
            if status["connector"]["state"] == State.STOPPED and not at_work:
                return
        if time.monotonic() >= deadline_s:
            raise WaitTimeoutError(
                f"Connector {connector} did not stop within {_SETTLE_S:g} s.",
                next_step="See its status; a dead worker's work is released after its session timeout.",
            )
        time.sleep(_LOOK_S)


def wait_quiet(client: RestClient, connector: str) -> None:
    """Wait until the offsets of a connector no longer change: its tasks may still commit when it is STOPPED."""
    with suppress(RestError):  # who cannot be read cannot be waited for
        before = client.offsets(connector)
        deadline_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline_s:
            time.sleep(_QUIET_S)
            now = client.offsets(connector)
            if now == before:
                return
            before = now


def hidden_values(config: Config, secret_keys: frozenset[str]) -> dict[str, str]:
    """What replaces secret values in a file, by key; values that only name a placeholder are not replaced."""
    by_name = masked(config)
    shown = {key: HIDDEN if key in secret_keys and value else by_name[key] for key, value in config.items()}
    return {
        key: shown[key]
        for key, value in config.items()
        if value is not None and shown[key] != value and not _is_placeholder(value)
    }


def secret_keys(client: RestClient, config: Config, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """Keys that the definitions of a connector and its parts call passwords; `known` keeps those of each class."""
    found: set[str] = set()
    for prefix, plugin in _parts(config):
        if plugin not in known:
            try:
                definitions = client.plugin_config(plugin)
            except RestError:  # not on this worker, or its version is too old: decide by the names of keys
                definitions = []
            known[plugin] = frozenset(key["name"] for key in definitions if key.get("type") == "PASSWORD")
        found |= {prefix + name for name in known[plugin]}
    return frozenset(found)


def _exported(
    client: RestClient, name: str, state: str, notes: list[str], known: dict[str, frozenset[str]], *, secrets: bool
) -> Exported:
    info = client.info(name)
    config = info["config"] or {}
    hidden = {} if secrets else hidden_values(config, secret_keys(client, config, known))
    offsets: Sequence[Mapping[str, Any]] | None = None
    try:
        offsets = client.offsets(name)
    except RestError as error:  # before Kafka Connect 3.5, or without the connector's class on the worker
        client.info(name)  # ConnectorNotFoundError: it is gone
        notes.append(f"the offsets could not be read: {error.message}")
    return Exported(name, info["type"], state, {**config, **hidden}, tuple(sorted(hidden)), offsets, tuple(notes))


def _parts(config: Config) -> Iterator[tuple[str, str]]:
    """(prefix, class) of a connector, its converters, transformations and predicates."""
    if config.get("connector.class"):
        yield "", str(config["connector.class"])
    for converter in _CONVERTERS:
        if config.get(converter):
            yield f"{converter}.", str(config[converter])
    for kind in ("transforms", "predicates"):
        for alias in (config.get(kind) or "").split(","):
            if plugin := config.get(f"{kind}.{alias.strip()}.type"):
                yield f"{kind}.{alias.strip()}.", plugin


def _is_placeholder(value: str) -> bool:
    """True when a secret value holds no secret itself, only names of some: `${file:/run/secrets:password}`."""
    if not replaced(value, lambda _: "").strip():
        return True
    options = dict(_OPTION.findall(value))  # sasl.jaas.config: `... username="app" password="${file:...}";`
    hidden = [text for name, text in options.items() if masked({name: "x"})[name] == HIDDEN]
    return bool(hidden) and not any(replaced(text, lambda _: "") for text in hidden)


def _entry(where: str, entry: Any) -> Exported:
    """One connector of a file; BackupFileError names what is wrong."""

    def wrong(what: str) -> BackupFileError:
        return BackupFileError(
            f"{where} is wrong: {what}.", next_step="See connectx/api/transfer/exporter.py for the format."
        )

    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise wrong('it has no "name"')
    config, offsets, hidden = entry.get("config"), entry.get("offsets"), entry.get("masked") or []
    if not isinstance(config, dict) or not all(isinstance(value, str | None) for value in config.values()):
        raise wrong('"config" must be an object of texts')
    if entry.get("state") not in STATES:
        raise wrong(f'"state" must be one of {", ".join(STATES)}, not {entry.get("state")!r}')
    if not isinstance(hidden, list) or not all(isinstance(key, str) and key in config for key in hidden):
        raise wrong('"masked" must be a list of keys of "config"')
    if offsets is not None and not (isinstance(offsets, list) and all(map(_is_offset, offsets))):
        raise wrong('"offsets" must be null or a list of {"partition": {...}, "offset": {...}}')
    notes = tuple(map(str, entry.get("notes") or ()))
    kind = str(entry.get("type", "unknown"))
    return Exported(entry["name"], kind, entry["state"], config, tuple(hidden), offsets, notes)


def _is_offset(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), dict) for key in ("partition", "offset"))
