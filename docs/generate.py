"""Writes the reference pages that follow from the code: ``python docs/generate.py``, or ``--check`` to only compare."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import lessor
from lessor import (
    AsyncBundle,
    AsyncClient,
    AsyncGrant,
    AsyncLease,
    AsyncPlace,
    AsyncSemaphore,
    AsyncSession,
    AsyncTerm,
    Bundle,
    Cancellation,
    Client,
    Contender,
    Event,
    EventKind,
    Grant,
    Leader,
    Lease,
    LessorError,
    Loss,
    Options,
    Parent,
    Place,
    Record,
    Renewal,
    Semaphore,
    Session,
    SessionOptions,
    Skipped,
    State,
    Term,
    Timing,
    errors,
    fencing,
    sim,
)
from lessor.core.timing import shown_drift
from lessor.patterns.campaign import Campaign, Observation
from lessor.patterns.campaign_async import AsyncCampaign, AsyncObservation
from lessor.stores.base import Capability
from lessor.stores.registry import guarantees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.stores.base import Guarantees

ELECTION = (Term, AsyncTerm, Campaign, AsyncCampaign, Observation, AsyncObservation)
"""What clients return, and nobody makes by hand."""
LEASE = re.compile(r"\b[LAH]\b")
"""A type variable for the kind of lease, in a signature."""
HERE = os.path.dirname(os.path.abspath(__file__))
NOTICE = "<!-- Written by docs/generate.py: change the code and its docstrings, not this page. -->\n"
MISSING = inspect.Parameter.empty
STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
INTRODUCTION = """
Import these from `lessor`. Durations are seconds, `int` or `float`, or a
`timedelta`. What is read from a store has durations in seconds and times as aware datetimes in UTC, and its `as_dict()`
makes JSON of it. Fields in `_ns`, of a `Timing`, are nanoseconds. `watch()` returns an iterator, to be used in a `with`
or closed; its `gaps` counts how often events may have been missed. What `AsyncClient.acquire()` returns is a coroutine:
await it for the lease, or use it in an `async with`. So is an `Opening[...]`, for what it opens.
"""


def pages() -> dict[str, str]:
    """Return each generated page's path, from here, and its text."""
    return {
        "reference/stores.md": stores_page(),
        "reference/api.md": api_page(),
        "reference/fencing.md": fencing_page(),
        "reference/sim.md": sim_page(),
        **with_facts(),
    }


# --- facts in pages that are written by hand ----------------------------------------------------------------------

FACT = re.compile(r"(<!-- fact: ([^>]+) -->).*?(<!-- /fact -->)", re.DOTALL)
"""``<!-- fact: drift of redis -->10 %<!-- /fact -->``: what stands in between is written by this script."""


def with_facts() -> dict[str, str]:
    """Return the pages that have facts in them, with what the code says now."""
    found = {}
    for folder in ("how-to", "explanation"):
        for name in sorted(os.listdir(os.path.join(HERE, folder))):
            if name.endswith(".md"):
                with open(os.path.join(HERE, folder, name), encoding="utf-8") as file:
                    text = file.read()
                if FACT.search(text):
                    found[f"{folder}/{name}"] = FACT.sub(lambda m: m[1] + fact(m[2]) + m[3], text)
    return found


def fact(asked: str) -> str:
    """Return a fact about the stores, as text."""
    known = {store.store: store for store in guarantees()}
    if asked == "drift of all stores":
        lines = [
            "",
            "| store | drift bound | safe time of 30 s | outage that a lease of 30 s survives |",
            "|---|---|---|---|",
        ]
        for name, store in known.items():
            timing = Timing.of(30, drift=store.drift)
            safe, outage = timing.safe_ns / 1e9, (timing.safe_ns - timing.renew_every_ns) / 1e9
            lines.append(f"| `{name}` | {shown_drift(store.drift)} | {safe:.1f} s | {outage:.0f} s |")
        return "\n".join([*lines, ""])
    what, _, name = asked.rpartition(" of ")
    if what == "drift":
        return shown_drift(known[name].drift)
    assert what == "safe time of 10 s", f"no such fact: {asked}"
    return f"{Timing.of(10, drift=known[name].drift).safe_ns / 1e9:.1f} s"


