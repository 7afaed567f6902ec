"""The target as its own drafter: mask tokens ride in its verification passes, and no other pass is made.

Behind every token of the verified block [last committed token, drafts] stands a span of masks. Whatever prefix
is accepted, the span behind its last token has seen just that prefix. The target's own row there gives the correction
or bonus token; the j-th mask stands in that token's place or later and drafts the token j places after it. So all
drafts of a round are made before the token they follow is known, and are independent of it and of each other.
(Samragh et al. 2025, arXiv 2507.11851; Kirchenbauer et al. 2026, arXiv 2602.06019.)

A block of k drafts with m masks behind every token has (k + 1)(m + 1) rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.drafter import Drafter
from forerun.drafters.drawing import draw_rows
from forerun.drafters.network_drafter import ProposalPolicy
from forerun.drafters.riders import Riders, RidingSession
from forerun.drafters.stop import DraftStop
from forerun.errors import ForerunError
from forerun.models import Target
from forerun.verification import Proposal


@final
class MaskTokenRiders(Drafter):
    """Drafts that come out of the target's verification passes.

    Args:
        target: knows the mask token.
        mask_id: the mask token's id, as the target's ``extra_tokens`` gave it.
        max_horizon: most tokens drafted in one round, and masks behind the prompt.
        growth: a round of k drafts carries ``k + growth`` masks behind each token (one at least), so this is by how
            much a horizon can grow from one round to the next. 0 suits a fixed horizon.
        policy: how tokens are taken from the laws.

    Raises:
        ForerunError: ``growth`` is negative.
    """

    def __init__(
        self,
        target: Target,
        mask_id: int,
        *,
        max_horizon: int = 4,
        growth: int = 1,
        policy: ProposalPolicy = ProposalPolicy.SAMPLE,
    ) -> None:
        if growth < 0:
            raise ForerunError(f"growth is {growth}; give 0 (a horizon never grows) or more")
        self.vocab_size = target.vocab_size
        self.mask_id = mask_id
        self.growth = growth
        self.policy = policy
        self._max_horizon = max_horizon

    @property
    def name(self) -> str:
        """``mask-token:riders`` and the policy."""
        return f"mask-token:riders:{self.policy.value}"

    @property
    def max_horizon(self) -> int:
        """Most tokens drafted in one round."""
        return self._max_horizon

    captured_layers = ()  # none: it reads logits only
    max_positions = None  # the target's own limit, which the engine keeps anyway
    dependence = Dependence.NONE  # none, given the context
    saving = Saving.VERIFICATION  # there is no drafting apart from verification
    needs = frozenset({Need.FORWARD})  # the target reads the masks
    prefix_consistent = True  # the rows are there before the horizon is chosen

    def new_session(self) -> MaskTokenRidersSession:
        """State for one request."""
        return MaskTokenRidersSession(self)


@final
class MaskTokenRidersSession(RidingSession):
    """The rows that the next round drafts from."""

    def __init__(self, drafter: MaskTokenRiders) -> None:
        self._drafter = drafter
        self._length = 0
        self._rows = torch.empty(0, drafter.vocab_size)

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    @property
    def ready(self) -> int:
        """Masks behind the last token that stood."""
        return len(self._rows)

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`ProposerSession`; only their number matters."""
        self._length += len(token_ids)

    def board(self, room: Sequence[int]) -> Riders:
        """See :class:`RidingSession`."""
        drafter = self._drafter
        masks = drafter.max_horizon
        if self._length > 0:  # before that there is no horizon to go by
            masks = min(masks, max(1, len(room) - 1 + drafter.growth))
        return Riders.spans(drafter.mask_id, [min(masks, places) for places in room])

    def arrive(self, logits: Float[Tensor, "riders vocab"]) -> None:
        """See :class:`RidingSession`."""
        self._rows = logits

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """See :class:`DrafterSession`; the rows were made before ``last_token`` was known."""
        certain = self._drafter.policy is ProposalPolicy.ARGMAX
        return draw_rows(self._rows[:horizon], processing, uniforms=uniforms, certain=certain, stop=stop)
