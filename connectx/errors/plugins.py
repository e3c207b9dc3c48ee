"""Errors of configurations, plugins, converters and transforms."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.errors.base import ConnectxError


class ConfigError(ConnectxError):
    """A configuration does not fit its definition. `problems` has all of them, in Kafka's words."""

    code = "invalid_config"

    def __init__(self, problems: Sequence[str], *, next_step: str = "") -> None:
        super().__init__("\n".join(problems), next_step=next_step)
        self.problems = tuple(problems)


class PatternError(ConfigError):
    """A regular expression that others wrote cannot be used; `reason` is a sentence without its full stop."""

    code = "pattern"

    def __init__(self, reason: str) -> None:
        super().__init__(
            [f"The regular expression cannot be used: {reason}."],
            next_step="Write it in Java's syntax, without back references, look-around and atomic groups.",
        )
        self.reason = reason


class ConfigProviderError(ConnectxError):
    """A config provider cannot read what a placeholder names."""


class PluginNotFoundError(ConnectxError):
    """No connector, converter or other plugin of that name can be used."""


class JavaPluginError(ConnectxError):
    """A Java class that was to run in Python."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is a Java class on the plugin path, so it runs in the JVM of a worker, and not in Python.",
            next_step="Ask a running worker, with cluster.validate or PUT /connector-plugins/NAME/config/validate.",
        )


class PluginInstallError(ConnectxError):
    """A Java plugin cannot be installed or removed; `reason` is a clause without a full stop."""

    def __init__(self, source: str, reason: str, next_step: str) -> None:
        super().__init__(f"The Java plugin {source} cannot be used: {reason}.", next_step=next_step)


class ConversionError(ConnectxError):
    """A converter cannot write values of this type, or cannot read records of this schema."""


class SchemaNotFoundError(ConversionError):
    """The schema registry has no such schema or subject."""


class SchemaIncompatibleError(ConversionError):
    """The schema registry refuses a schema that is not compatible with those that its subject has."""


class RegistryUnavailableError(ConnectxError):
    """The schema registry cannot be used now; `setting` is the key that names its URL."""

    retriable = True

    def __init__(self, url: str, setting: str, reason: str) -> None:
        super().__init__(
            f"The schema registry {url} cannot be used now: {reason}.",
            next_step=f"Start it, or correct {setting}; a source task tries again within errors.retry.timeout.",
        )
        self.setting = setting


class TransformError(ConnectxError):
    """A transformation or predicate cannot take a record."""


class TransactionBoundaryError(ConnectxError):
    """A source task asked its TransactionContext for a boundary that its slice does not have."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The connector asked for an invalid transaction boundary: {problem}.",
            next_step="Correct the connector: rows of the slice that poll returns are counted from 0, and each but the "
            "last needs the source offset after it.",
        )


class NotASliceError(ConnectxError):
    """A source task returned rows, or anything else, where the runtime needs a slice."""

    def __init__(self, method: str, returned: type) -> None:
        super().__init__(
            f"{method}() of the connector returned {returned.__module__}.{returned.__qualname__}, which is no slice.",
            next_step="Return connectx.Slice(rows, offset): the rows, and the source offset after the last of them.",
        )


class MalformedDataError(ConnectxError):
    """Bytes of the group protocol or of an internal topic, or values for them, have the wrong shape."""

    def __init__(self, what: str, why: str) -> None:
        self.why = why
        super().__init__(
            f"{what[0].upper()}{what[1:]} cannot be used: {why}.",
            next_step="Find its writer: all workers and connectors of the group must use Kafka Connect's formats.",
        )


class ClassNotImportableError(ConnectxError):
    """A connector class that worker processes cannot import."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'Workers with isolation="process" cannot import {name}: it is defined in a notebook, a script or a '
            "function, which only this process has.",
            next_step='Put the class into a module file and import it from there, or use isolation="thread".',
        )


class RecordConversionError(ConnectxError):
    """A record that a converter cannot read, or a transformation cannot take."""

    def __init__(self, partition: str, offset: int, cause: str) -> None:
        super().__init__(
            f"The record at offset {offset} of {partition} cannot be read: {cause}.",
            next_step="Correct the converter or transformation, or skip such records with errors.tolerance=all.",
        )


class RecordRejectedError(ConnectxError):
    """The target refuses one record permanently, with errors.tolerance=none."""

    def __init__(self, partition: str, offset: int, target: str, cause: str) -> None:
        super().__init__(
            f"{target} refuses the record at offset {offset} of {partition}: {cause}",
            next_step="Correct the target or the data and restart the task, or skip such records with "
            "errors.tolerance=all.",
        )