# --- stores -------------------------------------------------------------------------------------------------------


def stores_page() -> str:
    """Return the table of what each store guarantees."""
    known = guarantees()
    rows = [_guarantee_rows(store) for store in known]
    lines = [
        "# Stores: the table of guarantees",
        "",
        NOTICE,
        "What each store promises, and first of all what it doesn't. `lessor stores` prints the same.",
        "[Guarantees](../explanation/guarantees.md) says what the words mean.",
        "",
        "| | " + " | ".join(f"`{store.store}://`" for store in known) + " |",
        "|---|" + "---|" * len(known),
    ]
    for at, (name, _) in enumerate(rows[0]):
        lines.append(f"| {name} | " + " | ".join(row[at][1] for row in rows) + " |")
    lines += ["", "What a store may be able to do:", ""]
    about = _attribute_docs(Capability)
    lines += [f"- `{_word(one)}`: {_sentence(about[str(one.name)])}" for one in Capability if one]
    lines += [
        "",
        "A store from another package declares the same fields; only those that come with lessor are listed here.",
        "",
    ]
    return "\n".join(lines)


def _guarantee_rows(store: Guarantees) -> list[tuple[str, str]]:
    return [
        ("**not promised**", f"**{store.not_promised}**"),
        ("expiry counts on", store.clock),
        ("drift bound of that clock", shown_drift(store.drift)),
        ("tokens", store.tokens),
        ("failover", store.failover),
        ("order of waiters", store.waiting_order),
        ("can", ", ".join(f"`{_word(one)}`" for one in Capability if one and one in store.capabilities)),
        ("platforms", store.platforms),
        ("shortest TTL", f"{store.min_ttl_ns / 1e9:g} s"),
        ("longest TTL", ", ".join(filter(None, (_time(store.max_ttl_ns), store.max_ttl_by)))),
        ("largest batch", f"{store.max_batch} operations"),
        ("largest metadata", f"{store.max_metadata} bytes, as JSON in UTF-8"),
    ]


def _time(ns: int) -> str:
    return f"{ns / 3600e9:g} h" if ns >= 3600e9 else f"{ns / 1e9:g} s"


def _word(capability: Capability) -> str:
    return str(capability.name).lower().replace("_", "-")


def _sentence(text: str) -> str:
    return text[0].lower() + text[1:]


# --- the API ------------------------------------------------------------------------------------------------------


