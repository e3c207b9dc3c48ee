"""Topics made by an admin client that shares nothing with connectx."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.profiles import dotted


def create_topic(bootstrap_servers: str, name: str, partitions: int = 1, **settings: str) -> str:
    """Create a topic and return its name; `settings` use _ for the dots of a key."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    config = dotted(settings)
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    return name
