"""What can be typed."""

from __future__ import annotations

import argparse
import itertools
from typing import Any, NoReturn

from lessor.cli.codes import RUN_EPILOG
from lessor.cli.durations import duration, some_words, words
from lessor.cli.screen import Screen

RESOURCE = "RESOURCE"
PREFIX = "PREFIX"
SHELLS = ("bash", "zsh", "fish")
RUN_USAGE = (
    "lessor run RESOURCE [--ttl 30s] [--wait SECONDS | -n] [--on-lost stop|kill|warn]\n"
    "                     [--grace 5s] [--drain TIME] [--hold-at-least TIME] [--leave-daemons]\n"
    "                     [--holder NAME] [--require cross-host] [--json] [-v] [--url URL] -- COMMAND..."
)


class UsageError(Exception):
    """The command line can't be understood."""

    def __init__(self, program: str, message: str) -> None:
        super().__init__(message)
        noun = program.partition(" ")[2]
        self.text = f"{noun}: {message}" if noun else message
        self.hint = f"see: {program} --help"


class Parser(argparse.ArgumentParser):
    """Raises instead of printing a screenful."""

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        raise UsageError(self.prog, message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help and version; argparse itself would hide that it can't."""
        Screen(file).write(message)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a word that isn't one of those to choose from, and name the nearest one."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = _nearest(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other way to tell
            instead = near or f": choose from {', '.join(choices)}"
            raise UsageError(self.prog, f"there is no subcommand {value!r}{instead}")
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near} (choose from {', '.join(choices)})")


def make_parser() -> Parser:
    """Return the whole command line, but for COMMAND, which ``split`` has taken off."""
    from lessor import __version__  # noqa: PLC0415 - the package is loaded already, and mypy sees no cycle

    parser = Parser(
        prog="lessor",
        description="Leases: exclusive ownership of a named resource, for a limited time, with a fencing token.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lessor {__version__}")
    _add_url(parser, default=None)
    nouns = parser.add_subparsers(dest="noun", metavar="SUBCOMMAND", required=True, parser_class=Parser)
    _add_run(nouns)
    ls = _add(nouns, "ls", "list the leases that are held")
    ls.add_argument(
        "prefix", metavar=PREFIX, nargs="?", default="", type=words, help="only resources that start with it"
    )
    how = _add_json(ls).add_mutually_exclusive_group()
    how.add_argument("--names", action="store_true", help="print the resources' names and nothing else")
    show = _add(
        nouns,
        "show",
        "show who holds a resource or why it is closed, and who waits for it; exit code 1: nobody holds it",
    )
    show.add_argument("resource", metavar=RESOURCE, type=words)
    _add_json(show)
    contenders = _add(nouns, "contenders", "show who waits for a resource, in the order of their turns")
    contenders.add_argument("resource", metavar=RESOURCE, type=words)
    _add_json(contenders)
    watch = _add(nouns, "watch", "print what happens to leases, as it happens")
    watch.add_argument(
        "prefix", metavar=PREFIX, nargs="?", default="", type=words, help="only resources that start with it"
    )
    _add_json(watch)
    revoke = _add(
        nouns,
        "revoke",
        "end a lease at the expiry already promised, or open a closed resource; exit code 1: nothing changed",
    )
    revoke.add_argument("resource", metavar=RESOURCE, type=words)
    revoke.add_argument(
        "--force",
        action="store_true",
        help="end the lease, or a lock delay, now: from then on, only fencing tokens keep the last holder's writes out",
    )
    _add_json(revoke)
    migrate = _add(nouns, "migrate", "make or update the schema that a database keeps leases in")
    migrate.add_argument("--print", action="store_true", help="print the SQL that makes it, and do nothing")
    _add_json(_add(nouns, "stores", "show what each store guarantees", url=False))
    _add_node(nouns)
    _add_cluster(nouns)
    completion = _add(nouns, "completion", "print a completion script for a shell", url=False)
    completion.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS)
    _add_sim(nouns)
    demo = _add(nouns, "demo", "watch three workers contend for one job (about 20 s)", url=False)
    demo.add_argument(
        "--draw",
        metavar="FILE.svg",
        type=words,
        help="draw the run as animated SVG files, FILE-light.svg and FILE-dark.svg",
    )
    return parser


