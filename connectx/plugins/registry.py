"""Resolves names in configurations to plugin classes.

Knows the classes of installed packages, connectx among them, under the names of their entry points, their simple names
and the names of the Java classes that they replace (`connectx.plugins.discovery`); classes that a notebook has
registered; Java connectors of the plugin path by their full names (`connectx.plugins.java`); and any other class by its
dotted path. Mirrors Kafka Connect's Plugins, without class loaders.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError, PluginNotFoundError
from connectx.model.class_names import path_of, public_name
from connectx.model.configdef import ConfigDef, to_text
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, with_prefix
from connectx.plugins.config_providers import ConfigProviders
from connectx.plugins.connectors import Connector, SinkConnector, SourceConnector
from connectx.plugins.description import PluginDescription
from connectx.plugins.discovery import Group, InstalledPlugins, with_variants
from connectx.plugins.java.catalog import JavaCatalog
from connectx.plugins.java.installed import plugin_path
from connectx.plugins.keys import COMMON_CONFIG, SINK_CONFIG, SOURCE_CONFIG
from connectx.plugins.tasks import SinkTask, SourceTask
from connectx.plugins.transform_keys import PREDICATES, TRANSFORMS, Kind, chain_of, plugin_class

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.api import Predicate, Transform
    from connectx.data.transforms.chain import Chain

_log = logging.getLogger(__name__)

Load = Callable[[str], tuple[Any, str]]
"""Finds a class by its path: the class, or None and why it is not there."""

_TYPES: Final[Mapping[Group, str]] = {
    Group.CONVERTERS: "converter",
    Group.TRANSFORMS: "transformation",
    Group.PREDICATES: "predicate",
    Group.CONFIG_PROVIDERS: "configprovider",
}
_IMPORT_S: Final = 5.0
_HEADER_TYPE: Final = "header_converter"
_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


class Plugins:
    """Classes by name. Holds what was registered; pass it around, there is no other registry."""

    def __init__(self) -> None:
        self._installed = InstalledPlugins()
        self._registered: dict[str, type[Connector]] = {}
        self._registered_others: dict[str, type] = {}
        self._types: dict[str, ConnectorType] = {}
        self._imports: dict[str, Thread] = {}
        self.java = JavaCatalog()

    def on_path(self, config: WorkerConfig) -> Plugins:
        """The same plugins with the Java plugins on a worker's plugin path, which is read now.

        Raises:
            ConfigError: `plugin.discovery` is hybrid_fail, and a plugin has no service manifest.
        """
        mine = copy(self)
        mine.java = JavaCatalog.of(plugin_path(config), config.plugin_discovery)
        return mine

    def register(self, cls: type) -> str:
        """Make a connector, transformation or predicate known, under its module's and its own name; returns that name.

        A class of the same name replaces the former one, as when a notebook's cell is run again.

        Raises:
            PluginNotFoundError: none of these.
        """
        from connectx.data.transforms.api import Predicate, Transform

        if isinstance(cls, type) and issubclass(cls, (Transform, Predicate)):
            name = public_name(cls)
            self._registered_others[name] = cls
            return name
        if not (isinstance(cls, type) and issubclass(cls, (SourceConnector, SinkConnector))):
            raise PluginNotFoundError(
                f"{cls!r} cannot be a connector.class.",
                next_step="Give a subclass of connectx.SourceConnector or connectx.SinkConnector.",
            )
        name = path_of(cls)
        self._registered[name] = cls
        return name

    def as_text(self, value: Any) -> str | None:
        """A configuration value as text: classes of plugins are registered, lists joined, None stays None."""
        if isinstance(value, type):
            return self.register(value)
        return to_text(list(value) if isinstance(value, tuple) else value)

    def connector_class(self, name: str, load: Load | None = None) -> type[Connector]:
        """Class for a value of `connector.class`; `load` finds what is not installed, by importing it if not given.

        Raises:
            PluginNotFoundError: there is none, or it is no connector; in Kafka Connect's words.
        """
        name = name.strip()
        if name in self._registered:
            return self._registered[name]
        if java := self.java.connector_class(name):
            return java
        matches = self._installed.named(Group.CONNECTORS, name) or [
            cls for key, cls in self._registered.items() if key.rpartition(".")[2] in (name, f"{name}Connector")
        ]
        found, reason = (matches[0], "") if matches else _find(self._installed, Group.CONNECTORS, name, load)
        if len(matches) > 1:
            names = ", ".join(sorted(map(path_of, matches)))
            raise PluginNotFoundError(
                f"More than one connector matches alias {name}. Please use full package and class name instead. "
                f"Classes found: {names}"
            )
        if isinstance(found, type) and issubclass(found, (SourceConnector, SinkConnector)):
            return found
        known = ", ".join([*self._installed.listed(Group.CONNECTORS), *sorted(self._registered), *self.java.names()])
        raise PluginNotFoundError(
            "Failed to find any class that implements Connector and which name matches "
            f"{name}, available connectors are: {known}{reason}"
        )

    def find_connector(self, name: str) -> type[Connector] | None:
        """As `connector_class`; None if there is no such class."""
        try:
            return self.connector_class(name)
        except ConnectxError:
            return None

    def connector_type(self, config: Mapping[str, str | None] | None) -> ConnectorType:
        """Source or sink; unknown when there is no such class, or while its import takes longer than some seconds.

        A module that is not imported yet is imported on a thread that ends with it: a worker's core asks here, and must
        not run what others wrote.
        """
        name = ((config or {}).get("connector.class") or "").strip()
        if known := self._registered.get(name) or self.java.connector_class(name):
            return type_of(known)
        if name not in self._types:
            importing = self._imports.get(name)
            if importing is None or not importing.is_alive():
                thread_name = f"import-{name[:80]}"
                importing = Thread(target=self._find_type, args=(name,), name=thread_name, daemon=True)
                self._imports[name] = importing
                importing.start()
                importing.join(_IMPORT_S)
        return self._types.get(name, ConnectorType.UNKNOWN)

    def _find_type(self, name: str) -> None:
        cls = self.find_connector(name)
        if cls is not None:
            self._types[name] = type_of(cls)
        self._imports.pop(name, None)

    def create_connector(self, config: Mapping[str, str | None]) -> Connector:
        """A new instance for a connector configuration; it is not started.

        Raises:
            PluginNotFoundError: unknown class.
            MissingExtraError: it needs an extra that is not installed.
        """
        cls = self.connector_class(config.get("connector.class") or "")
        cls.check_requirements()
        return cls()

    def task_configs(self, connector: Connector, config: Mapping[str, str | None]) -> tuple[dict[str, str], ...]:
        """What a started connector divides its work into, as it goes to the config topic.

        Raises:
            ConfigError: more tasks than `tasks.max`, and `tasks.max.enforce` is true.
        """
        generated = connector.task_configs(COMMON_CONFIG.parse(config)["tasks.max"])
        self.check_task_count(config, len(generated))
        return tuple(task_properties(type(connector), config, task) for task in generated)

    @staticmethod
    def check_task_count(config: Mapping[str, str | None], count: int) -> None:
        """Hold the number of a connector's tasks to `tasks.max` (KIP-1004), at their generation and start.

        Raises:
            ConfigError: they are more, and `tasks.max.enforce` is true; otherwise there is only a warning.
        """
        common = COMMON_CONFIG.parse(config)
        if count <= common["tasks.max"]:
            return
        problem = (
            f"The connector {common['name']} has generated {count} tasks, which is greater than {common['tasks.max']}, "
            "the maximum number of tasks it is configured to create."
        )
        if common["tasks.max.enforce"]:
            raise ConfigError(
                [
                    f"{problem} This behaviour should be considered a bug and is disallowed. If necessary, it can be "
                    "permitted by reconfiguring the connector with 'tasks.max.enforce' set to false; however, this "
                    "option will be removed in a future release of Kafka Connect."
                ]
            )
        _log.warning("%s This behavior should be considered a bug and will be disallowed in future releases.", problem)

    def create_task(self, connector_config: Mapping[str, str | None]) -> SourceTask | SinkTask:
        """A new instance of the connector's task class; it is not started.

        Raises:
            PluginNotFoundError: unknown connector class, or one without a task class.
            MissingExtraError: it needs an extra that is not installed.
        """
        cls = self.connector_class(connector_config.get("connector.class") or "")
        cls.check_requirements()
        return task_class(cls)()

    def converter_class(self, name: str, load: Load | None = None) -> type[Converter]:
        """Class for a value of `key.converter` or `value.converter`; `load` as in `connector_class`.

        Raises:
            PluginNotFoundError: there is none, in Kafka Connect's words.
        """
        from connectx.data.converter import Converter

        name = name.strip()
        found, reason = _find(self._installed, Group.CONVERTERS, name, load)
        if isinstance(found, type) and issubclass(found, Converter):
            return found
        if self.java.versions(name):
            reason = " (the plugin path has it, but only a Java connector can use a Java class)"
        known = ", ".join(map(public_name, self._installed.listed(Group.CONVERTERS).values()))
        raise PluginNotFoundError(
            f"Failed to find any class that implements Converter and which name matches {name}, available converters "
            f"are: {known}{reason}"
        )

    def converter(self, side: str, connector_config: Mapping[str, str | None], worker: WorkerConfig) -> Converter:
        """The configured converter of a connector; `side` is key or value. Without one, the worker's.

        Raises:
            PluginNotFoundError: unknown class.
            ConfigError: wrong settings of the converter.
        """
        prop = f"{side}.converter"
        own = connector_config.get(prop)
        settings = connector_config if own else worker.originals
        name = own or (worker.key_converter if side == "key" else worker.value_converter)
        given = {key: text for key, text in with_prefix(settings, f"{prop}.").items() if text is not None}
        return self.converter_class(name)(given, is_key=side == "key")

    def header_converter_class(self, name: str) -> type[Converter] | None:
        """Class for a value of `header.converter`; None for SimpleHeaderConverter, which needs none here.

        Raises:
            PluginNotFoundError: there is none, or it converts no headers.
        """
        if name.strip() in (_HEADER_CONVERTER, "SimpleHeaderConverter", "Simple"):
            return None
        cls = self.converter_class(name)
        if cls.by_topic:
            raise PluginNotFoundError(
                f"{name} cannot be a header.converter: it converts keys and values only.",
                next_step="Use SimpleHeaderConverter, StringConverter or JsonConverter.",
            )
        return cls

    def header_converter(self, connector_config: Mapping[str, str | None], worker: WorkerConfig) -> HeaderConverter:
        """The configured header converter of a connector; without one, the worker's.

        Raises:
            PluginNotFoundError: unknown class.
            ConfigError: wrong settings of the converter.
        """
        from connectx.data.headers import HeaderConverter

        own = connector_config.get("header.converter")
        settings = connector_config if own else worker.originals
        cls = self.header_converter_class(own or worker.header_converter)
        given = {key: text for key, text in with_prefix(settings, "header.converter.").items() if text is not None}
        return HeaderConverter(None if cls is None else cls(given))

    def transform_class(self, kind: Kind, name: str, load: Load | None = None) -> type[Transform] | type[Predicate]:
        """Class for a value of `transforms.<alias>.type` or `predicates.<alias>.type`; `load` as in `connector_class`.

        Raises:
            PluginNotFoundError: there is none, or it cannot be used.
        """
        find = partial(_find, self._installed, _group_of(kind), load=load)
        return plugin_class(kind, name, self._registered_others, find)

    def transform_names(self, kind: Kind) -> list[str]:
        """Names of the installed transformations or predicates, sorted."""
        return sorted(map(public_name, self._installed_classes(_group_of(kind))))

    def chain(self, connector_config: Mapping[str, str | None]) -> Chain:
        """The transformations of a connector.

        Raises:
            PluginNotFoundError: an unknown class.
            ConfigError: wrong settings.
        """
        return chain_of(connector_config, self.transform_class)

    def config_of(self, name: str) -> ConfigDef:
        """Keys of a plugin: a connector (with those of all of its kind), converter, transformation or predicate.

        Imports nothing but installed plugins: any web page can make a browser ask for a name.

        Raises:
            PluginNotFoundError: there is none that is installed, registered, or in use already.
        """
        for kind in (TRANSFORMS, PREDICATES):
            try:
                return self.transform_class(kind, name, _imported).config
            except PluginNotFoundError:
                continue
        try:
            return self.converter_class(name, _imported).config
        except PluginNotFoundError:
            cls = self.connector_class(name, _imported)
            is_source = type_of(cls) is ConnectorType.SOURCE
            return ConfigDef(SOURCE_CONFIG if is_source else SINK_CONFIG, getattr(cls, "config", ConfigDef()))

    def providers(self, worker: WorkerConfig) -> ConfigProviders:
        """The config providers that a worker's settings name.

        Raises:
            ConfigError: an unknown class or wrong settings.
        """
        providers = ConfigProviders(worker.originals, partial(_find, self._installed, Group.CONFIG_PROVIDERS))
        providers.resolve(worker.given)  # so that they hide the worker's secrets, too
        return providers

    def describe(self, *, connectors_only: bool = True) -> list[PluginDescription]:
        """Plugins that can be named without a path, sorted by class name."""
        classes: list[Any] = [*self._installed_classes(Group.CONNECTORS), *self._registered.values()]
        described = [PluginDescription.of(cls, str(type_of(cls))) for cls in classes]
        if not connectors_only:
            for group, plugin_type in _TYPES.items():
                described += [PluginDescription.of(cls, plugin_type) for cls in self._installed_classes(group)]
            described += self._header_converters()
        java = self.java.describe(connectors_only=connectors_only)
        described = _each_once(described, java)
        return sorted(described, key=lambda plugin: plugin.name)

    def _header_converters(self) -> list[PluginDescription]:
        """Converters that take headers, too, and SimpleHeaderConverter, which is no class here."""
        from connectx.data.headers import HeaderConverter

        classes: list[Any] = self._installed_classes(Group.CONVERTERS)
        others = [PluginDescription.of(cls, _HEADER_TYPE) for cls in classes if not cls.by_topic]
        return [PluginDescription(HeaderConverter, _HEADER_CONVERTER, _HEADER_TYPE, None), *others]

    def _installed_classes(self, group: Group) -> list[type]:
        """Classes of a group, each once; in place of a transformation that has variants these."""
        found = self._installed.listed(group).values()
        return list(dict.fromkeys(one for cls in found for one in [*with_variants(cls)][1:] or [cls]))


def _each_once(own: list[PluginDescription], java: list[PluginDescription]) -> list[PluginDescription]:
    """Both without what a name does not mean: for connectors that is the Java class, for others connectx's own."""
    connectors = {plugin.name for plugin in java if issubclass(plugin.cls, Connector)}
    others = {(plugin.name, plugin.type) for plugin in own}
    return [
        *(plugin for plugin in own if not (issubclass(plugin.cls, Connector) and plugin.name in connectors)),
        *(plugin for plugin in java if plugin.name in connectors or (plugin.name, plugin.type) not in others),
    ]


