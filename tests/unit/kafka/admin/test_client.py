"""The admin client of a worker that ends."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from connectx.errors.kafka import ClientClosedError
from connectx.kafka.admin.client import Admin
from connectx.kafka.settings.client_config import ClientConfig


def test_a_call_that_waits_ends_with_its_client() -> None:
    admin = Admin(ClientConfig({"bootstrap.servers": "127.0.0.1:9"}))
    admin.close()
    never: Future[Any] = Future()
    with pytest.raises(ClientClosedError):
        admin._outcome(never)
