"""What happened in many worlds, counted."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(slots=True)
class Tally:
    """Counts; two of them can be added."""

    worlds: int = 0
    acquisitions: int = 0
    renewals: int = 0
    carried: int = 0
    returned: int = 0
    revoked: int = 0
    forced: int = 0
    ending: int = 0
    insisted: int = 0
    repeated: int = 0
    abandoned: int = 0
    handovers: int = 0
    writes: int = 0
    fenced: int = 0
    crashes: int = 0
    shutdowns: int = 0
    lost_disks: int = 0
    deaths: int = 0
    stops: int = 0
    partitions: int = 0
    deaf: int = 0
    drifted: int = 0
    jumps: int = 0
    freezes: int = 0
    ahead: int = 0
    messages: int = 0
    lost: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def lines(self) -> list[str]:
        """Return it for people to read."""
        told = (
            ("worlds", self.worlds),
            ("leases acquired", self.acquisitions),
            ("renewals", self.renewals),
            ("renewals by a session", self.carried),
            ("back within a grace", self.returned),
            ("ended by somebody else", self.revoked),
            ("  by force, on a node", self.forced),
            ("  with time left", self.ending),
            ("  renewed by hand", self.insisted),
            ("released again", self.repeated),
            ("abandoned at once", self.abandoned),
            ("handovers", self.handovers),
            ("writes admitted", self.writes),
            ("stale writes refused", self.fenced),
            ("node crashes", self.crashes),
            ("  with a lost disk", self.lost_disks),
            ("clean restarts", self.shutdowns),
            ("client deaths", self.deaths),
            ("processes stopped", self.stops),
            ("partitions", self.partitions),
            ("  in one direction only", self.deaf),
            ("drifted clocks", self.drifted),
            ("clock jumps", self.jumps),
            ("frozen with their clock", self.freezes),
            ("wall clocks ahead", self.ahead),
            ("messages", self.messages),
            ("messages lost", self.lost),
        )
        return [f"{name:23} {number:>14,}" for name, number in told]
