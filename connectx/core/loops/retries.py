"""When something that failed is tried again. Mirrors the back-off of Kafka Connect's RetryWithToleranceOperator."""

from __future__ import annotations

from connectx.values import Value


class Retry(Value):
    """An operation that failed `attempt` times since `since_ms`, and is tried again at `at_ms`."""

    attempt: int
    since_ms: int
    at_ms: int


def next_retry(
    before: Retry | None,
    now_ms: int,
    *,
    first_ms: int,
    longest_ms: int,
    timeout_ms: int | None,
    pause_ms: int | None = None,
) -> Retry | None:
    """Try again after `first_ms`, doubled each time up to `longest_ms`; None when the time for it is over.

    Args:
        before: the last try, None after the first failure.
        now_ms: the present.
        first_ms: pause after the first failure.
        longest_ms: the longest pause.
        timeout_ms: time for all tries; None: forever.
        pause_ms: the pause, if what failed has named it.
    """
    attempt, since_ms = (before.attempt + 1, before.since_ms) if before is not None else (1, now_ms)
    back_off_ms = min(first_ms * 2 ** min(attempt - 1, 30), longest_ms)
    at_ms = now_ms + (back_off_ms if pause_ms is None else pause_ms)
    if timeout_ms is not None:
        if now_ms >= since_ms + timeout_ms:
            return None
        at_ms = min(at_ms, since_ms + timeout_ms)
    return Retry(attempt, since_ms, at_ms)
