"""Runs one connector instance: all methods of its plugin, on one separate thread.

Decides nothing: the core orders start, pause, task configs and stop. Mirrors Kafka Connect's WorkerConnector.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping

from connectx.core import messages
from connectx.errors.base import ConnectxError
from connectx.model.states import TargetState
from connectx.plugins.config_providers import ConfigProviders
from connectx.plugins.connectors import Connector
from connectx.protocol import compact_json
from connectx.views import masked_text

_log = logging.getLogger(__name__)

ConnectorEffect = messages.SetConnectorTargetState | messages.GenerateTaskConfigs | messages.StopConnector
TaskConfigsOf = Callable[[Connector, Mapping[str, str | None]], tuple[Mapping[str, str | None], ...]]


def trace_of(error: BaseException) -> str:
    """What a status shows of an error: the sentence of a typed one first, then where it came from.

    Passwords in URLs are hidden here, before the trace goes to the status topic, to REST and into the history; and what
    UTF-8 cannot hold, as names of files may have, is escaped.
    """
    shown = "".join(traceback.format_exception(error)).rstrip()
    shown = masked_text(f"{error}\n{shown}" if isinstance(error, ConnectxError) else shown)
    return shown.encode(errors="backslashreplace").decode()


class _Context:
    def __init__(self, order: messages.StartConnector, post: Callable[[messages.Stimulus], None]) -> None:
        self._order = order
        self._post = post

    def request_task_reconfiguration(self) -> None:
        self._post(messages.TaskReconfigurationRequested(self._order.connector, self._order.instance))

    def raise_error(self, error: BaseException) -> None:
        self._post(messages.ConnectorFailed(self._order.connector, self._order.instance, trace_of(error)))


class ConnectorHost:
    """One connector instance.

    Args:
        order: what to start.
        create: makes the plugin from its configuration; raises ConnectxError for an unknown class.
        task_configs_of: complete task properties as they go to the config topic.
        post: the worker's mailbox.
        providers: resolve placeholders in configurations.
    """

    def __init__(
        self,
        order: messages.StartConnector,
        create: Callable[[Mapping[str, str | None]], Connector],
        task_configs_of: TaskConfigsOf,
        post: Callable[[messages.Stimulus], None],
        providers: ConfigProviders,
    ) -> None:
        self._order = order
        self._providers = providers
        self._create = create
        self._task_configs_of = task_configs_of
        self._post = post
        self._plugin: Connector | None = None
        self._state: TargetState | None = None
        self._dead = False
        self._monitors = True
        self._monitored_s = time.monotonic()
        self._queue: queue.SimpleQueue[ConnectorEffect] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"connector-{order.connector}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def execute(self, effect: ConnectorEffect) -> None:
        """Queue an effect for the thread."""
        self._queue.put(effect)

    def kill(self) -> None:
        """A fault: all later calls of the plugin are ignored."""
        self._dead = True
        self._queue.put(messages.StopConnector(self._order.connector, self._order.instance))

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        order = self._order
        try:
            self._plugin = self._create(self._providers.resolve(order.config))
            if order.target_state is TargetState.STARTED:
                self._begin()
            self._state = order.target_state
        except BaseException as error:  # whatever a plugin raises, the core must not wait forever
            self._failed(error)
        else:
            self._report(
                messages.ConnectorStarted(order.connector, order.instance, order.target_state, self._plugin.version)
            )
        while True:
            effect = self._next_effect()
            if isinstance(effect, messages.StopConnector):
                break
            if effect is not None:
                self._carry_out(effect)
        self._end_plugin()
        self._report(messages.ConnectorStopped(order.connector, order.instance))

    def _next_effect(self) -> ConnectorEffect | None:
        """Wait for an effect; while the plugin is started, call its monitor at its interval and return None then."""
        plugin, interval_ms = self._plugin, None
        try:
            if plugin is not None and self._monitors and self._state is TargetState.STARTED:
                interval_ms = plugin.monitor_interval_ms()
        except BaseException as error:
            self._monitors = False  # until the connector is restarted
            self._failed(error)
        if plugin is None or interval_ms is None:
            return self._queue.get()
        wait_s = max(0.0, self._monitored_s + interval_ms / 1000 - time.monotonic())
        try:
            return self._queue.get(timeout=wait_s)
        except queue.Empty:
            self._monitored_s = time.monotonic()
        try:
            plugin.monitor()
        except BaseException as error:
            self._monitors = False  # until the connector is restarted
            self._failed(error)
        return None

    def _carry_out(self, effect: messages.SetConnectorTargetState | messages.GenerateTaskConfigs) -> None:
        try:
            if isinstance(effect, messages.GenerateTaskConfigs):
                self._generate(effect)
            else:
                self._reach(effect.target_state)
        except BaseException as error:
            self._failed(error)

    def _reach(self, target_state: TargetState) -> None:
        if target_state is TargetState.STARTED and self._state is not TargetState.STARTED:
            self._begin()
        elif target_state is not TargetState.STARTED and self._state is TargetState.STARTED:
            self._end_plugin()
        self._state = target_state
        self._report(messages.ConnectorStateReached(self._order.connector, self._order.instance, target_state))

    def _begin(self) -> None:
        """Start the plugin, which is not there yet when its first start failed."""
        config = self._providers.resolve(self._order.config)
        plugin = self._plugin = self._plugin or self._create(config)
        given = {key: value for key, value in config.items() if value is not None}
        plugin.start(given, _Context(self._order, self._report))

    def _generate(self, effect: messages.GenerateTaskConfigs) -> None:
        assert self._plugin is not None
        try:
            configs = self._task_configs_of(self._plugin, self._providers.resolve(effect.config))
            compact_json.dumps([dict(config) for config in configs])  # if no topic can hold them, the connector fails
        except BaseException as error:
            self._report(messages.TaskConfigsGenerated(effect.connector, effect.instance, error=trace_of(error)))
        else:
            self._report(messages.TaskConfigsGenerated(effect.connector, effect.instance, configs))

    def _end_plugin(self) -> None:
        if self._plugin is None or self._state is not TargetState.STARTED:
            return
        try:
            self._plugin.stop()
        except BaseException as error:
            _log.error("connector %s failed to stop\n%s", self._order.connector, trace_of(error))

    def _failed(self, error: BaseException) -> None:
        self._report(messages.ConnectorFailed(self._order.connector, self._order.instance, trace_of(error)))

    def _report(self, stimulus: messages.Stimulus) -> None:
        if not self._dead:
            self._post(stimulus)
