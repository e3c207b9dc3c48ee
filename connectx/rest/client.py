"""Client of Kafka Connect's REST API, used by the public objects and between workers.

Decides which worker to ask, which requests to retry and which error a response means. It needs only URLs, so it works
on any Kafka Connect cluster. It never logs a request or a body. Mirrors the paths of Kafka Connect's
ConnectorsResource; the internal half mirrors its RestClient (KIP-507).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType, UnionType
from typing import Any, Final, TypeVar, cast, get_origin
from weakref import WeakSet

import httpx

from connectx.core import verbs
from connectx.core.replies import (
    Config,
    ConnectorInfo,
    ConnectorStatus,
    Expanded,
    TaskInfo,
    TaskState,
)
from connectx.core.verbs import Asks
from connectx.errors.rest import (
    ConnectorExistsError,
    ConnectorNotFoundError,
    RestError,
    WorkerNotReadyError,
    WorkersUnreachableError,
)
from connectx.model.config_records import SessionKeyRecord
from connectx.model.configdef import ConfigInfos, ConfigKeyInfo
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.signing import signature_headers
from connectx.rest import admin, resources
from connectx.rest.bodies import CommittedOffset, Plugin, Root
from connectx.rest.credentials import Credentials
from connectx.rest.exchange import SilenceError, exchange, http_client
from connectx.rest.operation import Operation
from connectx.rest.operations import OPERATIONS
from connectx.views import Form, Shown

T = TypeVar("T")

_OF_VERB: Final[Mapping[Any, Operation[Any]]] = {one.verb: one for one in OPERATIONS if one.verb is not None}
_CONTAINERS: Final[Mapping[Any, Any]] = {list: list, UnionType: list | dict}

_ANSWER_S = 95.0
"""Longer than the worker's own limit of 90 s, so that its message arrives."""

_READ_S = 10.0
"""For what every worker answers from memory: a worker that takes longer is passed over."""

