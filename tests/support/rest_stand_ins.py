"""What a REST server needs of its worker, with the answers that a test gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectx.core import verbs
from connectx.core.messages import Done, Reply
from connectx.core.replies import Expanded
from connectx.core.verbs import Verb
from connectx.errors.rest import ConnectorNotFoundError
from connectx.model.configdef import ConfigDef, ConfigInfos, ConfigKeyInfo, ConfigValue
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig
from connectx.rest.bodies import CommittedOffset, NewOffset, Plugin, Root
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.server import RestServer
from connectx.rest.services import Asked
from connectx.rest.stages import Stage

SECRET = "s3cret of the worker"
"""What the worker's masker hides."""

Answer = Reply | Callable[[Verb], Reply] | None


@dataclass
class Core:
    """Answers each verb with a Reply, with what a function returns, or (None) never; keeps what it was asked."""

    answers: dict[type[Verb], Answer] = field(default_factory=dict)
    asked: list[Verb] = field(default_factory=list)
    url: str = ""
    leader_url: str | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    stage: Stage | None = None

    def ask(self, verb: Verb) -> Asked:
        future = Asked()
        future.stage = self.stage
        if isinstance(verb, verbs.Worker) and verbs.Worker not in self.answers:
            future.set_result(Done(1, 200, {"url": self.url, "leader_url": self.leader_url or self.url}))
            return future
        self.asked.append(verb)
        self.reached.set()
        answer = self.answers.get(type(verb), Done(1, 200, {}))
        if answer is not None:
            future.set_result(answer if isinstance(answer, Reply) else answer(verb))
        return future

    def verbs(self) -> list[type[Verb]]:
        return [type(verb) for verb in self.asked]


@dataclass
class Beside:
    """Services with plain answers."""

    is_ready: bool = True
    is_in_touch: bool = True
    problems: list[str] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    loggers: WorkerLoggers = field(default_factory=WorkerLoggers)

    def masked(self, text: str) -> str:
        return text.replace(SECRET, "[hidden]")

    def ready(self) -> bool:
        return self.is_ready

    def in_touch(self) -> bool:
        return self.is_in_touch

    def stage(self) -> Stage:
        return Stage("ensuring membership in the cluster", 1_700_000_000_042)

    def root(self) -> Root:
        return {"version": "0.1.0", "commit": "unknown", "kafka_cluster_id": "abc"}

    def metrics(self, connectors: Mapping[str, Expanded]) -> bytes:
        return b"# of " + ",".join(connectors).encode()

    def plugins(self, connectors_only: bool) -> list[Plugin]:
        found: list[Plugin] = [{"class": "FileStreamSource", "type": "source"}]
        return found if connectors_only else [*found, {"class": "JsonConverter", "type": "converter"}]

    def plugin_config(self, plugin: str) -> list[ConfigKeyInfo]:
        if plugin != "FileStreamSource":
            raise ConnectorNotFoundError(f"Unknown plugin {plugin}", status=404)
        return [key.to_json() for key in ConfigDef().define("file", str).keys.values()]

    def validate(self, config: Mapping[str, str | None]) -> ConfigInfos:
        self.calls.append(("validate", dict(config)))
        value = ConfigValue("topic", errors=self.problems).to_json()
        return {
            "name": config.get("connector.class"),
            "error_count": len(self.problems),
            "groups": [],
            "configs": [{"definition": None, "value": value}],
        }

    def read_offsets(
        self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]
    ) -> list[CommittedOffset]:
        self.calls.append(("read", connector, kind, dict(config)))
        return [{"partition": {"filename": "a"}, "offset": {"position": 7}}]

    def alter_offsets(
        self,
        connector: str,
        kind: ConnectorType,
        config: Mapping[str, str | None],
        offsets: Sequence[NewOffset],
    ) -> str:
        self.calls.append(("alter", connector, kind, [(one.partition, one.offset) for one in offsets]))
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]) -> str:
        self.calls.append(("reset", connector, kind))
        return "The offsets for this connector have been reset successfully"


@dataclass
class Served:
    """One worker's server with its stand-ins."""

    url: str
    core: Core
    services: Beside
    server: RestServer
    config: WorkerConfig
