"""Config providers: what a placeholder stands for, and that nobody sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.errors.plugins import ConfigError, ConfigProviderError
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.config_providers import ConfigProvider, ConfigProviders
from connectx.plugins.registry import Plugins, worker_config

PROPERTIES = r"""
# a comment
! another
user = anna
password:s3cr3t\u00e9=\t1
long.value = one \
             two
empty
with\ blank key
"""


class Vault(ConfigProvider):
    """Somebody's own."""

    def values(self, path: str) -> dict[str, str]:
        return {"key": f"kept at {path}"}


def providers(**settings: str) -> ConfigProviders:
    given = {f"config.providers.{name.replace('_', '.')}": text for name, text in settings.items()}
    names = ",".join(dict.fromkeys(name.partition("_")[0] for name in settings))
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1", "config.providers": names, **given}))
    return Plugins().providers(worker)


def test_files_folders_and_variables_stand_behind_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secrets.properties"
    path.write_text(PROPERTIES)
    monkeypatch.setenv("CONNECTX_TEST_TOPIC", "flights")
    made = providers(
        file_class="org.apache.kafka.common.config.provider.FileConfigProvider",
        dir_class="DirectoryConfigProvider",
        env_class="EnvVarConfigProvider",
        vault_class=f"{__name__}.Vault",
    )
    config = {
        "url": f"db://${{file:{path}:user}}:${{file:{path}:password}}@host",
        "long": f"${{file:{path}:long.value}}",
        "empty": f"<${{file:{path}:empty}}>",
        "blank": f"${{file:{path}:with blank}}",
        "whole": f"${{dir:{tmp_path}:secrets.properties}}",
        "topic": "${env:CONNECTX_TEST_TOPIC}-x",
        "vault": "${vault:a/b:key}",
        "plain": "$1 ${topic} ${other:x}",
        "unknown": "${env:CONNECTX_NOT_THERE}",
        "null": None,
    }
    assert made.resolve(config) == {
        "url": "db://anna:s3cr3té=\t1@host",
        "long": "one two",
        "empty": "<>",
        "blank": "key",
        "whole": PROPERTIES,
        "topic": "flights-x",
        "vault": "kept at a/b",
        "plain": "$1 ${topic} ${other:x}",
        "unknown": "${env:CONNECTX_NOT_THERE}",
        "null": None,
    }
    assert made.masked("login of anna with s3cr3té=\t1 to flights-x refused") == (
        "login of [hidden] with [hidden] to [hidden]-x refused"
    )


def test_only_what_is_allowed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for path in (tmp_path / "in" / "a", tmp_path / "b"):
        path.write_text("key=value")
    monkeypatch.setenv("CONNECTX_OPEN", "yes")
    monkeypatch.setenv("CONNECTX_CLOSED", "no")
    made = providers(
        file_class="File",
        file_param_allowed_paths=str(tmp_path / "in"),
        env_class="EnvVar",
        env_param_allowlist_pattern="CONNECTX_O.*",
    )
    outside = f"${{file:{tmp_path}/in/../b:key}}"
    given = {"in": f"${{file:{tmp_path}/in/a:key}}", "out": outside, "o": "${env:CONNECTX_OPEN}"}
    assert made.resolve(given) == {"in": "value", "out": outside, "o": "yes"}
    assert made.resolve({"c": "${env:CONNECTX_CLOSED}"}) == {"c": "${env:CONNECTX_CLOSED}"}


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    made = providers(file_class="File", env_class="EnvVar", dir_class="Directory")
    for config, cause in (
        (f"${{file:{tmp_path}/none:key}}", "Could not read properties from file"),
        (f"${{dir:{tmp_path}/none:key}}", "Could not read the folder"),
        ("${env:path:KEY}", "Path is not supported for EnvVarConfigProvider"),
    ):
        with pytest.raises(ConfigProviderError, match=cause):
            made.resolve({"key": config})


def test_a_folder_is_read_only_for_the_files_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    (tmp_path / "keystore.p12").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "unreadable").symlink_to(tmp_path / "nowhere")
    (tmp_path / "..data").mkdir()
    (tmp_path.parent / "outside").write_text("not in the folder")
    made = providers(dir_class="Directory")
    given = {key: f"${{dir:{tmp_path}:{key}}}" for key in ("password", "../outside", "..data", "unreadable")}
    assert made.resolve(given) == {**given, "password": "s3cret"}
    with pytest.raises(ConfigProviderError, match=r"keystore\.p12"):
        made.resolve({"key": f"${{dir:{tmp_path}:keystore.p12}}"})


def test_a_provider_needs_a_class_that_is_there() -> None:
    with pytest.raises(ConfigError, match=r'Missing required configuration "config\.providers\.a\.class"'):
        providers(a_param_x="1")
    for name in ("NoSuch", "no.such.Provider"):
        with pytest.raises(ConfigError, match=f"Class {name} could not be found"):
            providers(a_class=name)


def test_a_workers_own_settings_are_resolved_and_shown_as_they_were_given(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("group=flights\npassword=hunter2\n")
    given = {
        "bootstrap.servers": "x:1",
        "group.id": f"${{file:{secrets}:group}}",
        "rest.extension.note": f"${{file:{secrets}:password}}",
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
    }
    config = worker_config(embedded_config(given))
    assert (config.group_id, config.originals["rest.extension.note"]) == ("flights", "hunter2")
    assert "hunter2" not in repr(config)
    assert f"rest.extension.note={given['rest.extension.note']}" in repr(config)
    assert Plugins().providers(config).masked("it was hunter2") == "it was [hidden]"


def test_a_workers_placeholder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    given = {"group.id": f"${{file:{tmp_path}/none:group}}", "config.providers": "file",
             "config.providers.file.class": "FileConfigProvider"}  # fmt: skip
    with pytest.raises(ConfigProviderError, match="Could not read properties from file"):
        worker_config(embedded_config(given))
