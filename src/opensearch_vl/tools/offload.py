"""Computing without blocking the event loop: one bounded pool of threads for pixels, decoding and file access."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def offload(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function` in a thread of the pool and wait for it.

    A cancelled or timed-out wait leaves the thread to finish its work, so everything that runs here is bounded by
    limits on its input (`MAX_PIXELS`, `MAX_OUTPUT_PX`).
    """
    return await asyncio.get_running_loop().run_in_executor(_pool(), lambda: function(*args, **kwargs))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) + 1), thread_name_prefix="osvl-tools")
