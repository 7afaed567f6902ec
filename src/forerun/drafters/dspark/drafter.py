"""DSpark as a drafter: the backbone once a round, then one Markov step for each drafted token."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forerun.distributions import Processing
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.drawing import draw_chain
from forerun.drafters.dspark.config import DSparkConfig
from forerun.drafters.dspark.network import ContextLayer, DSparkNetwork
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, can_pack, pack_linears
from forerun.models.packed_linear import PackedLinear
from forerun.verification import Proposal


@final
class DSparkDrafter(Drafter):
    """A trained network beside the target whose embeddings and head it borrows.

    The whole block passes through the backbone whatever the horizon (its slots see each other), so the law of a draft
    does not depend on how many follow it; a shorter horizon saves head rows, Markov steps and verification.

    Args:
        network: trained weights; copied when they are packed.
        vocabulary: tokens that can be drafted.
        target: the model it drafts for.
        optimize: lay linear weights out for narrow passes where the machine allows it.
    """

    def __init__(
        self, network: DSparkNetwork, vocabulary: DraftVocabulary, target: TransformersTarget, *, optimize: bool = True
    ) -> None:
        check_fits(network.config, target)
        if len(vocabulary) != network.config.draft_vocab_size:
            raise ForerunError(
                f"the draft vocabulary has {len(vocabulary)} tokens, the network {network.config.draft_vocab_size}"
            )
        self.config = network.config
        self.vocabulary = vocabulary
        self.embedding_weight = target.embedding_weight
        head_weight = target.head_weight[vocabulary.target_ids.to(target.device)]
        self.network = copy.deepcopy(network).to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)
        self.head: nn.Module = _Head(head_weight)
        if optimize and can_pack(target.dtype, target.device):
            pack_linears(self.network)
            self.head = PackedLinear(head_weight, None)

    @property
    def name(self) -> str:
        """``dspark``."""
        return "dspark"

    @property
    def max_horizon(self) -> int:
        """Slots of a block."""
        return self.config.block_size

    @property
    def captured_layers(self) -> tuple[int, ...]:
        """Target layers read as context."""
        return self.config.captured_layers

    @property
    def max_positions(self) -> int | None:
        """Longest sequence it was made for."""
        return self.config.max_positions

    @property
    def prefix_consistent(self) -> bool:
        """See the class: the backbone always computes the whole block."""
        return True

    def new_session(self) -> DSparkSession:
        """State for one request."""
        return DSparkSession(self)


@final
class DSparkSession(DrafterSession):
    """Context keys and values of one request; nothing to roll back, since only committed tokens enter."""

    def __init__(self, drafter: DSparkDrafter) -> None:
        self._drafter = drafter
        self._length = 0
        self._context: list[ContextLayer] = []

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    @torch.inference_mode()
    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DrafterSession`."""
        fresh = self._drafter.network.context_layers(features[None], self._length)
        if self._context:
            fresh = [
                ContextLayer(torch.cat([old.keys, new.keys], dim=2), torch.cat([old.values, new.values], dim=2))
                for old, new in zip(self._context, fresh, strict=True)
            ]
        self._context = fresh
        self._length += len(token_ids)

    @torch.inference_mode()
    def propose(
        self, last_token: int, horizon: int, processing: Processing, *, uniforms: Float[Tensor, " horizon"]
    ) -> Proposal:
        """See :class:`DrafterSession`."""
        drafter = self._drafter
        hidden = self.block_hidden(last_token)[:horizon]
        backbone_logits = drafter.head(hidden)  # (horizon, draft_vocab)

        def next_logits(drafted: Sequence[int]) -> Float[Tensor, "1 vocab"]:
            previous = drafter.vocabulary.to_draft(torch.tensor([drafted[-1] if drafted else last_token]))
            return self._spread(backbone_logits[len(drafted)] + drafter.network.markov_logits(previous)[0])

        return draw_chain(
            next_logits, horizon, processing, vocab_size=drafter.config.target_vocab_size, uniforms=uniforms
        )

    def block_hidden(self, last_token: int) -> Float[Tensor, "slots hidden"]:
        """Hidden states of the block anchored at ``last_token``."""
        anchor = self._drafter.embedding_weight[last_token].view(1, 1, -1)
        position = torch.full((1, 1), self._length, dtype=torch.int64, device=anchor.device)
        return self._drafter.network.block_hidden(self._context, anchor, position, None)[0, 0]

    def _spread(self, logits: Float[Tensor, " draft_vocab"]) -> Float[Tensor, "1 vocab"]:
        """Draft logits in the target's numbering; what cannot be drafted has none."""
        drafter = self._drafter
        spread = torch.full((1, drafter.config.target_vocab_size), -torch.inf, dtype=logits.dtype)
        spread[0, drafter.vocabulary.target_ids] = logits
        return spread


@final
class _Head(nn.Module):
    """The target's head restricted to the draft vocabulary."""

    def __init__(self, weight: Float[Tensor, "draft_vocab hidden"]) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self._weight)


def check_fits(config: DSparkConfig, target: TransformersTarget) -> None:
    """Refuse a drafter whose shapes are not this target's.

    Raises:
        ForerunError: naming the first difference.
    """
    for field, expected in (("hidden_size", target.hidden_size), ("target_vocab_size", target.vocab_size)):
        found = {"hidden_size": config.hidden_size, "target_vocab_size": config.target_vocab_size}[field]
        if found != expected:
            raise ForerunError(f"the drafter was made for a target with {field} {found}; {target.name} has {expected}")
    if max(config.captured_layers) >= target.num_layers:
        raise ForerunError(
            f"the drafter reads layer {max(config.captured_layers)}; {target.name} has {target.num_layers} from 0"
        )
