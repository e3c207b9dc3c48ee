"""Config providers: resolve placeholders in connector configurations, for secrets and files.

`${provider:key}` and `${provider:path:key}` are resolved on the worker that uses the configuration; the config topic
keeps the placeholder. What was resolved is remembered only so that it can be hidden from traces and messages. Mirrors
Kafka's ConfigTransformer and its FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from connectx.errors.plugins import ConfigError, ConfigProviderError
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.patterns import compiled
from connectx.model.placeholders import Placeholder, replaced
from connectx.model.validators import valid_regex
from connectx.model.worker_config import with_prefix
from connectx.plugins.hidden_values import HiddenValues

_log = logging.getLogger(__name__)

_PACKAGE: Final = "org.apache.kafka.common.config.provider."


class ConfigProvider:
    """Base of config providers.

    Args:
        settings: its `param.` keys without prefix.
    """

    config: ClassVar[ConfigDef] = ConfigDef()
    java_class: ClassVar[str | None] = None

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings: dict[str, Any] = self.config.parse(settings)

    def values(self, path: str) -> Mapping[str, str]:
        """What is known at a path, by key; nothing where it may not look.

        Raises:
            ConfigProviderError: the path cannot be read.
        """
        raise TypeError(f"{type(self).__name__} must define values")


_PATHS: Final = ConfigDef().define(
    "allowed.paths", list, [], doc="Files and folders that may be read, with what is in them; all without it."
)


class FileConfigProvider(ConfigProvider):
    """Keys of a properties file."""

    config = _PATHS
    java_class = f"{_PACKAGE}FileConfigProvider"

    def values(self, path: str) -> Mapping[str, str]:
        """Its properties."""
        if not path or not _is_allowed(self, path):
            return {}
        import javaproperties  # with much that only its XML format needs

        try:
            return javaproperties.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a \u without its four digits
            raise ConfigProviderError(f"Could not read properties from file {path}: {error}.") from error


class DirectoryConfigProvider(ConfigProvider):
    """Files of a folder: the name is the key, the whole content the value."""

    config = _PATHS
    java_class = f"{_PACKAGE}DirectoryConfigProvider"

    def values(self, path: str) -> Mapping[str, str]:
        """Its regular files, each of which is read when it is named."""
        return _Files(Path(path)) if path and _is_allowed(self, path) else {}


class _Files(Mapping[str, str]):
    """The texts of a folder's files by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> str:
        if name not in self._names():
            raise KeyError(name)
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigProviderError(f"Could not read the file {self._folder / name}: {error}.") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        try:
            return sorted(file.name for file in self._folder.iterdir() if file.is_file())
        except OSError as error:
            raise ConfigProviderError(f"Could not read the folder {self._folder}: {error}.") from error


class EnvVarConfigProvider(ConfigProvider):
    """Variables of the worker's environment."""

    config = ConfigDef().define(
        "allowlist.pattern", str, ".*", doc="Which variables may be read.", validator=valid_regex()
    )
    java_class = f"{_PACKAGE}EnvVarConfigProvider"

    def values(self, path: str) -> Mapping[str, str]:
        """Variables whose whole name the pattern matches; there are no paths."""
        if path:
            raise ConfigProviderError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'.")
        pattern = compiled(self.settings["allowlist.pattern"])
        return {name: value for name, value in os.environ.items() if pattern.matches(name)}


class ConfigProviders:
    """The config providers of one worker. `masked` hides what placeholders stood for in a text; the log does, too.

    Args:
        worker: the worker's settings as they were given.
        load: finds a class by its dotted path: (class, "") or (None, why not).

    Raises:
        ConfigError: `config.providers` names one without a class, or with wrong settings.
    """

    def __init__(self, worker: Mapping[str, str], load: Callable[[str], tuple[Any, str]]) -> None:
        self._providers: dict[str, ConfigProvider] = {}
        self._hidden = HiddenValues()
        self.masked = self._hidden.masked
        for name in dict.fromkeys(part.strip() for part in worker.get("config.providers", "").split(",")):
            if name:
                prefix = f"config.providers.{name}."
                cls = _class_of(f"{prefix}class", worker.get(f"{prefix}class"), load)
                given = with_prefix(worker, f"{prefix}param.")
                self._providers[name] = cls({key: text for key, text in given.items() if text is not None})

    def resolve(self, config: Mapping[str, str | None]) -> dict[str, str | None]:
        """A configuration with values in the place of placeholders. Unknown placeholders stay.

        Raises:
            ConfigProviderError: a provider cannot read what a placeholder names.
        """
        found: dict[tuple[str, str], Mapping[str, str]] = {}

        def value(placeholder: Placeholder) -> str:
            name, path, key = placeholder.provider, placeholder.path, placeholder.key
            if name not in self._providers:
                return placeholder.text
            if (name, path) not in found:
                found[name, path] = self._providers[name].values(path)
            known = found[name, path].get(key)
            if known is None:
                _log.warning("The config provider %s has no %s; the placeholder is not replaced", name, key)
                return placeholder.text
            self._hidden.add(known)
            return known

        return {key: None if text is None else replaced(text, value) for key, text in config.items()}


def _class_of(key: str, name: str | None, load: Callable[[str], tuple[Any, str]]) -> type[ConfigProvider]:
    if name is None:
        raise ConfigError([f'Missing required configuration "{key}" which has no default value.'])
    found, reason = load(name.strip())
    if isinstance(found, type) and issubclass(found, ConfigProvider):
        return found
    raise ConfigError([invalid_value(key, name, f"Class {name} could not be found.{reason}")])


def _is_allowed(provider: ConfigProvider, path: str) -> bool:
    allowed = [Path(each).resolve() for each in provider.settings["allowed.paths"]]
    wanted = Path(path).resolve()
    if not allowed or any(wanted.is_relative_to(each) for each in allowed):
        return True
    _log.error("The path %s is not among allowed.paths of %s", path, type(provider).__name__)
    return False
