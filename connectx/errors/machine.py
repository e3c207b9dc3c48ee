"""Errors of the machine: Java, jars, disks, ports and processes."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class NoJavaError(ConnectxError):
    """No Java 17 or later was found."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"The embedded Kafka and Spark need Java 17 or later, and none was found ({found}).",
            next_step="Set JAVA_HOME to one, or run pip install 'connectx[embedded]'.",
        )


class JarDownloadError(ConnectxError):
    """The jars of Kafka or Spark could not be fetched."""

    retriable = True


class NoNetworkError(JarDownloadError):
    """The Maven repository cannot be reached at first use."""

    def __init__(self, jars: str, cause: str) -> None:
        super().__init__(
            f"The {jars} jars are not in the cache yet and the Maven repository cannot be reached: {cause}.",
            next_step="Connect this machine once, or set HTTPS_PROXY or CONNECTX_MAVEN_REPOSITORY, and try again.",
        )


class ChecksumError(JarDownloadError):
    """A fetched jar is not the one that connectx was made with."""

    code = "jar_checksum"
    retriable = False

    def __init__(self, jar: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"The jar {jar} that was fetched has SHA-256 {found} instead of {expected}; it was deleted.",
            next_step="Check the repository that CONNECTX_MAVEN_REPOSITORY or a proxy answers for, and try again.",
        )


class DiskFullError(ConnectxError):
    """No room for the jars, for the embedded broker's log or for Spark's temporary files."""

    retriable = True

    def __init__(self, path: object, setting: str, cause: str) -> None:
        super().__init__(
            f"The disk that holds {path} is full ({cause}).",
            next_step=f"Free some room, or point {setting} at a larger disk.",
        )


class FolderNotOwnedError(ConnectxError):
    """The folder for temporary files of this user was made by another user, or is a link."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"The temporary folder {path} does not belong to the user who runs this program.",
            next_step="Remove it, or point TMPDIR at another folder.",
        )


class PortTakenError(ConnectxError):
    """The port that the embedded broker should use belongs to another program."""

    retriable = True

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1, set by port=, is used by another program.",
            next_step="Leave port= out to get a free one, or stop that program.",
        )


class BrokerError(ConnectxError):
    """The embedded broker did not start, or died."""

    code = "broker_died"
    retriable = True

    def __init__(self, what: str, log_tail: str) -> None:
        super().__init__(
            f"The embedded Kafka broker {what}.",
            next_step=f"The end of its log:\n{log_tail or '(it wrote nothing)'}",
        )
        self.log_tail = log_tail
