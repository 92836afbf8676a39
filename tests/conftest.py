"""For all tests: signals as a terminal would have them.

Whoever starts the tests in the background of a script starts them with SIGINT and SIGQUIT ignored, and every process
that a test starts would inherit that.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
