"""Every operation that a worker serves. Mirrors the resources of Kafka Connect 4.3."""

from __future__ import annotations

from typing import Final

from connectx.rest import admin, resources

OPERATIONS: Final = (*resources.OPERATIONS, *admin.OPERATIONS)
