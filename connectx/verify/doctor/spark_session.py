"""Probes of Spark: whether there is a session, its kind, and its abilities.

A given or active session runs small probes (jobs of one row).
No session is created or changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Literal

from connectx.errors.spark import SparkMasterError, SparkNotSharedError, SparkSettingError
from connectx.spark.sessions import active_session, is_connect, url_of
from connectx.spark.settings import SparkSettings
from connectx.values import Value
from connectx.verify.doctor.machine import version_of
from connectx.verify.doctor.report import Finding, Status
from connectx.version import SPARK_VERSIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_S = 60.0
Kind = Literal["classic", "connect", "none"]


class SparkProbe(Value):
    """What was found out about a session. A problem is None when there is none; the first line of it otherwise.

    Attributes:
        kind: classic, Spark Connect, or none: then a local driver would be started.
        version: of the session's Spark, or of the installed pyspark; None when both are unknown.
        context: whether the session has a SparkContext.
        job_problem: of a job of one row that comes back as Arrow.
        python_problem: of one that runs Python on an executor.
        share_problem: of handing the session to worker processes.
        settings_problem: of settings for a session that is still to be made, and its next step.
    """

    kind: Kind
    version: str | None
    context: bool = False
    job_problem: str | None = None
    python_problem: str | None = None
    share_problem: str | None = None
    settings_problem: tuple[str, str] | None = None


def probe_session(spark: SparkSession | Mapping[str, Any] | None, timeout_s: float = ASK_S) -> SparkProbe:
    """Ask the given session, or the active one; each question has `timeout_s`. Of settings, make no session."""
    if isinstance(spark, Mapping):
        return SparkProbe("none", version_of("pyspark"), settings_problem=_settings_problem(spark))
    session = spark if spark is not None else active_session()
    if session is None:
        return SparkProbe("none", version_of("pyspark"))
    found: Any = session
    kind: Kind = "connect" if is_connect(session) else "classic"
    version: list[str] = []
    job_problem = _problem(lambda: version.append(found.version), timeout_s)
    job_problem = job_problem or _problem(lambda: found.range(1).toArrow(), timeout_s)
    if job_problem is not None:
        return SparkProbe(kind, version[0] if version else None, job_problem=job_problem)
    return SparkProbe(
        kind,
        version[0],
        context=_problem(lambda: found.sparkContext.applicationId, timeout_s) is None,
        python_problem=_problem(lambda: _on_executor(found), timeout_s),
        share_problem=_share_problem(session),
    )


def _on_executor(session: Any) -> None:
    rows = session.range(1)
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()


def _settings_problem(given: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        SparkSettings.parse(given).require_reachable()
    except (SparkSettingError, SparkMasterError) as error:
        return error.message, error.next_step
    return None


def _share_problem(session: SparkSession) -> str | None:
    try:
        url_of(session)
    except SparkNotSharedError as error:
        return error.message
    return None


def _problem(ask: Callable[[], object], timeout_s: float) -> str | None:
    pool = ThreadPoolExecutor(1, thread_name_prefix="connectx-doctor")
    try:
        pool.submit(ask).result(timeout_s)
    except FutureTimeoutError:
        return f"no answer within {timeout_s:g} s"
    except Exception as error:  # whatever this session raises is what it cannot do
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return None


def judge_session(probe: SparkProbe) -> Finding:
    names = {"classic": "classic session", "connect": "Spark Connect session"}
    if probe.kind == "none":
        if probe.version is None and "pyspark" not in sys.modules:
            why = "Tasks that need no Spark, such as FileStreamSource, run all the same."
            return Finding("Spark", Status.OFF, "pyspark is not installed", why, "pip install 'connectx[spark]'")
        if probe.settings_problem is not None:
            return Finding("Spark", Status.BROKEN, f"no session; pyspark {probe.version}", *probe.settings_problem)
        return Finding("Spark", Status.OK, f"no session; pyspark {probe.version}", "A cluster starts a local Spark.")
    found = f"{names[probe.kind]}, Spark {probe.version or 'unknown'}"
    if probe.kind == "connect" and not probe.context:
        found += ", without a SparkContext"
    if probe.job_problem is not None:
        why = f"A job of one row failed: {probe.job_problem}"
        return Finding("Spark", Status.BROKEN, found, why, "Make a new session, or leave spark= out for a local one.")
    if ".".join((probe.version or "").split(".")[:2]) not in SPARK_VERSIONS:
        why = f"connectx is tested with Spark {SPARK_VERSIONS[0]} to {SPARK_VERSIONS[-1]}."
        return Finding("Spark", Status.LIMITED, found, why, "If something fails here, try it with a local Spark.")
    return Finding("Spark", Status.OK, found)


def judge_tasks(probe: SparkProbe, local: Finding | None) -> Finding:
    """Whether tasks can use Spark; `local` is what keeps a local driver from starting, if there is no session."""
    name = "Tasks that use Spark"
    if probe.kind == "none" and probe.version is None:
        return Finding(name, Status.OFF, "pyspark is not installed", "", "pip install 'connectx[spark]'")
    if probe.settings_problem is not None:
        return Finding(name, Status.OFF, "no session can be made of the settings", *probe.settings_problem)
    if probe.kind == "none":
        if local is not None:
            why = f"{local.name}: {local.found}. Tasks that need no Spark, such as FileStreamSource, run all the same."
            return Finding(name, Status.OFF, "no local Spark", why, local.next_step)
        return Finding(name, Status.OK, "on a local Spark that is started when it is needed")
    if probe.job_problem is not None:
        return Finding(name, Status.OFF, "this session runs no job", probe.job_problem, "Make a new session.")
    if probe.python_problem is not None:
        why = f"Python does not run on its executors ({probe.python_problem}); readers written in Python need that."
        return Finding(name, Status.LIMITED, "on this session", why, "Give client and server the same Python version.")
    return Finding(name, Status.OK, "on this session")


def judge_processes(probe: SparkProbe) -> Finding:
    """Whether workers can be processes."""
    name, call = "Workers as processes", 'cx.Cluster(isolation="process")'
    if probe.share_problem is None:
        return Finding(name, Status.OK, call)
    why = f"{probe.share_problem} Workers as threads, the default, can use it."
    return Finding(name, Status.OFF, call, why, "Leave isolation= out, or give a Spark Connect session.")
