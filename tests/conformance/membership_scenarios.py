"""What a coordinator shows to members of a group as they come, stay, go and are lost (see `script`)."""

from __future__ import annotations

MEMBERSHIP: dict[str, str] = {
    "the first member leads": """
        A asks -> MEMBER_ID_REQUIRED
        A joins
        A hears -> leads 1 in generation 1 by range
        A syncs A=x
        A hears -> has x
        A heartbeats -> OK
    """,
    "a second member makes the first join again": """
        A settles
        B enters
        A heartbeats -> REBALANCE_IN_PROGRESS
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        B heartbeats -> OK
        B syncs
        A syncs A=x B=y
        A hears -> has x
        B hears -> has y
        B heartbeats -> OK
    """,
    "a member that leaves": """
        A settles
        B follows A
        B leaves
        B heartbeats -> UNKNOWN_MEMBER_ID
        A heartbeats -> REBALANCE_IN_PROGRESS
        A joins
        A hears -> leads 1 in generation 3 by range
    """,
    "a leader that leaves has a successor": """
        A settles
        B follows A
        A leaves
        B heartbeats -> REBALANCE_IN_PROGRESS
        B joins
        B hears -> leads 1 in generation 3 by range
    """,
    "a group without members goes on counting generations": """
        A settles
        A leaves
        A enters
        A hears -> leads 1 in generation 3 by range
    """,
    "a session that ends": """
        A settles
        B uses session=2000
        B follows A
        B expires
        A heartbeats -> REBALANCE_IN_PROGRESS
        B heartbeats -> UNKNOWN_MEMBER_ID
        B syncs
        B hears -> UNKNOWN_MEMBER_ID
        B commits 5 -> UNKNOWN_MEMBER_ID
        B joins
        B hears -> UNKNOWN_MEMBER_ID
        B uses session=30000
        B enters
        A joins
        A hears -> leads 2 in generation 3 by range
        B hears -> follows in generation 3 by range
    """,
    "an old generation": """
        A settles
        B follows A
        B recalls generation 1
        B heartbeats -> ILLEGAL_GENERATION
        B syncs
        B hears -> ILLEGAL_GENERATION
        B commits 5 -> ILLEGAL_GENERATION
        B recalls generation 2
        B heartbeats -> OK
    """,
    "a member that nobody knows, in a group that nobody knows": """
        A recalls member nobody
        A recalls generation 1
        A heartbeats -> UNKNOWN_MEMBER_ID
        A syncs
        A hears -> UNKNOWN_MEMBER_ID
        A joins
        A hears -> UNKNOWN_MEMBER_ID
        A commits 5 -> ILLEGAL_GENERATION
    """,
    "a member that nobody knows, in a group with members": """
        A settles
        B recalls member nobody
        B recalls generation 1
        B heartbeats -> UNKNOWN_MEMBER_ID
        B syncs
        B hears -> UNKNOWN_MEMBER_ID
        B joins
        B hears -> UNKNOWN_MEMBER_ID
        B commits 5 -> UNKNOWN_MEMBER_ID
        A heartbeats -> OK
    """,
    "a follower that joins again as it was changes nothing": """
        A settles
        B follows A
        B joins
        B hears -> follows in generation 2 by range
        A heartbeats -> OK
    """,
    "a follower that joins again with other metadata starts a rebalance": """
        A settles
        B follows A
        B uses topics=more
        B joins
        A heartbeats -> REBALANCE_IN_PROGRESS
        A joins
        A hears -> leads 2 in generation 3 by range
        B hears -> follows in generation 3 by range
    """,
    "a leader that joins again starts a rebalance": """
        A settles
        B follows A
        A joins
        B heartbeats -> REBALANCE_IN_PROGRESS
        B syncs
        B hears -> REBALANCE_IN_PROGRESS
        B joins
        A hears -> leads 2 in generation 3 by range
        B hears -> follows in generation 3 by range
    """,
    "who joins again before the leader has assigned gets the same generation": """
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        A joins
        A hears -> leads 2 in generation 2 by range
        B joins
        B hears -> follows in generation 2 by range
        A syncs A=x B=y
        A hears -> has x
        B syncs
        B hears -> has y
    """,
    "other metadata before the leader has assigned starts a rebalance, and waiting syncs fail": """
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        B syncs
        A uses topics=more
        A joins
        B hears -> REBALANCE_IN_PROGRESS
        B joins
        A hears -> leads 2 in generation 3 by range
        B hears -> follows in generation 3 by range
    """,
    "an assignment can be fetched again, and a member that the leader forgot gets nothing": """
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        A syncs A=x
        A hears -> has x
        A syncs A=z B=z
        A hears -> has x
        B syncs
        B hears -> has nothing
    """,
    "a member id that was given out is waited for": """
        A settles
        B asks -> MEMBER_ID_REQUIRED
        A heartbeats -> OK
        A joins
        B joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
    """,
    "a member id that was given out and is given back": """
        A settles
        B asks -> MEMBER_ID_REQUIRED
        A joins
        B leaves
        A hears -> leads 1 in generation 2 by range
        B joins
        B hears -> UNKNOWN_MEMBER_ID
    """,
    "a member id that was given out and is not used": """
        A settles
        B uses session=2000
        B asks -> MEMBER_ID_REQUIRED
        A joins
        B expires
        A hears -> leads 1 in generation 2 by range
        B joins
        B hears -> UNKNOWN_MEMBER_ID
    """,
    "who does not join in time is dropped": """
        A uses rebalance=2000
        B uses rebalance=2000
        A settles
        B follows A
        A joins
        B heartbeats -> REBALANCE_IN_PROGRESS
        B expires
        A hears -> leads 1 in generation 3 by range
        B heartbeats -> UNKNOWN_MEMBER_ID
    """,
    "who does not fetch its assignment in time is dropped": """
        A uses rebalance=2000
        B uses rebalance=2000
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        A syncs A=x B=y
        A hears -> has x
        B expires
        A heartbeats -> REBALANCE_IN_PROGRESS
        A joins
        A hears -> leads 1 in generation 3 by range
    """,
    "a leader that does not assign in time is dropped": """
        A uses rebalance=2000
        B uses rebalance=2000
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        B syncs
        A expires
        B hears -> REBALANCE_IN_PROGRESS
        B joins
        B hears -> leads 1 in generation 3 by range
        A syncs A=x B=y
        A hears -> UNKNOWN_MEMBER_ID
    """,
    "who waits for the others cannot expire": """
        A settles
        B uses session=2000
        C uses session=2000
        B follows A
        C enters
        B joins
        A joins
        A hears -> leads 3 in generation 3 by range
        B hears -> follows in generation 3 by range
        C hears -> follows in generation 3 by range
        B syncs
        C expires
        B hears -> REBALANCE_IN_PROGRESS
        B heartbeats -> REBALANCE_IN_PROGRESS
    """,
    "a join that waits is refused when its member leaves": """
        A settles
        B enters
        A heartbeats -> REBALANCE_IN_PROGRESS
        B leaves
        B hears -> UNKNOWN_MEMBER_ID
        A joins
        A hears -> leads 1 in generation 2 by range
    """,
    "the last one missing leaves, and the others go on": """
        A settles
        B follows A
        C enters
        A joins
        B leaves
        A hears -> leads 2 in generation 3 by range
        C hears -> follows in generation 3 by range
    """,
}
