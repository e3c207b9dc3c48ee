"""Counts errors with the records of one task, as Kafka Connect's ErrorHandlingMetrics does."""

from __future__ import annotations

from dataclasses import dataclass, fields

from connectx.model.clock import Clock


def log_text(error: Exception, record: object = None) -> str:
    """An error with a record as the log has it, followed by the record if it may be shown."""
    message = str(getattr(error, "message", error))
    return message if record is None else f"{message.rstrip('.')}, where consumed record is {record}"


@dataclass(slots=True)
class RecordErrors:
    """Counted by the thread of the task; other threads read single numbers.

    Attributes:
        clock: dates failures.
        record_failures: records that could not be processed, once for every try.
        record_errors: those of them that errors.tolerance does not allow: each ends the task.
        retries: operations that were tried again.
        errors_logged: lines in the log, which errors.log.enable asks for.
        dead_letters: records handed to the producer of the dead letter queue, `failed_dead_letters` those refused.
        error_ms: when a record failed last, milliseconds since 1970.
    """

    clock: Clock
    record_failures: int = 0
    record_errors: int = 0
    retries: int = 0
    errors_logged: int = 0
    dead_letters: int = 0
    failed_dead_letters: int = 0
    error_ms: int | None = None

    def failed(self, records: int = 1) -> None:
        """So many records could not be processed, whatever follows from it."""
        if records:
            self.record_failures += records
            self.error_ms = self.clock()

    def metrics(self) -> dict[str, object]:
        """As live numbers of a task."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "clock"}
