"""Lines of hand-written code by part, beside the size each part should keep."""

import subprocess
from pathlib import Path

# Kinds of hand-written code; generated stubs and vendored scripts do not count.
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".h", ".js", ".css"}
GENERATED = ("_pb2.py", "_pb2_grpc.py", "/vendor/")

CORE, SERVER, CLIENT = (f"{root}/consensuspr" for root in ("core_ext", "server", "client"))
# Each part: its target, and the paths it begins with. The longest path that fits a file decides.
PARTS = {
    "core, native": (9_000, [f"{CORE}/core/native/"]),
    "core, pure": (3_500, [f"{CORE}/core/pure/"]),
    "core, expressions and tables": (3_000, [f"{CORE}/"]),
    "scoring with answers": (4_500, [f"{SERVER}/scoring/"]),
    "server": (3_800, [f"{SERVER}/server/"]),
    "web": (4_000, [f"{SERVER}/web/"]),
    "score log": (1_000, [f"{SERVER}/score_log/"]),
    "http": (600, [f"{SERVER}/http/"]),
    "ray": (600, [f"{SERVER}/ray/"]),
    "data, settings, small modules": (1_600, [f"{SERVER}/"]),
    "wire": (700, ["proto/"]),
    "client": (4_800, [f"{CLIENT}/"]),
    "cli": (1_800, [f"{CLIENT}/cli/"]),
    "doctor": (600, [f"{CLIENT}/doctor/"]),
    "launch": (700, [f"{CLIENT}/launch/"]),
    "load test": (900, [f"{CLIENT}/loadtest/"]),
    "consensusbench": (11_000, ["consensusbench/"]),
    "benchmarks": (2_800, ["benchmarks/"]),
    "reliability": (800, ["reliability/"]),
    "examples": (2_500, ["examples/"]),
    "build and CI": (300, [".ci/", "setup.py"]),
}
TESTS = ("tests", 32_000)


def part_of(path: str) -> str:
    """The part of a file: the one with the longest path that the file's begins with."""
    fits = [
        (len(start), part)
        for part, (_, starts) in PARTS.items()
        for start in starts
        if path.startswith(start)
    ]
    return max(fits)[1] if fits else "elsewhere"


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode:
        print("no lines are counted: this is not a git checkout")
        return
    lines = dict.fromkeys([*PARTS, "elsewhere", TESTS[0]], 0)
    for path in map(Path, listed.stdout.splitlines()):
        name = path.as_posix()
        if path.suffix not in SUFFIXES or any(mark in name for mark in GENERATED):
            continue
        if path.is_file():
            part = TESTS[0] if name.startswith("tests/") else part_of(name)
            lines[part] += path.read_bytes().count(b"\n")

    print(f"{'lines of code':<32}{'now':>9}{'target':>9}{'of it':>8}")
    rows = [(part, lines[part], target) for part, (target, _) in PARTS.items()]
    if lines["elsewhere"]:
        rows.append(("elsewhere", lines["elsewhere"], 0))
    rows.append(("all outside tests", *(sum(row[i] for row in rows) for i in (1, 2))))
    rows.append((TESTS[0], lines[TESTS[0]], TESTS[1]))
    for part, now, target in rows:
        share = f"{now / target:.0%}" if target else "-"
        print(f"{part:<32}{now:>9,}{target:>9,}{share:>8}")


if __name__ == "__main__":
    main()
