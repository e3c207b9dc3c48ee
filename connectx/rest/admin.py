"""REST operations on the worker itself: root, health, plugins, loggers, metrics, its OpenAPI document.

Mirrors Kafka Connect's RootResource, ConnectorPluginsResource and LoggingResource.
"""

from __future__ import annotations

from typing import Any, Final

from connectx.core import verbs
from connectx.core.replies import Connectors
from connectx.errors.rest import RestError
from connectx.model.configdef import ConfigInfos, ConfigKeyInfo
from connectx.rest import bodies
from connectx.rest.bodies import bad_request
from connectx.rest.call import VALIDATING, Call
from connectx.rest.exchange import PROMETHEUS
from connectx.rest.loggers import checked_level
from connectx.rest.operation import Answer, Query, operation

_LOGGER: Final = "/admin/loggers/{logger}"
_PLUGIN: Final = "/connector-plugins/{plugin}"

_HEALTHY: Final = "Worker has completed startup and is ready to handle requests."
_STARTING: Final = "Worker is still starting up."
_UNHEALTHY: Final = "Worker was unable to handle this request and may be unable to handle other requests."


@operation("GET", "/")
async def root(call: Call) -> Answer[bodies.Root]:
    """Read version, commit and Kafka cluster."""
    return Answer(await call.blocking(call.services.root))


@operation("GET", "/health", 200, 500, 503)
async def health(call: Call) -> Answer[bodies.Health]:
    """Check whether the worker is ready (KIP-1017)."""
    is_healthy = call.services.ready() and await call.is_healthy(call.limits.health_timeout_ms)
    if is_healthy:
        return Answer({"status": "healthy", "message": _HEALTHY})
    stage = call.services.stage().summary()
    if not call.services.ready():
        return Answer({"status": "starting", "message": f"{_STARTING} {stage}"}, 503)
    return Answer({"status": "unhealthy", "message": f"{_UNHEALTHY} {stage}"}, 500)


@operation(
    "GET",
    "/connector-plugins",
    query=(Query("connectorsOnly", "false: converters and the like, too.", default=True),),
)
async def plugins(call: Call) -> Answer[list[bodies.Plugin]]:
    """List connectors that this worker has, or every plugin."""
    return Answer(await call.blocking(call.services.plugins, call.flag("connectorsOnly", "true")))


@operation("GET", _PLUGIN + "/config", errors=(400,))
async def plugin_config(call: Call) -> Answer[list[ConfigKeyInfo]]:
    """List configuration keys of a plugin."""
    return Answer(await call.blocking(call.services.plugin_config, call.path("plugin")))


@operation("PUT", _PLUGIN + "/config/validate")
async def validate(call: Call, body: bodies.Settings) -> Answer[ConfigInfos]:
    """Validate a configuration; 200 also when it has errors."""
    plugin, config = call.path("plugin"), bodies.as_config(body)
    configured = config.get("connector.class")
    if configured is not None and not _short(configured).endswith(_short(plugin)):
        raise bad_request(f"Included connector type {configured} does not match request type {plugin}")
    return Answer(await call.blocking(call.services.validate, config, stage=VALIDATING))


@operation("GET", "/admin/loggers", admin=True)
async def loggers(call: Call) -> Answer[dict[str, bodies.Logger]]:
    """List levels of loggers (KIP-495)."""
    return Answer(await call.blocking(call.services.loggers.levels))


@operation("GET", _LOGGER, admin=True)
async def logger(call: Call) -> Answer[bodies.Logger]:
    """Read the level of a logger."""
    return Answer(await call.blocking(call.services.loggers.level, call.path("logger")))


@operation(
    "PUT",
    _LOGGER,
    200,
    204,
    admin=True,
    query=(Query("scope", "worker, or cluster; others count as worker.", str, "worker"),),
)
async def set_logger(call: Call, body: bodies.NewLevel) -> Answer[list[str] | None]:
    """Set the level of a logger and of those below it, here or on every worker (KIP-976)."""
    if body.level is None:
        raise bad_request("Desired 'level' parameter was not specified in request.")
    namespace = call.path("logger")
    if call.request.query_params.get("scope", "worker").lower() == "cluster":
        done = await call.answer(verbs.LoggerLevel(namespace, checked_level(body.level)))
        return Answer(None, done.status)
    return Answer(await call.blocking(call.services.loggers.set_level, namespace, body.level))


@operation("GET", "/metrics", media_type=PROMETHEUS)
async def metrics(call: Call) -> Answer[str]:
    """Read Kafka Connect's metrics in Prometheus's text format; not an endpoint of Kafka Connect."""
    listed: Connectors = {}
    try:
        if call.services.ready():
            listed = await call.ask(verbs.ListConnectors(("info", "status")))
    except RestError as refusal:
        if refusal.status != 503:  # a worker that ends
            raise
    exposition = await call.blocking(call.services.metrics, listed if isinstance(listed, dict) else {})
    return Answer(exposition.decode())


@operation("GET", "/openapi.json")
async def openapi_document(call: Call) -> Answer[dict[str, Any]]:
    """Read the OpenAPI document; not an endpoint of Kafka Connect."""
    return Answer(dict(call.document))


OPERATIONS: Final = (
    root,
    health,
    plugins,
    plugin_config,
    validate,
    loggers,
    logger,
    set_logger,
    metrics,
    openapi_document,
)
"""What a worker serves about itself."""


def _short(plugin: str) -> str:
    return plugin.removesuffix("Connector") or plugin
