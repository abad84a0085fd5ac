"""Look for known weaknesses of all that an environment holds, and list it as an SBOM (CycloneDX).

Run by an environment that has pip-audit and cyclonedx-bom; ``make audit`` makes one.  What is
known comes from the package index by the network: where that does not answer, it says so and ends
with 0, because a weakness that nobody could look for is none that was found.

Exit codes: 0 none known, or nobody to ask; 1 some are; the SBOM is written in every case.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def main(python: str, output: str) -> int:
    """Audit the environment of an interpreter; write the SBOM and what was found to a folder."""
    here, folder = Path(sys.executable).parent, Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    sbom = folder / "sbom.json"
    listing = [here / "cyclonedx-py", "environment", python, "--output-reproducible"]
    subprocess.run([*map(str, listing), "--output-file", str(sbom)], check=True)
    print(f"{sbom}: {len(json.loads(sbom.read_text())['components'])} packages")
    packages = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    audit = [here / "pip-audit", "--path", packages, "--format", "json"]
    asked = subprocess.run(
        [*map(str, audit), "--progress-spinner", "off"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    try:
        found = json.loads(asked.stdout)["dependencies"]
    except ValueError:
        reason = (asked.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"not audited, the index of weaknesses does not answer: {reason}")
        return 0
    (folder / "audit.json").write_text(asked.stdout)
    # Our own package is on no index.
    known = [one for one in found if "skip_reason" not in one]
    if not known:
        print(f"not audited: the index here knows weaknesses of none of {len(found)} packages")
        return 0
    weak = [(one, weakness) for one in known for weakness in one["vulns"]]
    for one, weakness in weak:
        mended = ", ".join(weakness["fix_versions"]) or "no release yet"
        print(f"{one['name']} {one['version']}: {weakness['id']}, mended in {mended}")
    print(f"audited {len(known)} of {len(found)} packages: {len(weak)} known weaknesses")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
