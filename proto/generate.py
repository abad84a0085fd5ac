"""Generate the committed stubs of ``consensuspr.v1`` from their ``.proto``, or check them.

The generator is pinned: gencode of grpcio-tools 1.71.2 (protobuf 5.29) loads on every
protobuf and grpcio that supported trainers pin, gencode of a newer one does not.  It
does not fit into the environment that the product runs in (grpcio-tools pins protobuf),
so install both packages in an environment of their own and run this file there::

    python -m venv /tmp/protoc
    /tmp/protoc/bin/pip install -r proto/requirements.txt
    /tmp/protoc/bin/python proto/generate.py            # writes the stubs
    /tmp/protoc/bin/python proto/generate.py --check    # exit 1 where they are stale

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
SOURCE = PACKAGE / "scoring.proto"
STUBS = tuple(
    PACKAGE / f"scoring_pb2{suffix}" for suffix in (".py", ".pyi", "_grpc.py", "_grpc.pyi")
)
REQUIREMENTS = PROTO_ROOT / "requirements.txt"
EXIT_STALE = 1
EXIT_NO_GENERATOR = 3


def missing_requirements() -> list[str]:
    """Return the pins of ``requirements.txt`` that this environment does not meet."""
    missing = []
    for line in REQUIREMENTS.read_text().splitlines():
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
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTO_ROOT}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            f"--python_out={into}",
            f"--grpc_python_out={into}",
            f"--mypy_out=quiet:{into}",
            f"--mypy_grpc_out=quiet:{into}",
            str(SOURCE),
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status} on {SOURCE}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check: bool = parser.parse_args().check
    if missing := missing_requirements():
        print(f"the pinned generator is not installed: {', '.join(missing)}", file=sys.stderr)
        return EXIT_NO_GENERATOR
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = {stub: (Path(scratch) / stub).read_bytes() for stub in STUBS}
    stale = [
        stub
        for stub, content in fresh.items()
        if not (PROTO_ROOT / stub).is_file() or (PROTO_ROOT / stub).read_bytes() != content
    ]
    if check and stale:
        print(f"stale: {', '.join(map(str, stale))}; run `make proto`", file=sys.stderr)
        return EXIT_STALE
    for stub in stale:
        (PROTO_ROOT / stub).write_bytes(fresh[stub])
        print(f"wrote {stub}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
