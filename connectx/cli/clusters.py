"""Commands on a whole cluster: status, audit, export, import, plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connectx.cli.common import At, cluster_command, connector_of, read_json, show_table
from connectx.cli.output import print_safely
from connectx.cli.plan import Declared, Planned, Present, plan, planned
from connectx.errors.rest import CommandError, ConnectorNotFoundError
from connectx.errors.transfer import ImportIncompleteError
from connectx.history.wording import task_of
from connectx.model.group import WorkSet
from connectx.model.spelling import known_keys
from connectx.model.worker_keys import WorkerKeys
from connectx.views import Row

if TYPE_CHECKING:
    from connectx.api.attached.cluster import AttachedCluster


def add_to(app: typer.Typer) -> None:
    """Make the commands commands of an app."""
    for command in (status, audit):
        cluster_command(app)(command)
    cluster_command(app, "export")(export_file)
    cluster_command(app, "import")(import_file)
    cluster_command(app, "plan")(plan_file)


def status(at: At) -> None:
    """Show workers and connectors with their states."""
    cluster = at.cluster
    if at.as_json:
        workers = [
            {
                "worker": one.name,
                "url": one.url,
                "leader": one.is_leader,
                "connectors": one.connectors,
                "tasks": one.tasks,
            }
            for one in cluster.workers
        ]
        connectors = [at.status(connector) for connector in cluster.connectors]
        at.show({"cluster": cluster.overview(), "workers": workers, "connectors": connectors})
        return
    show_table([{key: value for key, value in cluster.overview().items() if value is not None}])
    print_safely()
    show_table(_workers(cluster))
    print_safely()
    show_table(_connectors(cluster))


class Threshold(StrEnum):
    """From which severity on an audit has an exit code."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


def audit(
    at: At,
    also: Annotated[
        list[str] | None, typer.Option(metavar="URL[,HOST:PORT]", help="Another cluster, with its Kafka; repeatable.")
    ] = None,
    fail_on: Annotated[Threshold, typer.Option(help="Lowest severity that sets exit code 1.")] = Threshold.ERROR,
) -> None:
    """Report mistakes in one or several clusters: evidence, consequence, remedy. Changes nothing.

    With --bootstrap-servers or --worker-config it sees the group, the topics and the settings, too.
    """
    from connectx.api.connect_cluster import audit as audit_clusters

    clusters = [at.cluster]
    for other in also or ():
        url, _, bootstrap_servers = other.partition(",")
        clusters.append(at.attach(url, bootstrap_servers or None))
    found = audit_clusters(*clusters)
    findings = [{**asdict(finding), "severity": finding.severity.value} for finding in found]
    at.show({"clusters": found.clusters, "findings": findings, "unseen": found.unseen}, repr(found))
    bad = {Threshold.NEVER: [], Threshold.ERROR: ["error"], Threshold.WARNING: ["error", "warning"]}[fail_on]
    if any(finding["severity"] in bad for finding in findings):
        raise typer.Exit(1)


def export_file(
    at: At,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing one is replaced.")],
    secrets: Annotated[bool, typer.Option("--secrets", help="Write passwords instead of masking them.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the connectors first, so that the offsets are final.")
    ] = False,
) -> None:
    """Write configurations, target states and offsets of all connectors to one JSON file."""
    backup = at.cluster.export_to(file, secrets=secrets, stop=stop)
    rows = [connector.row() for connector in backup.connectors]
    at.show({"file": str(file), "connectors": rows}, rows or "The cluster has no connectors.")


def import_file(
    at: At,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `export` wrote.")],
    secrets_file: Annotated[
        str | None, typer.Option(metavar="FILE", help='Values of masked keys: {"connector": {"key": "value"}}.')
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also replace running connectors, and set their offsets.")
    ] = False,
) -> None:
    """Create connectors with their offsets and target states from a file. An interrupted import can be repeated."""
    secrets = _secrets(read_json(secrets_file), secrets_file) if secrets_file is not None else None
    try:
        report: Any = at.cluster.import_from(file, secrets=secrets, overwrite=overwrite)
    except ImportIncompleteError as error:
        report = error.report
        at.show([one.row() for one in report], [one.row() for one in report])
        raise
    at.show([one.row() for one in report], [one.row() for one in report] or "The file has no connectors.")


