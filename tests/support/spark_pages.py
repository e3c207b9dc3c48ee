"""What Spark's own pages show of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectx.spark.sessions import is_connect

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider


def spark_tasks(provider: SparkProvider, group: str) -> set[int] | None:
    """How many tasks each job of a connector had; those of a server elsewhere cannot be read."""
    session: Any = provider.task_session()
    if is_connect(session):
        return None
    listed = session.sparkContext._jsc.sc().statusStore().jobsList(None)
    jobs = [listed.apply(number) for number in range(listed.size())]
    return {job.numTasks() for job in jobs if job.jobGroup().isDefined() and group in job.jobGroup().get()}


def shown_by_spark(provider: SparkProvider) -> str:
    """What Spark's pages say of its jobs and queries; those of a server elsewhere cannot be read."""
    session: Any = provider.task_session()
    if is_connect(session):
        return ""
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(number) for number in range(executions.size())]
    texts = [f"{each.description()} {each.details()} {each.physicalPlanDescription()}" for each in shown]
    assert "MapInArrow" in "".join(texts)
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None)
    return "".join([*texts, jobs.toString()])
