"""Errors of a mirror."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class MirrorTopicRecreatedError(ConnectxError):
    """A topic of the source of a mirror was deleted and created again, so that its offsets name other records."""

    code = "mirror_topic_recreated"

    def __init__(self, partition: str, offset: int) -> None:
        super().__init__(
            f"The topic of {partition} in the source was deleted and created again, and the mirror's offset {offset} "
            "belongs to the deleted one.",
            next_step="To mirror the new topic from its oldest record, set source.consumer.auto.offset.reset=earliest, "
            "or stop the connector and reset its offsets.",
        )


class MirrorGapError(ConnectxError):
    """The source of a mirror has removed records that were not mirrored yet, or its topic was created again."""

    def __init__(self, partition: str, offset: int) -> None:
        super().__init__(
            f"The source no longer has offset {offset} of {partition}, where the mirror continues: retention removed "
            "records that were not mirrored, or the topic was created again.",
            next_step="To continue with the oldest existing record, set source.consumer.auto.offset.reset=earliest.",
        )
