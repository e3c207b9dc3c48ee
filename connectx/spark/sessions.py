"""Ownership of the Spark session of a cluster, and a separate session for every task.

With a session that the user brought nothing is started, set or stopped. Without one, a driver is started in the
background, so that Kafka can start beside it; clusters of one process share it. Settings name its master, or a Spark
Connect server, of which a session is made. Uses only what classic and Spark Connect sessions share, except to make a
task's session (`newSession` in classic, `builder.create` in Connect).
"""

from __future__ import annotations

import contextlib
import copy
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from connectx.errors.spark import SparkMasterError, SparkNotSharedError, SparkSettingError, SparkStartError
from connectx.extras import require
from connectx.jvm.java import JavaHome
from connectx.spark.launcher import SparkDriver, archive_dump, class_path
from connectx.spark.remote import awaited, close_session, closing_its_channel_only, with_params
from connectx.spark.settings import DRIVER_MEMORY, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ISOLATION: Final = "spark.sql.artifact.isolation.enabled"
"""Whether files that a session adds are its own. pyspark turns that off for the drivers that it starts."""


class _LocalDriver:
    """The one local driver that pyspark allows in a process, and how many providers use it.

    The only process-wide state here, because pyspark's own is process-wide (`SparkContext._gateway`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._driver: SparkDriver | None = None
        self._settings: SparkSettings | None = None
        self._users = 0
        self._connect_url: str | None = None

    def acquire(self, make: Callable[[], SparkDriver], settings: SparkSettings | None) -> tuple[SparkSession, bool]:
        """The process's session, started with `make` when there is none; and whether it must be released.

        Raises:
            SparkSettingError: there are settings, and the process has a session with others.
            SparkStartError: it did not start, or found no master.
        """
        require("A Spark session", "spark", "pyspark", "pandas")
        with self._lock:
            if self._driver is None and (found := active_session()) is not None:
                if settings is not None:
                    raise _has_session(found)
                return found, False
            if self._driver is None:
                driver = make()
                driver.start()
                try:
                    session = _connect_to(driver, settings)
                    driver.completed()
                except BaseException:
                    driver.stop(grace_s=0)
                    _forget_gateway()
                    raise
                self._driver, self._settings = driver, settings
            elif settings is not None and settings != self._settings:
                raise _has_session(_classic_session())
            else:
                session = _classic_session()
            self._users += 1
            return session, True

    def serve(self) -> str:
        """Address of the driver's Spark Connect server, which the first call starts."""
        with self._lock:
            if self._connect_url is None:
                self._connect_url = _serve(_classic_session())
            return self._connect_url

    def release(self) -> None:
        """The last user that releases it stops the driver."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._driver is not None:
                self._connect_url = None
                _disconnect()
                self._driver.stop()
                self._driver = None


_local_driver = _LocalDriver()


class SparkProvider:
    """The Spark session of a cluster.

    It is borrowed when `spark` is a session, or when it is None and a session is active in this process already; then
    it is left as it is. Otherwise it is made with the driver of this process, which ends with the last provider that
    uses it, or on the Spark Connect server that `spark.remote` names. With `serve` the driver also runs a Spark Connect
    server on loopback, and a borrowed session must be a Spark Connect one.

    Args:
        spark: the user's session, classic or Spark Connect; or Spark settings.
        serve: other processes need Spark, too: `connect_url` will be known.

    Raises:
        SparkSettingError: settings that cannot be used.
    """

    def __init__(
        self,
        spark: SparkSession | Mapping[str, Any] | None = None,
        *,
        serve: bool = False,
    ) -> None:
        self.connect_url: Future[str] = Future()
        self.settings = SparkSettings.parse(spark) if isinstance(spark, Mapping) else None
        self._serves = serve
        self._make = partial(SparkDriver, **_driver_options(self.settings))
        self._session: Future[SparkSession] = Future()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._starting: SparkDriver | None = None
        self._is_closed = False
        self._end: Callable[[], object] | None = None
        if spark is not None and not isinstance(spark, Mapping):
            if serve:
                self.connect_url.set_result(url_of(spark))
            self._session.set_result(spark)

    @property
    def owned(self) -> bool:
        """Whether closing this provider may end the session; False until it is ready."""
        return self._end is not None

    @property
    def ready(self) -> bool:
        """Whether `get` would return or raise without waiting."""
        return self._session.done()

    def start(self) -> None:
        """Begin to make the session, in a thread. Does nothing for a borrowed session, or when it was called before.

        A start that found no master is tried again.
        """
        with self._lock:
            if self._session.done() and isinstance(self._session.exception(), SparkMasterError) and not self._serves:
                self._session, self._thread = Future(), None
            if self._thread is None and not self._session.done():
                self._thread = threading.Thread(target=self._acquire, name="connectx-spark-start", daemon=True)
                self._thread.start()

    def get(self, timeout_s: float = 120.0) -> SparkSession:
        """The session, waiting at most `timeout_s` seconds for it; starts the driver when `start` was not called.

        Raises:
            SparkStartError: the driver did not start, or not in time, or was closed.
            SparkMasterError, SparkSettingError: of settings; the master does not answer, or a key is misspelled.
            NoJavaError, JarDownloadError, DiskFullError: what the driver needs cannot be had.
        """
        self.start()
        return awaited(self._session, timeout_s=timeout_s)

    def task_session(self, stopping: Future[None] | None = None) -> SparkSession:
        """A new session on the same Spark, so that one task can be interrupted without the others.

        Waits for Spark's start until `stopping` is done: then SparkNotAwaitedError; other errors as of `get`.
        """
        self.start()
        session = awaited(self._session, stopping)
        if is_connect(session):
            return _new_connect_session(session)
        made = session.newSession()
        if made.conf.isModifiable(_ISOLATION):
            made.conf.set(_ISOLATION, "false")  # as in the first session; `_serve` may have changed it for new ones
        return made

    @staticmethod
    def interrupt(session: SparkSession) -> None:
        """Interrupt everything that runs in `session`; its callers get an error within a fraction of a second."""
        session.interruptAll()

    @staticmethod
    def release(session: SparkSession) -> None:
        """End a session that `task_session` made. A classic one stays: ending it would end the driver."""
        if is_connect(session):
            close_session(session)

    def close(self) -> None:
        """Close what this provider owns. A borrowed session continues. A second call does nothing."""
        self._is_closed = True
        if (starting := self._starting) is not None:
            starting.cancel()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if (end := self._end) is not None:
            self._end = None
            self._session = Future()
            self._session.set_exception(SparkStartError("was stopped"))
            end()

    def _acquire(self) -> None:
        settings = self.settings
        try:
            if settings is not None:
                settings.require_reachable()
            if settings is not None and settings.remote is not None:
                session = _connect_remotely(settings)
                self._end = partial(close_session, session)
            else:
                session, owned = _local_driver.acquire(self._make_driver, settings)
                self._end = _local_driver.release if owned else None
            if self._serves:
                own_driver = self.owned and not is_connect(session)
                self.connect_url.set_result(_local_driver.serve() if own_driver else url_of(session))
        except BaseException as error:
            failure = SparkStartError("was stopped") if self._is_closed else error
            self._session.set_exception(failure)
            if not self.connect_url.done():
                self.connect_url.set_exception(failure)
        else:
            self._session.set_result(session)

    def _make_driver(self) -> SparkDriver:
        self._starting = driver = self._make()
        if self._is_closed:  # before there was anything to cancel
            driver.cancel()
        return driver


def make_archive(java: JavaHome, use: Callable[[SparkSession], None], timeout_s: float = 300.0) -> bool:
    """Start a driver once, `use` it, and lay the classes that it loaded out for later drivers.

    Returns:
        False when Java wrote no archive, or when this process has a driver already.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        return False
    driver = SparkDriver(java=java)
    driver.start()
    try:
        use(_connect_to(driver, None))
    except BaseException:
        driver.stop(grace_s=0)
        raise
    finally:
        _disconnect()
    driver.stop()
    dump = archive_dump(java, class_path())
    if dump.start():
        dump.wait(timeout_s)
    return dump.close()


