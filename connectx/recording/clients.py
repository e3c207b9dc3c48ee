"""How the cores of Kafka clients are recorded. They see numbers, topics and errors, and no secret."""

from __future__ import annotations

from typing import Final

from connectx.core.fetcher import messages as fetcher
from connectx.core.fetcher.fetcher import FetcherCore
from connectx.core.producer import messages as producer
from connectx.core.producer.producer import ProducerCore
from connectx.recording.codec import Codec
from connectx.recording.kind import kind_of_values

PRODUCER: Final = kind_of_values(
    "producer", ProducerCore, Codec((producer.ProducerStimulus, producer.ProducerEffect), parts=(ProducerCore,))
)
"""The core of a producer."""

FETCHER: Final = kind_of_values(
    "fetcher", FetcherCore, Codec((fetcher.FetcherStimulus, fetcher.FetcherEffect), parts=(FetcherCore,))
)
"""The core of a fetcher."""
