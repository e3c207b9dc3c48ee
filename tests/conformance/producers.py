"""Verbs of scripts about transactional producers P, Q, R and one topic of two partitions. Subclasses carry them out."""

from __future__ import annotations

from abc import ABC, abstractmethod

TIMEOUT_MS = 60_000


class Producers(ABC):
    """The verbs. `inits` names the transactional id of a producer, which it keeps."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    @abstractmethod
    def init(self, who: str, transactional_id: str, timeout_ms: int) -> str: ...

    @abstractmethod
    def begins(self, who: str) -> str: ...

    @abstractmethod
    def send(self, who: str, partition: int, values: list[str]) -> str: ...

    @abstractmethod
    def commits(self, who: str) -> str: ...

    @abstractmethod
    def aborts(self, who: str) -> str: ...

    @abstractmethod
    def epoch(self, transactional_id: str) -> int:
        """What the coordinator says."""

    @abstractmethod
    def fence(self, transactional_id: str) -> None:
        """As a leader does before new tasks start."""

    @abstractmethod
    def expires(self, who: str) -> None:
        """`tx expires`: let time pass until the coordinator has aborted its transaction."""

    @abstractmethod
    def send_plain(self, partition: int, values: list[str]) -> None: ...

    @abstractmethod
    def read(self, partition: int, *, committed: bool) -> list[tuple[int, str]]: ...

    @abstractmethod
    def ends_of(self, partition: int) -> tuple[int, int]:
        """Last stable offset and end."""

    @abstractmethod
    def rolls(self, who: str, value: str) -> None:
        """`topic rolls x=1`: a record that is the first of a new segment; what is before it can be compacted."""

    @abstractmethod
    def await_cleaner(self) -> None:
        """Let the cleaner compact what it can."""

    @abstractmethod
    def moves(self, who: str) -> None:
        """`coordinator moves`: another node takes the transactional ids over."""

    def inits(self, who: str, transactional_id: str, timeout_ms: str = str(TIMEOUT_MS)) -> str:
        self.ids[who] = transactional_id
        return self.init(who, transactional_id, int(timeout_ms))

    def sends(self, who: str, *values: str) -> str | None:
        """Values to partition 0; `1:x` sends x to partition 1."""
        outcome = "OK"
        for value in values:
            partition, _, text = value.rpartition(":")
            if who == "plain":
                self.send_plain(int(partition or 0), [text])
            else:
                outcome = self.send(who, int(partition or 0), [text])
        return None if who == "plain" else outcome

    def has(self, who: str, what: str) -> str:
        """`tx has epoch`."""
        assert what == "epoch"
        return str(self.epoch(who))

    def is_fenced(self, who: str) -> None:
        self.fence(who)

    def is_compacted(self, who: str) -> None:
        """`topic is_compacted`, behind a last record; the key of a value is what stands before its `=`."""
        self.rolls(who, "end=end")
        self.await_cleaner()

    def shows(self, who: str, isolation: str, partition: str = "0") -> str:
        """`topic shows committed` or `topic shows all`: records with their log offsets."""
        found = self.read(int(partition), committed=isolation == "committed")
        return " ".join(f"{value}@{log_offset}" for log_offset, value in found) or "nothing"

    def ends(self, who: str, partition: str = "0") -> str:
        stable, end = self.ends_of(int(partition))
        return f"stable at {stable} of {end}"
