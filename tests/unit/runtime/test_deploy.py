"""The dashboard and the alert rules ask for what a worker serves, by labels that it has, and show it in its unit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.runtime.metric_names import COUNTED
from tests.unit.runtime.test_metrics import ERRORS, SINK, SOURCE, World

DEPLOY = Path(__file__).parents[3] / "deploy"
OF_TARGETS = {"instance", "job"}
"""Labels that Prometheus itself gives to what it reads."""
OVER_TIME = {"deriv", "min_over_time", "max_over_time", "avg_over_time"}


@dataclass(frozen=True)
class Served:
    """A metric: counter or gauge, and its labels as Prometheus has them."""

    kind: str
    labels: frozenset[str]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    shown: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return shown


def expressions() -> list[str]:
    return [
        *(rule["expr"] for rule in rules()),
        *(target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]),
    ]


@cache
def served() -> dict[str, Served]:
    """What a worker serves to which everything has happened once, and what Prometheus makes of a target."""
    world = World()
    times = dict.fromkeys(("commit_ms_avg", "poll_ms_avg", "put_ms_avg"), 1)
    world.task_metrics = {TaskId("f", 0): {**SOURCE, **ERRORS, **times}, TaskId("s", 1): {**SINK, **ERRORS, **times}}
    world.record(EventKind.CONNECTOR_STATE, task=None, state="RUNNING")
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    for kind in (*COUNTED, EventKind.TRANSACTION_COMMITTED, EventKind.REBALANCE_COMPLETED):
        world.record(kind, records=1)
    families = text_string_to_metric_families(world.metrics.exposition({}).decode())
    return {"up": Served("gauge", frozenset(OF_TARGETS))} | {
        one.name: Served(family.type, frozenset(one.labels) | OF_TARGETS)
        for family in families
        for one in family.samples
    }


def parts(expression: promql.Expr, kind: type[Any]) -> list[Any]:
    """All parts of one kind."""
    found: list[Any] = []

    def note(part: promql.Expr) -> None:
        if isinstance(part, kind):
            found.append(part)

    promql.walk(expression, note)
    return found


def metrics_of(expression: promql.Expr) -> set[str]:
    return {str(one.name) for one in parts(expression, promql.VectorSelector)}


def labels_of(expression: Any) -> frozenset[str]:
    """Labels that a result has for certain."""
    match expression:
        case promql.VectorSelector():
            return served()[str(expression.name)].labels
        case promql.MatrixSelector():
            return labels_of(expression.vector_selector)
        case promql.Call():
            return labels_of(expression.args[-1])
        case promql.AggregateExpr():
            assert expression.modifier is None or expression.modifier.type == promql.AggModifierType.By
            return frozenset(expression.modifier.labels if expression.modifier is not None else ())
        case promql.BinaryExpr() if str(expression.op) == "or":
            return labels_of(expression.lhs) & labels_of(expression.rhs)
        case promql.BinaryExpr():
            return labels_of(expression.lhs)
        case promql.ParenExpr() | promql.SubqueryExpr():
            return labels_of(expression.expr)
    raise AssertionError(f"{expression} is new here")


@pytest.mark.parametrize("text", expressions())
def test_every_metric_in_an_expression_is_served_with_the_labels_that_it_is_chosen_by(text: str) -> None:
    selectors = parts(promql.parse(text), promql.VectorSelector)
    assert selectors
    for one in selectors:
        assert one.name in served()
        assert {matcher.name for matcher in one.matchers.matchers} <= served()[one.name].labels
        states = {matcher.value for matcher in one.matchers.matchers if matcher.name == "status"}
        assert states <= {state.lower() for state in State}


@pytest.mark.parametrize("text", expressions())
def test_growth_is_asked_of_counters_only_and_a_course_of_gauges_only(text: str) -> None:
    for call in parts(promql.parse(text), promql.Call):
        kinds = {served()[name].kind for argument in call.args for name in metrics_of(argument)}
        assert kinds == ({"gauge"} if call.func.name in OVER_TIME else {"counter"}), call.func.name


@pytest.mark.parametrize("text", expressions())
def test_what_is_grouped_by_is_there_to_be_grouped_by(text: str) -> None:
    for grouped in parts(promql.parse(text), promql.AggregateExpr):
        assert labels_of(grouped) <= labels_of(grouped.expr)


def test_the_connectors_to_choose_from_are_those_of_a_metric() -> None:
    (chosen,) = (one["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query")
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", chosen).groups()  # type: ignore[union-attr]
    assert label in served()[metric].labels


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_only_what_its_expression_leaves_and_fires_at_a_number(rule: dict[str, Any]) -> None:
    expression = promql.parse(rule["expr"])
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert named <= labels_of(expression)
    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert isinstance(expression, promql.BinaryExpr), "a series without a limit is always there"


def test_a_panel_names_what_its_expression_leaves_and_shows_times_and_rates_as_such() -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            expression = promql.parse(target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= labels_of(expression)
            is_rate = any(call.func.name == "rate" for call in parts(expression, promql.Call))
            units = (
                {"cps"} if is_rate else {"ms" if name.endswith("_ms") else "short" for name in metrics_of(expression)}
            )
            assert units == {panel["fieldConfig"]["defaults"]["unit"]}, panel["title"]


def test_the_faults_that_connectx_is_about_have_an_alert() -> None:
    assert {rule["alert"] for rule in rules()} >= {
        *("ConnectTaskFailed", "ConnectTaskOnTwoWorkers", "ConnectRebalanceStorm", "ConnectSinkLagGrowing"),
        "ConnectWorkerLost",
    }


def test_panels_have_places_and_ids_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
