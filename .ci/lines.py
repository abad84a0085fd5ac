"""Print the lines of hand-written code of each part beside its target."""

import subprocess
from pathlib import Path

SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".h", ".js", ".css"}
GENERATED = ("_pb2.py", "_pb2_grpc.py", "/vendor/")

CORE, SERVER, CLIENT = (f"{root}/consensuspr" for root in ("core_ext", "server", "client"))
# Part: its target, and the start of its paths. The longest start that fits a file decides.
PARTS = {
    "core, native": (9_000, f"{CORE}/core/native/"),
    "core, pure": (3_500, f"{CORE}/core/pure/"),
    "core, expressions and tables": (3_000, f"{CORE}/"),
    "scoring with answers": (4_500, f"{SERVER}/scoring/"),
    "server": (3_800, f"{SERVER}/server/"),
    "web": (4_000, f"{SERVER}/web/"),
    "score log": (1_000, f"{SERVER}/score_log/"),
    "http": (600, f"{SERVER}/http/"),
    "ray": (600, f"{SERVER}/ray/"),
    "data, settings, small modules": (1_600, f"{SERVER}/"),
    "wire": (700, "proto/"),
    "client": (4_800, f"{CLIENT}/"),
    "cli": (1_800, f"{CLIENT}/cli/"),
    "doctor": (600, f"{CLIENT}/doctor/"),
    "launch": (700, f"{CLIENT}/launch/"),
    "load test": (900, f"{CLIENT}/loadtest/"),
    "consensusbench": (11_000, "consensusbench/"),
    "benchmarks": (2_800, "benchmarks/"),
    "reliability": (800, "reliability/"),
    "examples": (2_500, "examples/"),
    "build and CI": (300, ".ci/"),
    "setup.py": (0, "setup.py"),
    "tests": (32_000, "tests/"),
}


def main() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode:
        print("no lines are counted: this is not a git checkout")
        return
    lines = dict.fromkeys([*PARTS, "elsewhere"], 0)
    for path in map(Path, listed.stdout.splitlines()):
        name = path.as_posix()
        generated = any(mark in name for mark in GENERATED)
        if path.suffix in SUFFIXES and path.is_file() and not generated:
            starts = [(len(s), part) for part, (_, s) in PARTS.items() if name.startswith(s)]
            part = max(starts)[1] if starts else "elsewhere"
            lines[part] += path.read_bytes().count(b"\n")
    lines["build and CI"] += lines.pop("setup.py")

    print(f"{'lines of code':<32}{'now':>9}{'target':>9}{'share':>8}")
    rows = [(part, now, PARTS.get(part, (0, ""))[0]) for part, now in lines.items() if now]
    code = [row for row in rows if row[0] != "tests"]
    rows.append(("all outside tests", sum(row[1] for row in code), sum(row[2] for row in code)))
    for part, now, target in rows:
        share = f"{now / target:.0%}" if target else "-"
        print(f"{part:<32}{now:>9,}{target:>9,}{share:>8}")


if __name__ == "__main__":
    main()
