"""Azure Blob Storage on loopback: Microsoft's emulator Azurite in a child process, which npx fetches once."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from pyarrow import fs

from connectx.jvm.process import ChildProcess
from connectx.kafka.broker import node
from tests.support.waiting import until

CONTAINER: Final = "lake"
KEY: Final = base64.b64encode(b"nobody may read this").decode()
"""Must not be seen anywhere."""

_ACCOUNT: Final = "connectxtests"
_PACKAGE: Final = "azurite@3.35.0"


@dataclass(frozen=True)
class Azurite:
    """The emulator; its endpoint ends with the account."""

    endpoint: str

    def files(self) -> fs.AzureFileSystem:
        """Its blobs, as pyarrow reads them."""
        place = urlsplit(self.endpoint).netloc
        return fs.AzureFileSystem(
            _ACCOUNT,
            account_key=KEY,
            blob_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_authority=place,
            dfs_storage_scheme="http",
        )

    def storage(self, key: str) -> Mapping[str, str]:
        """Settings of DeltaSink and ParquetSink."""
        return {
            "storage.azure_storage_account_name": _ACCOUNT,
            "storage.azure_storage_account_key": key,
            "storage.azure_storage_use_emulator": "true",  # which has no lists that start at a name
            "storage.allow_http": "true",
        }

    def catalog(self, database: Path, warehouse: str, key: str) -> Mapping[str, str]:
        """Settings of IcebergSink with a catalog in an SQLite file."""
        place = urlsplit(self.endpoint).netloc
        adls = {"account-name": _ACCOUNT, "account-key": key}
        adls |= {f"{kind}-storage-authority": place for kind in ("blob", "dfs")}
        adls |= {f"{kind}-storage-scheme": "http" for kind in ("blob", "dfs")}
        given = {
            "type": "sql",
            "uri": f"sqlite:///{database}",
            "warehouse": warehouse,
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            **{f"adls.{name}": text for name, text in adls.items()},
        }
        return {f"iceberg.catalog.{name}": text for name, text in given.items()}


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """Run the emulator, with an empty container."""
    (port,) = node.free_ports(1)
    endpoint = f"http://{node.HOST}:{port}/{_ACCOUNT}"
    command = ["npx", "--yes", f"--package={_PACKAGE}", "--", "azurite-blob", "--location", str(folder)]
    options = ["--blobPort", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    process = ChildProcess(
        [*command, *options], folder / "azurite.log", {**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{KEY}"}
    )

    def answers() -> bool:
        assert process.poll() is None, process.log_tail()
        try:
            return httpx.get(endpoint).status_code > 0
        except httpx.TransportError:
            return False

    try:
        until(answers, "Azurite, which npx downloads first", 180)
        server = Azurite(endpoint)
        server.files().create_dir(CONTAINER)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://{node.HOST}:{port}")  # for obstore and delta-rs
            yield server
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.terminate()  # npx does not pass it on
        process.stop(10)
