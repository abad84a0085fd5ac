"""Certificates for tests, made by the program ``openssl``; a test that needs them skips without."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path

    def put_in_place_of(self, other: Pair) -> None:
        """Replace other files by these, each at once, as an operator does."""
        for own, place in ((self.cert, other.cert), (self.key, other.key)):
            copy = place.with_suffix(".new")
            shutil.copy(own, copy)
            copy.replace(place)


class Authority:
    """Signs certificates; ``cert`` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the program openssl, which makes certificates, is not installed")
        self._folder = folder
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.cert),
            *("-subj", f"/CN={name}", "-days", "2"),
        )

    def sign(self, name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        """Return a new certificate for these names."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        _openssl("req", *_NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key),
            *("-CAcreateserial", "-out", pair.cert, "-days", "2", "-extfile", extensions),
        )
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
