"""Peak memory of a piece of work, from torch's own record of allocations: the same number on every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from torch.profiler import ProfilerActivity, profile


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """Bytes over what was allocated before.

    Attributes:
        peak: largest sum of allocations alive at one time.
        left: alive at the end, the result included.
    """

    peak: int
    left: int

    @property
    def extra(self) -> int:
        """Memory that the work needed beside what it leaves behind."""
        return self.peak - self.left


def allocations(work: Callable[[], Any]) -> Allocations:
    """Run `work` once and follow every allocation and release of tensor storage on the CPU.

    Scratch memory inside matrix libraries is theirs and is not seen.

    Args:
        work: what it returns is kept alive until the last record.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        result = work()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    del result
    current = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        peak = max(peak, current)
    return Allocations(peak=peak, left=current)