def is_importable(cls: type) -> bool:
    """Whether another process finds this class by its name: not one of a notebook, a script or a function."""
    return cls.__module__ != "__main__" and _load(path_of(cls))[0] is cls


def type_of(cls: type[Connector]) -> ConnectorType:
    """Source or sink."""
    return ConnectorType.SOURCE if issubclass(cls, SourceConnector) else ConnectorType.SINK


def task_class(cls: type[Connector]) -> type[SourceTask] | type[SinkTask]:
    """Task class of a connector: `task_class`, or the nested class Task.

    Raises:
        PluginNotFoundError: it has neither.
    """
    found = getattr(cls, "task_class", None) or getattr(cls, "Task", None)
    wanted = SourceTask if issubclass(cls, SourceConnector) else SinkTask
    if isinstance(found, type) and issubclass(found, wanted):
        return found
    raise PluginNotFoundError(
        f"Connector {path_of(cls)} has no task class.",
        next_step=f"Set task_class, or nest a class Task, to a subclass of {wanted.__name__}.",
    )


def task_properties(
    cls: type[Connector], connector_config: Mapping[str, str | None], task_config: Mapping[str, str]
) -> dict[str, str]:
    """A task's configuration as it goes to the config topic (Kafka Connect: Worker.connectorTaskConfigs).

    Adds `task.class`, and `topics` or `topics.regex` of sinks.
    """
    properties = {**task_config, "task.class": public_name(task_class(cls))}
    for name in ("topics", "topics.regex"):
        given = connector_config.get(name)
        if given is not None:
            properties[name] = given
    return properties


