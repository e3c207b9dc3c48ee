"""`connectx watch`: show workers, connectors with rates, lag and lanes, and new events until it is interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connectx.api.lanes import read_lanes
from connectx.api.movement import Movement
from connectx.cli.clusters import status
from connectx.cli.common import At, rich_table, wrapped
from connectx.cli.output import print_safely
from connectx.errors.base import ConnectxError
from connectx.history.wording import duration
from connectx.model.states import LOST, State
from connectx.views import Row, text_table, visible

if TYPE_CHECKING:
    from connectx.api.attached.cluster import AttachedCluster
    from connectx.core.replies import ConnectorState, ConnectorStatus

_STORIES = 8
_GONE_S = 120.0
"""How long a worker that has gone is still shown."""


def watch(
    at: At,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, for scripts.")] = False,
) -> None:
    """Show workers, connectors with rates, lag and lanes, and new events, until Ctrl-C.

    Rates of sources and lag of sinks need --bootstrap-servers or --worker-config.
    """
    if at.as_json or once:
        status(at)
        return
    cluster = at.cluster
    try:
        with closing(Watch(cluster)) as pictures, cluster.events.subscribe() as news:
            if sys.stdout.isatty():
                from rich.live import Live

                with Live(pictures.rich(), auto_refresh=False, screen=False) as live:
                    while True:
                        news.get(every)
                        live.update(pictures.rich(), refresh=True)
            while True:
                print_safely(pictures.text())
                news.get(every)
    except KeyboardInterrupt:
        return


class Watch:
    """What the command shows of a cluster at one moment after the other."""

    def __init__(self, cluster: AttachedCluster) -> None:
        self._cluster = cluster
        self._movements = cluster.movement_reader()
        self._seen: dict[str, tuple[float, Row]] = {}

    def close(self) -> None:
        self._movements.close()

    def rich(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        stories = list(self._stories())
        return Group(
            Text(visible(self._head()), style="dim"),
            rich_table(self._workers(), "Workers"),
            rich_table(self._connectors(), "Connectors"),
            *(
                [Text("What happened", style="bold"), *(Text(wrapped(visible(story))) for story in stories)]
                if stories
                else []
            ),
        )

    def text(self) -> str:
        tables = [text_table(self._workers()), text_table(self._connectors())]
        return "\n\n".join([self._head(), *tables, "\n".join(self._stories())]).rstrip() + "\n"

    def _head(self) -> str:
        facts = ", ".join(f"{key} {value}" for key, value in self._cluster.overview().items() if value is not None)
        return f"{datetime.now():%H:%M:%S}  {facts}"

    def _workers(self) -> list[Row]:
        now_s = time.monotonic()
        for worker in self._cluster.workers:
            row: Row = {
                "worker": worker.name,
                "state": "running, leader" if worker.is_leader else "running",
                "connectors": len(worker.connectors),
                "tasks": len(worker.tasks),
            }
            self._seen[worker.name] = (now_s, row)
        rows: list[Row] = []
        for seen_s, known in self._seen.values():
            age_s = now_s - seen_s
            if age_s < _GONE_S:
                gone = {"state": f"gone for {duration(round(age_s) * 1000)}", "connectors": 0, "tasks": 0}
                rows.append({**known, **gone} if age_s > 0 else known)
        return rows

    def _connectors(self) -> list[Row]:
        try:
            shown = self._cluster._client.impatient().expanded()
        except ConnectxError as error:
            return [{"connector": error.message}]
        statuses = {name: one["status"] for name, one in shown.items() if one.get("status")}
        moving = self._movements.read({name: str(one.get("type", "")) for name, one in statuses.items()})
        lanes = read_lanes(self._cluster._client, [worker.url for worker in self._cluster.workers])
        rows = [self._connector(name, statuses[name], moving[name], lanes) for name in sorted(statuses)]
        return rows or [{"connector": "none"}]

    def _connector(self, name: str, status: ConnectorStatus, movement: Movement, lanes: Mapping[str, str]) -> Row:
        own, *states = (self._state(part) for part in (status["connector"], *status["tasks"]))
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        return {
            "connector": name,
            "state": State.FAILED.value if State.FAILED in states else own,
            "tasks": counts or "none",
            "records/s": None if movement.rate is None else f"{movement.rate:,.0f}",
            "lag": None if movement.lag is None else f"{movement.lag:,}",
            **({"lane": lanes.get(name)} if lanes else {}),
        }

    def _state(self, part: ConnectorState) -> str:
        runs = part["state"] in (State.RUNNING, State.PAUSED)
        return LOST if runs and self._cluster.workers.lost_on(part["worker_id"]) else str(part["state"])

    def _stories(self) -> Iterator[str]:
        for story in self._cluster.events.stories()[-_STORIES:]:
            yield f"{datetime.fromtimestamp(story.time_ms / 1000):%H:%M:%S}  {story}"
