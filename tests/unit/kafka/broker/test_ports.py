"""The broker's ports are its own, also while it is away."""

from __future__ import annotations

import socket

from connectx.kafka.broker.node import free_ports, is_free


def test_no_port_is_one_that_the_system_may_give_to_somebody_else() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)
    taken = []
    for _ in range(50):
        with socket.create_server(("127.0.0.1", 0)) as server:
            taken.append(server.getsockname()[1])
    assert max(ports) < min(taken)
