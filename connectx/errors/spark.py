"""Errors of Spark, its jobs and its data sources."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.errors.base import ConnectxError


class SparkStartError(ConnectxError):
    """The local Spark driver, or the Spark Connect server that `of` names, did not start."""

    retriable = True

    def __init__(
        self,
        what: str,
        log_tail: str = "",
        *,
        of: str = "The local Spark driver",
        next_step: str = "Pass your own session as spark=.",
    ) -> None:
        super().__init__(
            f"{of} {what}.",
            next_step=f"The end of its log:\n{log_tail}" if log_tail else next_step,
        )
        self.log_tail = log_tail


class SparkNotAwaitedError(ConnectxError):
    """A task was stopped while it waited for Spark's start."""

    def __init__(self) -> None:
        super().__init__(
            "The task was stopped before Spark had started.", next_step="It continues from its position when it starts."
        )


class SparkSettingError(ConnectxError):
    """Spark settings that cannot be used; has all problems."""

    def __init__(
        self, problems: Sequence[str], next_step: str = "Correct what spark= or the worker's file sets."
    ) -> None:
        super().__init__(f"These Spark settings cannot be used: {'; '.join(problems)}.", next_step=next_step)
        self.problems = tuple(problems)


class SparkMasterError(ConnectxError):
    """A Spark master or a Spark Connect server cannot be reached."""

    retriable = True

    def __init__(self, key: str, where: str, cause: str) -> None:
        super().__init__(
            f"Spark cannot be reached at {where}: {cause}.",
            next_step=f"Start it there, or correct {key}.",
        )


class SparkNotSharedError(ConnectxError):
    """Worker processes cannot use a classic Spark session, which belongs to one process."""

    def __init__(self) -> None:
        super().__init__(
            'Workers with isolation="process" cannot share this Spark session: it is a classic one, which other '
            "processes cannot reach, or a Spark Connect session that was not made from an address.",
            next_step='Leave out spark= and stop the session, pass SparkSession.builder.remote("sc://...").create(), '
            'or use isolation="thread".',
        )


class SparkJobError(ConnectxError):
    """A Spark job of a task failed."""


class NoExecutorError(ConnectxError):
    """Spark has no executor that is a process below this one."""

    def __init__(self) -> None:
        super().__init__(
            "Spark has no executor as a child process here: executors are threads of the driver, or run elsewhere.",
            next_step='Use spark={"spark.master": "local-cluster[1,2,1024]"}, or kill executors where they run.',
        )


class ModuleNotShippedError(ConnectxError):
    """Spark's executors need a module whose source is not here."""

    def __init__(self, module: str) -> None:
        super().__init__(
            f"The module {module} cannot be sent to Spark's executors: there is no Python source of that name here.",
            next_step="Correct bulk.modules, or set bulk.mode=never.",
        )
