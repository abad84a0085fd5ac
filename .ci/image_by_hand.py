"""Do what deploy/docker/Dockerfile says without Docker: build, install, start, ask for health.

Usage: ``python .ci/image_by_hand.py SCRATCH [ARG=VALUE]...``

The sources are those that the ignore file lets through, each stage's pip runs in a separate
environment, and the server starts with the image's variables, entry point and command.  Only system
packages, the user and the layers are left out.
"""

import contextlib
import json
import os
import random
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
PORT = "50051"


def free_port() -> str:
    """Return a free port that the system gives to no connection and no listener on port 0."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", port)):
            return str(port)


def main() -> int:
    """Do the instructions in a scratch folder; return an exit code."""
    scratch = Path(sys.argv[1]).resolve()
    source = scratch / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    lines = DOCKERFILE.with_name(f"{DOCKERFILE.name}.dockerignore").read_text().splitlines()
    for name in [line[1:] for line in lines if line.startswith("!")]:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
        else:
            source.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, source / name)

    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for folder, here in (
        ("/wheels", scratch / "wheels"),
        ("/data", REPOSITORY / "examples/sample"),
        ("/run/consensuspr", scratch),
    ):
        text = re.sub(rf"(?<![\w.]){folder}\b", str(here), text)
    given = dict(word.split("=", 1) for word in sys.argv[2:])
    arguments_of_build: dict[str, str] = {}
    environment: dict[str, str] = {}
    start: list[str] = []
    health: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            # Each stage has what it installs and sets itself.
            stage = scratch / f"stage{len(list(scratch.glob('stage*')))}"
            venv.create(stage, with_pip=True)
            environment = os.environ | {"PATH": f"{stage / 'bin'}:{os.environ['PATH']}"}
        elif name == "ARG":
            # With a value it is for all stages; each stage names what it uses.
            name, equals, default = arguments.partition("=")
            if equals:
                arguments_of_build[name] = given.get(name, default)
            environment[name] = arguments_of_build[name]
        elif name == "ENV":
            environment |= dict(word.split("=", 1) for word in shlex.split(arguments))
        elif name == "RUN":
            for command in re.sub(r"--mount=\S+", "", arguments).split("&&"):
                if command.strip().startswith("pip "):
                    print("+", command.strip(), flush=True)
                    subprocess.run(command, shell=True, cwd=source, env=environment, check=True)
        elif name in ("ENTRYPOINT", "CMD"):
            start += json.loads(arguments)
        elif name == "HEALTHCHECK":
            health = json.loads(arguments.partition("CMD ")[2])

    # Only now: the build takes minutes, and the port must still be free.
    port = free_port()
    environment = {name: value.replace(PORT, port) for name, value in environment.items()}
    # As in the compose file: the image listens on all addresses, which takes a token.
    tokens = ["--token-file", str(scratch / "tokens")]
    subprocess.run([start[0], "token", tokens[1]], env=environment, check=True)
    command = [*start, *tokens]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not server.stdout.readline().startswith("listening on "):
                return 1
            health = [word.replace(PORT, port) for word in health]
            subprocess.run(health, env=environment, check=True)
            info = [start[0], "info", "--address", f"127.0.0.1:{port}", *tokens]
            subprocess.run(info, env=environment, check=True)
        finally:
            server.terminate()
    print(f"the server ended with {server.returncode}")
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
