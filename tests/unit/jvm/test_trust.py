"""Java reads the store that we write, and only the wheel's Java gets one."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectx.jvm.java import find_java
from connectx.jvm.trust import key_store, trust_options


@pytest.fixture(autouse=True)
def no_options_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)


def test_java_reads_every_authority_that_python_trusts(tmp_path: Path) -> None:
    wheel = find_java({})
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    (tmp_path / "store").write_bytes(key_store(authorities))
    keytool = [str(wheel.java), "-Duser.language=en", "-m", "java.base/sun.security.tools.keytool.Main"]
    options = ["-keystore", str(tmp_path / "store"), "-storetype", "JKS", "-storepass", "changeit"]
    listed = subprocess.run([*keytool, "-list", *options], capture_output=True, text=True, check=True).stdout
    assert listed.count("trustedCertEntry") == len(authorities)


def test_the_java_of_the_wheel_gets_the_store_and_others_do_not(tmp_path: Path) -> None:
    wheel = find_java({})
    assert trust_options(wheel, tmp_path)[0] == f"-Djavax.net.ssl.trustStore={tmp_path / 'authorities.jks'}"
    assert trust_options(replace(wheel, source="JAVA_HOME"), tmp_path) == []


def test_a_store_that_the_user_names_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/mine")
    assert trust_options(find_java({}), tmp_path) == []
