"""For all tests: Ctrl-C means Ctrl-C, also when the runner was started in the background.

A shell starts background jobs with SIGINT ignored, and children inherit that: tests that interrupt a process would then
test nothing.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
