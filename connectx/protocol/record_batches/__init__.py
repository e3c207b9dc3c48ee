"""Kafka record batches of format 2, built from Arrow columns and read back into them.

Encoding runs no Python code per record: lengths and varints are numpy arrays, and Arrow joins the bytes. It has three
steps. `prepare` turns a table into arrays and upper bounds of record sizes, `split` cuts rows into batches, and
`encode` builds the records of one batch. `finish` adds the header once producer id, epoch and sequence are known, so
that a batch may be built before it is known under which epoch it is sent. Decoding has one short loop, which finds
where records begin.

Sources: Kafka's DefaultRecordBatch and DefaultRecord (KIP-98), CompressionType.
"""

from connectx.protocol.record_batches.codecs import Compression
from connectx.protocol.record_batches.decoding import (
    BatchHeader,
    DecodedBatch,
    Records,
    decode,
    decode_rows,
    records_of,
    scan,
)
from connectx.protocol.record_batches.encoding import (
    HEADER_BYTES,
    HEADERS,
    RECORD_OVERHEAD_BYTES,
    PreparedRecords,
    RecordSet,
    encode,
    finish,
    prepare,
    split,
)

__all__ = [
    "HEADERS",
    "HEADER_BYTES",
    "RECORD_OVERHEAD_BYTES",
    "BatchHeader",
    "Compression",
    "DecodedBatch",
    "PreparedRecords",
    "RecordSet",
    "Records",
    "decode",
    "decode_rows",
    "encode",
    "finish",
    "prepare",
    "records_of",
    "scan",
    "split",
]
