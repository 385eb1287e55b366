"""For all tests: the same examples every time, and a Ctrl-C that is one.

Property tests draw the same examples in every run, so that a commit that passed keeps passing; set
``HYPOTHESIS_PROFILE=explore`` to draw fresh ones. A shell starts background jobs with SIGINT ignored, and children
inherit that: tests that interrupt a process would then test nothing.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