def api_page() -> str:
    """Return the reference of the public names."""
    parts = [
        "# API",
        NOTICE,
        INTRODUCTION,
        _markdown(lessor.__doc__ or "").partition("\n\n    ")[0],
    ]
    faces: list[type] = [Client, AsyncClient, Lease, AsyncLease, Place, AsyncPlace, Grant, AsyncGrant]
    patterns: list[type] = [Session, AsyncSession, Bundle, AsyncBundle, Semaphore, AsyncSemaphore]
    for cls in (*faces, *patterns, *ELECTION, Cancellation):
        lease = "AsyncLease" if cls.__name__.startswith("Async") else "Lease"
        parts += [LEASE.sub(lease, part) if part.startswith("```") else part for part in _class(cls)]
    for function in (lessor.drain_on_sigterm, lessor.current_lease):
        parts += [f"## {function.__name__}()", _code(function.__name__ + _signature(function)), _doc(function)]
    parts += _options(Options, SessionOptions)
    parts += _options(SessionOptions)
    for record in (Record, Parent, Contender, Leader, Event, Timing):
        parts += _tuple(record)
    for words in (State, Loss, EventKind, Renewal, Skipped):
        parts += _enum(words)
    parts += ["## Errors", "See [errors](errors.md) for what to do about each."]
    for error in _errors(LessorError):
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        parts += [f"### {error.__name__}", f"Derived from {bases}.", _doc(error)]
        if "__init__" in vars(error):
            fields = [p for p in inspect.signature(error.__init__).parameters if p != "self"]
            parts.append("Fields: " + ", ".join(f"`{name}`" for name in fields) + ".")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def fencing_page() -> str:
    """Return the reference of the guards."""
    parts = [
        "# Guards",
        NOTICE,
        "Import these from `lessor.fencing`. [Fence your writes](../how-to/fence-your-writes.md) shows how to use them.",
        _markdown(fencing.__doc__ or "").partition("\n\n=")[0],
    ]
    for function in (fencing.fence, fencing.create_table, fencing.from_environ):
        parts += [f"## {function.__name__}()", _code(function.__name__ + _signature(function)), _doc(function)]
    parts += _tuple(fencing.Stamp)
    for cls in (
        fencing.Fence,
        fencing.FencedFile,
        fencing.FencedRedis,
        fencing.AsyncFencedRedis,
        fencing.FencedObject,
    ):
        parts += _class(cls)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def sim_page() -> str:
    """Return the reference of the simulator, as far as it is for users' programs."""
    parts = [
        "# Simulator",
        NOTICE,
        "Import these from `lessor.sim`. [Simulate your code](../how-to/simulate-your-code.md) shows how to use them.",
    ]
    for function in (sim.run, sim.explore, sim.check):
        parts += [f"## {function.__name__}()", _code(function.__name__ + _signature(function)), _doc(function)]
    for record in (sim.Faults, sim.Mishap, sim.Run, sim.Exploration):
        parts += _tuple(record)
    parts += _enum(sim.Trouble)
    for cls, methods in (
        (sim.ProgramWorld, (sim.ProgramWorld.process, sim.ProgramWorld.register)),
        (sim.SimProcess, (sim.SimProcess.client, sim.SimProcess.note)),
        (sim.Register, (sim.Register.write, sim.Register.read)),
    ):
        parts += [f"## {cls.__name__}", _doc(cls)]
        for method in methods:
            parts += [
                f"### {cls.__name__}.{method.__name__}()",
                _code(method.__name__ + _signature(method)),
                _doc(method),
            ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _errors(root: type[LessorError]) -> list[type[LessorError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, root)]
    return sorted(found, key=lambda cls: cls.__mro__[::-1].index(cls) * 1000 + found.index(cls))


def _class(cls: type) -> Iterator[str]:
    yield f"## {cls.__name__}"
    if "__init__" in vars(cls) and cls not in ELECTION:
        yield _code(cls.__name__ + _signature(cls.__init__))  # type: ignore[misc]
    yield _doc(cls)
    for name, member in _members(cls):
        if isinstance(member, property):
            assert member.fget is not None
            kind = _annotation(inspect.signature(member.fget).return_annotation)
            yield f"### {cls.__name__}.{name}"
            yield _code(f"{name}: {kind}")
            yield _doc(member)
        elif inspect.isfunction(member):
            prefix = "await " if inspect.iscoroutinefunction(member) else ""
            yield f"### {cls.__name__}.{name}()"
            yield _code(f"{prefix}{name}{_signature(member)}")
            yield _doc(member)
    for name, about in _attribute_docs_of_all(cls).items():
        yield f"### {cls.__name__}.{name}"
        yield _code(f"{name}: {_annotation(_annotations(cls)[name])}")
        yield _markdown(about)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Return all public methods and properties, in the order of the source, those of the class itself first."""
    seen = set()
    for base in cls.__mro__:
        if base is object:
            continue
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in seen and not isinstance(member, type(Timing.ttl_ns)):
                seen.add(name)
                yield name, member


def _options(cls: Any, *bases: Any) -> Iterator[str]:
    """Return the keys of a TypedDict, and of the ones that it extends, which Python itself forgets."""
    yield f"## {cls.__name__}"
    yield _doc(cls)
    annotations: dict[str, object] = {}
    about: dict[str, str] = {}
    for one in (*bases, cls):
        annotations |= _annotations(one)
        about |= _attribute_docs_of_all(one)
    lines = ["| option | type | |", "|---|---|---|"]
    for name, annotation in annotations.items():
        kind = _annotation(annotation).replace("|", "\\|")
        lines.append(f"| `{name}` | `{kind}` | {_markdown(about[name])} |")
    yield "\n".join(lines)


def _tuple(cls: Any) -> Iterator[str]:
    yield f"## {cls.__name__}"
    yield _doc(cls)
    annotations, about = _annotations(cls), _attribute_docs_of_all(cls)
    lines = ["| field | type | |", "|---|---|---|"]
    defaults = _defaults(cls)
    for name, default in defaults.items():
        kind = _annotation(annotations[name]).replace("|", "\\|")
        text = about.get(name, "") if default is MISSING else about.get(name, f"default `{default!r}`")
        lines.append(f"| `{name}` | `{kind}` | {_markdown(text)} |")
    yield "\n".join(lines)
    for name, member in _members(cls):
        if isinstance(member, property) and name not in defaults:
            yield f"`{name}`: {_doc(member)}"
        elif isinstance(member, classmethod):
            yield _code(f"{cls.__name__}.{name}{_signature(member.__func__)}")
            yield _doc(member.__func__)
        elif inspect.isfunction(member):
            yield _code(f"{name}{_signature(member)}")
            yield _doc(member)


def _defaults(cls: Any) -> dict[str, object]:
    """Return the fields of a dataclass or a named tuple, each with its default."""
    if not dataclasses.is_dataclass(cls):
        return {name: cls._field_defaults.get(name, MISSING) for name in cls._fields}
    return {one.name: MISSING if one.default is dataclasses.MISSING else one.default for one in dataclasses.fields(cls)}


def _enum(cls: type[enum.Enum]) -> Iterator[str]:
    yield f"## {cls.__name__}"
    yield _doc(cls)
    about = _attribute_docs(cls)
    lines = [
        f"- `{cls.__name__}.{one.name}`, `{str(one.value)!r}`"
        + (f": {_markdown(about[one.name])}" if one.name in about else "")
        for one in cls
    ]
    yield "\n".join(lines)


# --- docstrings and signatures ------------------------------------------------------------------------------------


def _doc(thing: object) -> str:
    text = inspect.getdoc(thing)
    assert text, f"{thing} has no docstring"
    return _markdown(text)


def _markdown(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(text))


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _signature(function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        text = STARS.get(parameter.kind.name, "") + parameter.name
        if parameter.annotation is not MISSING:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not MISSING:
            default = parameter.default
            text += " = " + (
                str(default.__class__.__name__ + "." + default.name)
                if isinstance(default, enum.Enum)
                else repr(default)
            )
        parts.append(text)
    returned = signature.return_annotation
    arrow = "" if returned in (MISSING, "None", None) else f" -> {_annotation(returned)}"
    line = f"({', '.join(parts)}){arrow}"
    return line if len(line) <= 80 else "(\n" + textwrap.indent(",\n".join(parts), "    ") + f",\n){arrow}"


def _annotation(annotation: object) -> str:
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__forward_arg__", None) or inspect.formatannotation(annotation)
    )
    return str(text)


def _annotations(cls: type) -> dict[str, object]:
    """Return the annotations as they are written, those of bases included."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        source = _source(base)
        if source is not None:
            for node in source.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found[node.target.id] = ast.unparse(node.annotation)
    return found


def _attribute_docs_of_all(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= {name: text for name, text in _attribute_docs(base).items() if not name.startswith("_")}
    return found


def _attribute_docs(cls: type) -> dict[str, str]:
    """Return the strings that stand under the attributes of a class, which Python itself forgets."""
    source = _source(cls)
    if source is None:
        return {}
    found: dict[str, str] = {}
    before: str | None = None
    for node in source.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            before = node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            before = node.targets[0].id
        else:
            value = node.value if isinstance(node, ast.Expr) else None
            if before is not None and isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before] = " ".join(value.value.split())
            before = None
    return found


def _source(cls: type) -> ast.ClassDef | None:
    if not cls.__module__.startswith("lessor"):
        return None
    node = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def main(arguments: list[str]) -> int:
    """Write the pages, or say which are out of date."""
    stale = []
    for name, text in pages().items():
        path = os.path.join(HERE, name)
        if "--check" in arguments:
            try:
                with open(path, encoding="utf-8") as file:
                    same = file.read() == text
            except FileNotFoundError:
                same = False
            if not same:
                stale.append(name)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for name in stale:
        sys.stderr.write(f"docs/{name} is out of date: run python docs/generate.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
