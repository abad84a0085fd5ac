"""Files of bearer tokens.

A line is ``TOKEN [SCOPE]``, with the scope ``read``, ``score`` (the default) or ``admin``.  ``#``
begins a comment.  A server accepts the tokens of all lines, a client shows that of the first.  No
message, log line, repr, argument of a process or file of settings holds a token.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from consensuspr.errors import InputError

TOKEN_FILE_VARIABLE = "CONSENSUSPR_TOKEN_FILE"
TOKEN_VARIABLE = "CONSENSUSPR_TOKEN"

# Guessing one of 16 characters at a million attempts a second takes longer than anybody has.
MIN_TOKEN_CHARS = 16
MAX_TOKEN_CHARS = 1024
# Of the tokens that are made here.
_RANDOM_BYTES = 32
_MAX_FILE_BYTES = 1 << 20
# What RFC 6750 lets a bearer token be made of.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)

# What differs where a file was written anew or replaced.
Stamp: TypeAlias = tuple[int, ...]


class Scope(StrEnum):
    """What a token is good for; each includes those before it."""

    READ = "read"
    SCORE = "score"
    ADMIN = "admin"

    def includes(self, other: Scope) -> bool:
        """Return whether this scope includes the other."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token and its scope; its repr does not show it."""

    text: str = field(repr=False)
    scope: Scope = Scope.SCORE


def check_token(text: str, where: str) -> str:
    """Return a token that can be sent and is too long to be guessed, or raise InputError.

    The message names ``where`` it stands, and does not quote it.
    """
    if not MIN_TOKEN_CHARS <= len(text) <= MAX_TOKEN_CHARS:
        raise InputError(
            f"{where}: a token has {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} characters,"
            f" this one has {len(text)}"
        )
    if not _TOKEN.fullmatch(text):
        raise InputError(f"{where}: a token is made of letters, digits and ._~+/-=")
    return text


def read_tokens(path: Path) -> list[BearerToken]:
    """Return the tokens of a file, at least one; InputError names a line and never quotes it."""
    try:
        raw = read_credentials(path)
    except OSError as error:
        raise InputError(f"token file {path}: {(error.strerror or str(error)).lower()}") from None
    tokens = []
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"token file {path}, line {number}"
        if len(words) > 2 or (len(words) == 2 and words[1] not in list(Scope)):
            raise InputError(f"{where}: must be TOKEN or TOKEN SCOPE, one of {', '.join(Scope)}")
        scope = Scope(words[1]) if len(words) == 2 else Scope.SCORE
        tokens.append(BearerToken(check_token(words[0], where), scope))
    if not tokens:
        raise InputError(f"token file {path}: holds no token; `consensuspr token {path}` adds one")
    return tokens


def read_credentials(path: Path) -> bytes:
    """Return the content of a file of tokens, certificates or a key, or raise OSError.

    A server reads them while it serves, and must not wait for a pipe or read a whole device.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opener) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
        raw = stream.read(_MAX_FILE_BYTES + 1)
    if len(raw) > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"more than {_MAX_FILE_BYTES} bytes", os.fspath(path))
    return raw


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def write_token(path: Path, token: str) -> None:
    """Write a file of one token, which its owner alone may read, in place of the one before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp opens it for the owner alone; readers find the file of before meanwhile.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{token}\n")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"token file {path}: {(error.strerror or str(error)).lower()}") from None


def add_token(path: Path, scope: Scope) -> None:
    """Add a new random token to a file; make the file for its owner alone."""
    line = f"{new_token()} {scope}\n"
    try:
        if path.exists() and path.stat().st_size:
            read_tokens(path)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a+b") as stream:
            if stream.tell() and os.pread(descriptor, 1, stream.tell() - 1) != b"\n":
                line = "\n" + line
            stream.write(line.encode())
    except OSError as error:
        raise InputError(f"token file {path}: {(error.strerror or str(error)).lower()}") from None


def file_stamp(*paths: Path) -> Stamp | None:
    """Return a value that changes with any of the files; None if one cannot be read."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return None
    return tuple(
        number
        for status in found
        for number in (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
    )


def open_to_others(path: Path) -> bool:
    """Return whether every user of this machine may read or change a file, if it is there."""
    try:
        return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False  # reading it fails with the reason
