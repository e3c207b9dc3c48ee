"""What a coordinator makes of protocols and offsets, and what is left when another takes over (see `script`)."""

from __future__ import annotations

CHOICES: dict[str, str] = {
    "members vote for a protocol that all have": """
        A uses protocols=range,roundrobin
        B uses protocols=roundrobin,sticky
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by roundrobin
        B hears -> follows in generation 2 by roundrobin
    """,
    "the majority's first protocol wins": """
        A uses protocols=range,roundrobin
        B uses protocols=roundrobin,range
        C uses protocols=roundrobin,range
        A settles
        B follows A
        C enters
        B joins
        A joins
        A hears -> leads 3 in generation 3 by roundrobin
    """,
    "a member without a common protocol is refused": """
        A settles
        B uses protocols=sticky
        B asks -> INCONSISTENT_GROUP_PROTOCOL
        A heartbeats -> OK
        A uses protocols=sticky
        A joins
        A hears -> INCONSISTENT_GROUP_PROTOCOL
    """,
    "offsets of members, whatever they own": """
        A settles
        B follows A
        A commits 5 -> OK
        group has offset -> 5
        B commits 3 -> OK
        group has offset -> 3
    """,
    "offsets while members join again are taken, and before the leader has assigned refused": """
        A settles
        B enters
        A commits 5 -> OK
        A joins
        A hears -> leads 2 in generation 2 by range
        A commits 6 -> REBALANCE_IN_PROGRESS
        A recalls generation 1
        A commits 7 -> ILLEGAL_GENERATION
        group has offset -> 5
    """,
    "offsets from outside are taken while the group has no members": """
        admin commits 5 -> OK
        A settles
        admin commits 6 -> UNKNOWN_MEMBER_ID
        group has offset -> 5
        A leaves
        admin commits 7 -> OK
        A commits 8 -> UNKNOWN_MEMBER_ID
        group has offset -> 7
    """,
    "who was kicked out cannot commit, and its successor can": """
        A settles
        A commits 5 -> OK
        B uses session=2000
        B follows A
        B commits 6 -> OK
        B expires
        A joins
        A hears -> leads 1 in generation 3 by range
        A syncs A=x
        A hears -> has x
        B commits 9 -> UNKNOWN_MEMBER_ID
        A commits 7 -> OK
        group has offset -> 7
    """,
}

LATE: dict[str, str] = {
    "a late JoinGroup of the leader starts a rebalance, and the leader hears of it by its heartbeat": """
        A settles
        B follows A
        A joins_late
        B heartbeats -> REBALANCE_IN_PROGRESS
        B joins
        B hears -> follows in generation 3 by range
        A heartbeats -> ILLEGAL_GENERATION
        A commits 5 -> ILLEGAL_GENERATION
        A joins
        A hears -> leads 2 in generation 3 by range
        A syncs A=x B=y
        A hears -> has x
        B syncs
        B hears -> has y
    """,
    "a late JoinGroup of the only member begins a generation that it does not know": """
        A settles
        A joins_late
        A heartbeats -> ILLEGAL_GENERATION
        A commits 5 -> ILLEGAL_GENERATION
        A joins
        A hears -> leads 1 in generation 2 by range
    """,
    "a late JoinGroup of a follower that is as it was changes nothing": """
        A settles
        B follows A
        B joins_late
        A heartbeats -> OK
        B heartbeats -> OK
        B commits 5 -> OK
    """,
    "a late JoinGroup of a member that has left is refused": """
        A settles
        B follows A
        B leaves
        B joins_late
        A joins
        A hears -> leads 1 in generation 3 by range
    """,
    "a JoinGroup that is repeated while its first attempt waits": """
        A settles
        B asks -> MEMBER_ID_REQUIRED
        B joins_late
        B joins
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        A syncs A=x B=y
        A hears -> has x
        B syncs
        B hears -> has y
    """,
    "assignments that come late before those that the leader sent again": """
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        A syncs_late A=x B=y
        A syncs A=z B=z
        A hears -> has x
        B syncs
        B hears -> has y
    """,
    "assignments of an older generation that come late": """
        A settles
        B follows A
        A joins
        B joins
        A hears -> leads 2 in generation 3 by range
        B hears -> follows in generation 3 by range
        A recalls generation 2
        A syncs_late A=x B=y
        A recalls generation 3
        A syncs A=z B=z
        A hears -> has z
    """,
    "a LeaveGroup that comes twice": """
        A settles
        B follows A
        B leaves
        B leaves
        A joins
        A hears -> leads 1 in generation 3 by range
        B leaves
        A heartbeats -> OK
    """,
    "offsets that come late go back within their generation, and are refused afterwards": """
        A settles
        B follows A
        A commits 5 -> OK
        A commits 8 -> OK
        A commits 5 -> OK
        group has offset -> 5
        A joins
        A commits 6 -> OK
        B joins
        A hears -> leads 2 in generation 3 by range
        A recalls generation 2
        A commits 5 -> ILLEGAL_GENERATION
        group has offset -> 6
    """,
}

GROUP_MOVES: dict[str, str] = {
    "a stable group survives its coordinator": """
        A settles
        B follows A
        A commits 5 -> OK
        coordinator moves
        A heartbeats -> OK
        B heartbeats -> OK
        B syncs
        B hears -> has half
        group has offset -> 5
        A joins
        B heartbeats -> REBALANCE_IN_PROGRESS
        B joins
        A hears -> leads 2 in generation 3 by range
    """,
    "a generation that was not assigned before its coordinator went has never been": """
        A settles
        B enters
        A joins
        A hears -> leads 2 in generation 2 by range
        B hears -> follows in generation 2 by range
        coordinator moves
        B heartbeats -> UNKNOWN_MEMBER_ID
        A heartbeats -> ILLEGAL_GENERATION
        A joins
        A hears -> leads 1 in generation 2 by range
    """,
    "an empty group keeps its generation when its coordinator goes": """
        A settles
        A leaves
        coordinator moves
        A enters
        A hears -> leads 1 in generation 3 by range
    """,
}
