"""``lessor completion``: static scripts, made from the parser. Resource names come from ``lessor ls --names``."""

from __future__ import annotations

import argparse
from importlib.resources import files
from typing import NamedTuple

from lessor.cli.parser import PREFIX, RESOURCE, make_parser
from lessor.cli.screen import Screen


class Option(NamedTuple):
    """An option of a subcommand."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


class Noun(NamedTuple):
    """A subcommand."""

    name: str
    help: str
    options: tuple[Option, ...]
    names_resources: bool
    choices: tuple[str, ...]


def completion(args: argparse.Namespace) -> int:
    """Print the script."""
    general, nouns = _describe(make_parser())
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](general, nouns)
    Screen().write(script)
    return 0


def _describe(parser: argparse.ArgumentParser) -> tuple[tuple[Option, ...], list[Noun]]:
    nouns = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to look at a parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            nouns = [_noun(name, helps[name], sub) for name, sub in action.choices.items()]
    return _options(parser), nouns


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    return tuple(
        Option(tuple(a.option_strings), a.help or "", a.nargs != 0, tuple(map(str, a.choices or ())))
        for a in parser._actions  # noqa: SLF001
        if a.option_strings
    )


def _noun(name: str, text: str, parser: argparse.ArgumentParser) -> Noun:
    operands = [a for a in parser._actions if not a.option_strings]  # noqa: SLF001
    resources = any(a.metavar in (RESOURCE, PREFIX) for a in operands)
    choices = tuple(str(choice) for a in operands for choice in a.choices or ())
    return Noun(name, text, _options(parser), resources, choices)


def _flags(options: tuple[Option, ...]) -> str:
    return " ".join(flag for option in options for flag in option.flags)


def _template(name: str, **parts: str) -> str:
    text = files("lessor.cli").joinpath("completions", name).read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace(f"@{key}@", value)
    return text


def _bash(general: tuple[Option, ...], nouns: list[Noun]) -> str:
    values = []
    for option in {option for noun in nouns for option in noun.options if option.takes_value}:
        words = " ".join(option.choices)
        values.append(f"        {'|'.join(option.flags)}) __lessor_words '{words}'; return ;;")
    cases = []
    for noun in nouns:
        operand = "__lessor_resources" if noun.names_resources else f"__lessor_words '{' '.join(noun.choices)}'"
        cases.append(f"        {noun.name}) flags='{_flags(noun.options)}' operand=\"{operand}\" ;;")
    return _template(
        "lessor.bash",
        NOUNS=" ".join(noun.name for noun in nouns),
        FLAGS=_flags(general),
        VALUES="\n".join(sorted(values)),
        CASES="\n".join(cases),
    )


def _zsh(general: tuple[Option, ...], nouns: list[Noun]) -> str:
    cases = []
    for noun in nouns:
        specs = [spec for option in noun.options for spec in _zsh_option(option)]
        if noun.names_resources:
            specs.append("'1:resource:__lessor_resources'")
        if noun.choices:
            specs.append(f"'1:shell:({' '.join(noun.choices)})'")
        if noun.name == "run":
            specs.append("'*::command:_normal'")
        lines = " \\\n            ".join(specs)
        cases.append(f"        {noun.name})\n          _arguments \\\n            {lines}\n          ;;")
    return _template(
        "lessor.zsh",
        NOUNS="\n".join(f"      '{noun.name}:{_zsh_text(noun.help)}'" for noun in nouns),
        FLAGS=" \\\n    ".join(spec for option in general for spec in _zsh_option(option)),
        CASES="\n".join(cases),
    )


def _zsh_option(option: Option) -> list[str]:
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value: "
    others = f"({' '.join(option.flags)})" if len(option.flags) > 1 else ""
    return [f"'{others}{flag}[{_zsh_text(option.help)}]{value}'" for flag in option.flags]


def _zsh_text(text: str) -> str:
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, "\\" + special)
    return text.replace("'", "'\\''")


def _fish(general: tuple[Option, ...], nouns: list[Noun]) -> str:
    names = " ".join(noun.name for noun in nouns)
    lines = [_fish_option("__lessor_no_noun", option) for option in general]
    for noun in nouns:
        lines.append(f"complete -c lessor -n __lessor_no_noun -a {noun.name} -d {_fish_text(noun.help)}")
        there = f"'__fish_seen_subcommand_from {noun.name}; and not __lessor_after_dashes'"
        lines += [_fish_option(there, option) for option in noun.options]
        if noun.names_resources:
            lines.append(f"complete -c lessor -n {there} -a '(__lessor_resources)'")
        if noun.choices:
            lines.append(f"complete -c lessor -n {there} -a '{' '.join(noun.choices)}'")
    return _template("lessor.fish", NOUNS=names, LINES="\n".join(lines))


def _fish_option(condition: str, option: Option) -> str:
    flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
    value = " -x" if option.takes_value else ""
    choices = f" -a '{' '.join(option.choices)}'" if option.choices else ""
    return f"complete -c lessor -n {condition} {flags}{value}{choices} -d {_fish_text(option.help)}"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
