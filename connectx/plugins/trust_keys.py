"""Keys about trust that a configuration has and that nothing reads.

Other unknown keys are ignored, as in Kafka Connect. One about TLS is refused: its author relies on a protection that is
not there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

PREFIXES: Final = ("connection.", "database.", "driver.", "http.", "https.", "ssl.")
"""What such keys of connectors begin with. Keys with other prefixes go to clients, which refuse theirs."""

UNUSED: Final = "connectx does not know this key, and ignores none that is about trust"

_ABOUT_TRUST: Final = re.compile(r"ssl|[._]tls|cert|trust|key\.?store|verif|bearer\.auth")


def unused_trust_keys(given: Collection[str], known: Collection[str], prefixes: tuple[str, ...] | str) -> Iterator[str]:
    """Keys with one of these prefixes that are about trust and not known."""
    for name in given:
        if name.startswith(prefixes) and name not in known and _ABOUT_TRUST.search(name.lower()):
            yield name
