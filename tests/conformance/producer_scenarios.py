"""What a broker shows to transactional producers, and of what they write (see `script`)."""

from __future__ import annotations

PRODUCERS: dict[str, str] = {
    "records of a transaction are seen when it is committed": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a b -> OK
        topic shows committed -> nothing
        topic shows all -> a@0 b@1
        topic ends -> stable at 0 of 2
        P commits -> OK
        topic shows committed -> a@0 b@1
        # The marker takes an offset.
        topic ends -> stable at 3 of 3
        plain sends c
        topic shows committed -> a@0 b@1 c@3
    """,
    "records of an aborted transaction are never seen by those who read committed ones": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        P aborts -> OK
        P begins -> OK
        P sends b -> OK
        P commits -> OK
        topic shows committed -> b@2
        topic shows all -> a@0 b@2
        topic ends -> stable at 4 of 4
    """,
    "an open transaction holds back what came after it": """
        plain sends a
        P inits tx -> epoch 0
        P begins -> OK
        P sends b -> OK
        plain sends c
        topic shows committed -> a@0
        topic ends -> stable at 1 of 3
        P aborts -> OK
        topic shows committed -> a@0 c@2
    """,
    "the older of two open transactions holds back the younger": """
        P inits tx-p -> epoch 0
        Q inits tx-q -> epoch 0
        P begins -> OK
        Q begins -> OK
        P sends a -> OK
        Q sends b -> OK
        Q commits -> OK
        topic shows committed -> nothing
        topic ends -> stable at 0 of 3
        P commits -> OK
        topic shows committed -> a@0 b@1
        topic ends -> stable at 4 of 4
    """,
    "a transaction over two partitions": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a 1:b 1:c -> OK
        topic shows committed 1 -> nothing
        P commits -> OK
        topic shows committed -> a@0
        topic shows committed 1 -> b@0 c@1
        topic ends -> stable at 2 of 2
        topic ends 1 -> stable at 3 of 3
    """,
    "a transaction without records leaves no trace": """
        P inits tx -> epoch 0
        P begins -> OK
        P commits -> OK
        P begins -> OK
        P aborts -> OK
        topic ends -> stable at 0 of 0
        tx has epoch -> 0
    """,
    "what a producer refuses itself": """
        P inits tx -> epoch 0
        P commits -> INVALID_STATE
        P sends a -> INVALID_STATE
        P begins -> OK
        P begins -> INVALID_STATE
        P sends b -> OK
        P commits -> OK
        topic shows all -> b@0
    """,
    "an epoch for each initialisation": """
        P inits tx -> epoch 0
        Q inits tx -> epoch 1
        R inits tx -> epoch 2
        tx has epoch -> 2
    """,
    "committing and aborting leaves the epoch": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        P commits -> OK
        P begins -> OK
        P sends b -> OK
        P aborts -> OK
        tx has epoch -> 0
        Q inits tx -> epoch 1
    """,
    "a newer producer aborts what the older has open, and the older is told when it commits": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx -> epoch 2
        topic ends -> stable at 2 of 2
        P commits -> FENCED
        topic shows committed -> nothing
        Q begins -> OK
        Q sends b -> OK
        Q commits -> OK
        topic shows committed -> b@2
    """,
    "an older producer is told when it sends on in its open transaction": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx -> epoch 2
        P sends b -> FENCED
        P commits -> FENCED
        topic shows all -> a@0
    """,
    "an older producer is told when it sends its first record": """
        P inits tx -> epoch 0
        Q inits tx -> epoch 1
        P begins -> OK
        P sends a -> FENCED
        P commits -> FENCED
        topic shows all -> nothing
    """,
    "an older producer is told when it aborts": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx -> epoch 2
        P aborts -> FENCED
        topic shows committed -> nothing
    """,
    "an older producer that sent nothing is not told": """
        P inits tx -> epoch 0
        P begins -> OK
        Q inits tx -> epoch 1
        P commits -> OK
        P begins -> OK
        P aborts -> OK
    """,
    "who was told that it is fenced can do nothing more": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx -> epoch 2
        P commits -> FENCED
        P commits -> FENCED
        P aborts -> FENCED
        P begins -> FENCED
        P sends b -> FENCED
    """,
    "an older producer does not disturb the open transaction of the newer": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx -> epoch 2
        Q begins -> OK
        Q sends b -> OK
        P commits -> FENCED
        topic ends -> stable at 2 of 3
        Q sends c -> OK
        Q commits -> OK
        topic shows committed -> b@2 c@3
    """,
    "a producer that was fenced by the leader": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        plain sends b
        tx is_fenced
        tx has epoch -> 2
        topic shows committed -> b@1
        P commits -> FENCED
        Q inits tx -> epoch 3
    """,
    "fencing an id that nobody has used": """
        tx is_fenced
        tx has epoch -> 0
        P inits tx -> epoch 1
    """,
    "a transaction that is open for too long is aborted, and its producer is told": """
        P inits tx 2000 -> epoch 0
        P begins -> OK
        P sends a -> OK
        plain sends b
        topic shows committed -> nothing
        tx expires
        topic shows committed -> b@1
        tx has epoch -> 1
        P commits -> EXPIRED
        Q inits tx -> epoch 2
        topic ends -> stable at 3 of 3
    """,
    "a producer whose transaction expired is told when it sends": """
        P inits tx 2000 -> epoch 0
        P begins -> OK
        P sends a -> OK
        tx expires
        P sends b -> EXPIRED
        topic shows all -> a@0
    """,
    "ids do not disturb each other": """
        P inits tx-p -> epoch 0
        P begins -> OK
        P sends a -> OK
        Q inits tx-q -> epoch 0
        Q begins -> OK
        Q sends b -> OK
        Q aborts -> OK
        P commits -> OK
        topic shows committed -> a@0
        tx-p has epoch -> 0
    """,
}

COMPACTION: dict[str, str] = {
    "the newest record of each key stays, at its offset": """
        plain sends k=1 l=1 k=2 m=1 k=3
        topic is_compacted
        topic shows all -> l=1@1 m=1@3 k=3@4 end=end@5
        topic ends -> stable at 6 of 6
    """,
    "what was aborted goes, and takes no older record with it": """
        plain sends k=1
        P inits tx -> epoch 0
        P begins -> OK
        P sends k=2 -> OK
        P aborts -> OK
        P begins -> OK
        P sends l=1 -> OK
        P commits -> OK
        plain sends m=1
        topic is_compacted
        topic shows all -> k=1@0 l=1@3 m=1@5 end=end@6
    """,
    "what follows the last stable offset stays as it is": """
        plain sends k=1 k=2
        topic rolls l=1
        P inits tx -> epoch 0
        P begins -> OK
        P sends k=3 -> OK
        plain sends k=4
        topic is_compacted
        topic shows all -> k=2@1 l=1@2 k=3@3 k=4@4 end=end@5
        topic shows committed -> k=2@1 l=1@2
        P commits -> OK
        topic ends -> stable at 7 of 7
    """,
}

PRODUCER_MOVES: dict[str, str] = {
    "epochs and open transactions survive their coordinator": """
        P inits tx -> epoch 0
        P begins -> OK
        P sends a -> OK
        coordinator moves
        topic ends -> stable at 0 of 1
        tx has epoch -> 0
        P sends b -> OK
        P commits -> OK
        topic shows committed -> a@0 b@1
        Q inits tx -> epoch 1
        P begins -> OK
        P sends c -> FENCED
    """,
}
