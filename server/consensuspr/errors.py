"""The one exception tree of consensuspr.

::

    ConsensusPRError
    ├── InputError (ValueError)     the caller's file, row, option or argument; exit code 2
    │   └── DataError               ... in a data file: names path, line and reason
    ├── VerifierUnavailable         the answer check's worker processes cannot run; exit code 1
    ├── HubUnavailable              the hub of datasets cannot be reached; exit code 1
    ├── ModelError                  a language model gave no reply; exit code 1
    │   ├── ModelUnavailable        no usable reply after all attempts, or the server is gone
    │   ├── ModelRefused            the server refuses this request; another one may succeed
    │   ├── ModelNoAccess           key, model name, address or account: nothing can succeed
    │   ├── UnusableReply           it replied, and every reply was malformed
    │   └── BudgetSpent             a limit that the caller set allows no further request
    └── RewardServiceError          a call to a reward server failed; exit code 1
        ├── Unavailable             no connection, or the server went away; retried
        ├── Overloaded              the server refused for load, with a retry hint; retried
        ├── DeadlineExceeded        the caller's timeout passed
        ├── InvalidRequest          the server rejected the request
        │   └── UnknownDataset      ... for a dataset that it does not have
        ├── DatasetMismatch         the dataset has another digest than the expected one
        ├── AccessDenied            token, certificate or TLS: one side does not trust the other
        ├── IncompatibleServer      another protocol version, or not a reward server at all
        └── ServerFault             a defect of the server

What concerns a single rollout is never an exception but a ``Status`` on that rollout.
Every gRPC code that the server can send maps to exactly one leaf (``client/…/retries.py``).
"""

from __future__ import annotations

import copyreg
import difflib
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

# Of the bad rows of a file, those that a message lists.
MAX_LISTED: Final = 20
# Words among which a near one is sought; difflib takes about a second for so many.
MAX_KNOWN: Final = 10_000


class ConsensusPRError(Exception):
    """Base of everything that consensuspr raises on purpose; it travels between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as it is: pickle would call the constructor with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InputError(ConsensusPRError, ValueError):
    """Something that the caller gave is wrong; the message names the value and the limit."""


class DataError(InputError):
    """A data file or one of its rows is wrong.

    Attributes:
        path: the file as it was named by the caller.
        line: line or row counted from 1; None for several, or for the file as a whole.
        reason: one clause without the position; of several rows, a line for each.
    """

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {reason}")

    @classmethod
    def together(cls, path: str, faults: Sequence[DataError]) -> DataError:
        """Return one error for the bad rows of a file, which lists up to 20 reasons."""
        if len(faults) == 1:
            return faults[0]
        lines_of: dict[str, list[str]] = {}
        for fault in faults:
            lines_of.setdefault(fault.reason, []).append(str(fault.line))
        listed = []
        for reason, lines in list(lines_of.items())[:MAX_LISTED]:
            if lines == ["None"]:
                listed.append(reason)  # damage of the file
                continue
            more = f" and {len(lines) - 3:,} more" if len(lines) > 3 else ""
            listed.append(f"line{'s' * (len(lines) > 1)} {', '.join(lines[:3])}{more}: {reason}")
        if len(lines_of) > MAX_LISTED:
            listed.append(f"and {len(lines_of) - MAX_LISTED:,} more")
        return cls(path, None, "\n  ".join([f"{len(faults):,} bad rows", *listed]))


class VerifierUnavailable(ConsensusPRError):
    """The worker processes of the answer check cannot run; no answer was made up for it."""


class HubUnavailable(ConsensusPRError):
    """A dataset could not be had from the hub; the request was not at fault."""


class ModelError(ConsensusPRError):
    """A language model that was asked gave no reply."""


class ModelUnavailable(ModelError):
    """No usable reply came after all attempts; a later run may get one."""


class ModelRefused(ModelError):
    """The server rejected the content of this request; a retry would fail too."""


class ModelNoAccess(ModelError):
    """The server takes no request at all: wrong key, model name or address, or no credit."""


class UnusableReply(ModelError):
    """The model replied each time, and no reply had the form that was asked for."""


class BudgetSpent(ModelError):
    """A limit on cost, requests or tokens that the caller set leaves no further request."""


class RewardServiceError(ConsensusPRError):
    """A call to a reward server failed as a whole; no reward was made up for it."""


class Unavailable(RewardServiceError):
    """The server cannot be reached or went away during the call."""


class Overloaded(RewardServiceError):
    """The server refused the call for load.

    Attributes:
        retry_after_s: the server's hint in seconds, None where it sent none.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class DeadlineExceeded(RewardServiceError):
    """The caller's timeout passed before the reply was complete."""


class InvalidRequest(RewardServiceError):
    """The server rejected the request; sent again, it would be rejected again."""


class UnknownDataset(InvalidRequest):
    """There is no dataset of the name that the request gives."""


class DatasetMismatch(RewardServiceError):
    """The dataset has other content than the caller expects, so that nothing was scored.

    Attributes:
        digest: that it has.
    """

    def __init__(self, message: str, digest: str) -> None:
        self.digest = digest
        super().__init__(message)

    @classmethod
    def of(cls, name: str, digest: str, expected: str | None) -> Self:
        """Return the error for a dataset whose digest is not the expected one."""
        return cls(f"dataset {name!r} has digest {digest}, expected {expected}", digest)


class AccessDenied(RewardServiceError):
    """One side does not trust the other: token, scope, certificate, or TLS on one side alone."""


class IncompatibleServer(RewardServiceError):
    """The other side speaks another protocol version, or is no reward server."""


class ServerFault(RewardServiceError):
    """The server failed for a reason of its own."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message on an unknown word: the known one that is nearly it, if any.

    Args:
        known: of more than :data:`MAX_KNOWN`, none is near.
        otherwise: returned if no known word is near.
    """
    words = list(itertools.islice(known, MAX_KNOWN + 1))
    near = difflib.get_close_matches(word, words, n=1) if len(words) <= MAX_KNOWN else []
    return f"; did you mean {near[0]!r}?" if near else otherwise


def no_such_path(path: str | os.PathLike[str]) -> str:
    """Return the message on a path that does not exist, with a name in its folder that is near."""
    folder, name = os.path.split(os.fspath(path))
    try:
        with os.scandir(folder or ".") as entries:
            hint = did_you_mean(name, (entry.name for entry in entries))
    except OSError:
        hint = ""
    return f"{os.fspath(path)}: no such file or directory{hint}"
