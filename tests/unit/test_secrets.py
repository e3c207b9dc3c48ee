"""What a configuration hides never comes to light in text forms or in the traces that statuses and events carry."""

from __future__ import annotations

import pytest

from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.databases import DatabaseError
from connectx.runtime.tasks.connector_host import trace_of
from connectx.views import masked, masked_text


def test_secrets_are_masked_and_nothing_else() -> None:
    config = {
        "connection.password": "geheim",
        "sasl.jaas.config": "org.x required password=geheim;",
        "connection.url": "postgresql://user:geheim@127.0.0.1:5432/db",
        "api.key": "geheim",
        "headers": "X-Api-Key:geheim",
        "azure.account.key": "geheim",
        "aws.access.key.id": "AKIA",
        "storage.aws_secret_access_key": "geheim",
        "storage.azure_storage_sas_token": "geheim",
        "storage.azure_storage_sas_key": "geheim",
        "iceberg.catalog.adls.connection-string": "geheim",
        "iceberg.catalog.s3.access-key-id": "AKIA",
        "iceberg.catalog.s3.secret-access-key": "geheim",
        "file": "/data/in.txt",
        "password": "",
        "removed": None,
    }
    assert masked(config) == {
        "connection.password": "[hidden]",
        "sasl.jaas.config": "[hidden]",
        "connection.url": "postgresql://user:[hidden]@127.0.0.1:5432/db",
        "api.key": "[hidden]",
        "headers": "[hidden]",
        "azure.account.key": "[hidden]",
        "aws.access.key.id": "AKIA",
        "storage.aws_secret_access_key": "[hidden]",
        "storage.azure_storage_sas_token": "[hidden]",
        "storage.azure_storage_sas_key": "[hidden]",
        "iceberg.catalog.adls.connection-string": "[hidden]",
        "iceberg.catalog.s3.access-key-id": "AKIA",
        "iceberg.catalog.s3.secret-access-key": "[hidden]",
        "file": "/data/in.txt",
        "password": "",
        "removed": None,
    }


def test_a_password_among_the_parameters_of_a_url_is_masked() -> None:
    url = "jdbc:postgresql://h/db?user=me&password=geheim&sslPassword=geheim&ssl=true"
    assert masked_text(url) == "jdbc:postgresql://h/db?user=me&password=[hidden]&sslPassword=[hidden]&ssl=true"
    assert (
        masked_text("https://h/in?api_key=geheim&token=geheim&id=1")
        == "https://h/in?api_key=[hidden]&token=[hidden]&id=1"
    )
    assert masked_text("https://h/lake/a?sv=1&sig=geheim in 5 ms") == "https://h/lake/a?sv=1&sig=[hidden] in 5 ms"


def test_a_trace_hides_passwords_in_urls_also_those_of_causes() -> None:
    try:
        try:
            raise OSError("cannot open postgresql://user:geheim@h/db")
        except OSError as error:
            raise DatabaseError("No way to h.") from error
    except DatabaseError as error:
        trace = trace_of(error)
    assert "postgresql://user:[hidden]@h/db" in trace
    assert "geheim" not in trace


@pytest.mark.parametrize("url", ["postgresql://user:ge heim@127.0.0.1:1/db", "jdbc:foo:user:ge-heim"])
def test_the_trace_of_a_url_that_libpq_cannot_read_does_not_repeat_it(url: str) -> None:
    with pytest.raises(DatabaseError) as failed:
        PostgresSession(url, {}).execute("SELECT 1")
    assert "heim" not in trace_of(failed.value)
