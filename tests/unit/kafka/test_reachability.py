"""Whether a process can reach Kafka: each broker must accept a connection, and the login."""

from __future__ import annotations

import socket

from connectx.kafka.reachability import connection_obstacle
from tests.unit.kafka.loopback import LoopbackBroker


def test_a_broker_that_answers_is_no_obstacle() -> None:
    with LoopbackBroker(2, {}) as broker:
        assert connection_obstacle({"bootstrap.servers": broker.address}, 30) is None


def test_one_bootstrap_server_that_answers_is_enough() -> None:
    with LoopbackBroker(2, {}) as broker:
        assert connection_obstacle({"bootstrap.servers": f"127.0.0.1:{closed_port()},{broker.address}"}, 30) is None


def test_a_closed_port_is_named() -> None:
    port = closed_port()
    found = connection_obstacle({"bootstrap.servers": f"127.0.0.1:{port}"}, 30)
    assert found == f"127.0.0.1:{port}: Connection refused"


def test_a_server_that_accepts_and_is_silent_is_an_obstacle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = connection_obstacle({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}, 0.5)
    assert found == "not all brokers answered in 0.5 s"


def test_a_missing_file_of_the_security_settings_is_an_obstacle() -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": "/missing/ca.pem"}
    with LoopbackBroker(2, {}) as broker:
        found = connection_obstacle({"bootstrap.servers": broker.address, **settings}, 1)
    assert found is not None
    assert "ssl.* settings" in found


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