def plan_file(
    at: At,
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="One connector, a list, or a file of `export`.")],
    max_delay: Annotated[
        int | None,
        typer.Option(
            min=0, help="The workers' scheduled.rebalance.max.delay.ms; by default from --worker-config, or 300000."
        ),
    ] = None,
) -> None:
    """Dry run: what would be refused, created or changed, and which tasks would move. Changes nothing.

    Exit code 1 when a connector would be refused. Workers that run nothing are seen only with --bootstrap-servers.
    """
    cluster, wanted = at.cluster, _wanted(read_json(file), file)
    present = {connector.name: _present(at, connector.name) for connector in cluster.connectors}
    connectors = [_planned(at, one, present.get(one.name)) for one in wanted]
    work = {w.name: WorkSet(tuple(w.connectors), tuple(filter(None, map(task_of, w.tasks)))) for w in cluster.workers}
    if max_delay is None:
        max_delay = WorkerKeys.scheduled_rebalance_max_delay_ms.parse(at.worker_settings)
    outcome = plan(connectors, present, work, max_delay)
    if at.as_json:
        at.show(outcome.to_json())
    else:
        show_table([row for one in outcome.connectors for row in one.rows()])
        for title, moves in (("These would start", outcome.starts), ("These would move", outcome.moves)):
            if moves:
                print_safely(f"\n{title}:")
                show_table([move.row() for move in moves])
        if outcome.restarts:
            print_safely(f"\nThese would restart where they are: {', '.join(outcome.restarts)}")
        if not outcome.moves:
            print_safely("\nNo work that runs would move.")
    if not outcome.is_valid:
        raise typer.Exit(1)


def _workers(cluster: AttachedCluster) -> list[Row]:
    return [worker.row() for worker in cluster.workers]


def _connectors(cluster: AttachedCluster) -> list[Row]:
    return [connector.row() for connector in cluster.connectors] or [{"connector": "no connectors"}]


def _planned(at: At, wanted: Declared, there: Present | None) -> Planned:
    """What would become of one; a masked value of the file stands for the one that is there."""
    old = there.config if there is not None else {}
    config = at.revealed(wanted.config, old)
    result = at.cluster.validate({**config, "name": wanted.name})
    problems = [problem for info in result["configs"] for problem in info["value"]["errors"]]
    found = planned(replace(wanted, config=config), there, problems, known_keys(result))
    before, after = at.shown(old), at.shown(config)
    return replace(found, diff={key: (before.get(key), after.get(key)) for key in found.diff})


def _present(at: At, name: str) -> Present:
    connector = at.cluster[name]
    try:
        status = connector.status()
        return Present(dict(connector.config), len(status["tasks"]), status["connector"]["state"] == "STOPPED")
    except ConnectorNotFoundError:  # deleted meanwhile
        return Present({}, 0, stopped=True)


def _wanted(content: Any, where: str) -> list[Declared]:
    """Connectors of a file: one, a list, an export, or a map of names to configurations."""
    if isinstance(content, dict) and isinstance(content.get("connectors"), list):
        content = content["connectors"]
    if isinstance(content, dict) and content and all(isinstance(value, dict) for value in content.values()):
        content = [{"name": name, "config": config} for name, config in content.items()]
    wanted = []
    for entry in content if isinstance(content, list) else [content]:
        name, config = connector_of(entry, where)
        if name is None:
            raise CommandError(f"A connector in {where} has no name.")
        stopped = str(entry.get("initial_state") or entry.get("state") or "").upper() == "STOPPED"
        wanted.append(Declared(name, config, stopped))
    return wanted


def _secrets(content: Any, where: str | None) -> Mapping[str, Mapping[str, str]]:
    if isinstance(content, dict) and all(isinstance(value, dict) for value in content.values()):
        return content
    raise CommandError(f'{where} must look like {{"connector": {{"key": "value"}}}}.')
