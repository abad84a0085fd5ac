"""Fail where a built wheel lacks a file of the packages, or holds one that is not theirs.

Usage: ``python .ci/wheel_contents.py dist``
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# Source root -> package in it.
PACKAGES = {
    **dict.fromkeys(("proto", "core_ext", "server", "client"), "consensuspr"),
    "": "consensusbench",
}
SHIPPED = (
    *(".py", ".pyi", ".proto", ".pxd", ".typed", ".overrides", ".txt"),
    *(".html", ".css", ".js", ".j2", ".woff2"),
)


def expected() -> set[str]:
    """Return the paths inside the wheel of every source file that users need."""
    return {
        path.relative_to(REPOSITORY / root).as_posix()
        for root, package in PACKAGES.items()
        for path in (REPOSITORY / root / package).rglob("*")
        # Of others all of what was taken, their licences first.
        if path.is_file() and (path.suffix in SHIPPED or "vendor" in path.parts)
    }


def main() -> int:
    """Compare the one wheel of a folder with the tree; return an exit code."""
    [wheel] = Path(sys.argv[1]).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    missing = sorted(expected() - held)
    strange = sorted(name for name in held if name.split("/")[0] not in PACKAGES.values())
    compiled = [name for name in held if name.endswith(".so")]
    for name in missing:
        print(f"{wheel.name} lacks {name}", file=sys.stderr)
    for name in strange:
        print(f"{wheel.name} holds {name}, which is no part of a package", file=sys.stderr)
    if not compiled:
        print(f"{wheel.name} holds no compiled core", file=sys.stderr)
    return 1 if missing or strange or not compiled else 0


if __name__ == "__main__":
    sys.exit(main())
