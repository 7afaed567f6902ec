"""Cost regimes: how the seconds of a round grow with its horizon on different machines and models.

Shapes are those of the engines' reports; scales are round numbers. Only ratios of costs decide horizons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from forerun.evaluation.replay import CostRegime

Horizons = Int64[np.ndarray, " horizons"]
Lengths = Int64[np.ndarray, " positions"]
Table = Float64[np.ndarray, "positions horizons"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoCache(CostRegime):
    """The paper's setting: every round reads the whole sequence again, c0 + c1 (L + k), by target and drafter alike.

    Attributes:
        fixed_seconds: of a pass.
        seconds_per_token: of context and draft.
        draft_share: a drafter's pass, as a share of the target's; 0 for heads that share its pass.
    """

    fixed_seconds: float = 0.010
    seconds_per_token: float = 0.0002
    draft_share: float = 0.25

    @property
    def name(self) -> str:
        """``no cache``."""
        return "no cache"

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """A target's pass over L + k tokens, and one of the drafter where anything is drafted."""
        passes = self.fixed_seconds + self.seconds_per_token * (context_lengths[:, None] + horizons)
        return np.asarray(passes * (1.0 + self.draft_share * (horizons > 0)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(CostRegime):
    """Keys and values cached, batch 1, a dense model: flat up to a knee, then linear, plus what drafting costs.

    Attributes:
        label: name.
        plain_seconds: of a pass over one token.
        flat_slope: share of it that another token adds up to the knee.
        knee: tokens in a pass up to which weights, not arithmetic, decide.
        steep_slope: share of ``plain_seconds`` that another token adds beyond the knee.
        draft_fixed: seconds of drafting at all.
        draft_per_token: of each draft.
    """

    label: str
    plain_seconds: float = 0.020
    flat_slope: float = 0.01
    knee: int = 6
    steep_slope: float = 0.12
    draft_fixed: float = 0.0
    draft_per_token: float = 0.0

    @property
    def name(self) -> str:
        """The label."""
        return self.label

    @property
    def unused_law_seconds(self) -> float:
        """A draft step."""
        return self.draft_per_token

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """Verification of 1 + k tokens and drafting of k."""
        beyond = np.maximum(0, horizons + 1 - self.knee)
        verify = self.plain_seconds * (1.0 + self.flat_slope * (horizons - beyond) + self.steep_slope * beyond)
        draft = self.draft_fixed * (horizons > 0) + self.draft_per_token * horizons
        return np.broadcast_to(verify + draft, (len(context_lengths), len(horizons)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBatch(CostRegime):
    """Many requests with one horizon for all: max(weights, arithmetic) in steps of whole tiles; one request's share.

    Attributes:
        batch: requests.
        weight_seconds: reading the weights once.
        tile_seconds: arithmetic of one tile.
        tile: tokens that cost as much as one.
        draft_per_token: seconds of each draft of the whole batch.
    """

    batch: int = 48
    weight_seconds: float = 0.020
    tile_seconds: float = 0.0066
    tile: int = 64
    draft_per_token: float = 0.001

    @property
    def name(self) -> str:
        """``large batch``."""
        return "large batch"

    @property
    def unused_law_seconds(self) -> float:
        """A draft step."""
        return self.draft_per_token

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """Of the whole batch; a request's tokens are its share of what it emits."""
        tiles = np.ceil(self.batch * (1 + horizons) / self.tile)
        seconds = np.maximum(self.weight_seconds, tiles * self.tile_seconds) + self.draft_per_token * horizons
        return np.broadcast_to(seconds, (len(context_lengths), len(horizons)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LongContext(CostRegime):
    """Reading keys and values dominates, and the tokens of a pass share it: extra drafts are cheap again.

    Attributes:
        fixed_seconds: of a pass.
        seconds_per_thousand: of context.
        verify_per_token: of each token in the pass.
        draft_per_token: of each draft.
        shift: added to the context lengths, so that short simulated texts stand behind long prompts.
    """

    fixed_seconds: float = 0.012
    seconds_per_thousand: float = 0.001
    verify_per_token: float = 0.0004
    draft_per_token: float = 0.0012
    shift: int = 32_000

    @property
    def name(self) -> str:
        """``long context``."""
        return "long context"

    @property
    def unused_law_seconds(self) -> float:
        """A draft step."""
        return self.draft_per_token

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """The shared part grows with the context, the rest with the horizon."""
        shared = self.fixed_seconds + self.seconds_per_thousand * (context_lengths[:, None] + self.shift) / 1000.0
        return shared + self.verify_per_token * (1 + horizons) + self.draft_per_token * horizons


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTable(CostRegime):
    """Measured passes by width, straight lines between them: the mixture of experts that Cascade-like work is about.

    Attributes:
        widths: tokens in a pass, rising from 1.
        milliseconds: of each.
        draft_per_token: seconds of each draft.

    References:
        Widths 1/2/3/5/8 = 8.47/13.49/15.64/20.67/28.13 ms: waybarrios/vllm-mlx pull request 763.
    """

    widths: tuple[int, ...] = (1, 2, 3, 5, 8)
    milliseconds: tuple[float, ...] = (8.47, 13.49, 15.64, 20.67, 28.13)
    draft_per_token: float = 0.0005

    @property
    def name(self) -> str:
        """``moe``."""
        return "moe"

    @property
    def unused_law_seconds(self) -> float:
        """A draft step."""
        return self.draft_per_token

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """Verification of 1 + k tokens and drafting of k; beyond the last width its last slope goes on."""
        wide = horizons + 1
        slope = (self.milliseconds[-1] - self.milliseconds[-2]) / (self.widths[-1] - self.widths[-2])
        verify = np.interp(wide, self.widths, self.milliseconds) + slope * np.maximum(0, wide - self.widths[-1])
        seconds = verify / 1000.0 + self.draft_per_token * horizons
        return np.broadcast_to(seconds, (len(context_lengths), len(horizons)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent(CostRegime):
    """A recurrent state: snapshots cost a little for each token, and after a rejection the round is read again.

    Attributes:
        plain_seconds: of a pass over one token.
        verify_per_token: of each further token.
        draft_per_token: of each draft.
        snapshot_seconds: for each token of a round with drafts.
        replay_seconds: of restoring the state and reading what stands again.
    """

    plain_seconds: float = 0.020
    verify_per_token: float = 0.0006
    draft_per_token: float = 0.002
    snapshot_seconds: float = 0.0004
    replay_seconds: float = 0.006

    @property
    def name(self) -> str:
        """``recurrent``."""
        return "recurrent"

    @property
    def unused_law_seconds(self) -> float:
        """A draft step."""
        return self.draft_per_token

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """Of a round in which every draft stands."""
        per_token = self.verify_per_token + self.draft_per_token + self.snapshot_seconds
        return np.broadcast_to(self.plain_seconds + per_token * horizons, (len(context_lengths), len(horizons)))

    def rejection_seconds(self, horizons: Horizons) -> Float64[np.ndarray, " horizons"]:
        """Restoring and reading again."""
        return self.replay_seconds * (horizons > 0)


@final
@dataclass(frozen=True, slots=True)
class MeasuredCached(CostRegime):
    """Median seconds of whole rounds by horizon, as a recording's header has them.

    Attributes:
        seconds: of rounds with 0, 1, ... drafts.
        draft_seconds: of them, for drafting.
    """

    seconds: tuple[float, ...]
    draft_seconds: tuple[float, ...]

    @property
    def name(self) -> str:
        """``cached``."""
        return "cached"

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """The table, at every context length."""
        return np.broadcast_to(np.array(self.seconds)[horizons], (len(context_lengths), len(horizons)))

    def unused_seconds(self, drafted: int, seen: int) -> float:
        """Drafting that went further than the draft: a rule that looks at the first law alone has paid for it."""
        return self.draft_seconds[seen] - self.draft_seconds[drafted]


@final
@dataclass(frozen=True, slots=True)
class MeasuredUncached(CostRegime):
    """No cache: a straight line through measured passes over whole sequences, and the drafter's own seconds.

    Attributes:
        fixed_seconds: of a pass.
        seconds_per_token: of context and draft.
        draft_seconds: of drafting 0, 1, ... tokens (the drafter keeps its own cache).
    """

    fixed_seconds: float
    seconds_per_token: float
    draft_seconds: tuple[float, ...]

    @property
    def name(self) -> str:
        """``uncached``."""
        return "uncached"

    def round_seconds(self, horizons: Horizons, context_lengths: Lengths) -> Table:
        """A pass over L + k tokens and drafting of k."""
        passes = self.fixed_seconds + self.seconds_per_token * (context_lengths[:, None] + horizons)
        return np.asarray(passes + np.array(self.draft_seconds)[horizons])

    def unused_seconds(self, drafted: int, seen: int) -> float:
        """As with a cache."""
        return self.draft_seconds[seen] - self.draft_seconds[drafted]
