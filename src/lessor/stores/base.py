"""What it is to be a store: the contract, the guarantees that it declares, and how its URL is read.

A store is blocking, thread-safe and vectorised: its one verb takes a batch and makes one round trip of it. It never
raises for what goes wrong with a server: it answers `Unknown` for each operation whose fate it can't tell.
"""

from __future__ import annotations

import os
import re
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from lessor.core.timing import MAX_TTL_NS, MIN_TTL_NS
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Event, Notice, Op, Outcome


class Capability(Flag):
    """What a store can do beyond the minimum. Ask for one of these, never for a class."""

    NONE = 0
    CROSS_PROCESS = auto()
    """Other processes see the same leases."""
    CROSS_HOST = auto()
    """Other hosts do."""
    DURABLE = auto()
    """Leases and tokens survive the death of every client."""
    PUSH = auto()
    """The store wakes waiters and tells holders; without it they come at the known time."""
    WATCH = auto()
    """The store keeps the order of events for those who watch."""
    GRACE = auto()
    """An owner can get back, within its grace, a lease that has run out and that nobody wanted."""
    PRIORITY = auto()
    """Waiters of a higher priority are served first."""
    QUEUE_LIMIT = auto()
    """A queue can have a bound, which the store itself sees to."""
    HANDOVER = auto()
    """A release can reserve the resource for a successor, for as long as it says, and leave it something."""
    RECOVER = auto()
    """A challenger can have a lease ended that was held beyond its soft limit."""
    SESSIONS = auto()
    """A renewal tells whether leases under it were ended, so that one renewal keeps all of them."""
    CONTENDERS = auto()
    """The store tells who waits for a resource that nobody holds, too."""
    DELAY_SHOWN = auto()
    """The store tells every client apart whether a lease is held, or has expired and its ``lock_delay`` follows. Without
    it, such a resource is shown as held to all but its last holder, and a revocation takes it for held."""
    PATTERNS = PRIORITY | QUEUE_LIMIT | HANDOVER | RECOVER | SESSIONS | CONTENDERS
    """What the patterns stand on. To be declared by every store; here until all of them do."""

    @property
    def names(self) -> list[str]:
        """How settings and tables spell them, like ``cross-host``."""
        return [str(one.name).lower().replace("_", "-") for one in type(self) if one and one in self]


class Guarantees(NamedTuple):
    """What a store promises. Machine-readable, printed by ``lessor stores``, and tested."""

    store: str
    clock: str
    drift: float
    tokens: str
    failover: str
    waiting_order: str
    platforms: str
    capabilities: Capability
    not_promised: str
    min_ttl_ns: int = MIN_TTL_NS
    max_ttl_ns: int = MAX_TTL_NS
    max_batch: int = 1000
    max_metadata: int = 64 * 1024
    max_ttl_by: str = ""
    """What else bounds the longest TTL, as a rule far below that: known once the store is open."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that ``json.dumps`` takes: TTLs in seconds, capabilities by name."""
        said = self._asdict()
        for bound in ("min_ttl", "max_ttl"):
            said[bound] = said.pop(f"{bound}_ns") / 1e9
        return {**said, "capabilities": self.capabilities.names}


