"""One instance of a Java connector: hands the core's effects to the JVM, and its reports to the core.

It stands where `connectx.runtime.tasks.connector_host.ConnectorHost` does for connectors in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from connectx.core import messages
from connectx.errors.base import ConnectxError
from connectx.model.json_values import record_to_json
from connectx.model.states import TargetState
from connectx.runtime.tasks.connector_host import ConnectorEffect, trace_of
from connectx.runtime.tasks.java.jvm import WorkerJvm
from connectx.runtime.tasks.java.reports import ConnectorReport


class JavaConnector:
    """One connector instance in the JVM of its worker.

    Args:
        order: what to start.
        jvm: where.
    """

    def __init__(self, order: messages.StartConnector, jvm: WorkerJvm) -> None:
        self._order = order
        self._jvm = jvm
        self._key = order.connector, order.instance
        self._gone = False

    def start(self) -> None:
        """Order its start."""
        self._jvm.admit(self._key, self)
        self._send(self._order)

    def execute(self, effect: ConnectorEffect) -> None:
        """Hand an effect to the JVM."""
        if not self._gone:
            self._send(effect)
        elif isinstance(effect, messages.StopConnector):  # it has ended with its JVM
            self._jvm.services.post(messages.ConnectorStopped(*self._key))
        elif isinstance(effect, messages.SetConnectorTargetState):
            state = effect.target_state
            if state is TargetState.STOPPED:  # which leaves FAILED: there is nothing to stop any more
                self._jvm.services.post(messages.ConnectorStateReached(*self._key, state))

    def kill(self) -> None:
        """Its worker ends: it reports nothing more."""
        self._jvm.remove(self._key)

    def take(self, report: ConnectorReport) -> None:
        if isinstance(report, messages.ConnectorStopped):
            self._jvm.remove(self._key)
        self._jvm.services.post(report)

    def lost(self, reason: str) -> None:
        self._gone = True
        self._jvm.services.post(messages.ConnectorFailed(*self._key, reason))

    def _send(self, effect: messages.StartConnector | ConnectorEffect) -> None:
        try:
            if isinstance(effect, messages.StartConnector | messages.GenerateTaskConfigs):
                effect = replace(effect, config=self._resolved(effect.config))
        except ConnectxError as error:
            self._jvm.services.post(messages.ConnectorFailed(*self._key, trace_of(error)))
        else:
            self._jvm.order(self._key, type(effect).__name__, **record_to_json(effect))

    def _resolved(self, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        return {"name": self._order.connector, **self._jvm.services.providers.resolve(config)}
