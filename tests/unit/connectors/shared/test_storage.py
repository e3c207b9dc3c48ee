"""Object stores: options, what their answers mean, and stores that do not create objects exclusively."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectx.connectors.lake.delta import DeltaLakeTable, DeltaSink, check_log
from connectx.connectors.lake.parquet import ParquetSink
from connectx.connectors.lake.task import LakeSink
from connectx.connectors.shared.errors import (
    LakeAccessError,
    LakeError,
    LakeNotExclusiveError,
    LakeStorageError,
    LakeUnavailableError,
)
from connectx.connectors.shared.storage import storage_errors, store_of
from connectx.errors.base import ConnectxError
from connectx.plugins.errors import NotStageableError
from tests.support.http_server import Answer, http_service
from tests.support.lake import Lake, partition

LOGIN = {"aws_access_key_id": "someone", "aws_secret_access_key": "hunter2", "aws_region": "us-east-1"}
ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
SIGNATURE = (
    "Error performing PUT http://s/lake/a in 5ms - Server returned non-2xx status code: 403 Forbidden: <?xml "
    "version='1.0'?><Error><Code>SignatureDoesNotMatch</Code><Message>The request signature.</Message></Error>\n\n"
    "Debug source: PermissionDenied"
)
COLOURED = (
    "Kernel error -> Generic S3 error\n \x1b[31m↳\x1b[0m Error performing GET http://s/b - Server returned non-2xx "
    "status code\n \x1b[31m↳\x1b[0m 404 Not Found\n \x1b[31m↳\x1b[0m <Error><Code>NoSuchBucket</Code></Error>"
)


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (SIGNATURE, LakeAccessError, "refused the request (403 SignatureDoesNotMatch)."),
        ("status code: 301 Moved Permanently", LakeAccessError, "refused the request (301)."),
        ("status code: 400 Bad Request: <Code>ExpiredToken</Code>", LakeAccessError, "(400 ExpiredToken)."),
        (COLOURED, LakeStorageError, "the bucket does not exist (404 NoSuchBucket)."),
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The", LakeStorageError, "(NO_SUCH_BUCKET)."),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", LakeAccessError, "(ACCESS_DENIED)."),
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation", LakeAccessError, "(400 UNKNOWN)."),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", LakeUnavailableError, "curlCode: 7."),
        ("Azure Error: [AuthorizationFailure] 403 Server", LakeAccessError, "(403 AuthorizationFailure)."),
        ("status code: 404: <Code>ContainerNotFound</Code>", LakeStorageError, "(404 ContainerNotFound)."),
        ("Azure Error: [ServerBusy] 503 The server is busy", LakeUnavailableError, "is busy."),
        ("AWS Error SLOW_DOWN (HTTP status 503) during PutObject operation", LakeUnavailableError, "operation."),
        ("status code: 503 Slow Down: <Code>SlowDown</Code>", LakeUnavailableError, "cannot be reached: "),
        ("status code: 404 Not Found: <Code>NoSuchKey</Code>", LakeUnavailableError, "cannot be reached: "),
        ("status code: 429 Too Many Requests", LakeUnavailableError, "cannot be reached: "),
        ("conditional put not yet implemented by AmazonS3(lake).", LakeError, "cannot be used: "),
    ],
)
def test_an_answer_of_an_object_store_says_whether_a_setting_must_change(
    text: str, expected: type[ConnectxError], message: str
) -> None:
    with pytest.raises(expected) as caught, storage_errors("The table x", "path"):
        raise OSError(text)
    assert type(caught.value) is expected
    assert message in caught.value.message
    assert {"<", "↳", "\x1b", "Debug"}.isdisjoint(caught.value.message.split())
    assert caught.value.next_step


def test_the_signature_in_a_url_is_not_shown() -> None:
    with pytest.raises(LakeUnavailableError) as caught, storage_errors("The table x", "path"):
        raise OSError("Error performing GET https://account.blob/lake/a?sv=1&sig=hunter2 in 5ms")
    assert (
        caught.value.message
        == "The table x cannot be reached: Error performing GET https://account.blob/lake/a in 5ms."
    )


def test_a_password_where_a_long_error_is_cut_is_not_shown() -> None:
    with pytest.raises(LakeUnavailableError) as caught, storage_errors("The table x", "path"):
        raise OSError("x" * 470 + " at http://someone:hunter2-" + "y" * 40 + "@proxy:3128")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("name", ["allow_http", "AWS_ALLOW_HTTP", "aws_allow_http", "connect_timeout", "proxy_url"])
def test_options_of_the_http_client_are_options_of_the_storage(name: str) -> None:
    value = {"connect_timeout": "3s", "proxy_url": "http://localhost"}.get(name, "true")
    assert "bucket" in repr(store_of("s3://bucket/lake", {**LOGIN, name: value}))


@pytest.fixture
def overwriting() -> Iterator[str]:
    """An object store that accepts any object, whatever a request says."""
    with http_service() as service:
        service.answer = lambda request: Answer(headers={"ETag": '"1"'})
        yield service.url


@pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
def test_a_store_that_overwrites_objects_is_refused_before_anything_is_written(
    overwriting: str, sink: type[LakeSink]
) -> None:
    storage = {f"storage.{name}": text for name, text in {**LOGIN, "aws_endpoint": overwriting}.items()}
    lake = Lake(sink.Task, {"path": "s3://bucket/lake", "storage.allow_http": "true", **storage})  # type: ignore[attr-defined]
    with pytest.raises(
        LakeError, match=r"s3://bucket/lake does not create objects exclusively.* Use a storage with conditional writes"
    ):
        lake.opened(partition())


def test_options_that_only_deltas_library_knows_do_not_prevent_the_check(overwriting: str) -> None:
    options = {**LOGIN, "AWS_S3_POOL_IDLE_TIMEOUT_SECONDS": "5", "aws_s3_allow_unsafe_rename": "true"}
    with pytest.raises(LakeNotExclusiveError):
        check_log("s3://bucket/lake", {**options, "aws_endpoint": overwriting, "allow_http": "true"})


def test_deltas_lock_takes_the_place_of_the_check(overwriting: str) -> None:
    options = {**LOGIN, "aws_endpoint": overwriting, "allow_http": "true"}
    check_log("s3://bucket/lake", {**options, "AWS_S3_LOCKING_PROVIDER": "dynamodb"})


@pytest.fixture
def refusing() -> Iterator[str]:
    """An object store that knows no credentials."""
    with http_service() as service:
        service.answer = lambda request: Answer(403, "<Error><Code>InvalidAccessKeyId</Code></Error>")
        yield service.url


def test_a_store_that_cannot_be_checked_is_refused(refusing: str) -> None:
    options = {**LOGIN, "aws_endpoint": refusing, "allow_http": "true"}
    with pytest.raises(LakeAccessError, match=r"403 InvalidAccessKeyId.* Correct the credentials"):
        check_log("s3://bucket/lake", options)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, refusing: str, name: str) -> None:
    monkeypatch.setenv(name, refusing)
    with pytest.raises(ConnectxError):
        check_log("s3://bucket/lake", {**LOGIN, "allow_http": "true", "timeout": "1s", "proxy_url": refusing})


def test_a_service_of_aws_needs_no_check_because_it_always_creates_exclusively(
    monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    check_log("s3://bucket/lake", {"aws_region": "us-east-1", "aws_metadata_endpoint": refusing, "allow_http": "true"})


def test_options_that_only_deltas_library_knows_leave_the_rows_to_the_worker() -> None:
    table = DeltaLakeTable(
        "s3://bucket/lake", "rows", {"aws_s3_pool_idle_timeout_seconds": "5"}, "connect-lake", file_bytes=1
    )
    with pytest.raises(NotStageableError, match=r"pool_idle_timeout_seconds.* is not valid .* The worker writes\."):
        table.staging_place("1")
