"""connectx's own fetcher: record batches straight into Arrow, over kafka-python's connections.

It needs neither a worker nor Spark: `connectx.kafka.fetcher.ranges.read_ranges` runs in any process.
"""
