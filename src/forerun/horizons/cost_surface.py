"""What rounds cost by draft length, verification width, context length and batch size.

It knows sizes and durations; what drafting gains is not its business. Costs never affect the output law, only speed.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.context import RoundFeedback
from forerun.horizons.cost_cells import CostCells
from forerun.horizons.cost_model import CostModel
from forerun.horizons.isotonic import isotonic
from forerun.horizons.least_squares import RecursiveLeastSquares
from forerun.horizons.plain import check_keys, read_float, read_int, read_list

FORMAT = "forerun-cost-surface/1"
REST_RATE = 0.05


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PassTime:
    """Timed verification passes of one shape.

    Attributes:
        width: tokens in a pass, of all requests.
        context_length: of each request, in tokens.
        batch_size: requests.
        seconds: of each pass.
    """

    width: int
    context_length: int
    batch_size: int
    seconds: tuple[float, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTime:
    """Timed drafts of one length.

    Attributes:
        tokens: drafted.
        seconds: of each draft of one request.
    """

    tokens: int
    seconds: tuple[float, ...]


@final
class CostSurface(CostModel):
    """C = draft + verify + rest, each part measured for itself.

    Verification has a cell for each (width, batch size, power of two of the context length), drafting one for each
    number of tokens; both as in `CostTable`: running means of log seconds around a common level, an outlier gate, and
    Page-Hinkley, which halves the counts and loosens the regression when the machine has changed for good.

    Reading a curve: cells of the nearest measured context and batch size; a non-decreasing fit along the width,
    weighted with counts; straight lines between measured widths. What no cell says comes from recursive least squares
    on (1, batch, width, context tokens / 1000, width beyond the knee), as a difference to the nearest cell, so that
    measured cells stay as they are. Until the regression has seen 8 passes, widths outside the measured range cost
    infinity: without a table nothing is trimmed.

    Args:
        pad_widths: widths that passes are padded to, rising. A pass costs what the next of them costs: inside a bucket
            there is no marginal cost. Passes beyond the last are not padded, and no line is drawn across it.
        knee: width in tokens from which a pass is bound by arithmetic and no longer by reading weights.

    Raises:
        ForerunError: pad widths that do not rise, or a knee below 1.
    """

    def __init__(self, *, pad_widths: tuple[int, ...] = (), knee: int = 16) -> None:
        if list(pad_widths) != sorted(set(pad_widths)) or min((*pad_widths, knee)) < 1:
            raise ForerunError(f"pad_widths {pad_widths} must rise from 1 on, and the knee {knee} be at least 1")
        self.pad_widths = pad_widths
        self.knee = knee
        self._verify = CostCells()
        self._draft = CostCells()
        self._fit = RecursiveLeastSquares(5)
        self._rest = 0.0
        self._rounds = 0
        self._curves: dict[tuple[int, int, int], np.ndarray] = {}

    @classmethod
    def from_profile(
        cls,
        passes: Iterable[PassTime],
        drafts: Iterable[DraftTime],
        *,
        pad_widths: tuple[int, ...] = (),
        knee: int = 16,
    ) -> CostSurface:
        """A surface from timed passes and drafts, the median of each shape."""
        surface = cls(pad_widths=pad_widths, knee=knee)
        for one in passes:
            key = surface._key(one.width, one.context_length, one.batch_size)
            surface._verify.profile(key, list(one.seconds))
            for seconds in one.seconds:
                surface._fit.observe(surface._features(key), seconds)
        for draft in drafts:
            surface._draft.profile((draft.tokens,), list(draft.seconds))
        return surface

    @property
    def measured(self) -> tuple[int, ...]:
        """Numbers of tokens whose drafting was measured, 0 where any pass was: it needs no drafting."""
        return (*((0,) if self._verify.keys else ()), *(key[0] for key in self._draft.keys))

    @property
    def outliers(self) -> int:
        """Phases dropped as outliers."""
        return self._verify.outliers + self._draft.outliers

    @property
    def drifts(self) -> int:
        """How often the machine seemed to have changed for good."""
        return self._verify.drifts + self._draft.drifts

    def widths_at(self, batch_size: int) -> tuple[int, ...]:
        """Measured widths of passes, at the nearest measured batch size."""
        keys = self._verify.keys
        nearest = min((key[1] for key in keys), key=lambda batch: (abs(batch - batch_size), batch), default=0)
        return tuple(sorted({key[0] for key in keys if key[1] == nearest}))

    @property
    def rest_seconds(self) -> float:
        """Of a request's round besides drafting and the pass."""
        return self._rest

    def seconds(
        self, limit: int, *, context_length: int = 0, batch_size: int = 1, drafted: bool = False
    ) -> tuple[float, ...]:
        """C(0), ..., C(limit); the other requests of a batch are taken to have the same horizon."""
        verify = self.verify_seconds(batch_size * (limit + 1), context_length, batch_size)[batch_size::batch_size]
        draft = self.draft_seconds(limit)
        total = np.add(draft[-1] if drafted else draft, verify) + self._rest
        costs: tuple[float, ...] = tuple(total.tolist())
        return costs

    def draft_seconds(self, limit: int) -> list[float]:
        """Of drafting 0..limit tokens for one request; infinity beyond what was measured."""
        known = [key[0] for key in self._draft.keys]
        points = {0: 0.0}
        fitted = isotonic(
            [self._draft.seconds((tokens,)) for tokens in known], [self._draft.count((tokens,)) for tokens in known]
        )
        points.update(zip(known, fitted, strict=True))
        return _interpolated(points, limit)

    def verify_seconds(self, largest: int, context_length: int, batch_size: int) -> np.ndarray:
        """Of passes of 0..largest tokens (entry 0 is infinity: there is no such pass)."""
        context = context_length.bit_length()
        key = (largest, batch_size, context)
        curve = self._curves.get(key)
        if curve is None:
            curve = self._curves[key] = self._read(largest, batch_size, context)
        return curve * self._verify.level

    def observe_round(self, feedback: RoundFeedback) -> None:
        """Learn from a round's phases.

        Raises:
            ForerunError: the phases were not timed.
        """
        if feedback.verify_seconds is None or feedback.draft_seconds is None or feedback.verify_width is None:
            raise ForerunError("a cost surface learns from the phases of rounds; give draft, verify and width, or use "
                               "a CostTable, which needs whole rounds only")  # fmt: skip
        context = feedback.context
        self.observe_pass(feedback.verify_width, context.context_length, context.batch_size, feedback.verify_seconds)
        self.observe_draft(feedback)
        rest = feedback.seconds - feedback.verify_seconds - feedback.draft_seconds
        self._rounds += 1
        self._rest += max(REST_RATE, 1.0 / self._rounds) * (max(rest, 0.0) - self._rest)

    def observe_draft(self, feedback: RoundFeedback) -> None:
        """Learn from a round's draft alone: of the second and further requests in one pass."""
        if feedback.paid_depth and feedback.draft_seconds:
            self._draft.observe((feedback.paid_depth,), feedback.draft_seconds)

    def observe_pass(self, width: int, context_length: int, batch_size: int, seconds: float) -> None:
        """Take in one timed pass of the target."""
        key = self._key(width, context_length, batch_size)
        self._fit.observe(self._features(key), seconds / self._verify.level)
        if self._verify.observe(key, seconds):
            self._fit.forget()
        self._curves.clear()

    def copy(self) -> CostSurface:
        """An independent surface with the same state."""
        return CostSurface.from_state_dict(self.state_dict())

    def state_dict(self) -> dict[str, object]:
        """The whole surface as plain data that survives JSON."""
        return {
            "format": FORMAT,
            "pad_widths": list(self.pad_widths),
            "knee": self.knee,
            "verify": self._verify.state_dict(),
            "draft": self._draft.state_dict(),
            "fit": self._fit.state_dict(),
            "rest": self._rest,
            "rounds": self._rounds,
        }

    @classmethod
    def from_state_dict(cls, data: object) -> CostSurface:
        """The surface that `state_dict` described."""
        keys = ("format", "pad_widths", "knee", "verify", "draft", "fit", "rest", "rounds")
        state = check_keys(data, keys, "cost surface")
        if state["format"] != FORMAT:
            raise ForerunError(f"cost surface: format is {state['format']!r}, this version reads {FORMAT!r}")
        pads = tuple(read_int(width, "pad_widths") for width in read_list(state["pad_widths"], "pad_widths"))
        surface = cls(pad_widths=pads, knee=read_int(state["knee"], "knee"))
        surface._verify.load_state_dict(state["verify"])
        surface._draft.load_state_dict(state["draft"])
        surface._fit.load_state_dict(state["fit"])
        surface._rest = read_float(state["rest"], "rest")
        surface._rounds = read_int(state["rounds"], "rounds")
        return surface

    def to_json(self) -> str:
        """The surface as a JSON text."""
        return json.dumps(self.state_dict(), indent=1, allow_nan=False)

    def _key(self, width: int, context_length: int, batch_size: int) -> tuple[int, int, int]:
        return self._padded(width), batch_size, context_length.bit_length()

    def _padded(self, width: int) -> int:
        index = bisect_left(self.pad_widths, width)
        return width if index == len(self.pad_widths) else self.pad_widths[index]

    def _features(self, key: tuple[int, ...]) -> tuple[float, ...]:
        width, batch, context = key
        kilotokens = batch * 0.75e-3 * 2.0**context  # the middle of a power of two
        return 1.0, float(batch), float(width), kilotokens, float(max(0, width - self.knee))

    def _read(self, largest: int, batch: int, context: int) -> np.ndarray:
        """Seconds over the common level, for widths 0..largest."""
        keys = self._verify.keys
        if not keys:
            return np.full(largest + 1, inf)
        nearest = min(keys, key=lambda key: (abs(key[1] - batch), abs(key[2] - context), key))[1:]
        widths = [key[0] for key in keys if key[1:] == nearest]
        here = [(width, *nearest) for width in widths]
        fitted = isotonic(
            [self._verify.seconds(key) / self._verify.level for key in here], [self._verify.count(key) for key in here]
        )
        points = dict(zip(widths, fitted, strict=True))
        asked = [self._padded(width) for width in range(largest + 1)]
        curve = np.array(_interpolated(points, max(asked), barrier=max(self.pad_widths, default=None)))[asked]
        if self._fit.ready:
            rows = np.array([self._features((width, batch, context)) for width in asked])
            predicted = self._fit.predict(rows)
            known = np.array(widths)
            anchors = known[np.abs(known[None, :] - np.array(asked)[:, None]).argmin(axis=1)]
            anchored = self._fit.predict(np.array([self._features((width, *nearest)) for width in anchors.tolist()]))
            beyond = np.array([points[width] for width in anchors.tolist()]) + predicted - anchored
            ends = self._fit.predict(np.array([self._features((0, *shape)) for shape in (nearest, (batch, context))]))
            shift = float(ends[1] - ends[0])
            curve = np.where(np.isfinite(curve), curve + shift, beyond)
            curve = np.maximum.accumulate(np.maximum(curve, min(fitted) * 0.05))
        curve[0] = inf
        return curve


def _interpolated(points: dict[int, float], largest: int, *, barrier: int | None = None) -> list[float]:
    """Straight lines between neighbours over 0..largest; infinity outside them and across a barrier."""
    known = sorted(points)
    curve = [inf] * (largest + 1)
    for place in known:
        if place <= largest:
            curve[place] = points[place]
    for left, right in pairwise(known):
        if barrier is not None and left <= barrier < right:
            continue
        for place in range(left + 1, min(right, largest + 1)):
            share = (place - left) / (right - left)
            curve[place] = points[left] + share * (points[right] - points[left])
    return curve
