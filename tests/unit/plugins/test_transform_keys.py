"""Keys of transformations and predicates: what is wrong with them is said as Kafka Connect says it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import connectx as cx
from connectx.errors.plugins import ConfigError, PluginNotFoundError
from connectx.model.configdef import ConfigInfos
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.plugins.transform_keys import TRANSFORMS
from connectx.plugins.validation import validate_connector
from tests.support.profiles import dotted

WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}
JAVA = "org.apache.kafka.connect.transforms."


class Doubled(cx.Transform):
    """Somebody's own."""

    config = cx.ConfigDef().define("times", int, 2)

    def apply(self, table: pa.Table) -> pa.Table:
        return table


def infos(plugins: Plugins | None = None, /, **config: str) -> ConfigInfos:
    given = dotted(config)
    return validate_connector(plugins or Plugins(), {**SOURCE, **given}, WORKER)


def problems(**config: str) -> dict[str, list[str]]:
    return {
        info["value"]["name"]: info["value"]["errors"] for info in infos(**config)["configs"] if info["value"]["errors"]
    }


def test_keys_of_a_transformation_and_its_predicate_are_part_of_the_validation() -> None:
    found = infos(
        transforms="a",
        transforms_a_type=f"{JAVA}InsertField$Value",
        transforms_a_topic_field="t",
        transforms_a_predicate="p",
        predicates="p",
        predicates_p_type="TopicNameMatches",
        predicates_p_pattern="x.*",
    )
    assert found["error_count"] == 0
    shown = {info["value"]["name"]: info for info in found["configs"]}
    typed = shown["transforms.a.type"]
    assert typed["definition"] is not None
    assert typed["definition"]["group"] == "Transforms: a"
    assert typed["definition"]["display_name"] == "Transformation type for a"
    assert f"{JAVA}InsertField$Key" in typed["value"]["recommended_values"]
    assert [name for name in shown if name.startswith("transforms.a.")][:4] == [
        *("transforms.a.type", "transforms.a.predicate", "transforms.a.negate", "transforms.a.topic.field"),
    ]
    assert shown["predicates.p.pattern"]["value"]["value"] == "x.*"
    assert {"Transforms: a", "Predicates: p"} <= set(found["groups"])


