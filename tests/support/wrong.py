"""Rules, drafters and targets with a bug in them, to see checks go red."""

from typing import Any, final

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from forerun.distributions import Law, Processing
from forerun.drafters import Dependence, Drafter, DrafterSession, DraftStop, Need, Saving
from forerun.models import TransformersTarget
from forerun.verification import Outcome, Proposal, Rule, Truncation


def misread_wide_passes(target: TransformersTarget, *, at: int) -> None:
    """Let the target's logits be wrong at row ``at`` of every pass that has such a row, as a wrong mask would."""

    def disturb(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if output.logits.shape[1] > at:
            output.logits[:, at, ::2] += 1.0

    target.model.register_forward_hook(disturb)


@final
class AcceptEverything(Rule):
    """Says that it is exact, and lets every draft token stand."""

    name = "accept everything"
    exact = True
    needs_draft_law = False
    truncation = Truncation.ANY_DRAFT

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """No test."""
        horizon = proposal.horizon
        ones = torch.ones(horizon, dtype=torch.float64)
        return Outcome(
            accepted=horizon,
            emission=target.rows(horizon, horizon + 1),
            accept_probabilities=ones,
            overlaps=ones,
        )


@final
class StuckDice(Drafter):
    """Draws every token with the number 0, and says that it drew them from the law of the drafter inside it."""

    def __init__(self, inner: Drafter) -> None:
        """Stores the honest drafter."""
        self._inner = inner

    name = "stuck dice"
    captured_layers = ()
    max_positions = None
    prefix_consistent = True
    dependence = Dependence.FULL
    saving = Saving.BOTH
    needs: frozenset[Need] = frozenset()

    @property
    def max_horizon(self) -> int:
        """Of the honest drafter."""
        return self._inner.max_horizon

    def new_session(self) -> "StuckDiceSession":
        """Around an honest one."""
        return StuckDiceSession(self._inner.new_session())


@final
class StuckDiceSession(DrafterSession):
    """One request of ``StuckDice``."""

    def __init__(self, inner: DrafterSession) -> None:
        """Stores the honest session."""
        self._inner = inner

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._inner.length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """As it should be."""
        self._inner.extend(token_ids, features)

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """The right law, and tokens that were not drawn from it."""
        return self._inner.propose(last_token, horizon, processing, uniforms=torch.zeros_like(uniforms), stop=stop)
