"""The dashboard and the alert rules name what a worker serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from connectx.kafka.group import GroupRequests
from connectx.runtime.metrics import WorkerMetrics

DEPLOY = Path(__file__).parents[3] / "deploy"
PROMETHEUS = {"up"}  # made by Prometheus itself for each target
WORDS = {
    *("sum", "count", "min", "max", "avg", "rate", "increase", "deriv", "min_over_time", "max_over_time"),
    *("by", "without", "on", "and", "or", "unless", "label_values"),
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    shown: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return shown


def expressions() -> list[str]:
    shown = dashboard()
    variables = [one["query"] for one in shown["templating"]["list"] if one["type"] == "query"]
    panels = [target["expr"] for panel in shown["panels"] for target in panel["targets"]]
    return [*(rule["expr"] for rule in rules()), *panels, *variables]


def metrics_of(expression: str) -> set[str]:
    """Names in an expression that are neither functions nor labels nor units of time."""
    for left_out in (r"\{[^}]*\}", r"\[[^\]]*\]", r"\b(by|without|on) \([^)]*\)", r", connector\)"):
        expression = re.sub(left_out, " ", expression)
    return {*re.findall(r"[a-zA-Z_:][\w:]*", expression)} - WORDS


def served() -> set[str]:
    text = WorkerMetrics(dict, dict, lambda: 0, lambda: 0, GroupRequests()).exposition({}).decode()
    families = text_string_to_metric_families(text)
    return {family.name + ("_total" if family.type == "counter" else "") for family in families}


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_in_an_expression_is_served(expression: str) -> None:
    assert (named := metrics_of(expression))
    assert named <= served() | PROMETHEUS
    assert expression.count("(") == expression.count(")")


def test_the_faults_that_connectx_is_about_have_an_alert() -> None:
    assert {rule["alert"] for rule in rules()} >= {
        *("ConnectTaskFailed", "ConnectTaskOnTwoWorkers", "ConnectRebalanceStorm", "ConnectSinkLagGrowing"),
        "ConnectWorkerLost",
    }
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules())


def test_panels_have_places_and_ids_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