def active_session() -> SparkSession | None:
    """The session that this process has already, classic or Spark Connect; starts nothing, imports nothing."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)
    if context is not None and context._active_spark_context is not None:
        return _classic_session()
    connect = sys.modules.get("pyspark.sql.connect.session")
    found: SparkSession | None = None if connect is None else connect.SparkSession._get_default_session()
    return found


def _classic_session() -> SparkSession:
    """The classic session of this process, made when its SparkContext has none.

    pyspark's own `getOrCreate` refuses that as soon as the process has made a Spark Connect session, too.
    """
    from pyspark.sql import SparkSession

    found: SparkSession | None = SparkSession._instantiatedSession
    if found is not None and found.sparkContext._jsc is not None:
        return found
    return SparkSession.builder.getOrCreate()


def is_connect(session: SparkSession) -> bool:
    """Whether `session` is a Spark Connect session. Imports nothing."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def url_of(session: SparkSession) -> str:
    """Address of the Spark Connect server of a session, for other processes.

    Raises:
        SparkNotSharedError: a classic session, or one whose channel was not made from an address.
    """
    connect: Any = session
    builder = connect.client._builder if is_connect(session) else None
    parsed = getattr(builder, "url", None)
    if builder is None or parsed is None:
        raise SparkNotSharedError()
    params = dict(builder._params)
    if connect.client._user_id is not None:
        params["user_id"] = connect.client._user_id
    params.pop("session_id", None)
    return with_params(f"sc://{parsed.netloc}", **{name: quote(str(value)) for name, value in params.items()})


