"""What a broker answers to single requests of producers: retries, late ones, and those of an older epoch.

`v1` and `v2` are the transaction protocols. A verb is followed by the epoch, `produces` by the first sequence, too.
"""

from __future__ import annotations

REQUESTS: dict[str, str] = {
    "protocol 2: EndTxn that is sent again": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        v2 commits 0 -> epoch 1
        v2 commits 0 -> epoch 1
        v2 aborts 0 -> INVALID_TXN_STATE
        topic shows committed -> a@0
    """,
    "protocol 2: EndTxn that arrives in the next transaction": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        v2 commits 0 -> epoch 1
        v2 produces 1 0 b -> OK
        v2 commits 0 -> PRODUCER_FENCED
        v2 aborts 0 -> PRODUCER_FENCED
        topic shows committed -> a@0
        v2 aborts 1 -> epoch 2
        topic shows committed -> a@0
    """,
    "protocol 2: a batch of the epoch before, after EndTxn and in the next transaction": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        v2 commits 0 -> epoch 1
        v2 produces 0 0 a -> INVALID_PRODUCER_EPOCH
        v2 produces 0 1 b -> INVALID_PRODUCER_EPOCH
        v2 produces 1 0 c -> OK
        v2 produces 0 1 b -> INVALID_PRODUCER_EPOCH
        v2 commits 1 -> epoch 2
        topic shows all -> a@0 c@2
    """,
    "protocol 2: an end of nothing": """
        tx inits -> epoch 0
        v2 commits 0 -> INVALID_TXN_STATE
        v2 aborts 0 -> epoch 1
        v2 aborts 1 -> epoch 2
        v2 commits 2 -> INVALID_TXN_STATE
    """,
    "protocol 2: an older producer ends what a newer has fenced": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        tx inits -> epoch 2
        v2 commits 0 -> PRODUCER_FENCED
        v2 produces 0 1 b -> INVALID_PRODUCER_EPOCH
    """,
    "sequences: a duplicate, a gap, and the beginning of an epoch": """
        tx inits -> epoch 0
        v2 produces 0 0 a b -> OK
        v2 produces 0 0 a b -> OK
        v2 produces 0 3 d -> OUT_OF_ORDER_SEQUENCE_NUMBER
        v2 produces 0 2 c -> OK
        v2 commits 0 -> epoch 1
        v2 produces 1 3 d -> OUT_OF_ORDER_SEQUENCE_NUMBER
        v2 produces 1 0 d -> OK
        v2 commits 1 -> epoch 2
        topic shows committed -> a@0 b@1 c@2 d@4
    """,
    "protocol 1: a late EndTxn ends the next transaction of its epoch": """
        tx inits -> epoch 0
        v1 adds 0 -> OK
        v1 produces 0 0 a -> OK
        v1 commits 0 -> OK
        v1 commits 0 -> OK
        v1 adds 0 -> OK
        v1 produces 0 1 b -> OK
        v1 commits 0 -> OK
        topic shows committed -> a@0 b@2
    """,
    "protocol 1: a new epoch refuses a late EndTxn and a late batch": """
        tx inits -> epoch 0
        v1 adds 0 -> OK
        v1 produces 0 0 a -> OK
        v1 commits 0 -> OK
        tx renews 0 -> epoch 1
        v1 adds 1 -> OK
        v1 produces 1 0 b -> OK
        v1 commits 0 -> PRODUCER_FENCED
        v1 produces 0 1 c -> INVALID_PRODUCER_EPOCH
        v1 adds 0 -> PRODUCER_FENCED
        topic shows committed -> a@0
        v1 commits 1 -> OK
        topic shows committed -> a@0 b@2
    """,
    "protocol 1: a late AddPartitionsToTxn opens a transaction, which the next epoch aborts": """
        tx inits -> epoch 0
        v1 adds 0 -> OK
        v1 produces 0 0 a -> OK
        v1 commits 0 -> OK
        v1 adds 0 -> OK
        tx renews 0 -> CONCURRENT_TRANSACTIONS
        tx renews 0 -> epoch 1
        v1 adds 0 -> PRODUCER_FENCED
        v1 adds 1 -> OK
        v1 produces 1 0 b -> OK
        v1 commits 1 -> OK
        topic shows committed -> a@0 b@3
    """,
    "protocol 2: a batch that comes twice, and late in the transaction after an abort": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        v2 aborts 0 -> epoch 1
        v2 produces 1 0 b -> OK
        v2 produces 0 0 a -> INVALID_PRODUCER_EPOCH
        v2 produces 1 0 b -> OK
        v2 commits 1 -> epoch 2
        topic shows committed -> b@2
    """,
    "a late InitProducerId fences whoever has the id by then": """
        tx inits -> epoch 0
        v2 produces 0 0 a -> OK
        v2 commits 0 -> epoch 1
        tx inits -> epoch 2
        v2 commits 0 -> PRODUCER_FENCED
        v2 aborts 1 -> PRODUCER_FENCED
        v2 produces 1 0 b -> INVALID_PRODUCER_EPOCH
        v2 produces 2 0 c -> OK
        v2 commits 2 -> epoch 3
        topic shows committed -> a@0 c@2
    """,
    "without a producer id a batch that comes twice is there twice": """
        plain sends a b
        plain sends a b
        topic shows committed -> a@0 b@1 a@2 b@3
    """,
    "protocol 1: a batch whose partition was not added": """
        tx inits -> epoch 0
        v1 produces 0 0 a -> TRANSACTION_ABORTABLE
        v1 commits 0 -> INVALID_TXN_STATE
        topic shows all -> nothing
    """,
    "protocol 1: a commit that is sent again after a late InitProducerId finds nothing, and is committed": """
        tx inits -> epoch 0
        tx renews 0 -> epoch 1
        v1 adds 1 -> OK
        v1 produces 1 0 a -> OK
        v1 commits 1 -> OK
        tx renews 0 -> epoch 1
        v1 commits 1 -> INVALID_TXN_STATE
        tx renews 1 -> epoch 2
        v1 adds 2 -> OK
        v1 produces 2 0 b -> OK
        v1 commits 2 -> OK
        topic shows committed -> a@0 b@2
    """,
    "protocol 1: every abort that was not asked for raises the epoch, which a commit is told": """
        tx inits -> epoch 0
        tx renews 0 -> epoch 1
        v1 adds 1 -> OK
        v1 produces 1 0 a -> OK
        tx renews 0 -> CONCURRENT_TRANSACTIONS
        tx renews 0 -> PRODUCER_FENCED
        v1 commits 1 -> PRODUCER_FENCED
        tx inits -> epoch 3
        v1 commits 1 -> PRODUCER_FENCED
        topic shows committed -> nothing
    """,
    "InitProducerId with id and epoch, sent again": """
        tx inits -> epoch 0
        tx renews 0 -> epoch 1
        tx renews 0 -> epoch 1
        tx renews 1 -> epoch 2
        tx renews 0 -> PRODUCER_FENCED
        tx inits -> epoch 3
        tx renews 2 -> PRODUCER_FENCED
    """,
    "InitProducerId with an older epoch aborts an open transaction all the same": """
        tx inits -> epoch 0
        tx renews 0 -> epoch 1
        v1 adds 1 -> OK
        v1 produces 1 0 a -> OK
        tx renews 0 -> CONCURRENT_TRANSACTIONS
        v1 commits 1 -> PRODUCER_FENCED
        tx renews 1 -> epoch 2
        topic shows committed -> nothing
        tx inits -> epoch 3
    """,
}

REOPENED = "protocol 1: a late AddPartitionsToTxn opens a transaction, which the next epoch aborts"
OLD_REQUESTS: dict[str, str] = {
    **{name: script for name, script in REQUESTS.items() if name.startswith("protocol 1") and name != REOPENED},
    "Kafka 3.9: a producer is fenced by the abort that its own InitProducerId has caused": """
        tx inits -> epoch 0
        v1 adds 0 -> OK
        tx renews 0 -> CONCURRENT_TRANSACTIONS
        tx renews 0 -> PRODUCER_FENCED
        tx inits -> epoch 2
    """,
}
"""What a broker of Kafka 3.9 answers."""
