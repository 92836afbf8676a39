"""The entry point: finds the subcommand, and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from lessor.cli import codes
from lessor.cli.complaints import Complaint
from lessor.cli.parser import UsageError, check_options, make_parser, split
from lessor.cli.screen import OutputError, Screen
from lessor.errors import LessorError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _prepare_output()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    finally:
        _give_up_output()


def _run(argv: list[str]) -> int:
    try:
        try:
            code = _dispatch(argv)
        except SystemExit as done:  # argparse has printed the help or the version
            code = int(done.code or 0)
        Screen().write("")
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # after the terminal's ^C
        return codes.SIGNAL + 2
    except BrokenPipeError:  # the reader has seen enough
        return codes.SIGNAL + 13
    except OutputError as error:
        return Complaint(f"the output can't be written: {error}", "", codes.OUTPUT).show()
    except UsageError as error:
        return Complaint(error.text, error.hint, codes.USAGE).show()
    except LessorError as error:
        return Complaint.about(error).show()
    except Exception as error:
        if os.environ.get("LESSOR_DEBUG"):
            raise
        return Complaint.about(error).show()
    return code


def _dispatch(argv: list[str]) -> int:
    head, command = split(argv)
    parser = make_parser()
    check_options(parser, head)
    args, unknown = parser.parse_known_args(head)
    if unknown:
        where = "; what to run goes after --" if args.noun == "run" and command is None else ""
        raise UsageError(f"lessor {args.noun}", f"too much: {' '.join(unknown)}{where}")
    # Each is imported when it is asked for: completion calls `ls` at every key, and should not wait for the others.
    match args.noun:
        case "run":
            from lessor.cli import run  # noqa: PLC0415

            return run.run(args, _checked(command))
        case "node":
            from lessor.cli import node  # noqa: PLC0415

            return node.node(args)
        case "cluster":
            from lessor.cli import cluster  # noqa: PLC0415

            return cluster.start(args) if args.what == "start" else cluster.status(args)
        case "stores":
            from lessor.cli import stores  # noqa: PLC0415

            return stores.stores(args)
        case "migrate":
            from lessor.cli import migrate  # noqa: PLC0415

            return migrate.migrate(args)
        case "completion":
            from lessor.cli import completion  # noqa: PLC0415

            return completion.completion(args)
        case "sim":
            from lessor.cli import sim  # noqa: PLC0415

            return sim.sim(args)
        case "demo":
            from importlib import import_module  # noqa: PLC0415

            return int(import_module("lessor.cli.demo").run(args.draw))
        case _:
            return _look(args)


def _look(args: argparse.Namespace) -> int:
    from lessor.cli import revoke, show, watch  # noqa: PLC0415

    nouns = {
        "ls": show.ls,
        "show": show.show,
        "contenders": show.contenders,
        "watch": watch.watch,
        "revoke": revoke.revoke,
    }
    return nouns[args.noun](args)


def _checked(command: list[str] | None) -> list[str]:
    if not command:
        raise UsageError("lessor run", "what to run is missing: put it after --, as in: lessor run x -- make")
    return command


def _prepare_output() -> None:
    """Make sure that no name can break the output, and that what the library logs is one line without a traceback."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as with >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as we live
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    log = logging.getLogger("lessor")
    if not log.handlers:
        log.addHandler(_OneLine())
        log.propagate = False


def _give_up_output() -> None:
    """Drop what can't be written. Python would try again at its end, complain, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        Complaint.logged(record).show()
