"""Validates a connector's configuration before anything is written.

Decides on one configuration at a time and changes nothing: the common keys, the connector's own, its converters, its
client overrides, and what depends on the worker. All problems are reported together. Mirrors Kafka Connect's
AbstractHerder.validateConnectorConfig and DistributedHerder's preflight checks (KIP-618).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Final

from connectx.errors.base import MissingExtraError
from connectx.errors.plugins import ConfigError, JavaPluginError, PluginNotFoundError
from connectx.model.configdef import (
    ConfigDef,
    ConfigInfo,
    ConfigInfos,
    ConfigKey,
    ConfigKeyInfo,
    ConfigValue,
    ConfigValueInfo,
    invalid_value,
)
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, with_prefix
from connectx.plugins.connectors import Connector, SourceConnector
from connectx.plugins.keys import OWN_CONFIGS, SINK_CONFIG, SOURCE_CONFIG
from connectx.plugins.registry import Plugins, type_of
from connectx.plugins.settings import limit_problems, producer_problems, sink_problems
from connectx.plugins.transform_keys import (
    PREDICATES,
    TRANSFORMS,
    Kind,
    alias_problems,
    own_definition,
    settings_of,
    type_definition,
)
from connectx.plugins.trust_keys import PREFIXES, UNUSED, unused_trust_keys
from connectx.plugins.versions import version_problem
from connectx.views import masked

_log = logging.getLogger(__name__)

_PRINCIPAL: Final = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_NO_API: Final = (
    "The connector does not implement the API required for preflight validation of exactly-once source support. Please "
    "consult the documentation for the connector to determine whether it supports exactly-once semantics, and then "
    'consider reconfiguring the connector to use the value "requested" for this property (which will disable this '
    "preflight check and allow the connector to be created)."
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
    "reconfigure it to use a different transaction boundary definition."
)
_NO_ANSWER: Final = (
    "This connector has returned a null value from its canDefineTransactionBoundaries method, which is not permitted. "
    "The connector will be treated as if it cannot define its own transaction boundaries, and cannot be configured "
    "with 'transaction.boundary' set to 'connector'."
)


def validate_connector(plugins: Plugins, config: Mapping[str, str | None], worker: WorkerConfig) -> ConfigInfos:
    """Every key of a connector with its errors.

    Args:
        plugins: connector and converter classes.
        config: with values in the place of placeholders.
        worker: its worker's settings.

    Raises:
        ConfigError: the configuration names no connector class.
        PluginNotFoundError: there is no such class.
    """
    given = config.get("connector.class")
    if given is None:
        raise ConfigError([f"Connector config {masked(config)} contains no connector type"])
    return _Validation(plugins, config, worker, plugins.connector_class(given)).run(given)


class _Validation:
    """One run over one configuration: collects keys and values."""

    def __init__(
        self,
        plugins: Plugins,
        config: Mapping[str, str | None],
        worker: WorkerConfig,
        cls: type[Connector],
    ) -> None:
        self.plugins = plugins
        self.config = config
        self.worker = worker
        self.cls = cls
        self.keys: dict[str, tuple[ConfigKey, str]] = {}
        self.values: dict[str, ConfigValue] = {}
        self.groups: list[str] = []

    def run(self, given: str) -> ConfigInfos:
        is_source = type_of(self.cls) is ConnectorType.SOURCE
        self._take(SOURCE_CONFIG if is_source else SINK_CONFIG)
        if is_source:
            self._check_source()
        else:
            self._check_sink()
        for own in OWN_CONFIGS[ConnectorType.SOURCE if is_source else ConnectorType.SINK]:
            if own.keys.keys() & self.config.keys():
                self._take(own)
        for name, value in self.config.items():
            if value is None:
                self._report(name, "Null value can not be supplied as the configuration value.")
        self._check_version("connector", self.cls)
        self._take(self._own_keys())
        self._ask_connector()
        self._check_trust(self.cls, PREFIXES)
        for side in ("key", "value", "header"):
            self._check_converter(side)
        for kind in (TRANSFORMS, PREDICATES):
            self._check_transforms(kind)
        self._check_overrides(is_source)
        infos: list[ConfigInfo] = [
            {"definition": self._definition(name), "value": _shown(value, name in self.keys)}
            for name, value in self.values.items()
        ]
        return {
            "name": given,
            "error_count": sum(len(info["value"]["errors"]) for info in infos),
            "groups": list(dict.fromkeys(self.groups)),
            "configs": infos,
        }

    def _take(self, definition: ConfigDef, prefix: str = "", config: Mapping[str, str | None] | None = None) -> None:
        given = self.config if config is None else config
        for key, value in zip(definition.keys.values(), definition.validate(given), strict=True):
            name = prefix + key.name
            before = self.values.get(name)
            value.name = name
            if before is not None:
                value.errors = list(dict.fromkeys([*before.errors, *value.errors]))
            self.keys[name], self.values[name] = (key, prefix), value
        self.groups += definition.groups

    def _own_keys(self) -> ConfigDef:
        """The keys of the connector's class, without added groups of which nothing is given."""
        keys = getattr(self.cls, "config", ConfigDef()).keys.values()
        used = {key.group for key in keys if key.name in self.config}
        unused = {group for group in self.cls.added_groups if group not in used}
        return ConfigDef.of(key for key in keys if key.group not in unused)

    def _definition(self, name: str) -> ConfigKeyInfo | None:
        if name not in self.keys:
            return None
        key, prefix = self.keys[name]
        return key.to_json(prefix)

    def _report(self, name: str, *messages: str) -> None:
        value = self.values.setdefault(name, ConfigValue(name, self.config.get(name)))
        value.errors += [message for message in messages if message not in value.errors]

    def _good(self, name: str) -> bool:
        return not self.values[name].errors

    def _check_source(self) -> None:
        support = "exactly.once.support"
        if self._good(support) and self.values[support].value.upper() == "REQUIRED":
            if not self.worker.exactly_once_source_enabled:
                self._report(support, "This worker does not have exactly-once source support enabled.")
            self._report(support, *self._exactly_once_problems())
        boundary = "transaction.boundary"
        if self._good(boundary) and self.values[boundary].value.upper() == "CONNECTOR":
            self._report(boundary, *self._boundary_problems())
        if self.worker.exactly_once_source_enabled:
            for name, problem in producer_problems(self.config).items():
                self._report(name, problem)

    def _exactly_once_problems(self) -> list[str]:
        assert issubclass(self.cls, SourceConnector)
        try:
            supported = self.cls.exactly_once_support(self.config)
        except Exception as error:
            return [self._failed("report whether it delivers exactly once", error)]
        if supported:
            return []
        if supported is None:
            return [_NO_API]
        return ["The connector does not support exactly-once semantics with the provided configuration."]

    def _boundary_problems(self) -> list[str]:
        assert issubclass(self.cls, SourceConnector)
        try:
            supported = self.cls.can_define_transaction_boundaries(self.config)
        except Exception as error:
            return [self._failed("report whether it defines transactions", error)]
        if supported:
            return []
        return [_NO_ANSWER if supported is None else _NO_BOUNDARIES]

    def _check_sink(self) -> None:
        for name, problems in (sink_problems(self.config) | limit_problems(self.config)).items():
            self._report(name, *problems)
        worker_group = self.worker.group_id
        override = "consumer.override.group.id"
        if override in self.config:
            if self.config[override] == worker_group:
                self._report(
                    override, f"Consumer group {worker_group} conflicts with Connect worker group {worker_group}"
                )
        elif f"connect-{self.values['name'].value}" == worker_group:
            self._report(
                "name",
                f"Consumer group for sink connector named {self.values['name'].value} conflicts with Connect worker "
                f"group {worker_group}",
            )

    def _failed(self, to_do: str, error: Exception) -> str:
        """The problem that a connector's own error is; its trace goes to the log."""
        trace = "".join(traceback.format_exception(error))
        _log.error("Connector %s failed to %s\n%s", self.cls.__qualname__, to_do, trace)
        return _unexpected(error)

    def _ask_connector(self) -> None:
        try:
            self.cls.check_requirements()
            problems = self.cls.validate(self.config)
        except (MissingExtraError, JavaPluginError) as error:
            problems = {"connector.class": [error.message]}
        except Exception as error:
            problems = {"connector.class": [self._failed("validate its configuration", error)]}
        for name, messages in problems.items():
            self._report(name, *messages)

    def _check_converter(self, side: str) -> None:
        name = f"{side}.converter"
        given = self.config.get(name)
        if given is None:
            return
        try:
            find = self.plugins.header_converter_class if side == "header" else self.plugins.converter_class
            cls = find(given)
        except PluginNotFoundError:
            reason = f"Class {given} could not be found."
            if self.plugins.java.versions(given):
                reason += " The plugin path has it, but only a Java connector can use a Java converter."
            self._report(name, invalid_value(name, given, reason))
            return
        own = with_prefix(self.config, f"{name}.")
        if cls is None:
            return
        self._check_version(name, cls)
        self._take(cls.config, f"{name}.", {"converter.type": side, **own})
        self._check_trust(cls, f"{name}.")
        if not all(self._good(f"{name}.{key}") for key in cls.config.keys):
            return
        try:
            cls({key: text for key, text in own.items() if text is not None}, is_key=side == "key")
        except ConfigError as error:
            self._report(name, *error.problems)
        except Exception as error:
            self._report(name, f"Failed to load class {given}" + (f": {error}" if str(error) else ""))

    def _check_version(self, prefix: str, cls: type) -> None:
        """KIP-891: one version of a package is installed, and a key may ask for it."""
        name = f"{prefix}.plugin.version"
        if problem := version_problem(cls, self.config.get(name)):
            self._report(name, invalid_value(name, self.config[name], problem))

    def _check_trust(self, cls: type, prefixes: tuple[str, ...] | str) -> None:
        """Report what a plugin of connectx does not read. Those of others may read keys that they do not define."""
        if cls.__module__.startswith("connectx."):
            for name in unused_trust_keys(self.config, self.keys, prefixes):
                self._report(name, UNUSED)

    def _check_transforms(self, kind: Kind) -> None:
        aliases = dict.fromkeys(alias for alias in self.values[kind.key].value or () if alias)
        for alias in aliases:
            prefix = f"{kind.key}.{alias}."
            name, given = f"{prefix}type", self.config.get(f"{prefix}type")
            self._take(type_definition(kind, alias, self.plugins.transform_names(kind)))
            if given is None:
                continue
            try:
                cls = self.plugins.transform_class(kind, given)
            except PluginNotFoundError as error:
                self._report(name, invalid_value(name, given, error.message))
                continue
            self._take(own_definition(kind, alias, cls))
            self._check_version(prefix[:-1], cls)
            problems = alias_problems(self.config, alias) if kind is TRANSFORMS else {}
            for key, problem in problems.items():
                self._report(key, problem)
            if all(self._good(f"{prefix}{key}") for key in cls.config.keys):
                try:
                    cls(settings_of(kind, alias, self.config))
                except ConfigError as error:
                    self._report(name, *error.problems)
                except Exception as error:
                    self._report(name, invalid_value(name, given, _unexpected(error)))

    def _check_overrides(self, is_source: bool) -> None:
        has_dead_letters = bool((self.config.get("errors.deadletterqueue.topic.name") or "").strip())
        own_offsets = self.worker.exactly_once_source_enabled or bool(self.config.get("offsets.storage.topic"))
        creates_topics = any(name.startswith("topic.creation.") for name in self.config)
        used = {
            "producer": is_source or has_dead_letters,
            "admin": (creates_topics or own_offsets) if is_source else has_dead_letters,
            "consumer": own_offsets if is_source else True,
        }
        for client in (client for client, is_used in used.items() if is_used):
            prefix = f"{client}.override."
            for name, value in with_prefix(self.config, prefix).items():
                full_name = prefix + name
                self.values.setdefault(full_name, ConfigValue(full_name, value))
                problem = self._override_problem(name)
                if problem:
                    self._report(full_name, problem)

    def _override_problem(self, name: str) -> str | None:
        policy = self.worker.connector_client_config_override_policy.rpartition(".")[2]
        policy = policy.removesuffix("ConnectorClientConfigOverridePolicy")
        allowed = {
            "None": (),
            "Principal": _PRINCIPAL,
            "Allowlist": self.worker.connector_client_config_override_allowlist,
        }
        if policy == "All" or name in allowed.get(policy, ()):
            return None
        return (
            f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."
            if policy in allowed
            else f"The worker's connector.client.config.override.policy {policy} is not known."
        )


def _shown(value: ConfigValue, is_defined: bool) -> ConfigValueInfo:
    shown = value.to_json()
    return shown if is_defined else {**shown, "value": masked({value.name: shown["value"]})[value.name]}


def _unexpected(error: Exception) -> str:
    text = str(error).strip()
    what = "An unexpected error occurred during validation"
    return f"{what}: {text}" if text else f"{what}; please see the worker logs for more details."
