"""Data frames have the same types of columns in pandas 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd
import pytest

from connectx.api.peek import Record, Records
from connectx.data_frames import number_column, text_column, time_column
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from connectx.verify.audit.findings import Audit, Severity
from connectx.verify.audit.findings import Finding as Audited
from connectx.verify.check.verdict import Anomaly, Example, Finding, Verdict
from connectx.verify.doctor.report import Checkup, Status
from connectx.verify.doctor.report import Finding as Diagnosed
from tests.support.histories import transition

TIME: Final = "datetime64[ms, UTC]"
FAR_MS: Final = 2**62
"""Any producer may set such a time; nanoseconds of it have more than 64 bits."""


def kinds(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in frame.dtypes.items()}


def events(count: int) -> EventLog:
    log = EventLog(clock=lambda: 1_700_000_000_123)
    for _ in range(count):
        log.append(transition(EventKind.CLUSTER_STOPPED))
    return log


def records(count: int) -> Records:
    return Records([Record("t", 0, 7, FAR_MS, "key", {"a": 1}, {}, None, None)] * count, "records")


def verdict(count: int) -> Verdict:
    found = Finding(Anomaly.LOST, 1, "topic t", ("c",), "1 lost", (Example("a", 0, 7, FAR_MS), Example("b")))
    return Verdict("invalid", (found,) * count, (), ())


@pytest.mark.parametrize("count", [0, 2])
def test_every_frame_has_declared_types_with_and_without_rows(count: int) -> None:
    assert kinds(events(count).to_pandas()) == {
        **{"seq": "int64", "time": TIME, "worker": "object", "kind": "object", "connector": "object", "task": "Int64"},
        **{"generation": "Int64", "producer_epoch": "Int64", "cause": "object", "data": "object"},
    }
    assert kinds(records(count).to_pandas()) == {
        **{"partition": "int64", "offset": "int64", "time": TIME, "key": "object", "value": "object"},
        **{"headers": "object", "reason": "object"},
    }
    texts = dict.fromkeys(["anomaly", "place", "connectors", "sentence", "text", "worker", "moment"], "object")
    numbers: Mapping[str, str] = dict.fromkeys(["partition", "offset", "event"], "Int64")
    assert kinds(verdict(count).to_pandas()) == {"count": "int64", "time": TIME, "event_time": TIME, **texts, **numbers}
    found = Audited("failed_task", Severity.ERROR, "c-0", "seen", "stops", "restart")
    assert set(kinds(Audit((found,) * count).to_pandas()).values()) == {"object"}
    diagnosed = Diagnosed("Java", Status.OK, "21")
    assert set(kinds(Checkup([diagnosed] * count, []).to_pandas()).values()) == {"object"}


def test_missing_values_and_times_of_any_size_stay() -> None:
    times = time_column([0, None, FAR_MS, -1])
    assert times[0] == pd.Timestamp("1970-01-01T00:00:00Z")
    assert times.isna().tolist() == [False, True, False, False]
    assert times.dt.year[2] > 100_000_000
    assert number_column([1, None]).tolist() == [1, pd.NA]
    assert text_column(["a", None]).tolist() == ["a", None]
    assert verdict(1).to_pandas()["offset"].tolist() == [7, pd.NA]
