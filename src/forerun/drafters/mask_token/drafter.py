"""A whole model that drafts all tokens of a round in one pass, with mask tokens in the places it does not know yet.

The pass reads [committed tokens, mask, mask, ...]: the row of the last committed token drafts the first token, the row
of the j-th mask (which stands in the place of draft j) drafts token j + 1. The model may be a fine-tuned copy of the
target or any smaller one with the same tokenizer.

Given the context the drafts are independent of each other. A horizon of k takes k - 1 masks, so it saves drafting too;
attention is causal, so fewer masks leave the rows before them as they are.
(Kirchenbauer et al. 2026, arXiv 2602.06019.)
"""

from __future__ import annotations

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.drawing import draw_rows
from forerun.drafters.network_drafter import ProposalPolicy
from forerun.drafters.small_model import SmallModelReader, check_vocabularies
from forerun.drafters.stop import DraftStop
from forerun.models import Target
from forerun.verification import Proposal


@final
class MaskTokenModel(Drafter):
    """Drafts with a model that knows a mask token.

    Args:
        model: knows the mask token; a copy of the target, or a smaller model.
        mask_id: the mask token's id, as the model's ``extra_tokens`` gave it.
        target: the model it drafts for; the vocabularies must be the same.
        max_horizon: most tokens drafted in one round.
        policy: how tokens are taken from the laws.

    Raises:
        ForerunError: the vocabularies differ in size.
    """

    def __init__(
        self,
        model: Target,
        mask_id: int,
        target: Target,
        *,
        max_horizon: int = 16,
        policy: ProposalPolicy = ProposalPolicy.SAMPLE,
    ) -> None:
        check_vocabularies(model, target)
        self.model = model
        self.mask_id = mask_id
        self.policy = policy
        self._max_horizon = max_horizon

    @property
    def name(self) -> str:
        """``mask-token:``, the model's name and the policy."""
        return f"mask-token:{self.model.name}:{self.policy.value}"

    @property
    def max_horizon(self) -> int:
        """Most tokens drafted in one round."""
        return self._max_horizon

    @property
    def max_positions(self) -> int | None:
        """The model's own limit."""
        return self.model.max_positions

    captured_layers = ()  # it reads tokens only
    dependence = Dependence.NONE  # none, given the context
    saving = Saving.BOTH  # a shorter horizon takes fewer masks
    needs: frozenset[Need] = frozenset()  # nothing: it has a model of its own
    prefix_consistent = True  # attention is causal: masks that are left out change nothing before them

    def new_session(self) -> MaskTokenModelSession:
        """State for one request."""
        return MaskTokenModelSession(self)


@final
class MaskTokenModelSession(DrafterSession):
    """What the model has read of one request."""

    def __init__(self, drafter: MaskTokenModel) -> None:
        self._drafter = drafter
        self._reader = SmallModelReader(drafter.model)

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._reader.length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`ProposerSession`; features are ignored."""
        self._reader.extend(token_ids)

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """See :class:`DrafterSession`."""
        drafter, committed = self._drafter, self.length
        rows = self._reader.read_up_to(last_token, *[drafter.mask_id] * (horizon - 1))
        # Neither the masks nor the last token stay: that one comes back through extend.
        self._reader.back_to(committed)
        certain = drafter.policy is ProposalPolicy.ARGMAX
        return draw_rows(rows, processing, uniforms=uniforms, certain=certain, stop=stop)
