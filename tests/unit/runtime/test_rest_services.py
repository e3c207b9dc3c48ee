"""What REST answers beside the core, where it needs no Kafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from connectx.errors.kafka import ClientSettingError
from connectx.errors.rest import RestError
from connectx.kafka.group import GroupRequests
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.registry import Plugins
from connectx.rest.bodies import NewOffset
from connectx.rest.loggers import WorkerLoggers
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.rest_services import RestServices

PROVIDER = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}


class Strict(SourceConnector):
    """Takes no offsets, and quotes its configuration as it says so."""

    error: ClassVar[type[Exception]] = ValueError

    @classmethod
    def check_offsets(cls, config: Mapping[str, str | None], offsets: Any) -> None:
        raise cls.error(f"no offsets at {config['url']}")


class Wordy(Strict):
    """Quotes its configuration in the next step."""

    @classmethod
    def check_offsets(cls, config: Mapping[str, str | None], offsets: Any) -> None:
        raise RestError("No offsets.", status=409, next_step=f"Look at {config['url']}.")


class Broken(Strict):
    """Fails with what nobody expects."""

    error = TypeError


@pytest.fixture
def plugins() -> Plugins:
    return Plugins()


@pytest.fixture
def services(plugins: Plugins) -> Iterator[RestServices]:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", **PROVIDER}))
    topics: Any = None  # no test reads the config topic
    made = RestServices(
        worker, ClientConfigs(worker, "w"), plugins, topics, dict, lambda transition: None, plugins.providers(worker),
        WorkerMetrics(dict, dict, lambda: None, lambda: 0, GroupRequests()), WorkerLoggers(),
    )  # fmt: skip
    yield made
    made.close()


def test_a_plugin_that_nobody_knows_is_a_404_by_which_others_see_that_this_worker_lacks_it(
    services: RestServices,
) -> None:
    for name in ("no.such.Plugin", "Nothing"):
        with pytest.raises(RestError, match=name) as unknown:
            services.plugin_config(name)
        assert unknown.value.status == 404


def test_a_question_about_a_plugin_imports_no_file_of_the_folder(
    services: RestServices, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import connectx as cx\nclass Mine(cx.SinkConnector):\n    config = cx.ConfigDef()\n"
    for folder in ("org", "com"):
        (tmp_path / folder).mkdir()
    for file in ("lying_about.py", "org/apache.py", "com/lying_about.py"):
        (tmp_path / file).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}
    for name in ("lying_about.Mine", "lying_about:Mine", "org.apache.Mine", "com.lying_about.Mine"):
        with pytest.raises(RestError):
            services.plugin_config(name)
    assert not [name for name in {*sys.modules} - before if name.startswith(("lying_about", "org", "com"))]
    assert plugins.connector_class("lying_about.Mine").__name__ == "Mine"  # as a configuration does
    assert "connector.class" in [key["name"] for key in services.plugin_config("lying_about.Mine")]
    monkeypatch.delitem(sys.modules, "lying_about")


@pytest.mark.parametrize(
    ("cls", "status", "sentence"),
    [
        (Strict, 400, "no offsets at [hidden]"),
        (Broken, None, "no offsets at [hidden]"),
        (Wordy, 409, "No offsets. Look at [hidden]."),
    ],
)
def test_what_stood_behind_a_placeholder_is_known_to_the_masker_of_refusals(
    cls: type[Strict],
    status: int | None,
    sentence: str,
    services: RestServices,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE", "db/s3cret")
    config = {"connector.class": plugins.register(cls), "url": "${env:DATABASE}"}
    with pytest.raises((RestError, TypeError)) as refused:
        services.alter_offsets("c", ConnectorType.SOURCE, config, [NewOffset({"p": 1}, {"o": 1})])
    assert (getattr(refused.value, "status", None), services.masked(str(refused.value))) == (status, sentence)


def test_a_client_setting_that_cannot_be_used_is_told_without_what_stood_behind_its_placeholder(
    services: RestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "/s3cret/place")
    config = {"connector.class": "FileStreamSink", "consumer.override.ssl.truststore.location": "${env:STORE}"}
    with pytest.raises(ClientSettingError) as refused:
        services.read_offsets("c", ConnectorType.SINK, config)
    assert "truststore.location=[hidden] cannot be used" in services.masked(str(refused.value))
