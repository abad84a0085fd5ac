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
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from consensuspr.console import one_line
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.version import VERSION

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT

# Of typer's errors of the command line only BadParameter is public; the base of all of them is
# its grandparent.
_COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


# What stands for a value of a type in the help; bool is a flag and has none.
_WORDS = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}


def make_app(
    program: str, summary: str, commands: Mapping[str, Callable[..., int | None]]
) -> typer.Typer:
    """Return an application with its commands, ``--help``, ``--version`` and shell completion.

    Args:
        program: what a person types.
        summary: one sentence.
        commands: by name, in the order of the help.
    """
    app = typer.Typer(
        name=program,
        help=summary,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{program} {VERSION}")
            raise typer.Exit

    @app.callback(help=summary, cls=_Group)
    def options(
        version: bool = typer.Option(
            False, "--version", callback=print_version, is_eager=True, help="Print the version."
        ),
    ) -> None: ...

    for name, command in commands.items():
        app.command(name, cls=_Command)(command)
    return app


class _WholeWords:
    """Makes the help of a command readable: ``N`` for ``<int>``, nothing beside a flag."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters with a word for the value of each, and defaults as they are."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        callback = ctx.command.callback
        types = get_type_hints(callback) if callback else {}
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                # Its metavar is its name; typer would show the type beside it, always.
                parameter.display_type = lambda ctx: ""  # type: ignore[method-assign]
            elif parameter.metavar is None:
                # Not in the signature: --help and what installs completion, which are flags.
                parameter.metavar = _word(types.get(parameter.name, bool))
            # typer puts a text of ours in parentheses.
            if isinstance(parameter.show_default, str):
                parameter.help = f"{parameter.help} [default: {parameter.show_default}]"
                parameter.show_default = False
        return parameters


class _Command(_WholeWords, TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without the opposites of flags: a column of all rows, for a few."""
        opposites = [(option, option.secondary_opts) for option in self.get_params(ctx)]
        for option, _ in opposites:
            option.secondary_opts = []
        try:
            super().format_help(ctx, formatter)
        finally:
            for option, names in opposites:
                option.secondary_opts = names


class _Group(_WholeWords, TyperGroup): ...


def _word(annotation: Any) -> str:
    """Return what stands for a value of a type in the help."""
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) is Literal:
        return "|".join(map(str, parts))
    if parts:
        return _word(parts[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(member.value) for member in annotation)
    return _WORDS[annotation]


def run_app(app: typer.Typer, program: str, arguments: Sequence[str] | None) -> int:
    """Run one command of an application and return its exit code.

    Args:
        app: of :func:`make_app`.
        program: what a person types.
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        result = app(
            args=None if arguments is None else list(arguments),
            prog_name=program,
            standalone_mode=False,
        )
    except _COMMAND_LINE_ERROR as error:
        return _usage(program, error)
    except InputError as error:
        return _fail(program, str(error), BAD_INPUT)
    except ConsensusPRError as error:
        return _fail(program, str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(program, "interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        return _fail(
            program,
            f"internal error, {type(error).__name__}: {error} "
            "(set CONSENSUSPR_TRACEBACK=1 to see where)",
            FAILED,
        )
    return result if isinstance(result, int) else DONE


def _usage(program: str, error: Exception) -> int:
    """Report an error of the command line itself, and where to read what is right."""
    # Not above: what goes well needs neither.
    from pydantic import ValidationError

    from consensuspr.settings import what_is_wrong

    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError):
        error.message = what_is_wrong(error.__cause__.errors(include_url=False)[0])
    describe = getattr(error, "format_message", error.__str__)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    message = " ".join(str(describe()).split()).rstrip(".")
    if not message:  # the bare program: typer has printed the help
        return BAD_INPUT
    return _fail(program, f"{message}; see '{command} --help'", BAD_INPUT)


def _fail(program: str, message: str, code: int) -> int:
    print(f"{program}: error: {one_line(message, 2000)}", file=sys.stderr)
    return code


def _reader_left() -> int:
    """Leave quietly when the reader of a pipe has gone, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
