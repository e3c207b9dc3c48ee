"""Types, defaults and messages of configuration keys are Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef, Secret
from connectx.model.validators import (
    at_least,
    between,
    distinct_list,
    matching,
    non_empty,
    one_of,
    table_name_format,
    unique_list,
    valid_regex,
)
from tests.support.profiles import dotted


def problems_of(definition: ConfigDef, **config: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        definition.parse(dotted(config))
    return caught.value.problems


def test_all_problems_are_told_at_once_in_kafkas_words() -> None:
    definition = (
        ConfigDef()
        .define("file")
        .define("batch.size", int, 1, validator=at_least(1))
        .define("debug", bool, False)
        .define("ratio", float, 1.0)
        .define("small", "SHORT", 1)
        .define("mode", str, "a", validator=one_of("a", "b"))
    )
    assert problems_of(definition, batch_size="many", debug="yes", ratio="1,5", small="40000", mode="c") == (
        'Missing required configuration "file" which has no default value.',
        "Invalid value many for configuration batch.size: Not a number of type INT",
        "Invalid value yes for configuration debug: Expected value to be either true or false",
        "Invalid value 1,5 for configuration ratio: Not a number of type DOUBLE",
        "Invalid value 40000 for configuration small: Not a number of type SHORT",
        "Invalid value c for configuration mode: String must be one of: a, b",
    )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, " 42 ", 42),
        (int, "+7", 7),
        (int, "-2147483648", -(2**31)),
        ("LONG", "9223372036854775807", 2**63 - 1),
        ("SHORT", "-32768", -32768),
        (float, "1.5e3", 1500.0),
        (float, "2f", 2.0),
        (float, "-Infinity", float("-inf")),
        (bool, "TRUE", True),
        (bool, " false ", False),
        (str, "  x  ", "x"),
        (list, "a , b,c", ["a", "b", "c"]),
        (list, "", []),
        (list, "a,", ["a", ""]),
        ("CLASS", "a.B", "a.B"),
        ("PASSWORD", "s3cret", Secret("s3cret")),
        (int, None, None),
    ],
)
def test_text_becomes_the_value_that_java_makes_of_it(kind: Any, text: str | None, value: Any) -> None:
    assert ConfigDef().define("key", kind).parse({"key": text}) == {"key": value}


@pytest.mark.parametrize("text", ["1_000", "2147483648", "1.0", "0x10", "", "١٢"])
def test_what_java_refuses_as_a_number_is_refused(text: str) -> None:
    assert problems_of(ConfigDef().define("n", int), n=text) == (
        f"Invalid value {text} for configuration n: Not a number of type INT",
    )


def test_a_validator_also_sees_the_null_left_of_an_unreadable_value() -> None:
    definition = ConfigDef().define("tasks.max", int, 1, validator=at_least(1))
    assert definition.validate({"tasks.max": "abc"})[0].errors == [
        "Invalid value abc for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
    ]
    assert problems_of(definition, tasks_max="abc") == (
        "Invalid value abc for configuration tasks.max: Not a number of type INT",
    )


@pytest.mark.parametrize(
    ("validator", "value", "problem"),
    [
        (at_least(0), "-1", "Value must be at least 0"),
        (between(0, 5), "6", "Value must be no more than 5"),
    ],
)
def test_numbers_out_of_range(validator: Any, value: str, problem: str) -> None:
    assert problems_of(ConfigDef().define("n", int, 1, validator=validator), n=value) == (
        f"Invalid value {value} for configuration n: {problem}",
    )


@pytest.mark.parametrize(
    ("validator", "good", "bad", "problem"),
    [
        (one_of("A", "b", ignore_case=True), "B", "x", "String must be one of (case insensitive): A, B"),
        (non_empty(), "x", " ", "String must be non-empty"),
        (valid_regex(), "a.*", "(", "Invalid regex: it ends within a group"),
        (valid_regex(filled=True), "a.*", " ", "String must be non-empty"),
        (matching("[a-z]+"), "abc", "A", "String must match [a-z]+"),
        (table_name_format(), "x.${topic}", "${topics}", "${topics} is not known; the only variable is ${topic}"),
        (table_name_format(), "x_$1{2}", "x_${topic", "${topic is not known; the only variable is ${topic}"),
        (table_name_format(), "x", " ", "String must be non-empty"),
        (lambda value: "too odd" if value == "odd" else None, "even", "odd", "too odd"),
    ],
)  # fmt: skip
def test_texts_out_of_bounds(validator: Any, good: str, bad: str, problem: str) -> None:
    definition = ConfigDef().define("s", str, None if validator is None else good, validator=validator)
    assert definition.parse({"s": good}) == {"s": good}
    assert problems_of(definition, s=bad) == (f"Invalid value {bad.strip()} for configuration s: {problem}",)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("", "must not be empty. Valid values include: any non-empty value"),
        ("a,,b", "values must not be empty."),
        ("a,a", "values must not be duplicated."),
        (None, "values must not be null."),
    ],
)
def test_lists_of_different_texts(fields: str | None, problem: str) -> None:
    definition = ConfigDef().define("fields", list, ["x"], validator=distinct_list("fields", filled=True))
    (found,) = definition.validate({"fields": fields})
    assert found.errors == [f"Configuration 'fields' {problem}"]


def test_repeated_entries_of_a_connector_that_runs_are_dropped() -> None:
    definition = ConfigDef().define("fields", list, [], validator=distinct_list("fields"))
    assert definition.parse({"fields": "b,a,b"}) == {"fields": ["b", "a"]}
    assert definition.parse({}) == {"fields": []}


def test_lists_name_repeated_entries_as_java_does() -> None:
    definition = ConfigDef().define("transforms", list, [], validator=unique_list("transformation aliases"))
    assert problems_of(definition, transforms="a,a") == (
        "Invalid value [a, a] for configuration transforms: Duplicate alias provided.",
    )


def test_a_default_has_to_fit() -> None:
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        ConfigDef().define("n", int, 0, validator=at_least(1))
    with pytest.raises(ConfigError, match="n is defined twice"):
        ConfigDef().define("n", int, 1).define("n", int, 1)
    with pytest.raises(ConfigError, match="Python type dict"):
        ConfigDef().define("n", dict, {})  # type: ignore[arg-type]


def test_secrets_are_never_shown() -> None:
    definition = ConfigDef().define("db.password", str, secret=True)
    parsed = definition.parse({"db.password": "hunter2"})
    assert parsed["db.password"].value == "hunter2"
    shown = [str(parsed), repr(parsed["db.password"]), f"{parsed['db.password']}"]
    shown += [str(value.to_json()) for value in definition.validate({"db.password": "hunter2"})]
    assert not [text for text in shown if "hunter2" in text]


def test_definitions_have_the_shape_of_rest() -> None:
    definition = (
        ConfigDef()
        .define("a", int, 5, doc="An a.", group="G", importance="high", width="short", display_name="The a")
        .define("b", list, ["x", "y"], group="G", dependents=["a"])
        .define("c")
    )
    assert definition.groups == ["G"]
    assert [key.to_json() for key in definition.keys.values()] == [
        {
            "name": "a", "type": "INT", "required": False, "default_value": "5", "importance": "HIGH",
            "documentation": "An a.", "group": "G", "order_in_group": 1, "width": "SHORT", "display_name": "The a",
            "dependents": [],
        },
        {
            "name": "b", "type": "LIST", "required": False, "default_value": "x,y", "importance": "MEDIUM",
            "documentation": "", "group": "G", "order_in_group": 2, "width": "NONE", "display_name": "b",
            "dependents": ["a"],
        },
        {
            "name": "c", "type": "STRING", "required": True, "default_value": None, "importance": "MEDIUM",
            "documentation": "", "group": None, "order_in_group": -1, "width": "NONE", "display_name": "c",
            "dependents": [],
        },
    ]  # fmt: skip
    assert definition.validate({"a": "x", "c": "y"})[0].to_json("p.") == {
        "name": "p.a",
        "value": None,
        "recommended_values": [],
        "errors": ["Invalid value x for configuration a: Not a number of type INT"],
        "visible": True,
    }


def test_keys_are_in_the_group_that_was_named_last_and_counted_in_it() -> None:
    definition = (
        ConfigDef()
        .define("a")
        .group("Reads")
        .define("b")
        .define("c", group="Writes")
        .define("d")
        .group("Writes")
        .define("e")
    )
    assert [(key.name, key.group, key.order) for key in definition.keys.values()] == [
        ("a", None, -1),
        ("b", "Reads", 1),
        ("c", "Writes", 1),
        ("d", "Reads", 2),
        ("e", "Writes", 2),
    ]
