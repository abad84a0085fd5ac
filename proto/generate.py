"""Generate the committed stubs of ``consensuspr.v1`` from their ``.proto``, or check them.

The generator is pinned: gencode of grpcio-tools 1.71.2 (protobuf 5.29) loads on every protobuf and
grpcio that supported trainers pin, gencode of a newer one does not.  It needs an environment of its
own, because grpcio-tools pins protobuf::

    python -m venv /tmp/protoc
    /tmp/protoc/bin/pip install -r proto/requirements.txt
    /tmp/protoc/bin/python proto/generate.py            # writes the stubs
    /tmp/protoc/bin/python proto/generate.py --check    # exit 1 if they are stale

Exit codes: 0 done or fresh, 1 stale, 3 the pinned generator is not installed here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent
PACKAGE = Path("consensuspr/v1")
STUBS = [PACKAGE / f"scoring_pb2{end}" for end in (".py", ".pyi", "_grpc.py", "_grpc.pyi")]


def missing_requirements() -> list[str]:
    """Return the pins of ``requirements.txt`` that this environment does not meet."""
    missing = []
    for line in (PROTO_ROOT / "requirements.txt").read_text().splitlines():
        name, _, pin = line.partition("==")
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "none"
        if installed != pin:
            missing.append(f"{line} (installed: {installed})")
    return missing


def generate(into: Path) -> None:
    """Run the generator on ``scoring.proto`` and write the stubs below ``into``."""
    from grpc_tools import protoc

    scripts = Path(sys.executable).parent
    options = [f"--proto_path={PROTO_ROOT}", f"--python_out={into}", f"--grpc_python_out={into}"]
    for plugin in ("mypy", "mypy_grpc"):
        options += [f"--plugin=protoc-gen-{plugin}={scripts / f'protoc-gen-{plugin}'}"]
        options += [f"--{plugin}_out=quiet:{into}"]
    status = protoc.main(["protoc", *options, str(PACKAGE / "scoring.proto")])
    if status != 0:
        raise SystemExit(f"protoc failed with status {status} on scoring.proto")


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate or check the stubs.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check: bool = parser.parse_args().check
    if missing := missing_requirements():
        print(f"the pinned generator is not installed: {', '.join(missing)}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = {stub: (Path(scratch) / stub).read_bytes() for stub in STUBS}
    committed = {stub: PROTO_ROOT / stub for stub in STUBS}
    stale = [
        stub
        for stub, path in committed.items()
        if not path.is_file() or path.read_bytes() != fresh[stub]
    ]
    if check and stale:
        print(f"stale: {', '.join(map(str, stale))}; run `make proto`", file=sys.stderr)
        return 1
    for stub in stale:
        committed[stub].write_bytes(fresh[stub])
        print(f"wrote {stub}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
