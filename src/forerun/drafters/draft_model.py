"""Another, smaller model with the same vocabulary as drafter: the classic pair."""

from __future__ import annotations

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.drawing import draw_chain
from forerun.drafters.small_model import SmallModel
from forerun.drafters.stop import DraftStop
from forerun.models import Target
from forerun.verification import Proposal


@final
class DraftModel(Drafter):
    """A small model that drafts token by token.

    Args:
        model: the small model.
        target: the model it drafts for; both must share one tokenizer.
        max_horizon: most tokens drafted in one round.
        vocabulary: the part of the vocabulary that is drafted; ``None`` for all of it. The other rows of the small
            model's head are not computed, and their tokens come out by the correction that follows a rejection.

    Raises:
        ForerunError: the vocabularies differ.
    """

    def __init__(
        self, model: Target, target: Target, *, max_horizon: int = 16, vocabulary: DraftVocabulary | None = None
    ) -> None:
        self.small = SmallModel(model, target, vocabulary)
        self._max_horizon = max_horizon

    @property
    def name(self) -> str:
        """``model:``, the small model's name, and how many tokens it drafts where it is not all of them."""
        return f"model:{self.small.name}"

    @property
    def max_horizon(self) -> int:
        """Most tokens drafted in one round."""
        return self._max_horizon

    @property
    def max_positions(self) -> int | None:
        """The small model's own limit."""
        return self.small.model.max_positions

    captured_layers = ()  # it reads tokens only
    prefix_consistent = True  # each draft is drawn before the next exists
    dependence = Dependence.FULL
    saving = Saving.BOTH
    needs: frozenset[Need] = frozenset()

    def new_session(self) -> DraftModelSession:
        """State for one request."""
        return DraftModelSession(self.small)


@final
class DraftModelSession(DrafterSession):
    """What the small model has read of one request."""

    def __init__(self, small: SmallModel) -> None:
        self._vocab_size = small.vocab_size
        self._reader = small.new_reader()

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
        committed = self.length

        def next_logits(drafted: Int[Tensor, " drafted"]) -> Float[Tensor, "1 vocab"]:
            if not len(drafted):
                return self._reader.read_up_to(last_token)
            return self._reader.read(drafted[-1:], num_logits=1)

        proposal = draw_chain(
            next_logits, horizon, processing, vocab_size=self._vocab_size, uniforms=uniforms, stop=stop
        )
        # The drafts may be rejected; the committed tokens come back through extend, so their keys are written again.
        self._reader.back_to(committed)
        return proposal
