"""A world in virtual time, driven by one seed, that runs the real protocol: acceptors, proposers, holders, schedules.

It proves nothing about sockets, disks or threads: those are played here. What decides is the code that runs in
production. ``world`` holds it together, ``checks`` watches, ``seeds`` goes through many. For code of your own, with
the real `AsyncClient`, there are ``run``, ``explore`` and ``check``: see ``program``.
"""

from lessor.sim.checks import Violation
from lessor.sim.program.exploring import Exploration, Run, check, explore, run
from lessor.sim.program.faults import NONE, Faults, Mishap, Trouble
from lessor.sim.program.process import SimProcess
from lessor.sim.program.register import Register
from lessor.sim.program.world import ProgramWorld

__all__ = [
    "NONE",
    "Exploration",
    "Faults",
    "Mishap",
    "ProgramWorld",
    "Register",
    "Run",
    "SimProcess",
    "Trouble",
    "Violation",
    "check",
    "explore",
    "run",
]