@runtime_checkable
class Subscription(Protocol):
    """What a store pushes to one client. Read by one thread."""

    @property
    def address(self) -> str:
        """How operations name this client: their ``notify``."""
        ...

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came, in order, waiting up to ``timeout`` seconds; None when something may have been missed."""
        ...

    def close(self) -> None:
        """End it; a ``get`` in another thread returns soon."""
        ...


@runtime_checkable
class Interruptible(Subscription, Protocol):
    """A subscription whose reader can be called away, so that another thread may read in its place."""

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        ...


@runtime_checkable
class Store(Protocol):
    """Where leases live."""

    guarantees: Guarantees
    url: str
    """How another process opens the same store; no passwords."""

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations in order, each wholly or not at all, in one round trip."""
        ...

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return the lease on each resource; None: it is free. Raises `StoreUnavailable` when there is no answer.

        Of a resource that nobody holds and that is still closed, it is the last lease, with ``closed`` set.
        """
        ...

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return what `read` would for all resources that start with the prefix and aren't free, by name."""
        ...

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource, in the order of their turns."""
        ...

    def subscribe(self, prefix: str | None = None) -> Subscription | None:
        """Be told: notices for oneself and, with a prefix, all events under it. None where the store can't push."""
        ...

    def close(self) -> None:
        """Let go of connections. Leases stay as they are."""
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store that also works inside a transaction of its user's, on a connection of its user's.

    What it answers there counts once that transaction has committed, and never if it is rolled back.
    """

    def apply_in(self, connection: Any, ops: Sequence[Op]) -> list[Outcome]:
        """Carry out the operations as part of the transaction that is open on the connection."""
        ...

    async def apply_in_async(self, connection: Any, ops: Sequence[Op]) -> list[Outcome]:
        """Do so on an async connection."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """A store with a schema of its own, which somebody with more rights than its users may have to make."""

    def migrate(self, *, timeout: float) -> str:
        """Bring the schema up to date, and return what was done, for people."""
        ...

    def migration(self) -> str:
        """Return the SQL that makes the schema."""
        ...


WAYS: Final = ("file", "env")
"""Where a secret may be instead of in the URL: ``password_file=PATH``, ``password_env=VARIABLE``."""
_SECRET: Final = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
_WORD: Final = re.compile("[a-z]+(_[a-z]+)*")
ESCAPE: Final = "escape @ : / ? # & in a password as %40 %3A %2F %3F %23 %26"


class StoreURL(NamedTuple):
    """A store's URL, taken apart. Options that nobody asked for are refused, so that a typo can't pass unseen.

    What is refused is not repeated: where a password wasn't escaped, any piece may be a piece of it.
    """

    scheme: str
    netloc: str
    path: str
    options: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> StoreURL:
        """Take the URL apart."""
        from urllib.parse import parse_qsl, unquote, urlsplit  # noqa: PLC0415 - 5 ms that an import needn't cost

        if not isinstance(url, str):
            raise ConfigError(f"a store's URL is str, not {type(url).__name__}")
        try:
            url.encode()
        except UnicodeEncodeError:
            raise ConfigError("a store's URL has a lone surrogate, which UTF-8 can't express") from None
        scheme, colon, _ = url.partition("://")
        if not colon or not scheme or not all(c.isascii() and (c.isalnum() or c in "+-.") for c in scheme):
            raise ConfigError("a store's URL starts with a scheme, like sqlite:///leases.db or memory://")
        try:
            parts = urlsplit(url)
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise ConfigError(f"the {scheme}:// URL can't be read: {ESCAPE}") from None
        if parts.fragment or "#" in url:
            raise ConfigError(f"the {scheme}:// URL has a '#': write it as %23 where it belongs to a name")
        if parts.netloc and "@" in (parts.path if "@" in parts.netloc else parts.path + parts.query):
            raise ConfigError(f"the {scheme}:// URL has an '@' after its servers: {ESCAPE}, and @ elsewhere as %40")
        if len(dict(pairs)) != len(pairs):
            raise ConfigError(f"the {scheme}:// URL says an option twice")
        return cls(parts.scheme.lower(), parts.netloc, unquote(parts.path), dict(pairs))

    def only(self, *known: str, secrets: Sequence[str] = ()) -> None:
        """Refuse options other than these, and those that say where one of the secrets is."""
        known = (*known, *(f"{name}_{way}" for name in secrets for way in WAYS))
        for name in self.options:
            if name not in known:
                raise self.unknown(name, known)

    def unknown(self, name: str, known: Sequence[str], *, also: str = "") -> ConfigError:
        """Return the error for an option that doesn't exist. Its name is shown unless it may be part of a secret."""
        from difflib import get_close_matches  # noqa: PLC0415 - for errors only

        names = list(self.options)
        there_are = f"there are: {also or ', '.join(sorted(known))}"
        # An unescaped ? or & in a password makes options of the rest of it. Then an @ follows, or a password precedes.
        before = names[: names.index(name)]
        suspicious = any("@" in part for pair in self.options.items() for part in pair) or any(
            map(_SECRET.search, before)
        )
        if suspicious or not _WORD.fullmatch(name):
            return ConfigError(
                f"{self.scheme}:// has no option like no. {len(before) + 1} of the URL; {there_are} ({ESCAPE})"
            )
        near = get_close_matches(name, known, 1)
        return ConfigError(
            f"{self.scheme}:// has no option {name!r}{f', did you mean {near[0]!r}?' if near else ''}; {there_are}"
        )

    def secret(self, name: str, given: str = "") -> str:
        """Return a secret: from the URL itself, or from the file or environment variable that an option names.

        What the option says is not repeated in an error: it may be the secret itself, by mistake.
        """
        ways = [option for option in (f"{name}_{way}" for way in WAYS) if option in self.options]
        if len(ways) + bool(given) > 1:
            also = f"{name} and " if given else ""
            raise ConfigError(f"the {self.scheme}:// URL has several passwords: {also}{' and '.join(ways)}")
        if not ways:
            return given
        option = ways[0]
        try:
            found = (_from_file if option.endswith("_file") else _from_environment)(self.options[option])
        except (OSError, ValueError, KeyError) as error:
            why = getattr(error, "strerror", None) or error.args[-1]
            raise ConfigError(f"the {self.scheme}:// URL's {option} can't be used: {why}") from None
        if not found:
            raise ConfigError(f"the {self.scheme}:// URL's {option} can't be used: it is empty")
        return found

    def with_secrets(self, *names: str) -> dict[str, str]:
        """Return the options, with these secrets in them wherever they came from."""
        found = {name: self.secret(name, self.options.get(name, "")) for name in names}
        return self.options | {name: secret for name, secret in found.items() if secret}

    @property
    def namespace(self) -> str:
        """Return the namespace: leases in different ones have nothing to do with each other."""
        name = self.options.get("namespace", "default")
        if not 1 <= len(name) <= 64 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
            raise ConfigError("a namespace has 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        return name

    @staticmethod
    def quote(text: str) -> str:
        """Escape a path or a value for a URL."""
        from urllib.parse import quote  # noqa: PLC0415 - as above

        return quote(text, safe="/")


def _from_file(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(65536).rstrip("\r\n")


def _from_environment(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise KeyError("there is no such environment variable")
    return found