_SILENCE_S = 5.0
_SEEN_S = 5.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class RestClient(Shown):
    """Kafka Connect's verbs over HTTP.

    Args:
        urls: URLs of workers, best first; a function is called again for each attempt. Any worker will do, because
            workers forward requests to each other.
        retry_s: how long "rebalancing" and "not ready" are retried; workers of which none answers
            are tried for 5 s at most.
        http: connections to use.
        answer_s: how long one worker may take to answer, at most.

    Every method raises `WorkersUnreachableError` when no worker answers, `RebalancePendingError` when the group did not
    settle in time, `ConnectorNotFoundError` for an unknown name, and `RestError` for any other refusal. All calls take
    seconds; the client may be used from several threads.
    """

    def __init__(
        self,
        urls: Callable[[], Sequence[str]] | Sequence[str],
        *,
        retry_s: float = 60.0,
        http: httpx.Client | None = None,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._answer_s = answer_s
        self._urls: Callable[[], Sequence[str]] = urls if callable(urls) else lambda: urls
        self._retry_s = retry_s
        self._http = http or http_client()

    def _shown(self) -> Form:
        return Form("RestClient", {"tries again for": f"{self._retry_s:g} s"})

    def impatient(self) -> RestClient:
        """The same client, one that tries nothing again: for text forms. Shares the connections."""
        return RestClient(self._urls, retry_s=0, http=self._http, answer_s=self._answer_s)

    def of(self, url: str, *, answer_s: float | None = None) -> RestClient:
        """A client that asks one worker alone, once. Shares the connections."""
        return RestClient([url], retry_s=0, http=self._http, answer_s=answer_s or self._answer_s)

    def close(self) -> None:
        self._http.close()

    def ask(self, verb: Asks[T]) -> T:
        """The body of the response to a verb of the core that is an operation as it is."""
        asked: Any = verb
        return cast("T", self.call(_OF_VERB[type(asked)], asdict(asked)))

    def call(
        self,
        operation: Operation[T],
        parameters: Mapping[str, Any] = MappingProxyType({}),
        body: Any = None,
        *,
        retry_s: float | None = None,
        read_s: float | None = None,
    ) -> T:
        """The body of a success; asks worker after worker, and again while the answer may change.

        Args:
            operation: of `connectx.rest.resources` or `connectx.rest.admin`.
            parameters: of its path and query.
            body: of the request, as JSON values.
            retry_s: as with the client.
            read_s: how long one worker may take; 10 s for GET by default.
        """
        timeout_s = min(self._answer_s, read_s or (_READ_S if operation.method == "GET" else _ANSWER_S))
        retry_s = self._retry_s if retry_s is None else retry_s
        begin, in_doubt = time.monotonic(), False
        for attempt in itertools.count(1):
            problem: RestError | WorkersUnreachableError = _unreachable("There is no worker to ask.", in_doubt)
            for url in self._urls():
                try:
                    return self._send(operation, url, parameters, body, timeout_s)
                except SilenceError as silence:
                    in_doubt = in_doubt or silence.was_sent
                    problem = _unreachable(f"No worker answers; {url}: {silence}.", in_doubt)
                except RestError as refusal:
                    refusal.after_silence = in_doubt
                    problem = refusal
                    if not isinstance(refusal, WorkerNotReadyError):
                        break
                    in_doubt = True  # a worker that ended during the call may have carried it out
            pause_s = min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            patience_s = retry_s if isinstance(problem, RestError) else min(retry_s, _SILENCE_S)
            spent_s = time.monotonic() - begin
            if not problem.retriable or spent_s + pause_s > patience_s:
                if attempt > 1:
                    problem.next_step = f"Asked {attempt} times within {spent_s:.1f} s. {problem.next_step}".rstrip()
                raise problem
            time.sleep(pause_s)
        raise AssertionError("attempts never end")

    def connectors(self) -> list[str]:
        """Names of all connectors, sorted."""
        return sorted(self.ask(verbs.ListConnectors()))

    def expanded(self) -> dict[str, Expanded]:
        """`status` and `info` of all connectors by name; one without a status yet has none."""
        shown = self._expanded("status", "info")
        missing = sorted(set(self.connectors()) - set(shown))  # left out before their first status
        for name in missing:
            with contextlib.suppress(ConnectorNotFoundError):  # deleted since it was listed
                shown[name] = {"info": self.info(name)}
        return shown

    def statuses(self) -> dict[str, ConnectorStatus]:
        """State of every connector that has a status, with its tasks, by name."""
        return {name: shown["status"] for name, shown in self._expanded("status").items()}

    def _expanded(self, *parts: str) -> dict[str, Expanded]:
        return cast("dict[str, Expanded]", self.ask(verbs.ListConnectors(parts)))

    def create(
        self, name: str, config: Config, *, initial_state: str | None = None, timeout_s: float | None = None
    ) -> ConnectorInfo:
        """Create a connector; returns its info.

        Raises:
            ConfigRejectedError: the configuration is invalid; has every message.
            ConnectorExistsError: there is one of that name.
        """
        body: dict[str, Any] = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        try:
            created = self.call(resources.create, body=body, retry_s=timeout_s)
        except ConnectorExistsError as error:
            if not (error.after_silence and self.config(name) == {**config, "name": name}):
                raise
            return self.info(name)  # the worker that did not answer had created it
        self._wait_until_seen(name, exists=True)
        return created

    def info(self, connector: str) -> ConnectorInfo:
        return self.ask(verbs.ConnectorInfo(connector))

    def config(self, connector: str) -> Config:
        """The configuration as it was given."""
        return self.ask(verbs.ConnectorConfig(connector))

    def put_config(self, connector: str, config: Config) -> ConnectorInfo:
        """Create a connector or replace its whole configuration; ConfigRejectedError as with `create`."""
        return self.call(resources.put_config, {"connector": connector}, dict(config))

    def patch_config(self, connector: str, changes: Config) -> ConnectorInfo:
        """Change some keys, None removes one (KIP-477); ConfigRejectedError as with `create`."""
        return self.call(resources.patch_config, {"connector": connector}, dict(changes))

    def status(self, connector: str) -> ConnectorStatus:
        """State of a connector and its tasks; ConnectorNotFoundError also before its first status."""
        return self.ask(verbs.ConnectorStatus(connector))

    def tasks(self, connector: str) -> list[TaskInfo]:
        return self.ask(verbs.Tasks(connector))

    def task_status(self, connector: str, task: int) -> TaskState:
        return self.ask(verbs.TaskStatus(connector, task))

    def pause(self, connector: str) -> None:
        self.ask(verbs.Pause(connector))

    def resume(self, connector: str) -> None:
        """Ask for RUNNING, after a pause or a stop."""
        self.ask(verbs.Resume(connector))

    def stop(self, connector: str) -> None:
        """Ask for STOPPED: the tasks are given up (KIP-875)."""
        self.ask(verbs.Stop(connector))

    def restart(self, connector: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks when asked to (KIP-745)."""
        self.ask(verbs.RestartConnector(connector, include_tasks, only_failed))

    def restart_task(self, connector: str, task: int) -> None:
        """Stop a task and start it again."""
        self.ask(verbs.RestartTask(connector, task))

    def delete(self, connector: str) -> None:
        """Delete a connector; its offsets stay."""
        try:
            self.ask(verbs.Delete(connector))
        except ConnectorNotFoundError as error:
            if not error.after_silence:
                raise
        self._wait_until_seen(connector, exists=False)

    def topics(self, connector: str) -> list[str]:
        """Topics that the connector's tasks have used (KIP-558), sorted."""
        return sorted(self.ask(verbs.Topics(connector))[connector]["topics"])

    def reset_topics(self, connector: str) -> None:
        """Forget which topics were used."""
        self.ask(verbs.ResetTopics(connector))

    def offsets(self, connector: str) -> list[CommittedOffset]:
        """Committed offsets (KIP-875)."""
        return self.call(resources.read_offsets, {"connector": connector}, read_s=_ANSWER_S)["offsets"]

    def alter_offsets(self, connector: str, offsets: Sequence[Mapping[str, Any]]) -> str:
        """Set offsets of a stopped connector (offset None: reset that partition); returns the worker's message."""
        return self.call(resources.alter_offsets, {"connector": connector}, {"offsets": list(offsets)})["message"]

    def reset_offsets(self, connector: str) -> str:
        """Forget the offsets of a stopped connector; returns the worker's message."""
        return self.call(resources.reset_offsets, {"connector": connector})["message"]

    def plugins(self, *, connectors_only: bool = True) -> list[Plugin]:
        """Plugins of a worker: class, type, version."""
        return self.call(admin.plugins, {"connectorsOnly": connectors_only}, read_s=_ANSWER_S)

    def plugin_config(self, plugin: str) -> list[ConfigKeyInfo]:
        return self.call(admin.plugin_config, {"plugin": plugin}, read_s=_ANSWER_S)

    def validate(self, config: Config) -> ConfigInfos:
        """Check a configuration without using it; the result lists values and errors of every key."""
        plugin = config.get("connector.class") or "unknown"
        return self.call(admin.validate, {"plugin": plugin}, dict(config))

    def root(self) -> Root:
        """Version, commit and Kafka cluster id of a worker."""
        return self.call(admin.root)

    def metrics(self) -> str:
        """Metrics of a worker of connectx in Prometheus's text format. Kafka Connect has no such path."""
        return self.call(admin.metrics)

    def _wait_until_seen(self, connector: str, *, exists: bool) -> None:
        """The leader has answered; wait shortly until the worker that is asked first has read it too."""
        until = time.monotonic() + _SEEN_S
        while time.monotonic() < until:
            try:
                self.info(connector)
                seen = True
            except ConnectorNotFoundError:
                seen = False
            if seen is exists:
                return
            time.sleep(_FIRST_PAUSE_S)

    def _send(self, operation: Operation[T], url: str, parameters: Mapping[str, Any], body: Any, timeout_s: float) -> T:
        content = None if body is None else _json(body)
        url = url.rstrip("/") + operation.target(parameters)
        found = exchange(self._http, operation.method, url, content, {}, timeout_s)
        if found is not None and not isinstance(found, _CONTAINERS.get(get_origin(operation.body), dict | str)):
            raise RestError(f"{url} does not answer as a Kafka Connect worker does.", status=200)
        return cast("T", found)


class InternalClient:
    """Requests of a worker to its leader, signed with the session key (KIP-507). Tries nothing again: the core decides.

    `config` has the algorithm, certificates and a login, which is shown where the group's protocol signs nothing.

    Both raise `RestError`, with `retriable` when the leader is away, moving, rebalancing, without a key yet or already
    on the next one.
    """

    def __init__(self, config: WorkerConfig | None = None) -> None:
        self._algorithm = "HmacSHA256" if config is None else config.inter_worker_signature_algorithm
        self._http = http_client(config, with_login=False)
        self._login = None if config is None else Credentials.of(config)
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def send_task_configs(
        self, leader_url: str, connector: str, task_configs: Sequence[Config], key: SessionKeyRecord | None
    ) -> None:
        """Publish the task configs of a connector. `key` None: unsigned, for groups without sessions."""
        self._signed(resources.put_task_configs, leader_url, connector, _json([dict(c) for c in task_configs]), key)

    def fence(self, leader_url: str, connector: str, key: SessionKeyRecord | None) -> None:
        """Have the older producers of a connector's tasks fenced (KIP-618).

        A leader that still retries to write the task count record when the request's time is over responds with 500:
        WorkerNotReadyError, because the round can be joined again.
        """
        try:
            self._signed(resources.fence, leader_url, connector, None, key)
        except RestError as error:
            if error.status == 500 and error.message.startswith("Request timed out"):
                raise WorkerNotReadyError(
                    error.message, status=500, next_step="The round continues: ask again."
                ) from error
            raise

    def close(self) -> None:
        """End calls that are waiting, and close the connections."""
        for connected in list(self._sockets):
            with contextlib.suppress(OSError):  # closed already
                connected.shutdown(socket.SHUT_RDWR)
        self._http.close()

    def _traced(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember the sockets that httpcore opens. Closing them wakes up their readers; `close` does not."""
        if event == "connection.connect_tcp.complete":
            self._sockets.add(info["return_value"].get_extra_info("socket"))

    def _signed(
        self,
        operation: Operation[None],
        leader_url: str,
        connector: str,
        content: bytes | None,
        key: SessionKeyRecord | None,
    ) -> None:
        headers = {} if self._login is None else {"authorization": self._login.own}
        if key is not None:
            headers = signature_headers(key.key, content, self._algorithm)
        url = leader_url.rstrip("/") + operation.target({"connector": connector})
        try:
            exchange(self._http, operation.method, url, content, headers, _ANSWER_S, {"trace": self._traced})
        except SilenceError as silence:
            raise WorkersUnreachableError(
                f"The leader {leader_url} does not answer: {silence}.",
                next_step="Check that it runs and that its advertised address can be reached from this worker.",
            ) from silence


def _unreachable(message: str, in_doubt: bool) -> WorkersUnreachableError:
    doubt = " The request may have been carried out all the same." if in_doubt else ""
    return WorkersUnreachableError(message, next_step=f"Check that the workers are running.{doubt}")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
