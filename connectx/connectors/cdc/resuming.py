"""Decides where a task begins, by its source offset and the replication slot.

Decides what is done when they do not fit (offset.mismatch.strategy, snapshot.mode).
"""

from __future__ import annotations

import logging
from typing import Final

from connectx.connectors.cdc.catalog import Catalog, Slot
from connectx.connectors.cdc.errors import ReplicationSlotMismatchError, ReplicationSlotMissingError
from connectx.connectors.cdc.positions import Position
from connectx.errors.databases import DatabaseError
from connectx.model.source_offsets import SourceOffset

log = logging.getLogger(__name__)

WITHOUT_SNAPSHOT: Final = ("no_data", "never")
_STRICT: Final = ("trust_offset", "no_validation")
"""Strategies that refuse to continue without changes between offset and slot."""

_CHOICES: Final = (
    "To read all rows again set snapshot.mode=when_needed; to continue without the changes in between set "
    "offset.mismatch.strategy=trust_slot; then restart the task."
)


class Resumption:
    """Finds the first position of a task.

    Args:
        catalog: where the slot is found and made.
        slot: slot.name.
        mode: snapshot.mode.
        strategy: offset.mismatch.strategy.
        database: the one that is read.
    """

    def __init__(self, catalog: Catalog, slot: str, mode: str, strategy: str, database: str) -> None:
        self._catalog = catalog
        self._slot = slot
        self._mode = mode
        self._strategy = strategy
        self._database = database

    def resume(self, offset: SourceOffset | None) -> tuple[Position, bool]:
        """The position, and whether a snapshot begins there.

        Raises:
            ReplicationSlotMissingError, ReplicationSlotMismatchError: the slot does not fit the offset.
            DatabaseError: the slot is of another plugin or database, or cannot be created.
        """
        position = None if offset is None else Position.of(offset)
        if self._mode == "initial_only":
            return position or Position(self._catalog.flushed()), position is None
        slot = self._catalog.slot(self._slot)
        if slot is not None:
            self._check(slot)
        if position is None:
            if slot is None or slot.is_lost:
                slot = self._create(slot)
            return Position(slot.confirmed), self._mode not in WITHOUT_SNAPSHOT
        if slot is None or slot.is_lost:
            return self._without_slot(position, slot)
        if self._strategy == "no_validation" and slot.restart <= position.lsn:
            return position, False
        flushed = self._catalog.flushed()
        if slot.confirmed > position.lsn:
            return self._mismatch(position, slot, slot.confirmed, f"is ahead of the source offset ({position.lsn})")
        if position.lsn > flushed:
            return self._mismatch(
                position,
                slot,
                None,
                f"belongs to a server whose WAL ends at {flushed}, before the offset {position.lsn}",
            )
        return position, False

    def _check(self, slot: Slot) -> None:
        if slot.plugin != "pgoutput" or slot.database != self._database:
            raise DatabaseError(
                f"The replication slot {self._slot} is of the plugin {slot.plugin} and the database {slot.database}.",
                next_step=f"Name another slot in slot.name: it needs pgoutput and the database {self._database}.",
            )

    def _create(self, lost: Slot | None) -> Slot:
        if lost is not None:
            self._catalog.drop_slot(self._slot)
        return self._catalog.create_slot(self._slot)

    def _without_slot(self, position: Position, lost: Slot | None) -> tuple[Position, bool]:
        what = "has lost WAL that it needs" if lost is not None else "does not exist"
        if self._mode != "when_needed" and self._strategy in _STRICT:
            raise ReplicationSlotMissingError(
                f"The replication slot {self._slot} {what}, and the source offset is {position.lsn}: changes after it "
                f"cannot be read (offset.mismatch.strategy is {self._strategy}).",
                next_step=_CHOICES,
            )
        slot = self._create(lost)
        if self._mode == "when_needed":
            return Position(slot.confirmed), True
        log.warning("%s %s: changes from %d to %d are missing", self._slot, what, position.lsn, slot.confirmed)
        return Position(slot.confirmed), False

    def _mismatch(self, position: Position, slot: Slot, later: int | None, how: str) -> tuple[Position, bool]:
        if self._mode == "when_needed":
            return Position(slot.confirmed), True
        chosen = slot.confirmed if self._strategy == "trust_slot" else later
        if self._strategy in _STRICT or chosen is None:
            raise ReplicationSlotMismatchError(
                f"The replication slot {self._slot}, confirmed up to {slot.confirmed}, {how} "
                f"(offset.mismatch.strategy is {self._strategy}).",
                next_step=_CHOICES,
            )
        log.warning("Slot %s %s: continuing at %d", self._slot, how, chosen)
        return Position(chosen), False
