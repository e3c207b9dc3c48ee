"""Shared parts of the commands: attached clusters, output of results, exit codes of errors.

A result is a table on a terminal, plain aligned text elsewhere, or JSON with `--json`. Secrets are masked unless
`--show-secrets`. Commands on a running cluster go through `connectx.attach`, like any notebook.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import ssl
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from connectx.cli.output import print_safely
from connectx.cli.remedies import in_terminal
from connectx.errors.base import ConnectxError
from connectx.errors.rest import CommandError
from connectx.views import Row, masked_text, text_table, visible

if TYPE_CHECKING:
    import httpx

    from connectx.api.attached.cluster import AttachedCluster
    from connectx.api.connector import Connector
    from connectx.core.replies import Config
    from connectx.rest.client import RestClient

FAILED: Final = 1
INTERRUPTED: Final = 130

_COLOURS: Final = {
    "FAILED": "bold red",
    "LOST": "red",
    "gone": "red",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
    "RUNNING": "green",
}
"""The first that is in a cell counts."""


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the command with a sentence and an exit code instead of a stack trace."""
    try:
        yield
    except ConnectxError as error:
        print_safely(in_terminal(str(error)), err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        print_safely("Interrupted; everything that was started has been stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None


Url = Annotated[str, typer.Option("--url", envvar="CONNECTX_URL", help="REST address of any worker.")]
Kafka = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", envvar="CONNECTX_BOOTSTRAP_SERVERS", help="Kafka of the cluster, to show the group."
    ),
]
Group = Annotated[str | None, typer.Option("--group-id", envvar="CONNECTX_GROUP_ID", help="The workers' group.id.")]
WorkerConfig = Annotated[
    Path | None,
    typer.Option(
        envvar="CONNECTX_WORKER_CONFIG", help="The workers' .properties file, with the address of Kafka and the login."
    ),
]
BasicFile = Annotated[
    Path | None, typer.Option(envvar="CONNECTX_BASIC_FILE", help="File with a line user:password (or CONNECTX_BASIC).")
]
BearerFile = Annotated[
    Path | None, typer.Option(envvar="CONNECTX_BEARER_FILE", help="File with a token (or CONNECTX_BEARER).")
]
CaFile = Annotated[Path | None, typer.Option(envvar="CONNECTX_CA_FILE", help="PEM file of the workers' CA.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ShowSecrets = Annotated[bool, typer.Option("--show-secrets", help="Do not mask passwords.")]


@dataclass
class At:
    """The cluster that a command is about, and how it shows what it finds.

    Its fields are the options that every command on a running cluster has.
    """

    url: Url = "http://127.0.0.1:8083"
    bootstrap_servers: Kafka = None
    group_id: Group = None
    worker_config: WorkerConfig = None
    basic_file: BasicFile = None
    bearer_file: BearerFile = None
    ca_file: CaFile = None
    as_json: Json = False
    show_secrets: ShowSecrets = False
    _secret_keys: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _connections: Any = field(default=None, init=False)  # an httpx.Client, where attach's own would not do
    _attached: list[Any] = field(default_factory=list, init=False)  # AttachedCluster

    @property
    def cluster(self) -> AttachedCluster:
        """The cluster, attached when first asked for."""
        if not self._attached:
            self.attach(self.url, self.bootstrap_servers, self.group_id, self.worker_settings)
        attached: AttachedCluster = self._attached[0]
        return attached

    @property
    def worker_settings(self) -> dict[str, str]:
        """The workers' settings in `worker_config`, with Kafka Connect's defaults for those that matter to an audit."""
        if self.worker_config is None:
            return {}
        from connectx.model.configdef import to_text
        from connectx.model.worker_keys import WORKER_CONFIG
        from connectx.verify.audit.gather import JUDGED_SETTINGS

        defaults = {key: to_text(WORKER_CONFIG.keys[key].default) or "" for key in JUDGED_SETTINGS}
        return {**defaults, **read_properties(self.worker_config)}

    def attach(
        self,
        url: str,
        bootstrap_servers: str | None = None,
        group_id: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> AttachedCluster:
        """Attach to one more cluster, with the same login to REST. It is closed with the others."""
        from connectx.api.attached.cluster import attach

        if self._connections is None:
            self._connections = self._http()
        found = attach(
            url, bootstrap_servers=bootstrap_servers, group_id=group_id, config=config, http=self._connections
        )
        self._attached.append(found)
        return found

    @property
    def client(self) -> RestClient:
        """Its REST client, for what the objects of a cluster do not have."""
        return self.cluster._client

    def close(self) -> None:
        for cluster in self._attached:
            cluster.close()
        if self._connections is not None:
            self._connections.close()

    def shown(self, config: Config, *, always_mask: bool = False) -> dict[str, str | None]:
        """A configuration fit to be shown: with `[hidden]` for secrets, unless they are asked for."""
        if self.show_secrets and not always_mask:
            return dict(config)
        from connectx.api.transfer.exporter import hidden_values, secret_keys

        return {**config, **hidden_values(config, secret_keys(self.client, config, self._secret_keys))}

    def revealed(self, wanted: Config, there: Config) -> dict[str, str | None]:
        """A configuration of a file; where it has what would be shown for a secret that is there, that one stays."""
        shown = self.shown(there, always_mask=True) if there else {}
        return {key: there[key] if key in there and value == shown[key] else value for key, value in wanted.items()}

    def status(self, connector: Connector) -> dict[str, Any]:
        """REST's status of a connector, fit to be shown: with `[hidden]` for passwords in traces, unless asked for."""
        status: dict[str, Any] = connector.status()

        def fit(part: dict[str, Any]) -> dict[str, Any]:
            return {**part, "trace": masked_text(part["trace"])} if part.get("trace") else part

        if self.show_secrets:
            return status
        return {**status, "connector": fit(status["connector"]), "tasks": [fit(task) for task in status["tasks"]]}

    def show(self, value: Any, text: str | Sequence[Row] = "") -> None:
        """Show a result: `value` as JSON, or `text`: a table of rows, or lines."""
        if self.as_json:
            print_safely(json.dumps(value, indent=2, ensure_ascii=False, default=str))
        elif isinstance(text, str):
            print_safely(wrapped(in_terminal(text)))
        else:
            show_table(text)

    def _http(self) -> httpx.Client | None:
        import httpx

        headers = {"authorization": login} if (login := self._login()) else {}
        if self.ca_file is not None:
            try:
                trusted = ssl.create_default_context(cafile=self.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise CommandError(f"The certificates in {self.ca_file} cannot be used: {error}.") from error
            return httpx.Client(trust_env=False, headers=headers, verify=trusted)
        if not headers:
            return None
        return httpx.Client(trust_env=False, headers=headers)

    def _login(self) -> str | None:
        import httpx

        basic = _line(self.basic_file) or os.environ.get("CONNECTX_BASIC")
        if basic:
            user, colon, password = basic.partition(":")
            if not colon:
                raise CommandError("A basic login must look like user:password.")
            auth = httpx.BasicAuth(user, password)
            return auth._auth_header
        token = _line(self.bearer_file) or os.environ.get("CONNECTX_BEARER")
        return f"Bearer {token}" if token else None


def cluster_command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command; its first parameter gets the `At` of the options that every command has."""
    hints = get_type_hints(At, include_extras=True)
    options = [one for one in fields(At) if one.init]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(function, include_extras=True)
        _, *parameters = inspect.signature(function).parameters.values()

        @wraps(function)
        def command(**given: Any) -> None:
            at = At(**{one.name: given.pop(one.name) for one in options})
            with reporting_errors():
                try:
                    function(at, **given)
                finally:
                    at.close()

        shared = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in options
        ]
        taken = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[one.name]) for one in parameters]
        command.__signature__ = inspect.Signature([*taken, *shared])  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in [*taken, *shared]}
        app.command(name)(command)
        return function

    return decorate


def show_table(rows: Sequence[Row]) -> None:
    """Rows as a table: with colours on a terminal, aligned text elsewhere."""
    if not rows:
        return
    if not sys.stdout.isatty():
        print_safely(text_table(rows))
        return
    from rich.console import Console

    Console().print(rich_table(rows))


def rich_table(rows: Sequence[Row], title: str | None = None, width: int | None = None) -> Any:
    """Rows as a table of rich, which breaks lines between words; one under the other where words need more width.

    Args:
        width: of the terminal; by default it is asked for.
    """
    from rich.table import Table
    from rich.text import Text

    width = width or shutil.get_terminal_size().columns
    headings = [visible(heading) for heading in rows[0]] if rows else []
    lines = [["" if value is None else visible(str(value)) for value in row.values()] for row in rows]
    columns = [[heading, *(line[at] for line in lines)] for at, heading in enumerate(headings)]
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    left = width - sum(least) - 2 * len(least)
    if left < 0:
        table.show_header = False
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for number, line in enumerate(lines):
            for heading, cell in zip(headings, line, strict=True):
                if cell:
                    table.add_row(heading, Text(cell, style=_colour(cell)))
            if number < len(lines) - 1:
                table.add_row("", "")
        return table
    for heading, column, narrowest in zip(headings, columns, least, strict=True):
        more = min(left, max(map(len, column)) - narrowest)
        left -= more
        table.add_column(Text(heading), width=narrowest + more)
    for line in lines:
        table.add_row(*(Text(cell, style=_colour(cell)) for cell in line))
    return table


def wrapped(text: str) -> str:
    """Text for a terminal, with lines broken between words and indented; as it is elsewhere."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns

    def broken(line: str) -> str:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        return textwrap.fill(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=False,
        )

    return "\n".join(map(broken, text.split("\n")))


def _colour(cell: str) -> str:
    parts = cell.replace(",", " ").split()
    return next((style for state, style in _COLOURS.items() if state in parts), "")


def read_json(path: str) -> Any:
    """The JSON in a file, or of stdin for `-`; CommandError when there is none."""
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"No JSON can be read from {path}: {error}.") from error


def read_connector(path: str) -> tuple[str | None, dict[str, str | None]]:
    """Name and configuration of a file: as in REST, flat, or (*.properties) as for Java's standalone worker."""
    return connector_of(read_properties(Path(path)) if path.endswith(".properties") else read_json(path), path)


def read_properties(path: Path) -> dict[str, str]:
    """Java's properties format, as Kafka reads it: Latin-1 with escapes; of a key that comes twice the last one counts.

    Raises:
        CommandError: the file cannot be read, or an escape in it is broken.
    """
    import javaproperties  # with much that only its XML format needs

    try:
        with path.open("rb") as file:
            return dict(javaproperties.load(file))
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"The properties in {path} cannot be read: {cause}.") from error


def connector_of(content: Any, where: str) -> tuple[str | None, dict[str, str | None]]:
    """Name and configuration in `{"name", "config"}` or in a flat map of keys."""
    if isinstance(content, list) and len(content) > 1:
        raise CommandError(f"{where} has {len(content)} connectors, where one is taken.", next_step="Give each a file.")
    content = content[0] if isinstance(content, list) and content else content
    config = content.get("config", content) if isinstance(content, dict) else None
    if not isinstance(config, Mapping):
        raise CommandError(f"{where} has no connector.", next_step='Give {"name": ..., "config": {...}} or its config.')
    texts = {key: None if value is None else _text(key, value) for key, value in config.items()}
    name = content.get("name") or texts.get("name")
    return (None if name is None else str(name)), texts


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        raise CommandError(f"The value of {key} must be a text, a number, true or false.")
    return str(value)


def _line(path: Path | None) -> str | None:
    """The first line of a file that is neither empty nor a comment."""
    if path is None:
        return None
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The login in {path} cannot be read: {error}.") from error
    return next((line for line in lines if line and not line.startswith("#")), None)
