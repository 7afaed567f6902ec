"""What a training run has measured about its draft so far: the state behind schedules that know no budget."""

import math
from typing import final

from forerun.errors import ForerunError
from forerun.losses.reduction import MaskedSum

_COLD = 0.1
"""Below this acceptance a draft counts as cold, whatever its history: a constant 1 % is no settled draft."""

_WINDOW = 0.1
"""The recent acceptance averages over about this share of the updates made."""


@final
class AcceptanceHistory:
    """How settled the acceptance of a draft is, measured batch by batch.

        mean_t    = 1/(t + prior_updates) sum_{i<=t} a_i           (a_i: mean acceptance 1 - TV of update i's batch)
        recent_t  = recent_{t-1} + (a_t - recent_{t-1}) / (1 + (t-1)/10)
        settled_t = max_{s<=t} min(1, mean_s / max(0.1, recent_1, ..., recent_s))

    Why this number: summed by parts, 1 - mean/recent is the mean *time* at which the present acceptance was gained, as
    a share of the time so far. One half is steady growth; near 0 is a gain that lies long behind. So `settled` tends to
    1 for every draft whose acceptance stops growing, *at whatever level*: a small drafter that ends at 0.4 is treated
    like a large one that ends at 0.8, and neither has to reach a threshold that was chosen for the other. The fixed
    point is therefore that of the annealed run: total variation, once coverage has brought what it can. A cold draft
    that learns nothing is measured against 0.1 and never settles.

    The run's own length is the only clock (the recent average spans a tenth of it), so nothing has to be known about
    the budget: a run may be stopped at any time, and one that is extended goes on from its state. If its acceptance
    grows again, `settled` keeps its place, for it never falls; the growth only delays the rest of the way.

    `prior_updates` is the one constant in updates: the history starts as if it had seen that many updates without any
    acceptance. So the first batches, which may be lucky, cannot settle anything, and a draft that is good from its
    first batch (fine-tuning) has settled = t/(t + prior_updates): with `adaptive_beta` a coverage phase of
    `prior_updates` and an annealing that ends at nine times as many. In a run of far more updates it matters little.

    How an update was cut into micro-batches or processes does not matter once their `MaskedSum`s are added. More
    updates with smaller batches (and `prior_updates` in proportion) take the same course up to sampling noise, which
    the recent average damps.

    Args:
        prior_updates: updates without acceptance that the history starts from.
    """

    def __init__(self, *, prior_updates: int = 50) -> None:
        if prior_updates < 0:
            raise ForerunError(f"prior_updates is {prior_updates}; give a number of updates, at least 0")
        self.prior_updates = prior_updates
        self._updates = 0
        self._sum = 0.0
        self._recent = 0.0
        self._best = 0.0
        self._settled = 0.0

    @property
    def settled(self) -> float:
        """From 0 (cold, or growing) to 1 (gained long ago); it never falls."""
        return self._settled

    def observe(self, acceptances: MaskedSum) -> None:
        """One update's acceptance: `masked_sum(acceptance(...), mask)`, added up over all pieces of the batch.

        A batch without a valid position is no observation.

        Raises:
            ForerunError: the acceptance is not a number.
        """
        if int(acceptances.count) == 0:
            return
        observed = float(acceptances.mean())
        if not math.isfinite(observed):
            raise ForerunError(f"the acceptance of update {self._updates} is {observed}; the draft's logits are broken")
        self._recent += (observed - self._recent) / (1.0 + _WINDOW * self._updates)
        self._updates += 1
        self._sum += observed
        self._best = max(self._best, self._recent)
        mean = self._sum / (self._updates + self.prior_updates)
        self._settled = max(self._settled, min(1.0, mean / max(_COLD, self._best)))

    def state_dict(self) -> dict[str, float]:
        """Everything that was measured, as plain numbers; save it with the optimiser."""
        return {
            "updates": self._updates,
            "sum": self._sum,
            "recent": self._recent,
            "best": self._best,
            "settled": self._settled,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state.

        Raises:
            KeyError: the state is of another kind.
        """
        self._updates = int(state["updates"])
        self._sum, self._recent = state["sum"], state["recent"]
        self._best, self._settled = state["best"], state["settled"]