def worker_config(config: Mapping[str, Any]) -> WorkerConfig:
    """A worker's settings with values in the place of placeholders, by the providers that they name themselves.

    Raises:
        ConfigError: with all problems, in Kafka's words.
        ConfigProviderError: a provider cannot read what a placeholder names.
    """

    def resolve(given: Mapping[str, str]) -> Mapping[str, str]:
        found = ConfigProviders(given, partial(_find, InstalledPlugins(), Group.CONFIG_PROVIDERS)).resolve(given)
        return {key: text for key, text in found.items() if text is not None}

    return WorkerConfig.parse(config, resolve)


def _find(installed: InstalledPlugins, group: Group, name: str, load: Load | None = None) -> tuple[Any, str]:
    """As `load` (`_load` if not given), for the names of installed plugins, too."""
    if named := installed.named(group, name):
        return named[0], ""
    found, reason = (load or _load)(name)
    return found or installed.replacing(group, name), reason


def _group_of(kind: Kind) -> Group:
    return Group.TRANSFORMS if kind is TRANSFORMS else Group.PREDICATES


def _load(path: str) -> tuple[Any, str]:
    """(what `package.module:Class` or `package.module.Class` names, "") or (None, why not, if there is such a path)."""
    if "." not in path and ":" not in path:
        return None, ""
    module, attribute = _parts(path)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        outside = not (module == missing or module.startswith(f"{missing}."))
        return None, f" ({module} needs the module {missing}, which is not installed)" if outside else ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module runs its own code when it is imported, which may even call sys.exit
        return None, f" ({type(error).__name__}: {error})"
    return found, ""


def _imported(path: str) -> tuple[Any, str]:
    """As `_load`, among the modules that are imported already."""
    module, attribute = _parts(path)
    found: Any = sys.modules.get(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found, ""


def _parts(path: str) -> tuple[str, str]:
    """Module and attribute of a dotted path."""
    module, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    return module, attribute
