"""A client that holds all it has under a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.sim.client import Client

if TYPE_CHECKING:
    from lessor.core.holder import Ending
    from lessor.core.ops import Loss
    from lessor.core.paxos.steps import Ended, Kept, Step, Won
    from lessor.sim.tenancy import Tenancy


class SessionClient(Client):
    """Holds what it holds under a session of its own, whose renewal carries all of it along, as the runtime does."""

    def begin(self) -> None:
        """Start, and get the session first."""
        self.session: Tenancy | None = None
        self.ended = 0
        """What the last renewal of the session that counted has said about this."""
        self.asking: dict[str, Tenancy] = {}
        """Those that are asked for, each by itself, before the session's renewal counts."""
        self.renewed: Kept | None = None
        """That renewal."""
        super().begin()

    def next_turn(self) -> None:
        """Want the session, and then what stands under it."""
        if self.session is None:
            if f"s/{self.name}" not in self.tenancies:
                self.turns += 1
                self.want(f"s/{self.name}")
            return
        above = self.session
        for resource in self.world.plan.resources:
            if resource not in self.tenancies and self.rng.random() < 0.7:
                self.turns += 1
                self.want(resource, above)
            held = self.tenancies.get(resource)
            if held is not None and held.belief is not None and self.whims.puts_below():
                above = held
        self.rest()

    def on_won(self, tenancy: Tenancy, won: Won) -> None:
        """Believe in what rides for as long as in the session; with the session, begin to want something."""
        if tenancy.parent is None:
            super().on_won(tenancy, won)
            self.session, self.ended, self.asking = tenancy, 0, {}
            self.next_turn()
        else:
            assert tenancy.parent.belief is not None
            super().on_won(tenancy, won._replace(deadline_ns=tenancy.parent.belief.deadline_ns))
            self.schedule.remove(tenancy.resource)  # the session's renewal is its renewal

    def let_go(self, tenancy: Tenancy, reason: Loss) -> None:
        """Stop acting: with the session, on all that stands under it."""
        if tenancy is self.session:
            self.session = None
        for child in [one for one in self.tenancies.values() if one.parent is tenancy]:
            self.give_back(child, reason)
        super().let_go(tenancy, reason)
        self.asked_for(tenancy)

    def renewal(self, tenancy: Tenancy) -> list[Step]:
        """Renew the session, always for the same time."""
        return tenancy.proposer.renew(self.timing.ttl_ns, self.now)

    def on_kept(self, tenancy: Tenancy, kept: Kept) -> None:
        """Go on with all that rides on the session; where it is not certain of all, ask for each first."""
        if tenancy.parent is not None:
            if tenancy.belief is not None and tenancy.belief.ending is not None:
                super().on_kept(tenancy, kept)
                self.schedule.remove(tenancy.resource)
            self.asked_for(tenancy)
            return
        riders = self.riders(tenancy)
        if (kept.ended == self.ended and tenancy.is_valid(self.now)) or not riders:
            self.carry_on(tenancy, kept)
            return
        self.renewed = kept
        self.asking = {one.resource: one for one in riders}
        for rider in riders:
            self.do(rider, rider.proposer.renew(0, self.now))

    def riders(self, session: Tenancy) -> list[Tenancy]:
        """Return what it holds under the session, at any depth, but for what is to end."""
        below = [one for one in self.tenancies.values() if one is not session and one.root is session]
        return [one for one in below if one.belief is not None and one.belief.ending is None]

    def on_ended(self, tenancy: Tenancy, ended: Ended) -> None:
        """Stop, or go on for a while: after the last of those that are asked for, the renewal counts."""
        super().on_ended(tenancy, ended)
        self.asked_for(tenancy)

    def is_to_end(self, tenancy: Tenancy, ending: Ending) -> None:
        """Believe that it ends then: with the session, all that rides on it."""
        super().is_to_end(tenancy, ending)
        if tenancy is self.session:
            for rider in self.riders(tenancy):
                super().is_to_end(rider, ending)

    def asked_for(self, tenancy: Tenancy) -> None:
        """Hear about one of those that are asked for; after the last one, the renewal counts."""
        if self.asking.get(tenancy.resource) is tenancy:
            del self.asking[tenancy.resource]
            if not self.asking and self.session is not None and self.renewed is not None:
                self.carry_on(self.session, self.renewed)

    def carry_on(self, session: Tenancy, kept: Kept) -> None:
        """Believe for longer in the session, and in all that rides on it."""
        self.ended = kept.ended
        super().on_kept(session, kept)
        for rider in self.riders(session):
            rider.confirmed(kept.deadline_ns, self.now)
            self.world.checks.on_carried(self, rider)
            self.after(kept.deadline_ns - self.now, self.on_deadline, rider)

    def on_no_answer(self, tenancy: Tenancy) -> None:
        """Without an answer about one that was asked for, the session's renewal doesn't count."""
        if tenancy.parent is not None and tenancy.belief is not None:
            if self.asking.pop(tenancy.resource, None) is tenancy:
                self.asking = {}
                if self.session is not None:
                    super().on_no_answer(self.session)
            return
        super().on_no_answer(tenancy)
