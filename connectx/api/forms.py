"""Text and static HTML forms of a cluster, and whether a panel or progress bar can be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from connectx.errors.base import ConnectxError
from connectx.views import Row, html_card, html_list, html_table, text_table

if TYPE_CHECKING:
    from connectx.history.folds.tracks import Samples
    from connectx.kafka.broker.embedded import EmbeddedKafka
    from connectx.model.events import Event
    from connectx.spark.sessions import SparkProvider

_STORIES = 12
"""How many stories the static twin shows, newest last."""


def text_form(title: str, facts: Mapping[str, object] | None, workers: list[Row], connectors: list[Row]) -> str:
    """Facts and tables; None for facts: the cluster is closed."""
    if facts is None:
        return f"{title}: closed"
    head = ", ".join(f"{key} {value}" for key, value in facts.items())
    return "\n".join([f"{title}: {head}", text_table(workers), text_table(connectors) or "no connectors"])


def html_form(
    title: str,
    facts: Mapping[str, object] | None,
    workers: list[Row],
    connectors: list[Row],
    events: Iterable[Event],
    now_ms: int | None,
    samples: Samples | None = None,
) -> str:
    """The panel's static twin: facts, timeline, what happened, tables; None for facts: the cluster is closed."""
    from connectx.history.render.svg import timeline_image
    from connectx.history.render.timeline import timeline
    from connectx.history.sentences.stories import stories

    listed = list(events)
    found = stories(listed)
    drawing = timeline_image(timeline(listed, now_ms=now_ms, stories=found, samples=samples))
    sentences = html_list("what happened", [story.sentence for story in found[-_STORIES:]])
    if facts is None:
        return html_card(f"{title} (closed)", {}, drawing, sentences)
    return html_card(title, facts, drawing, sentences, html_table(workers), html_table(connectors))


def kafka_fact(kafka: EmbeddedKafka | None, bootstrap_servers: str) -> str:
    """Where Kafka is, and whose it is."""
    if kafka is None:
        return bootstrap_servers
    return f"{bootstrap_servers} (embedded{'' if kafka.alive else ', not running'})"


def spark_fact(spark: SparkProvider) -> str:
    """Spark's version and the requested master, or why it does not run; never waits for it."""
    if not spark.ready:
        return "starting"
    where = "" if spark.settings is None else f" at {spark.settings.shown}"
    try:
        return f"{spark.get().version}{where}"
    except ConnectxError as error:
        return error.message


def with_panel(forms: Mapping[str, Any], panel: Any) -> dict[str, Any]:
    """A MIME bundle with the panel if it can be shown, and with `forms` otherwise."""
    return {**panel._repr_mimebundle_()[0], **forms}
