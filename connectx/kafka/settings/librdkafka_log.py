"""Forwards the log lines of librdkafka to Python's logging.

librdkafka logs every lost connection and every fenced producer as an error. Here both are ordinary events: the caller
of a request gets a typed error, so those lines are for debugging only.
"""

from __future__ import annotations

import logging
from typing import Final

_log: Final = logging.getLogger("connectx.kafka.librdkafka")

# Lost and refused connections, requests that timed out, retries, hints about settings; and producers that were fenced.
_EXPECTED: Final = frozenset(
    {
        "FAIL",
        "ERROR",
        "REQTMOUT",
        "CONNECT",
        "GETPID",
        "BROKERUPDATE",
        "CONFWARN",
        "TERMINATE",
        "ADDPARTS",
        "TXNERR",
        "FATAL",
        "ENDTXN",
        "TXNSTATE",
        "METADATAUPDATE",
    }
)


class LibrdkafkaLog:
    """What confluent-kafka takes as `logger`."""

    def log(self, level: int, message: str, facility: str, client: str, text: str) -> None:
        _log.log(min(level, logging.DEBUG) if facility in _EXPECTED else level, message, facility, client, text)
