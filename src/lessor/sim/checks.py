"""What must be true after each step, whatever went wrong.

===  =================================================================================================================
I1   at most one holder of a resource believes itself valid, in true time
I2   tokens strictly increase in the order of activation; and nobody is renewed once a larger token was granted
I3   each holder has a majority whose exclusion outlasts it, and begins to hold before its deadline
I4   floors never go back; with a new disk, not below a token that was granted before
I5   silent acceptors send nothing, and are silent for as long as what they forgot would have kept others out
I6   a record goes only by expiry, exact release, force or crash, is never shortened, and does not come back: one attempt
     to acquire is taken in once, and not after it was withdrawn, given back or abandoned
I7   a session's renewal extends a child only with a majority that holds the child
I8   a guard that goes by tokens never has to decide between two owners under one token
I9   what is handed over comes from the last holder, and reaches nobody but whom it was meant for
I10  with a lock delay, nobody gets a resource so soon after a holder that didn't stop by itself
L1   once the faults stop, a free resource is acquired in bounded time; and nobody floods the network
===  =================================================================================================================

I1, I3, I7, I9, I10, the first half of I2 and the second half of I4 rest on clocks that keep their bound, so they are not
asked of worlds in which clocks jump: there, two grants may be activated in the wrong order, but never under one token. All
others are asked of all worlds. A lease that a node ended by force is left out of I1, I2, I3, I7 and I10: its holder may
still believe in it, and only its token protects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lessor.core.paxos.messages import Accept, Ack, Drop, Dropped, End, Extend, Prepare, Promised, Refused, Withdraw
from lessor.core.paxos.slot import Slot

if TYPE_CHECKING:
    from lessor.core.paxos.acceptor import Answer
    from lessor.core.paxos.messages import Request
    from lessor.sim.client import Client
    from lessor.sim.node import Node
    from lessor.sim.tenancy import Tenancy
    from lessor.sim.world import World


class Violation(AssertionError):  # noqa: N818 - it is no error of the program that meets it
    """Something that must never happen did."""

    def __init__(self, invariant: str, what: str, at_ns: int) -> None:
        super().__init__(f"{invariant} at {at_ns / 1e9:.6f} s: {what}")
        self.invariant = invariant
        self.at_ns = at_ns


class Kept(NamedTuple):
    """A live record before a step."""

    resource: str
    owner: str
    expiry_ns: int


class Delay(NamedTuple):
    """How long a lock delay closes a resource."""

    until_ns: float
    """In true time: its holder acts for so long, and then there is the delay."""
    owners: tuple[str, ...]
    """The holder's lease, and those that it stands under. The release of one of them ends the delay."""


