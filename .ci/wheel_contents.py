"""Fail if a built wheel lacks a file of the packages, or holds one that is not theirs.

Usage: ``python .ci/wheel_contents.py dist``
"""

import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = [(root, "consensuspr") for root in ("proto", "core_ext", "server", "client")]
PACKAGES.append(("", "consensusbench"))
SHIPPED = (
    *(".py", ".pyi", ".proto", ".pxd", ".typed", ".overrides", ".txt"),
    *(".html", ".css", ".js", ".j2", ".woff2"),
)

[wheel] = Path(sys.argv[1]).glob("*.whl")
held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
expected = {
    path.relative_to(REPOSITORY / root).as_posix()
    for root, package in PACKAGES
    for path in (REPOSITORY / root / package).rglob("*")
    # All files of vendored code are shipped, licences first.
    if path.is_file() and (path.suffix in SHIPPED or "vendor" in path.parts)
}
faults = [f"lacks {name}" for name in sorted(expected - held)]
faults += [
    f"holds {name}, which is no part of a package"
    for name in sorted(held)
    if name.split("/")[0] not in ("consensuspr", "consensusbench")
]
if not any(name.endswith(".so") for name in held):
    faults.append("holds no compiled core")
for fault in faults:
    print(f"{wheel.name} {fault}", file=sys.stderr)
sys.exit(bool(faults))
