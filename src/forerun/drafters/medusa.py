"""Medusa: a small head for each of the next tokens, all on the target's last hidden state (arXiv 2401.10774).

    head_i(h) = W_i (h + SiLU(U_i h + b_i)),   h = the target's final norm of its last layer's output

U and b begin as zero, W as the target's head. The target's own head says the token after h; head i says the one i + 1
places later. So with h at the token before the anchor, head 0 predicts the token after the anchor, and the anchor
itself is never read: between h and its first draft lies a token that only the target has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig, OneLayer
from forerun.drafters.declarations import Need
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.independent import IndependentNetwork
from forerun.drafters.network import Borrowed, DraftContext, Head, KnownBlock
from forerun.errors import ForerunError
from forerun.models import TransformersTarget


@final
class MedusaConfig(DrafterConfig):
    """Shape of the heads; there are ``block_size`` of them.

    Attributes:
        captured_layers: the target's last layer alone.
        num_blocks: residual blocks of a head; each has its own weights.
        own_heads: each head has its own W, which is trained; otherwise all use the target's.
    """

    architecture: Literal["medusa"] = "medusa"
    captured_layers: OneLayer
    num_blocks: int = Field(gt=0)
    own_heads: bool


@final
class ResidualBlock(nn.Module):
    """``h + SiLU(U h + b)``.

    Args:
        hidden_size: in and out.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
        """Position by position."""
        changed: Tensor = hidden + functional.silu(self.linear(hidden))
        return changed


@final
class MedusaNetwork(IndependentNetwork):
    """Trainable part of the drafter.

    Args:
        config: shapes.
    """

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self._config = config
        hidden = config.hidden_size
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(hidden) for _ in range(config.num_blocks))) for _ in range(config.block_size)
        )
        rows = [torch.zeros(config.draft_vocab_size, hidden) for _ in range(config.block_size)]
        self.unembeddings = nn.ParameterList(rows if config.own_heads else [])

    @property
    def config(self) -> MedusaConfig:
        """Shapes."""
        return self._config

    @property
    def own_heads(self) -> bool:
        """As configured."""
        return self._config.own_heads

    @property
    def needs(self) -> frozenset[Need]:
        """The last layer and the norm after it; the head where it is shared."""
        shared = frozenset({Need.FEATURES, Need.FINAL_NORM})
        return shared if self.own_heads else shared | {Need.HEAD}

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """Every head begins as the target's; nothing is drawn.

        Raises:
            ForerunError: another layer than the target's last one is read.
        """
        if self._config.captured_layers != (target.num_layers - 1,):
            raise ForerunError(
                f"Medusa reads the last layer, which is {target.num_layers - 1} in {target.name}; captured_layers is "
                f"{list(self._config.captured_layers)}"
            )
        with torch.no_grad():
            for weight in self.heads.parameters():
                weight.zero_()
            for rows in self.unembeddings:
                rows.copy_(target.head_weight[vocabulary.target_ids.to(target.device)])

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab hidden"], ...]:
        """One for each head, or the target's for all."""
        return tuple(self.unembeddings) if self.own_heads else (borrowed.head,)

    def slot_states(self, inputs: BlockInputs, borrowed: Borrowed, slot: int) -> Float[Tensor, "rows blocks hidden"]:
        """See :class:`IndependentNetwork`."""
        rows = torch.arange(len(inputs.anchors), device=inputs.anchors.device)[:, None]
        return self.head_states(borrowed.final_norm(inputs.features[rows, inputs.before_anchors, 0]), slot)

    def head_states(self, hidden: Float[Tensor, "*batch hidden"], slot: int) -> Float[Tensor, "*batch hidden"]:
        """What head ``slot`` makes of last hidden states."""
        states: Tensor = self.heads[slot](hidden)
        return states

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> MedusaContext:
        """See :class:`DraftNetwork`."""
        return MedusaContext(self, borrowed, heads)


@final
class MedusaContext(DraftContext):
    """The newest hidden state is all that the heads read."""

    def __init__(self, network: MedusaNetwork, borrowed: Borrowed, heads: Sequence[Head]) -> None:
        self._network, self._borrowed, self._heads = network, borrowed, heads
        self._hidden = borrowed.head.new_zeros(network.config.hidden_size)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DraftContext`."""
        self._hidden = self._borrowed.final_norm(features[-1, 0])
        self._length += len(features)

    def open(self, anchor: int, horizon: int) -> KnownBlock:
        """See :class:`DraftContext`."""
        states = [self._network.head_states(self._hidden, slot) for slot in range(horizon)]
        return self._network.known_block(torch.stack(states), self._heads)