class Checks:
    """Watches one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clocks_are_good = not world.plan.clock_failures
        self.majority = len(world.plan.nodes) // 2 + 1
        self.tokens: dict[str, dict[int, int]] = {}
        self.told: dict[tuple[str, str], int] = {}
        """By node and resource: the highest number that the node has vouched for."""
        self.given_back: set[tuple[str, str]] = set()
        """Nodes, and the owners whose release they have confirmed."""
        self.abandoned: set[tuple[str, str]] = set()
        """Likewise, where the release didn't say under which number: a node that begins again has forgotten it."""
        self.spent: dict[tuple[str, str], int] = {}
        """By node and owner: up to this number, the node has taken its acquisition in, or has heard of its withdrawal."""
        self.forced: set[str] = set()
        """Owners whose lease a node has ended by force."""
        self.relied_on: dict[str, float] = {}
        """By node: until when what it said keeps others out, in true time."""
        self.silent_until: dict[str, float] = {}
        self.not_before: dict[str, Delay] = {}
        """By resource: until when it is closed after its last holder."""
        self.registers: dict[str, tuple[int, str]] = {}
        self.first_calm: dict[str, int] = {}
        """When a resource was first had after the faults had stopped."""
        self.all_had = False

    def fail(self, invariant: str, what: str) -> None:
        """Say what must not be."""
        raise Violation(invariant, what, self.world.now)

    # --- holders --------------------------------------------------------------------------------------------------

    def on_won(self, client: Client, tenancy: Tenancy, state: str = "") -> None:
        """Somebody begins to hold, with what was handed over to it."""
        world, resource, token = self.world, tenancy.resource, tenancy.proposer.token
        world.tally.acquisitions += 1
        world.note(client.name, "holds", resource, token)
        granted = self.tokens.setdefault(resource, {})
        excluding = self.clocks_are_good and not self.is_forced(tenancy)
        if token in granted or (excluding and granted and token < max(granted)):
            self.fail("I2", f"{client.name} got {resource} with token {token} after {max(granted)}")
        if tenancy.parent is None and not tenancy.is_valid(client.now):
            self.fail("I3", f"{client.name} got {resource} after the deadline of its attempt")
        if state:
            world.tally.handovers += 1
            if self.clocks_are_good and state != f"{max(granted)}/{client.name}":
                self.fail("I9", f"{client.name} got {resource} after {max(granted)} with what was left as {state}")
        delay = self.not_before.pop(resource, None) if excluding else None
        if delay is not None and world.now < delay.until_ns:
            self.fail("I10", f"{client.name} got {resource} within the lock delay of {max(granted)}")
        granted[token] = world.now
        if world.calm:
            self.first_calm.setdefault(resource, world.now)
            self.all_had = all(name in self.first_calm for name in world.plan.resources)
        self.holding(client, tenancy)

    def on_kept(self, client: Client, tenancy: Tenancy) -> None:
        """Somebody's lease was renewed."""
        self.world.tally.renewals += 1
        self.world.note(client.name, "renewed", tenancy.resource, tenancy.proposer.token)
        self.newest(client, tenancy)
        self.holding(client, tenancy)

    def on_carried(self, client: Client, tenancy: Tenancy) -> None:
        """Somebody's lease goes on, because its session does."""
        self.world.tally.carried += 1
        self.world.note(client.name, "carried along", tenancy.resource, tenancy.proposer.token)
        self.newest(client, tenancy)
        self.holding(client, tenancy, "I7")

    def newest(self, client: Client, tenancy: Tenancy) -> None:
        """See that whoever is renewed has the largest token.

        Where a clock fails, another may get the lease between a majority's answers and the moment at which the holder
        hears the last of them; but not before the renewal was sent.
        """
        root = tenancy.root
        attempt = root.proposer.attempt
        assert attempt is not None
        by_then = self.world.now if self.clocks_are_good else root.sent_ns[attempt.number]
        newest = max([token for token, at in self.tokens[tenancy.resource].items() if at <= by_then], default=0)
        if tenancy.is_valid(client.now) and tenancy.proposer.token < newest and not self.is_forced(tenancy):
            self.fail("I2", f"{client.name} renewed {tenancy.resource} after somebody got token {newest}")

    def holding(self, client: Client, tenancy: Tenancy, invariant: str = "I3") -> None:
        """See that a holder is the only one, and is protected for as long as it believes."""
        if not self.clocks_are_good or not tenancy.is_valid(client.now) or self.is_forced(tenancy):
            return
        resource = tenancy.resource
        for other in self.world.clients:
            rival = other.tenancies.get(resource)
            if rival is None or rival is tenancy or self.is_forced(rival):
                continue
            if rival.is_valid(other.now):
                self.fail("I1", f"{client.name} and {other.name} both hold {resource}")
        assert tenancy.belief is not None
        until = client.clock.when(tenancy.belief.deadline_ns)
        keeping = [node.name for node in self.world.nodes if self.keeps(node, tenancy, until)]
        if len(keeping) < self.majority:
            names = ", ".join(keeping) or "nobody"
            self.fail(invariant, f"{client.name} holds {resource} until {until / 1e9:.6f} s, kept by {names}")
        if not self.world.plan.whims:  # who asks to, recovers what it had
            plan = self.world.plan
            self.not_before[resource] = Delay(until + plan.lock_delay_ns / (1 + plan.drift), _owners(tenancy))

    def is_forced(self, tenancy: Tenancy) -> bool:
        """Whether a node has ended it by force, or what it stands under."""
        return bool(self.forced) and not self.forced.isdisjoint(_owners(tenancy))

    def on_ended(self, owner: str) -> None:
        """Expect no lock delay after a lease that a node was told to end, nor after what stands under that lease."""
        for resource in [name for name, delay in self.not_before.items() if owner in delay.owners]:
            del self.not_before[resource]

    def keeps(self, node: Node, tenancy: Tenancy, until_ns: int) -> bool:
        """Whether this node lets nobody else have it before that true time."""
        if not node.up and not node.clean:
            return True  # it will be silent when it comes back
        acceptor = node.acceptor
        if node.up and (not acceptor.seeded or node.clock.when(acceptor.silent_until_ns) >= until_ns):
            return True
        snapshot = node.disk.snapshot if node.clean else None
        if snapshot is not None and self.world.now + snapshot.silence_left_ns / node.clock.rate + 2 >= until_ns:
            return True  # it will be silent for what was left of its silence
        slot = acceptor.slots.get(tenancy.resource)
        if slot is None or slot.lease_id != tenancy.owner:
            return False
        if not node.up or not node.ready:
            return True  # shut down cleanly with the record, which lasts for what was left when it comes back
        # One nanosecond is lost where a clock's reading is rounded.
        return node.clock.when(acceptor.expiry(slot)) + 2 >= until_ns

    def all_holding(self) -> None:
        """See to all holders, after something happened to a node."""
        for client in self.world.clients:
            for tenancy in client.tenancies.values():
                self.holding(client, tenancy)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def before(self, node: Node, request: Request) -> list[Kept]:
        """Return the live records that a request is about."""
        acceptor, now = node.acceptor, node.now
        kept = []
        for item in request.items:
            slot = acceptor.slots.get(_resource(item))
            if slot is not None and slot.lease_id is not None:
                expiry = acceptor.expiry(slot)
                if now < expiry:
                    kept.append(Kept(slot.resource, slot.lease_id, expiry))
        return kept

    def after(self, node: Node, request: Request, answer: Answer, before: list[Kept]) -> None:
        """See what became of them, and of what was promised."""
        acceptor = node.acceptor
        if answer.reply is None:
            return
        for resource, owner, expiry in before:
            slot = acceptor.slots.get(resource) or Slot(resource)
            if slot.lease_id == owner and acceptor.expiry(slot) >= expiry:
                continue
            by_force = any(_forces(item, resource) for item in request.items)
            if by_force:
                self.world.tally.forced += 1
                self.forced.add(owner)
            elif not any(_ends(item, resource, owner) for item in request.items):
                self.fail("I6", f"{node.name} lost or shortened the record of {owner} by {request.items}")
            self.on_ended(owner)
            self.all_holding()
        for item, verdict in zip(request.items, answer.reply.verdicts, strict=True):
            key = (node.name, _resource(item))
            slot = acceptor.slots.get(key[1]) or Slot(key[1])
            if acceptor.floor_of(slot) < self.told.get(key, 0):
                self.fail("I4", f"the floor of {node.name} for {key[1]} went back below {self.told[key]}")
            if isinstance(verdict, Dropped) and _forces(item, key[1]):
                self.not_before.pop(key[1], None)  # also where nothing but the delay was left
            if isinstance(item, Accept) and isinstance(verdict, Ack) and not verdict.extended:
                self.taken_in(node, item)

    def taken_in(self, node: Node, item: Accept) -> None:
        """See that a lease which a node takes in is not over, and is not taken in a second time by the same attempt."""
        key = (node.name, item.op.lease_id)
        if key in self.given_back or key in self.abandoned:
            self.fail("I6", f"{node.name} took in {key[1]}, which had given it back")
        if not item.token and item.n <= self.spent.get(key, 0):
            self.fail("I6", f"{node.name} took in {key[1]} under {item.n} again, or after its withdrawal")

    def on_send(self, node: Node, message: object) -> None:
        """See that a node says nothing while it must be silent."""
        if not self.clocks_are_good:
            return  # one that was set back may think itself in a silence that was over when it decided to answer
        silent_until = self.silent_until.get(node.name, 0)
        if self.world.now < silent_until:
            self.fail("I5", f"{node.name} spoke before {silent_until / 1e9:.6f} s: {message}")
        if node.acceptor.is_silent(node.now):
            self.fail("I5", f"{node.name} spoke in its silence: {message}")

    def vouched(self, node: Node, request: Request, answer: Answer) -> None:
        """Take note of what a node has told: from here on it is relied upon, and its floor is not below it."""
        assert answer.reply is not None
        for item, verdict in zip(request.items, answer.reply.verdicts, strict=True):
            if isinstance(verdict, Ack | Promised):
                assert isinstance(item, Accept | Extend | Prepare)
                key = (node.name, _resource(item))
                self.told[key] = max(item.n, self.told.get(key, 0))
            if isinstance(verdict, Ack):
                closed_for = verdict.ttl_ns + self.world.plan.lock_delay_ns
                until = self.world.now + closed_for / node.clock.rate
                self.relied_on[node.name] = max(until, self.relied_on.get(node.name, 0))
                if isinstance(item, Accept) and not item.token:
                    self.spend(node, item.op.lease_id, item.n)
            elif isinstance(item, Drop):
                (self.given_back if item.n else self.abandoned).add((node.name, item.op.lease_id))
            elif isinstance(item, Withdraw) and not isinstance(verdict, Refused):
                self.spend(node, item.lease_id, item.n)

    def spend(self, node: Node, owner: str, n: int) -> None:
        """Expect that this node takes in no acquisition of this owner under that number any more."""
        key = (node.name, owner)
        self.spent[key] = max(n, self.spent.get(key, 0))

    def on_start(self, node: Node) -> None:
        """See that nobody lost its protection when a node came back."""
        if not node.clean:
            self.silent_until[node.name] = self.relied_on.get(node.name, 0)
            self.world.at(self.world.now, self.silent_enough, node)
        self.abandoned = {(name, owner) for name, owner in self.abandoned if name != node.name}
        self.all_holding()

    def silent_enough(self, node: Node) -> None:
        """See that the silence after a crash is as long as it has to be; a lost disk's may grow when the others answer."""
        until = max(self.world.now, node.clock.when(node.acceptor.silent_until_ns))
        if self.clocks_are_good and node.acceptor.seeded and until < self.silent_until[node.name]:
            self.fail("I5", f"{node.name} is silent until {until / 1e9:.6f} s: too short, by what it said before")

    def on_lost_disk(self, node: Node) -> None:
        """Expect of the successor's floor only what the others know."""
        for key in [key for key in self.told if key[0] == node.name]:
            del self.told[key]
        self.given_back = {(name, owner) for name, owner in self.given_back if name != node.name}
        self.spent = {(name, owner): n for (name, owner), n in self.spent.items() if name != node.name}

    def on_seeded(self, node: Node) -> None:
        """See that a node which lost its disk has a floor above all that was granted before it asked the others."""
        asked_ns = node.clock.when(node.acceptor.silent_until_ns)
        granted = [token for tokens in self.tokens.values() for token, at in tokens.items() if at < asked_ns]
        if self.clocks_are_good and node.acceptor.floor < max(granted, default=0):
            self.fail("I4", f"{node.name} begins with the floor {node.acceptor.floor}, below {max(granted)}")
        self.all_holding()

    # --- what is written, and the end -----------------------------------------------------------------------------

    def on_write(self, resource: str, token: int, owner: str) -> None:
        """Let a write in that has the newest token, as a guard does."""
        highest, writer = self.registers.get(resource, (0, ""))
        if token < highest:
            self.world.tally.fenced += 1
            return
        if token == highest and owner != writer:
            self.fail("I8", f"{owner} and {writer} wrote {resource} under token {token}")
        self.registers[resource] = (token, owner)
        self.world.tally.writes += 1

    def at_the_end(self) -> None:
        """See that everything free was had soon after the faults stopped."""
        for resource in self.world.plan.resources:
            if resource not in self.first_calm:
                self.fail("L1", f"nobody got {resource} within {self.world.plan.calm_ns / 1e9:.1f} s of calm")


def _resource(item: object) -> str:
    op = getattr(item, "op", item)
    return getattr(op, "resource", "")


def _owners(tenancy: Tenancy) -> tuple[str, ...]:
    """Return its lease id, and those of the leases that it stands under."""
    return (tenancy.owner,) if tenancy.parent is None else (tenancy.owner, *_owners(tenancy.parent))


def _forces(item: object, resource: str) -> bool:
    """Whether the item ends whatever lease the resource has, by force."""
    return isinstance(item, End) and item.op.force and item.op.resource == resource


def _ends(item: object, resource: str, owner: str) -> bool:
    """Whether the item is the exact release of that owner's record, or of the session that it stands under."""
    if isinstance(item, Withdraw):
        return (item.resource, item.lease_id) == (resource, owner)
    return isinstance(item, Drop) and (item.op.resource, item.op.lease_id) == (resource, owner)
