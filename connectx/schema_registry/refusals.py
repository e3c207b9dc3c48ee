"""Errors of the registry, with Confluent's HTTP statuses, error codes and messages."""

from __future__ import annotations

from enum import Enum


class RefusedError(Exception):
    """A request that is answered with an error: HTTP status, Confluent's error code, and its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Refusal(Enum):
    """Confluent's code and message of each error; the first digits of a code are its HTTP status."""

    SUBJECT_NOT_FOUND = 40401, "Subject '{}' not found."
    VERSION_NOT_FOUND = 40402, "Version {} not found."
    SCHEMA_NOT_FOUND = 40403, "Schema not found"
    SCHEMA_ID_NOT_FOUND = 40403, "Schema {} not found"
    SUBJECT_DELETED = 40404, "Subject '{}' was soft deleted.Set permanent=true to delete permanently"
    SUBJECT_NOT_DELETED = 40405, "Subject '{}' was not deleted first before being permanently deleted"
    VERSION_DELETED = 40406, "Subject '{}' Version {} was soft deleted.Set permanent=true to delete permanently"
    VERSION_NOT_DELETED = 40407, "Subject '{}' Version {} was not deleted first before being permanently deleted"
    NO_COMPATIBILITY = 40408, "Subject '{}' does not have subject-level compatibility configured"
    NO_MODE = 40409, "Subject '{}' does not have subject-level mode configured"
    INCOMPATIBLE = (
        409,
        'Schema being registered is incompatible with an earlier schema for subject "{}", details: [{}]',
    )
    INVALID_SCHEMA = 42201, "Either the input schema or one its references is invalid. Details: {}"
    INVALID_VERSION = (
        42202,
        "The specified version '{}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )
    INVALID_COMPATIBILITY = (
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )
    INVALID_MODE = 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"
    READ_ONLY = 42205, "Subject {} is in read-only mode"
    IMPORTING = 42205, "Subject {} is in import mode"
    SUBJECTS_EXIST = 42205, "Cannot import since found existing subjects"
    SUBJECT_EXISTS = 42205, "Cannot import since found existing subjects: {}"
    NO_NUMBER = 42205, "The next version or id of subject {} would not fit 32 bits"
    REFERENCE_EXISTS = 42206, "One or more references exist to the schema {} of version {}"
    STORE_FAILED = 50001, "The _schemas topic could not be used: {}"

    def error(self, *about: object) -> RefusedError:
        """The error, with what its message is about."""
        code, message = self.value
        return RefusedError(int(str(code)[:3]), code, message.format(*about))
