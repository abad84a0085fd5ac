"""The boundary of the commands: parse, run, turn every failure into one sentence and a code.

typer alone would print usage boxes and tracebacks.  What fails here fails in one sentence on
standard error: 2 for what the caller can mend in the call or its files (usage errors,
:class:`InputError`), 1 for work that failed (:class:`ConsensusPRError`), 130 for Ctrl-C.
An exception of any other kind is a defect of ours; it keeps its traceback where
``CONSENSUSPR_TRACEBACK=1`` asks for it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import typer

from consensuspr.cli import derive, explain, health, info, score, serve
from consensuspr.cli.console import one_line
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.version import VERSION

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT

# Of typer's errors of the command line only BadParameter is public; the base of all of them is
# its grandparent.
_COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="consensuspr",
    help="Consensus process rewards: score rollouts by answer and by the nodes they reach.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve.serve, score.score, explain.explain, derive.derive, info.info, health.health):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"consensuspr {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Consensus process rewards: score rollouts by answer and by the nodes they reach."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        result = app(
            args=None if arguments is None else list(arguments),
            prog_name="consensuspr",
            standalone_mode=False,
        )
    except _COMMAND_LINE_ERROR as error:
        return _usage(error)
    except InputError as error:
        return _fail(str(error), BAD_INPUT)
    except ConsensusPRError as error:
        return _fail(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        return _fail(
            f"internal error, {type(error).__name__}: {error} "
            "(set CONSENSUSPR_TRACEBACK=1 to see where)",
            FAILED,
        )
    return result if isinstance(result, int) else DONE


def _usage(error: Exception) -> int:
    """Report an error of the command line itself, and where to read what is right."""
    describe = getattr(error, "format_message", error.__str__)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "consensuspr"
    message = " ".join(str(describe()).split()).rstrip(".")
    if not message:  # a bare `consensuspr`: typer has printed the help
        return BAD_INPUT
    return _fail(f"{message}; see '{command} --help'", BAD_INPUT)


def _fail(message: str, code: int) -> int:
    print(f"consensuspr: error: {one_line(message, 2000)}", file=sys.stderr)
    return code


def _reader_left() -> int:
    """Leave quietly when the reader of a pipe has gone, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
