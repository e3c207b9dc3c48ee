"""Errors of the registry, with Confluent's HTTP statuses, error codes and messages."""

from __future__ import annotations


class RefusedError(Exception):
    """A request that is answered with an error: HTTP status, Confluent's error code, and its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def subject_not_found(subject: str) -> RefusedError:
    """40401."""
    return RefusedError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RefusedError:
    """40402."""
    return RefusedError(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RefusedError:
    """40403."""
    return RefusedError(404, 40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_deleted(subject: str) -> RefusedError:
    """40404."""
    return RefusedError(404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_deleted(subject: str) -> RefusedError:
    """40405."""
    return RefusedError(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_deleted(subject: str, version: int) -> RefusedError:
    """40406."""
    message = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RefusedError(404, 40406, message)


def version_not_deleted(subject: str, version: int) -> RefusedError:
    """40407."""
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RefusedError(404, 40407, message)


def no_compatibility(subject: str) -> RefusedError:
    """40408."""
    return RefusedError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> RefusedError:
    """40409."""
    return RefusedError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RefusedError:
    """409."""
    head = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
    return RefusedError(409, 409, f"{head}[{', '.join(details)}]")


def invalid_schema(reason: str) -> RefusedError:
    """42201."""
    return RefusedError(422, 42201, f"Either the input schema or one its references is invalid. Details: {reason}")


def invalid_version(version: str) -> RefusedError:
    """42202."""
    message = (
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"'
    )
    return RefusedError(422, 42202, message)


def invalid_compatibility() -> RefusedError:
    """42203."""
    message = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive"
    )
    return RefusedError(422, 42203, message)


def invalid_mode() -> RefusedError:
    """42204."""
    return RefusedError(422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")


def not_permitted(subject: str, mode: str) -> RefusedError:
    """42205."""
    message = "read-only mode" if mode.startswith("READONLY") else "import mode"
    return RefusedError(422, 42205, f"Subject {subject} is in {message}")


def reference_exists(subject: str, version: int) -> RefusedError:
    """42206."""
    return RefusedError(422, 42206, f"One or more references exist to the schema {subject} of version {version}")


def store_failed(reason: str) -> RefusedError:
    """50001."""
    return RefusedError(500, 50001, f"The _schemas topic could not be used: {reason}")
