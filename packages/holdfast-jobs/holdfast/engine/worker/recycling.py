"""When a worker asks to be restarted: after a number of jobs, or above an amount of memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

LOOK_SECONDS = 1.0
# Threads for each processor if the concurrency is "auto": most handlers wait for the network.
THREADS_PER_CPU = 5
MOST_THREADS = 64


@dataclass(slots=True)
class Recycling:
    """The limits of one worker process. None: no limit."""

    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    _looked_at: float = field(default=float("-inf"), init=False)

    def reason(self, jobs: int) -> str | None:
        """Why the worker should end after *jobs* outcomes; None if it should not."""
        if self.max_jobs is not None and jobs >= self.max_jobs:
            return f"{jobs} jobs"
        if self.max_memory_bytes is not None and time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()
            used = memory_bytes()
            if used > self.max_memory_bytes:
                return f"{used // 2**20} MB of memory"
        return None


def memory_bytes() -> int:
    """The resident memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        # Without /proc: the highest value so far, in bytes on macOS.
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def auto_concurrency() -> int:
    """A number of threads for the processors that this process may use."""
    return max(4, min(MOST_THREADS, round(usable_cpus() * THREADS_PER_CPU)))


def usable_cpus() -> float:
    """The processors of this process, also under a quota of its container."""
    try:
        count = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        count = float(os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return count if quota == "max" else min(count, int(quota) / int(period))
    except (OSError, ValueError):
        return count
