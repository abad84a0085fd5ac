"""Do what deploy/docker/Dockerfile says without Docker: build, install, start, ask for health.

Usage: ``python .ci/image_by_hand.py SCRATCH``

The instructions are read from the file, so that a change of it is tried out here: the sources are
those that its ignore file lets through, each stage's pip runs in an environment of its own, and the
server starts with the image's variables by its entry point and command.  Left out is what only an
image has: the packages of the system, the user, the layers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCKERFILE = REPOSITORY / "deploy/docker/Dockerfile"
SAMPLE = REPOSITORY / "examples/sample"

PORT = "50051"


def instructions(text: str) -> list[tuple[str, str]]:
    """Return every instruction with its arguments, lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def pip_steps(run: str) -> list[list[str]]:
    """Return the pip commands of a RUN instruction."""
    commands = re.sub(r"--mount=\S+", "", run).split("&&")
    return [words for words in map(shlex.split, commands) if words[0] == "pip"]


def copy_context(target: Path) -> None:
    """Copy what the ignore file lets into the build."""
    lines = (DOCKERFILE.parent / f"{DOCKERFILE.name}.dockerignore").read_text().splitlines()
    for name in [line[1:] for line in lines if line.startswith("!")]:
        source = REPOSITORY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)


def main() -> int:
    """Do the instructions in a scratch folder; return an exit code."""
    scratch = Path(sys.argv[1]).resolve()
    source, wheels = scratch / "source", scratch / "wheels"
    source.mkdir(parents=True)
    copy_context(source)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])

    def placed(word: str) -> str:
        for there, here in (("/wheels", wheels), ("/data", SAMPLE), ("/run/consensuspr", scratch)):
            word = re.sub(rf"(?<![\w.]){there}\b", str(here), word)
        return word.replace(PORT, port)

    environment: dict[str, str] = {}
    start: list[str] = []
    probe: list[str] = []
    stage = Path()
    for name, rest in instructions(DOCKERFILE.read_text(encoding="utf-8")):
        if name == "FROM":
            # What a stage installs and sets ends with it.
            stage = scratch / f"stage{len(list(scratch.glob('stage*')))}"
            venv.create(stage, with_pip=True)
            environment = {"PATH": f"{stage / 'bin'}:{os.environ['PATH']}"}
        elif name == "ENV":
            environment |= dict(word.split("=", 1) for word in shlex.split(placed(rest)))
        elif name == "RUN":
            for words in pip_steps(rest):
                step = [placed(word) for word in words]
                print("+", *words, flush=True)
                subprocess.run(step, cwd=source, env=os.environ | environment, check=True)
        elif name in ("ENTRYPOINT", "CMD"):
            start += json.loads(placed(rest))
        elif name == "HEALTHCHECK":
            probe = json.loads(placed(rest.partition("CMD ")[2]))
    inside = os.environ | environment

    # As the compose file does: the image listens on all addresses, and that takes a token.
    tokens = scratch / "tokens"
    subprocess.run([start[0], "token", str(tokens)], env=inside, check=True)
    print("+", *start, flush=True)
    server = subprocess.Popen(
        [*start, "--token-file", str(tokens)], env=inside, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line.startswith("listening on "):
            return 1
        subprocess.run(probe, env=inside, check=True)
        asked = ["info", "--address", f"127.0.0.1:{port}", "--token-file", str(tokens)]
        subprocess.run([start[0], *asked], env=inside, check=True)
    finally:
        server.terminate()
        code = server.wait(60)
    print(f"the server ended with {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
