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

import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent
PACKAGE = Path("consensuspr/v1")
STUBS = [PACKAGE / f"scoring_pb2{end}" for end in (".py", ".pyi", "_grpc.py", "_grpc.pyi")]


def installed(name: str) -> str:
    """Return the version of a distribution, "none" without it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


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
    lines = (PROTO_ROOT / "requirements.txt").read_text().split()
    pins = dict(line.split("==") for line in lines)
    missing = [
        f"{name}=={pin} (installed: {own})"
        for name, pin in pins.items()
        if (own := installed(name)) != pin
    ]
    if missing:
        print(f"the pinned generator is not installed: {', '.join(missing)}", file=sys.stderr)
        return 3
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        for stub in STUBS:
            fresh, committed = (Path(folder) / stub).read_bytes(), PROTO_ROOT / stub
            if not committed.is_file() or committed.read_bytes() != fresh:
                stale.append(str(stub))
                if "--check" not in sys.argv:
                    committed.write_bytes(fresh)
    if stale:
        print("stale:" if "--check" in sys.argv else "wrote", *stale)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