def _serve(session: SparkSession) -> str:
    """Start the Spark Connect server inside the driver of a classic session: on loopback, protected by a secret.

    Its settings go into the driver that runs, so that the secret stands on no command line. Later sessions have
    separate files, as on any other server. Otherwise jobs would ask for files of sessions that have ended.
    """
    secret = secrets.token_hex(16)
    jvm: Any = session.sparkContext._jvm
    context = session.sparkContext._jsc.sc()
    settings = context.conf()  # the driver's own, as in SparkEnv, which py4j cannot load in Spark 4.3
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1")
    settings.set("spark.connect.grpc.binding.port", "0")
    settings.set("spark.connect.authenticate.token", secret)
    settings.set(_ISOLATION, "true")
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(context)
    # By name: only then the client sends a secret without TLS. It resolves to loopback, the server listens on IPv4.
    return with_params(f"sc://localhost:{service.localPort()}", token=secret, user_id="connectx")


def _new_connect_session(session: SparkSession) -> SparkSession:
    """A separate session on the same Connect server: the same channel settings without a fixed session id."""
    connect: Any = session  # the client and its channel settings are not in the common session type
    channel = copy.copy(connect.client._builder)
    channel._params = {key: value for key, value in channel._params.items() if key != "session_id"}
    created: SparkSession = type(connect).builder.channelBuilder(channel).create()
    return closing_its_channel_only(created)


def _driver_options(settings: SparkSettings | None) -> dict[str, Any]:
    """Arguments of the driver that settings ask for."""
    if settings is None:
        return {}
    heap = {"heap": settings.others[DRIVER_MEMORY]} if DRIVER_MEMORY in settings.others else {}
    return {"settings": settings.others, "master": settings.master, "is_local": settings.is_local, **heap}


def _has_session(session: SparkSession) -> SparkSettingError:
    where = "a Spark Connect server" if is_connect(session) else session.conf.get("spark.master")
    return SparkSettingError(
        [f"this process has a Spark session on {where} already, and can have one only"],
        next_step="Stop that session, or close the cluster that made it; or pass the session itself as spark=.",
    )


def _connect_remotely(settings: SparkSettings) -> SparkSession:
    """A new session on the Spark Connect server of `settings`."""
    require("A Spark session", "spark", "pyspark", "pandas")
    from pyspark.sql import SparkSession

    if (found := active_session()) is not None and not is_connect(found):
        raise _has_session(found)
    try:
        session = closing_its_channel_only(SparkSession.builder.remote(settings.remote or "").create())
        session.conf.get("spark.sql.session.timeZone")
    except Exception as error:  # of gRPC or pyspark, whatever the server is
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SparkMasterError("spark.remote", settings.shown, lines[0].rstrip(".")) from error
    return session


def _connect_to(driver: SparkDriver, settings: SparkSettings | None) -> SparkSession:
    """Make the classic session on a driver that runs; pyspark takes where it is from the environment, once."""
    from pyspark.sql import SparkSession

    executors_python = None if settings is None else settings.others.get("spark.pyspark.python")
    mine = {
        "PYSPARK_GATEWAY_PORT": str(driver.port),
        "PYSPARK_GATEWAY_SECRET": driver.secret,
        "PYSPARK_PYTHON": executors_python or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    before = {key: os.environ.get(key) for key in mine}
    os.environ.update(mine)
    try:
        session = SparkSession.builder.getOrCreate()
    except Exception as error:  # py4j's, or pyspark's
        where = "local[*]" if settings is None else settings.shown
        raise SparkStartError(f"did not get a session on {where}", driver.log_tail()) from error
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    try:
        if settings is not None:
            settings.require_known(_known_keys(session), session.version)
    except SparkSettingError:
        session.stop()
        raise
    return session


def _known_keys(session: SparkSession) -> frozenset[str]:
    """Every setting that Spark has declared."""
    jvm: Any = session.sparkContext._jvm
    entries = getattr(getattr(jvm.org.apache.spark.internal.config, "ConfigEntry$"), "MODULE$")
    return frozenset(str(entries.knownConfigs().keySet().toString()).strip("[]").split(", "))


def _disconnect() -> None:
    """Stop the session and forget its gateway, so that a later driver of this process can be connected to."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):  # at the interpreter's end the driver may be gone already
        _classic_session().stop()
    _forget_gateway()


def _forget_gateway() -> None:
    """Forget also what pyspark keeps of a session whose driver went while it was made."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, SparkContext._active_spark_context = SparkContext._active_spark_context, None
    if (server := getattr(context, "_accumulatorServer", None)) is not None:
        server.shutdown()
        server.server_close()
    SparkSession._instantiatedSession = None
    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