@pytest.mark.parametrize(
    ("config", "key", "problem"),
    [
        ({"transforms": "a,a"}, "transforms", "Duplicate alias provided."),
        ({"transforms": "a"}, "transforms.a.type", 'Missing required configuration "transforms.a.type"'),
        (
            {"transforms": "a", "transforms.a.type": f"{JAVA}InsertField"},
            "transforms.a.type",
            f"is abstract and cannot be created. Did you mean {JAVA}InsertField$Key, {JAVA}InsertField$Value?",
        ),
        ({"transforms": "a", "transforms.a.type": "os.path.join"}, "transforms.a.type", "Not a Transformation"),
        (
            {"transforms": "a", "transforms.a.type": "SetSchemaMetadata$Value"},
            "transforms.a.type",
            "Neither schema name nor version configured",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.negate": "true"},
            "transforms.a.type",
            "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate' defining",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "p"},
            "transforms.a.predicate",
            "Invalid value p for configuration transforms.a.predicate: predicates names no such alias.",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Cast$Value", "transforms.a.spec": "x:int7"},
            "transforms.a.spec",
            "Invalid value java.lang.IllegalArgumentException: No enum constant org.apache.kafka.connect.data.Schema."
            "Type.INT7 for configuration Invalid type found in casting spec: int7",
        ),
        (
            {"transforms": "a", "transforms.a.type": "InsertField$Value"},
            "transforms.a.type",
            "No field insertion configured",
        ),
        (
            {"transforms": "a", "transforms.a.type": "TimestampConverter$Key", "transforms.a.target.type": "Hour"},
            "transforms.a.target.type",
            "String must be one of: string, unix, Date, Time, Timestamp",
        ),
        (
            {"transforms": "a", "transforms.a.type": "TimestampRouter", "transforms.a.timestamp.format": "ww"},
            "transforms.a.timestamp.format",
            "A SimpleDateFormat is expected: the letters ww are not supported",
        ),
        (
            {"transforms": "a", "transforms.a.type": "TimestampConverter$Key", "transforms.a.target.type": "unix",
             "transforms.a.format": "yyyy'"},
            "transforms.a.format",
            "Invalid value java.lang.IllegalArgumentException: Unterminated quote for configuration TimestampConverter "
            "requires a SimpleDateFormat-compatible pattern for string timestamps: yyyy'",
        ),
        (
            {"transforms": "a", "transforms.a.type": "TimestampRouter", "transforms.a.timestamp.format": "b"},
            "transforms.a.timestamp.format",
            "A SimpleDateFormat is expected: Illegal pattern character 'b'",
        ),
        (
            {"transforms": "a", "transforms.a.type": "MaskField$Value", "transforms.a.fields": "x,x"},
            "transforms.a.fields",
            "Configuration 'fields' values must not be duplicated.",
        ),
        (
            {"transforms": "a", "transforms.a.type": "ReplaceField$Value", "transforms.a.renames": "x:"},
            "transforms.a.renames",
            "Invalid rename mapping: x:",
        ),
        (
            {"transforms": "a", "transforms.a.type": "ExtractField$Value", "transforms.a.field": "x.`y",
             "transforms.a.field.syntax.version": "V2"},
            "transforms.a.type",
            "Incomplete backtick pair in path: [x.`y], consider adding a backslash before backtick at position 2 to "
            "escape it",
        ),
        ({"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": ""},
         "predicates.p.pattern", "Invalid value  for configuration predicates.p.pattern: String must be non-empty"),
        ({"predicates": "p", "predicates.p.type": "Filter"}, "predicates.p.type", "Class Filter could not be found."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_key(config: dict[str, str], key: str, problem: str) -> None:
    found = problems(**config)
    assert problem in found.pop(key)[0]
    assert set(found) <= {"transforms.a.type"}  # of a list that is wrong the aliases are looked at all the same


def test_a_transformation_of_ones_own_is_named_by_its_path_or_given_as_a_class() -> None:
    plugins = Plugins()
    assert plugins.transform_class(TRANSFORMS, f"{__name__}.Doubled") is Doubled
    name = plugins.as_text(Doubled)
    assert name == f"{__name__}.Doubled"
    found = {
        i["value"]["name"]: i["value"]["value"]
        for i in infos(plugins, transforms="a", transforms_a_type=name)["configs"]
    }
    assert found["transforms.a.times"] == "2"


def test_a_chain_is_what_the_configuration_says_in_its_order() -> None:
    config = {
        "transforms": "drop, name",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "old",
        "transforms.drop.negate": "true",
        "transforms.name.type": f"{JAVA}HoistField$Value",
        "transforms.name.field": "line",
        "predicates": "old",
        "predicates.old.type": "HasHeaderKey",
        "predicates.old.name": "old",
    }
    chain = Plugins().chain(config)
    assert [(step.alias, type(step.transform).__name__, step.negate) for step in chain.steps] == [
        ("drop", "Filter", True),
        ("name", "HoistField$Value", False),
    ]
    assert not Plugins().chain(SOURCE)
    with pytest.raises(PluginNotFoundError):
        Plugins().chain({"transforms": "a", "transforms.a.type": "nothing.like.it"})
    with pytest.raises(ConfigError, match=r"transforms\.a\.type"):
        Plugins().chain({"transforms": "a"})


def test_transformations_and_predicates_are_listed_with_their_java_names() -> None:
    listed = {(plugin.name, plugin.type) for plugin in Plugins().describe(connectors_only=False)}
    assert (f"{JAVA}Cast$Key", "transformation") in listed
    assert (f"{JAVA}predicates.HasHeaderKey", "predicate") in listed
    assert "field" in Plugins().config_of(f"{JAVA}HoistField$Key")
