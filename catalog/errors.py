"""The catalogue's errors, in the two families of :mod:`opatlas.errors`."""

from __future__ import annotations

import errno

from opatlas.errors import CallerError, OpatlasError


class RequestError(CallerError):
    """A request that cannot be answered. ``where`` points into its JSON: ``operators[3].graph``."""

    status = 400

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class Unknown(RequestError):
    """Something named by a key or an id that the catalogue does not have."""

    status = 404


class KeyReused(RequestError):
    """An Idempotency-Key that named another request before."""

    status = 422


class NotFree(RequestError):
    """Something costs, and the caller wants free answers alone."""

    status = 409


class QuotaUsed(RequestError):
    """More at a time than one key or one organisation may have."""

    status = 429


class TooLarge(RequestError):
    """A body beyond what the API takes."""

    status = 413


class SystemFault(OpatlasError):
    """The service's own fault (a full disk, a lost folder): nothing of the caller's is lost; try again."""


class StoreError(SystemFault):
    """An artifact's files could not be stored or read."""


class DamagedArtifact(StoreError):
    """The store's content differs from what was stored: bytes, a manifest or a signature were changed."""


class UnvouchedArtifact(StoreError):
    """No valid signature: none of today's signers has signed it."""


class JournalError(SystemFault):
    """A served hit could not be journalled, so it was not served."""


DISK_FULL = "The disk is full"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException | None) -> bool:
    """Whether an error or its cause is a full disk: a file's, SQLite's or PostgreSQL's."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        if getattr(error, "sqlstate", None) == "53100" or "database or disk is full" in str(error):
            return True
        error = error.__cause__
    return False
