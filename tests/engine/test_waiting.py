"""When the host waits for the device: once a round, after target and drafter have their work."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import final

import pytest
import torch

from benchmarks.device_reads import DeviceReads
from forerun.distributions import SamplingParams
from forerun.engine import generate_batch
from forerun.models import TransformersTarget, tiny_target
from forerun.models.clock import Clock, CudaClock
from tests.support.accelerator import compute_as_on_an_accelerator
from tests.support.networks import CONFIGS, tiny_drafter

KINDS = [kind for kind in CONFIGS if kind in {"dspark", "eagle3", "dflash2", "medusa"}]


@final
class Watching(Clock):
    """The host's clock; notes how much has been read at each mark and each wait."""

    def __init__(self, reads: DeviceReads) -> None:
        """`reads` counts."""
        self._reads = reads
        self.marks: list[int] = []
        self.waits: list[tuple[int, ...]] = []

    def mark(self) -> float:
        """Now."""
        self.marks.append(self._reads.count)
        return time.perf_counter()

    def wait(self) -> None:
        """What had been read at every mark of this round, and now."""
        self.waits.append((*self.marks, self._reads.count))
        self.marks.clear()

    def seconds(self, first: float, last: float) -> float:
        """The difference."""
        return last - first


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=0.0)], ids=["drawn", "greedy"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_read_before_the_target_has_its_work(
    kind: str, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches drafts fetched to build the target's block, which leaves the device idle in every round."""
    compute_as_on_an_accelerator(monkeypatch)
    target = tiny_target(vocab_size=40)
    reads = DeviceReads()
    clock = Watching(reads)
    monkeypatch.setattr(TransformersTarget, "clock", clock)
    with reads:
        batch = generate_batch(
            target, [[3, 1, 4], [1, 5, 9, 2]], drafter=tiny_drafter(target, kind=kind), horizon=3, sampling=sampling,
            max_new_tokens=8,
        )  # fmt: skip
        assert batch.totals.drafted > 0
    assert len(clock.waits) >= 2
    for counts in clock.waits:
        assert len(counts) >= 5 and len(set(counts)) == 1, counts
    assert reads.count > clock.waits[0][0]  # the mode does see what is read after the pass


def test_a_cuda_clock_answers_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events give milliseconds. Catches a cost model that is wrong by a factor of a thousand on a GPU."""
    log: list[str] = []

    @final
    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            log.append("record")

        def elapsed_time(self, other: Event) -> float:
            return 250.0

    stream = SimpleNamespace(synchronize=lambda: log.append("wait"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    clock = CudaClock(torch.device("cuda"))
    first, last = clock.mark(), clock.mark()
    clock.wait()
    assert (log, clock.seconds(first, last)) == (["record", "record", "wait"], 0.25)
