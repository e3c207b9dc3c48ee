"""Runs the connectors of the installed sample in a cluster, and prints what a user gets as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from connectx_widgets.questions import answer

import connectx as cx
from connectx.model.events import EventKind

JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
INTERNAL = ("config", "offset", "status")
WAIT_S = 120.0


def refusal(cluster: cx.Cluster, config: dict[str, str]) -> str:
    """The text with which REST refuses a connector."""
    try:
        cluster.create("refused", config)
    except cx.ConnectxError as error:
        return str(error)
    return ""


def failed(cluster: cx.Cluster, name: str) -> str:
    """The trace of the task of a connector, which fails."""
    cluster.wait(name, "FAILED", timeout=WAIT_S)
    (task,) = cluster.status(name)["tasks"]
    return str(task["trace"])


def main(kafka: str, shelf: Path) -> None:
    source = {"connector.class": "ShelfSource", "shelf": str(shelf), "topic": "numbers", **JSON}
    sink = {"connector.class": "ShelfSink", "shelf": str(shelf), "topics": "numbers", **JSON}
    replicas = {f"{one}.storage.replication.factor": 1 for one in INTERNAL}
    config = {"group.id": "other-package", "offset.flush.interval.ms": 500, **replicas}
    with cx.Cluster(bootstrap_servers=kafka, config=config) as cluster:
        incomplete = {key: value for key, value in sink.items() if key != "shelf"}
        form: Any = answer(
            cluster, {"question": "validate", "connector": "new", "config": incomplete, "editing": False}
        )
        found: dict[str, Any] = {
            "plugins": sorted(one["class"] for one in cluster.plugins() if "shelf" in one["class"].lower()),
            "classes": sorted(
                one["class"] for one in answer(cluster, {"question": "classes"}) if "Shelf" in one["class"]
            ),
            "form": {one["definition"]["name"]: one["value"]["errors"] for one in form["validation"]["configs"]},
            "missing extra": refusal(cluster, {**sink, "connector.class": "FarShelfSink"}),
        }
        cluster.create("lost", {**source, "shelf": str(shelf / "none")})
        found["failed"] = failed(cluster, "lost")
        cluster["lost"].delete()
        cluster.create("in", source)
        cluster.wait_committed("in", 100, timeout=WAIT_S)
        cluster.create("out", {**sink, "bulk.mode": "always"})
        cluster.wait_committed("out", 100, timeout=WAIT_S)
        staged = [event.data["records"] for event in cluster.events.find(EventKind.BULK_STAGED)]
        verdict = cluster.check()
        found |= {"staged": sum(staged), "verdict": [verdict.answer, *verdict.reasons]}
    print(json.dumps(found))


main(sys.argv[1], Path(sys.argv[2]))
