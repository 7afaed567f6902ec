"""One draft under a policy's stop rule: turns logits into what the rule sees, and remembers it for the feedback."""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.drafters import DraftStop
from forerun.engine.signals import law_numbers
from forerun.horizons import DraftStatistics, DrawnToken, StopRule


@final
class RuleStop(DraftStop):
    """Asks the rule; made for one draft.

    Args:
        rule: of the policy's choice.
    """

    def __init__(self, rule: StopRule) -> None:
        self._rule = rule
        self._log_probs = torch.empty(0)
        self._law: DraftStatistics | None = None
        self.drawn: list[DrawnToken] = []

    def before(self, logits: Float[Tensor, " vocab"], confidence: float | None) -> bool:
        """See :class:`DraftStop`."""
        self._log_probs = torch.log_softmax(logits.float(), dim=-1)
        entropy, top_prob, margin = law_numbers(self._log_probs)
        self._law = DraftStatistics(
            entropy=entropy,
            top_prob=top_prob,
            margin=margin,
            confidence=None if confidence is None else 0.5 + 0.5 * math.tanh(0.5 * confidence),  # a sigmoid
        )
        return self._rule.draws(self.drawn, self._law)

    def after(self, token_id: int) -> bool:
        """See :class:`DraftStop`."""
        assert self._law is not None, "asked after a draw and not before it"
        self.drawn.append(DrawnToken(self._law, float(self._log_probs[token_id].exp())))
        return self._rule.continues(self.drawn)

    @property
    def submitted(self) -> int:
        """See :class:`DraftStop`."""
        return self._rule.submits(self.drawn)
