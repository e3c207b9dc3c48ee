"""Names of a task's plugins, for its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from connectx.model.class_names import public_name
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain

Named = tuple[str, str, str]
"""Alias, class and version of a transformation or predicate; versions are empty where a class has none."""


class TaskPlugins(Value):
    """Plugins of one task: `texts` by Kafka Connect's attribute, and what its chain has."""

    texts: Mapping[str, str]
    transforms: tuple[Named, ...]
    predicates: tuple[Named, ...]


class TaskSetup(Protocol):
    """What the set-ups of source and sink tasks have in common."""

    @property
    def plugin(self) -> object:
        """The task's own class, instantiated."""

    @property
    def version(self) -> str | None:
        """The connector's version; None if its class has none."""

    @property
    def key_converter(self) -> Converter:
        """Its class and settings come from `key.converter`, or from the worker."""

    @property
    def value_converter(self) -> Converter:
        """Its class and settings come from `value.converter`, or from the worker."""

    @property
    def header_converter(self) -> HeaderConverter:
        """Its class and settings come from `header.converter`, or from the worker."""

    @property
    def chain(self) -> Chain:
        """Transformations with their predicates."""


def plugins_of(setup: TaskSetup, connector_class: str, connector_type: str) -> TaskPlugins:
    """What a task is made of; `connector_class` as the connector's configuration names it."""
    key, value, header = setup.key_converter, setup.value_converter, setup.header_converter
    steps = setup.chain.steps
    return TaskPlugins(
        {
            "connector-class": connector_class,
            "connector-type": connector_type,
            "connector-version": setup.version or "",
            "task-class": public_name(type(setup.plugin)),
            "task-version": setup.version or "",
            "key-converter-class": public_name(type(key)),
            "key-converter-version": _version(type(key)),
            "value-converter-class": public_name(type(value)),
            "value-converter-version": _version(type(value)),
            "header-converter-class": header.name,
            "header-converter-version": "",
        },
        tuple((step.alias, *_named(type(step.transform))) for step in steps),
        tuple(
            dict.fromkeys(
                (step.predicate_alias, *_named(type(step.predicate))) for step in steps if step.predicate is not None
            )
        ),
    )


def _named(cls: type) -> tuple[str, str]:
    return public_name(cls), _version(cls)


def _version(cls: type) -> str:
    return getattr(cls, "version", None) or ""
