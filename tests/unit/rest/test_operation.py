"""Operations are declared once: their targets, their schemas, and their row in docs/rest.md."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.core import verbs
from connectx.rest import admin, resources
from connectx.rest.openapi import openapi
from connectx.rest.operation import Operation
from connectx.rest.operations import OPERATIONS
from tests.support.rest_table import PAGE, table, table_in

BY_VERB = {one.verb: one for one in OPERATIONS}
NOT_REST = {verbs.Worker, verbs.Create, verbs.PutConfig, verbs.Offsets, verbs.ModifyOffsets, verbs.PutTaskConfigs}
NOT_REST |= {verbs.Fence, verbs.LoggerLevel}


@pytest.mark.parametrize(
    ("operation", "parameters", "target"),
    [
        (BY_VERB[verbs.Pause], {"connector": "a/ü"}, "/connectors/a%2F%C3%BC/pause"),
        (BY_VERB[verbs.RestartTask], {"connector": "a", "task": 3}, "/connectors/a/tasks/3/restart"),
        (BY_VERB[verbs.ListConnectors], {"expand": ()}, "/connectors"),
        (BY_VERB[verbs.ListConnectors], {"expand": ("info", "status")}, "/connectors?expand=info&expand=status"),
        (
            BY_VERB[verbs.RestartConnector],
            {"connector": "a", "include_tasks": True, "only_failed": False},
            "/connectors/a/restart?includeTasks=true",
        ),
        (admin.plugins, {"connectorsOnly": False}, "/connector-plugins?connectorsOnly=false"),
    ],
)
def test_path_and_query_of_a_request(operation: Operation[Any], parameters: dict[str, Any], target: str) -> None:
    assert operation.target(parameters) == target


def test_every_other_verb_is_an_operation() -> None:
    assert {*verbs.Verb.__args__} - NOT_REST == {*BY_VERB} - {None}


def test_the_document_has_the_types_of_bodies() -> None:
    document = openapi(OPERATIONS, version="4.3.0", schemes={})
    create = document["paths"]["/connectors"]["post"]
    assert create["requestBody"]["content"]["application/json"]["schema"] == ref("NewConnector")
    assert create["responses"]["201"]["content"]["application/json"]["schema"] == ref("ConnectorInfo")
    restart = document["paths"]["/connectors/{connector}/restart"]["post"]["responses"]
    assert restart["202"]["content"]["application/json"]["schema"] == ref("ConnectorStatus")
    assert "content" not in restart["204"]
    schemas = document["components"]["schemas"]
    assert schemas["TaskState"]["additionalProperties"] is False
    assert schemas["ConnectorState"]["properties"]["state"]["enum"][:2] == ["UNASSIGNED", "RUNNING"]


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_a_body_that_only_some_statuses_have_is_one_type() -> None:
    assert (admin.set_logger.body, admin.set_logger.statuses) == (list[str], (200, 204))
    assert resources.fence.body is None


def test_the_page_lists_the_operations() -> None:
    assert table_in(PAGE.read_text(encoding="utf-8")) == table(), "run python -m tests.support.rest_table"
