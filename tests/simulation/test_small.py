"""Every state of a small world: two instances of an exactly-once source task, in every order of events."""

from __future__ import annotations

import pytest

from connectx.core.producer import messages as msg
from tests.simulation.broker_requests import Metadata, TransactionalBroker
from tests.simulation.invariants import Broken
from tests.simulation.small import RECORDS, Small, explore


@pytest.mark.rule("always.2")
def test_no_order_of_events_shows_a_record_twice_or_loses_one() -> None:
    ends = explore(Small())
    assert len(ends) > 20
    for end in ends:
        assert [value for _, value in end.broker.read("data", 0, 0)] == list(range(1, RECORDS + 1))


def test_some_order_of_events_shows_that_fencing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def grant_same(self: TransactionalBroker, request: msg.InitProducerId) -> msg.ProducerIdGranted:
        found = self.ids.setdefault(str(request.transactional_id), Metadata(1_000, 0))
        return msg.ProducerIdGranted(None, found.producer_id, found.epoch)

    monkeypatch.setattr(TransactionalBroker, "_init_producer_id", grant_same)
    with pytest.raises(Broken):
        explore(Small())
