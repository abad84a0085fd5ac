"""Build and run the applications: every failure is one sentence and an exit code.

2: errors that the caller can fix (usage, files, :class:`InputError`). 1: work
that failed (:class:`ConsensusPRError`), or a defect, whose traceback ``CONSENSUSPR_TRACEBACK=1``
prints. 130: Ctrl-C.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.columns import Columns
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from consensuspr.console import one_line
from consensuspr.errors import ConsensusPRError, DataError, InputError
from consensuspr.pages import linked
from consensuspr.version import VERSION

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT

# Of typer's errors of the command line only BadParameter is public; the base of all of them is
# its grandparent.
_COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


def make_app(
    program: str, summary: str, panels: Mapping[str, Mapping[str, Callable[..., int | None]]]
) -> typer.Typer:
    """Return an application with ``--version`` and shell completion.

    Args:
        panels: of the help, by title: its commands by name.
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

    @app.callback(help=summary)
    def options(
        version: bool = typer.Option(
            False, "--version", callback=print_version, is_eager=True, help="Print the version."
        ),
    ) -> None: ...

    for panel, commands in panels.items():
        for name, command in commands.items():
            text = linked(inspect.getdoc(command) or "")
            app.command(name, cls=_Command, help=text, rich_help_panel=panel)(command)
    return app


class _HelpTable(Table):
    """A table of typer's help that leaves room for the texts.

    Long names are wrapped, which rich would cut, and all names of an option share a column.
    """

    def add_row(self, *cells: Any, **options: Any) -> None:
        cells = tuple(map(_wrappable, cells))
        if len(cells) > 5:
            *required, name, short, no_name, no_short, kind, text = cells
            names = [
                Text(", ").join(filter(None, pair)) for pair in ((name, short), (no_name, no_short))
            ]
            cells = (*required, Text("\n").join(filter(None, names)), kind, text)
        super().add_row(*cells, **options)
        for column in self.columns:
            column.overflow = "fold"


def _wrappable(cell: Any) -> Any:
    if isinstance(cell, Text):
        return Text(" | ").join(Text(", ").join(cell.split(",")).split("|"))
    # A grid of one text would cut its words.
    if isinstance(cell, Columns) and len(cell.renderables) == 1:
        return cell.renderables[0]
    return cell


class _Command(TyperCommand):
    """A command whose help is readable at 80 columns."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from typer import rich_utils

        vars(rich_utils)["Table"] = _HelpTable
        super().format_help(ctx, formatter)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def run_app(app: typer.Typer, program: str, arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit code; arguments None: those of ``sys.argv``."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        result = app(
            args=None if arguments is None else list(arguments),
            prog_name=program,
            standalone_mode=False,
        )
    except _COMMAND_LINE_ERROR as error:
        return _usage(program, error)
    except DataError as error:
        first, *bad_rows = str(error).splitlines()
        code = _fail(program, first, BAD_INPUT)
        for row in bad_rows:
            print(f"  {one_line(row, 500)}", file=sys.stderr)
        return code
    except InputError as error:
        return _fail(program, str(error), BAD_INPUT)
    except ConsensusPRError as error:
        return _fail(program, str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(program, "interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe has gone, as ``head`` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
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
    """Report an error of the command line itself, with the command of its help."""
    from pydantic import ValidationError

    from consensuspr.settings import what_is_wrong

    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError):
        # typer's message names neither the value nor the limit.
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
