"""Exit codes. ``lessor run`` ends with COMMAND's own code, so these can't be told from a COMMAND that uses them too."""

from __future__ import annotations

from typing import Final

NOTHING: Final = 1
"""``show``: nobody holds it. ``revoke``: nothing was ended or opened. ``sim``: an invariant was broken."""
USAGE: Final = 64
UNAVAILABLE: Final = 69
"""The store can't be reached, or didn't answer in time."""
INTERNAL: Final = 70
SYSTEM: Final = 71
"""The system has no process or no descriptor left for COMMAND."""
DISK: Final = 74
"""``node``: its data folder can't be read or written; `DiskError` says so."""
OUTPUT: Final = 74
"""The output can\'t be written, as on a full disk."""
NOT_ACQUIRED: Final = 75
CONFIG: Final = 78
LOST: Final = 79
"""The lease was lost, and COMMAND was stopped because of it."""
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
SIGNAL: Final = 128
"""Plus the signal's number."""

RUN_EPILOG: Final = """\
exit code:
  COMMAND's own, or 128+n when signal n ended it; else
  64  the command line can't be understood
  69  the store can't be reached or doesn't answer
  70  something went wrong inside lessor
  71  the system can't start another process
  75  the lease was not acquired within --wait
  78  a setting or the store's URL can't work
  79  the lease was lost, and COMMAND was stopped because of it
  126 COMMAND can't be executed          127 COMMAND is not found

When the lease is lost, everything that descends from COMMAND is ended. When COMMAND ends, what it left behind is ended
too (but see --leave-daemons), and then the lease is released. Ctrl-Z also stops the renewals: continue before the
lease runs out, or COMMAND is ended. If lessor itself is killed, COMMAND is ended at once; --on-lost warn doesn't change
that. Work that other processes do for COMMAND goes on: guard what it writes with LESSOR_TOKEN.
"""