def check_options(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """Refuse an option that the subcommand doesn't have, and name the nearest one. Values are not repeated."""
    noun = _noun(argv)
    nouns = next(a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    if noun not in nouns:
        return
    known = {*parser._option_string_actions, *_options(nouns[noun])}  # noqa: SLF001 - as above
    for word in itertools.takewhile(lambda word: word != "--", argv):
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            raise UsageError(f"lessor {noun}", f"there is no option {name}{_nearest(name, sorted(known))}")


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser and of those below it."""
    found = set(parser._option_string_actions)  # noqa: SLF001 - as above
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            found.update(*(_options(below) for below in action.choices.values()))
    return found


def _nearest(word: str, known: list[str]) -> str:
    """Return a question after the word that may have been meant; nothing if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors only

    bare = {name.lstrip("-"): name for name in known}
    near = get_close_matches(word.lstrip("-"), bare, 1)
    return f", did you mean {bare[near[0]]}?" if near else ""


def _noun(words: list[str]) -> str | None:
    """Return the subcommand: the first word that is neither an option nor the store's URL."""
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = word == "--url" and not skip
            continue
        return word
    return None


def split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Take COMMAND off: all that follows the first ``--`` of ``run``. None: there is no ``--``."""
    words_before = argv[: argv.index("--")] if "--" in argv else argv
    if _noun(words_before) != "run" or "--" not in argv:
        return argv, None
    return words_before, argv[len(words_before) + 1 :]


def _add(nouns: argparse._SubParsersAction[Parser], name: str, text: str, *, url: bool = True) -> Parser:
    parser = nouns.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    if url:
        _add_url(parser, default=argparse.SUPPRESS)
    return parser


def _add_url(parser: Parser, default: str | None) -> None:
    parser.add_argument(
        "--url",
        type=some_words,
        default=default,
        help="the store (default: LESSOR_URL, else a SQLite file in your state folder)",
    )


def _add_json(parser: Parser) -> Parser:
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_run(nouns: argparse._SubParsersAction[Parser]) -> None:
    run = nouns.add_parser(
        "run",
        help="run a command while holding a lease",
        usage=RUN_USAGE,
        description="Wait for the lease and run COMMAND while it is held, with LESSOR_RESOURCE, LESSOR_TOKEN,\n"
        "LESSOR_HOLDER and LESSOR_URL set.",
        epilog=RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    run.add_argument("resource", metavar=RESOURCE, type=words)
    run.add_argument(
        "--ttl", type=duration, default=30.0, metavar="TIME", help="how long others wait if we vanish (30s)"
    )
    waiting = run.add_mutually_exclusive_group()
    waiting.add_argument("--wait", type=duration, metavar="TIME", help="wait for at most so long (default: for ever)")
    waiting.add_argument("-n", "--no-wait", action="store_true", help="don't wait at all")
    run.add_argument(
        "--on-lost",
        choices=("stop", "kill", "warn"),
        default="stop",
        help="when the lease is lost: SIGTERM and then SIGKILL (stop), SIGKILL (kill), only say so (warn)",
    )
    run.add_argument(
        "--grace",
        type=duration,
        default=5.0,
        metavar="TIME",
        help="from SIGTERM to SIGKILL (5s; at most a third of the lease's safe time)",
    )
    run.add_argument(
        "--drain",
        type=duration,
        metavar="TIME",
        help="after SIGTERM, which is passed on: SIGKILL if COMMAND hasn't ended by then (default: wait for ever)",
    )
    run.add_argument(
        "--hold-at-least",
        type=duration,
        metavar="TIME",
        help="nobody else gets it before so long a time is over, however soon COMMAND ends",
    )
    run.add_argument(
        "--leave-daemons",
        action="store_true",
        help="when COMMAND ends by itself, leave what it started in sessions of their own (default: end it)",
    )
    run.add_argument("--holder", type=some_words, metavar="NAME", help="who holds it, for people to read (host:pid)")
    run.add_argument(
        "--require",
        choices=("cross-host",),
        help="refuse a store whose leases other hosts don't see (exit code 78)",
    )
    run.add_argument("--json", action="store_true", help="print events as JSON lines on stderr")
    run.add_argument(
        "-v", "--verbose", action="store_true", help="say what happens: acquired, renewed, ended, released"
    )
    _add_url(run, default=argparse.SUPPRESS)


def _add_node(nouns: argparse._SubParsersAction[Parser]) -> None:
    node = _add(nouns, "node", "run one node of a cluster that keeps leases for paxos:// URLs", url=False)
    node.add_argument("--id", required=True, metavar="ID", type=words, help="its name in the cluster")
    node.add_argument("--data", required=True, metavar="DIR", type=words, help="its data folder")
    node.add_argument("--init", action="store_true", help="prepare the data folder for a NEW cluster, and end")
    node.add_argument("--listen", default="127.0.0.1:7420", metavar="HOST:PORT", type=words, help="(127.0.0.1:7420)")
    node.add_argument("--peers", default="", metavar="ID=HOST:PORT,...", type=words, help="all other nodes")
    node.add_argument("--http", metavar="HOST:PORT", type=words, help="answer /health and /metrics there")
    node.add_argument("--secret-file", metavar="FILE", type=words, help="the secret that clients and nodes share")
    node.add_argument("--tls-cert", metavar="FILE", type=words, help="use TLS, with this certificate")
    node.add_argument("--tls-key", metavar="FILE", type=words, help="its private key")
    node.add_argument("--tls-ca", metavar="FILE", type=words, help="whom other nodes' certificates come from")
    node.add_argument("--tls-clients", action="store_true", help="take only clients with a certificate from --tls-ca")
    node.add_argument(
        "--max-ttl", type=duration, default=60.0, metavar="TIME", help="the longest lease (60s; 1s to 1h)"
    )
    node.add_argument(
        "--max-leases", type=_positive, default=2_000_000, metavar="N", help="how many there may be at once (2000000)"
    )
    node.add_argument("--log", choices=("json", "text"), default="json", help="how to log, on stderr (json)")


def _add_cluster(nouns: argparse._SubParsersAction[Parser]) -> None:
    text = "start a cluster on this host, for trying it out; or show how the nodes of a paxos:// URL are"
    cluster = _add(nouns, "cluster", text)
    cluster.add_argument("what", metavar="start|status", choices=("start", "status"))
    cluster.add_argument("--nodes", type=int, choices=(1, 3, 5), default=3, help="how many to start (3)")
    cluster.add_argument("--port", type=int, default=7420, metavar="PORT", help="of the first one to start (7420)")
    cluster.add_argument("--data", metavar="DIR", type=words, help="where to keep their data (a folder of its own)")
    _add_json(cluster)


def _add_sim(nouns: argparse._SubParsersAction[Parser]) -> None:
    sim = _add(nouns, "sim", "run the cluster's protocol in simulated worlds in which things go wrong", url=False)
    deeds = sim.add_subparsers(dest="deed", metavar="run|replay", required=True, parser_class=Parser)
    run = deeds.add_parser("run", help="live through many worlds; exit code 1: something broke", allow_abbrev=False)
    run.add_argument("--seeds", type=_positive, default=1000, metavar="N", help="how many worlds (1000)")
    run.add_argument("--jobs", type=_positive, default=1, metavar="N", help="how many processes (1)")
    run.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    replay = deeds.add_parser("replay", help="print all that happens in the world of one seed", allow_abbrev=False)
    replay.add_argument("seed", metavar="SEED", type=int)
    replay.add_argument("--timeline", metavar="FILE", help="draw it into an SVG file, and don't print each message")
    replay.add_argument("--shrink", action="store_true", help="first make a failing world as simple as it can be")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
