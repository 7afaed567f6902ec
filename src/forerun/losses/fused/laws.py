"""Where logits come from, and where the target's law comes from: values that hold tensors and compute nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError


class InexactTarget(UserWarning):
    """The target's law is cut to its most probable tokens: losses are upper bounds, acceptance a lower one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """Hidden states and the matrix that turns them into logits, `hidden @ weight.T`. A draft may be a sum of several.

    Gradients reach whichever of the two requires one; a frozen head costs no memory for its gradient.

    Attributes:
        hidden: one row per position.
        weight: one row per draft token.
    """

    hidden: Float[Tensor, "*batch hidden"]
    weight: Float[Tensor, "draft_vocab hidden"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetStates:
    """The target's law, to be recomputed from its final hidden states and its head. Exact. Never differentiated.

        logits = soft_cap tanh((hidden @ weight.T + bias) / soft_cap),   law = softmax(logits)

    Attributes:
        hidden: the target's final hidden state (after its last norm) at each position.
        weight: its head, one row per token.
        bias: of the head.
        soft_cap: bound of the logits (Gemma); None for heads without one.
        draft_token_ids: target id of each draft token where the draft vocabulary is smaller. The law is normalised on
            all tokens and then gathered, as `draft_rows` does. A chunk is then as wide as the target's vocabulary.
        log_normaliser: logarithm of the softmax's denominator, stored when the states were captured. `weight` and
            `bias` then hold the rows of the draft vocabulary only, and nothing else of the head is needed.

    Raises:
        ForerunError: both `draft_token_ids` and `log_normaliser` are given, or the cap is not positive.
    """

    hidden: Float[Tensor, "*batch target_hidden"]
    weight: Float[Tensor, "target_vocab target_hidden"]
    bias: Float[Tensor, " target_vocab"] | None = None
    soft_cap: float | None = None
    draft_token_ids: Int64[Tensor, " draft_vocab"] | None = None
    log_normaliser: Float[Tensor, "*batch"] | None = None

    def __post_init__(self) -> None:
        """Refuse what would compute rows to throw them away."""
        if self.draft_token_ids is not None and self.log_normaliser is not None:
            raise ForerunError(
                "with a stored log_normaliser give the head's rows of the draft vocabulary, no token ids"
            )
        if self.soft_cap is not None and not self.soft_cap > 0:
            raise ForerunError(f"soft_cap is {self.soft_cap}; give a positive bound, or None for a head without one")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopKTarget:
    """The target's law cut to stored tokens: the k most probable ones of each position, not renormalised. Not exact.

    The mass of the tail, `tail = 1 - sum of the stored probabilities`, is treated as mass outside the draft vocabulary
    is: as if the draft gave the tail nothing. With `draft_tail` the draft's mass outside the stored tokens:

    * acceptance is too low by at most `min(tail, draft_tail)`, total variation too high by at most that;
    * TVP is too high by at most `tail (phi(0) - phi(draft_tail / tail))`, phi_beta(r) = (1 - r^beta)/beta for r < 1;
    * LK-alpha too high by at most `log((alpha + min(tail, draft_tail)) / alpha)`;
    * forward KL and soft cross-entropy are those of the target renormalised on the stored tokens; no bound holds;
    * gradients push the draft's tail down wherever a stored token is under-covered.

    The tail is `FusedRows.missing`, so the bound can be logged. Its use warns (`InexactTarget`), once a run under
    Python's default filters.

    Attributes:
        token_ids: of the stored tokens, distinct at each position, in draft numbering (see `draft_labels`); negative
            for tokens that the draft vocabulary does not have.
        log_probs: their log-probabilities under the target, sum of probabilities at most 1.

    Raises:
        ForerunError: ids and log-probabilities differ in shape.
    """

    token_ids: Int64[Tensor, "*batch k"]
    log_probs: Float[Tensor, "*batch k"]

    def __post_init__(self) -> None:
        """Refuse ids without a probability."""
        if self.token_ids.shape != self.log_probs.shape:
            raise ForerunError(
                f"token_ids {tuple(self.token_ids.shape)} and log_probs {tuple(self.log_probs.shape)} differ in shape"
            )
