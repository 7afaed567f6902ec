"""When work is done, on the device that does it: a host's clock sees only how long it took to hand the work over."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, final

import torch


class Clock(ABC):
    """Takes times without waiting; they can be read after one wait."""

    @abstractmethod
    def mark(self) -> Any:
        """The moment at which all work handed over so far is done; only for `seconds`."""

    @abstractmethod
    def wait(self) -> None:
        """Let the host wait until all work handed over so far is done."""

    @abstractmethod
    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks of this clock; there must have been a `wait` after them."""


@final
class HostClock(Clock):
    """For devices whose work is done when the call returns."""

    def mark(self) -> float:
        """Now."""
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing to wait for."""

    def seconds(self, first: float, last: float) -> float:
        """The difference."""
        return last - first


@final
class CudaClock(Clock):
    """Events on the current stream of a CUDA device.

    Args:
        device: which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """An event behind all work handed over so far."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def wait(self) -> None:
        """For everything on the current stream."""
        torch.cuda.current_stream(self._device).synchronize()

    def seconds(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        """As the device measured."""
        return float(first.elapsed_time(last)) / 1e3


def clock_of(device: torch.device) -> Clock:
    """The clock for work on this device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
