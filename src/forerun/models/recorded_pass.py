"""Passes of a fixed shape that are recorded once and then replayed, without Python between their kernels.

On a GPU a narrow pass takes less time than launching its kernels one by one. A recording repeats the same operations on
the same memory, so everything that changes from pass to pass (tokens, positions, slots, who sees whom) lies in tensors
that stay where they are, and every pass reads all slots of the cache. How a recording is made is the caller's choice:
:func:`cuda_graph` on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.models.batch_cache import Window
from forerun.models.rectangle import Rectangle


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PassOutputs:
    """What the model says about a rectangle of tokens.

    Attributes:
        logits: of all tokens, or as ``Rectangle.wanted`` asked for them.
        features: outputs of the captured layers.
    """

    logits: Float[Tensor, "*places vocab"]
    features: Float[Tensor, "rows width layers hidden"]


Recorder = Callable[[Callable[[], PassOutputs]], Callable[[], PassOutputs]]
"""Takes a pass that reads and writes fixed tensors; returns what repeats it."""


def cuda_graph(run: Callable[[], PassOutputs]) -> Callable[[], PassOutputs]:
    """Record a pass as a CUDA graph; the tensors of its outputs are overwritten by each replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries allocate their workspaces on first use, which a recording must not do
        run()
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()

    def replay() -> PassOutputs:
        graph.replay()
        return outputs

    return replay


@final
@dataclass(frozen=True, slots=True)
class _Recording:
    static: Rectangle
    replay: Callable[[], PassOutputs]


@final
class RecordedPasses:
    """The recordings of one batch, by shape.

    Args:
        run: computes a pass, from a rectangle and the captured layers.
        recorder: makes a recording.
    """

    def __init__(self, run: Callable[[Rectangle, tuple[int, ...]], PassOutputs], recorder: Recorder) -> None:
        self._run = run
        self._recorder = recorder
        self._cache_shape = (0, 0)
        self._recordings: dict[tuple[object, ...], _Recording] = {}

    def __call__(self, rectangle: Rectangle, captured: tuple[int, ...], *, cache_shape: tuple[int, int]) -> PassOutputs:
        """Replay the pass of this shape, after recording it if it is the first; the outputs are the caller's own."""
        if cache_shape != self._cache_shape:  # the buffers have moved
            self._recordings.clear()
            self._cache_shape = cache_shape
        key = (*rectangle.token_ids.shape, rectangle.ancestors is None, rectangle.extra_ids, captured)
        if key not in self._recordings:
            static = _copy(rectangle)
            self._recordings[key] = _Recording(static, self._recorder(lambda: self._run(static, captured)))
        recording = self._recordings[key]
        for source, destination in zip(_changing(rectangle), _changing(recording.static), strict=True):
            destination.copy_(source)
        outputs = recording.replay()
        return PassOutputs(logits=outputs.logits.clone(), features=outputs.features.clone())


def _changing(rectangle: Rectangle) -> list[Tensor]:
    tensors = (rectangle.token_ids, rectangle.positions, rectangle.slots, rectangle.ancestors)
    return [tensor for tensor in tensors if tensor is not None]


def _copy(rectangle: Rectangle) -> Rectangle:
    """The same in memory of its own; a recording computes all tokens, padding too."""
    assert rectangle.slots is not None, "a recorded pass has a slot for every token"
    rows, width = rectangle.token_ids.shape
    slots = rectangle.slots.clone()
    return replace(
        rectangle,
        token_ids=rectangle.token_ids.clone(),
        positions=rectangle.positions.clone(),
        widths=(width,) * rows,
        window=Window(rectangle.window.rows, slots, rectangle.window.stop),
        slots=slots,
        ancestors=None if rectangle.ancestors is None else rectangle.ancestors.clone(),
    )
