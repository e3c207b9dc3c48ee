"""Searches the other workers for a connector class that this worker lacks, for the error message.

In a group of Java and Python workers a connector may be assigned to a worker that lacks its class. The task has failed
already; the message names the workers where it could run. Requests go over REST on the failed task's thread, with a
short timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from connectx.errors.base import ConnectxError
from connectx.errors.plugins import PluginNotFoundError
from connectx.model.worker_config import WorkerConfig
from connectx.rest.client import RestClient
from connectx.rest.exchange import http_client

T = TypeVar("T")

MOST_ASKED = 8
ANSWER_S = 5.0


def unknown_here(
    error: PluginNotFoundError, config: Mapping[str, str | None], worker: Mapping[str, object], settings: WorkerConfig
) -> PluginNotFoundError:
    """The error of a connector class that this worker does not know, with the workers of its group that know it.

    Args:
        error: as the plugins raised it.
        config: of the connector.
        worker: this worker's place in the group (`connectx.core.verbs`, *worker*).
        settings: of this worker: they have the login and the certificates that the others want.
    """
    name, own, leader = config.get("connector.class") or "", str(worker["url"]), worker["leader_url"]
    with closing(http_client(settings)) as http:
        others = [url for url in _others(http, str(leader), own) if _knows(http, url, name)] if leader else []
    if others:
        known = f"This worker, {_id(own)}, does not know {name}; these do: {', '.join(map(_id, others))}."
        todo = "Install it here and restart the task, or run it in a group whose workers all have it."
    else:
        known = f"This worker, {_id(own)}, does not know {name}, and no other that answered does."
        todo = "Correct connector.class, or install it on the workers and restart."
    return PluginNotFoundError(f"{known} {error.message}.", next_step=todo)


def _others(http: httpx.Client, leader: str, own: str) -> list[str]:
    """The leader and the workers that the status topic names, without this one."""
    scheme = urlsplit(leader).scheme
    ids: set[str] = set()
    for status in _ask(http, leader, lambda client: list(client.statuses().values())):
        ids |= {part["worker_id"] for part in (status["connector"], *status["tasks"])}
    urls = [leader.rstrip("/"), *(f"{scheme}://{worker_id}" for worker_id in sorted(ids))]
    return [url for url in dict.fromkeys(urls) if url != own.rstrip("/")][:MOST_ASKED]


def _knows(http: httpx.Client, url: str, name: str) -> bool:
    classes = (plugin["class"] for plugin in _ask(http, url, lambda client: client.plugins()))
    return any(found == name or found.rpartition(".")[2] in (name, f"{name}Connector") for found in classes)


def _ask(http: httpx.Client, url: str, question: Callable[[RestClient], list[T]]) -> list[T]:
    try:
        return question(RestClient([url], retry_s=0, http=http, answer_s=ANSWER_S))
    except ConnectxError:  # it has ended or is busy: the message leaves it out
        return []


def _id(url: str) -> str:
    return urlsplit(url).netloc
