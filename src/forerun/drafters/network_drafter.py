"""A trained network as a drafter: opens a block in every round and draws from it, slot by slot."""

from __future__ import annotations

import copy
from enum import Enum
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.drafter import Drafter, ForeseeingSession
from forerun.drafters.drawing import draw_chain, draw_rows
from forerun.drafters.network import Borrowed, DraftNetwork, Head, KnownBlock, OpenBlock, PlainHead
from forerun.drafters.stop import DraftStop
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, can_pack, pack_linears
from forerun.models.packed_linear import PackedLinear
from forerun.verification import Proposal


@final
class ProposalPolicy(Enum):
    """How a draft comes out of its law."""

    SAMPLE = "sample"
    """Drawn from it; this law is what verification gets."""
    ARGMAX = "argmax"
    """Its most probable token, as a certain one: verification gets a law with one token."""


@final
class NetworkDrafter(Drafter):
    """A trained network beside the target whose embeddings, head or norm it borrows.

    Args:
        network: trained weights; copied.
        vocabulary: tokens that can be drafted.
        target: the model it drafts for.
        policy: how drafts come out of their laws; part of the name wherever it is not sampling.
        optimize: lay linear weights out for narrow passes where the machine allows it.

    Raises:
        ForerunError: the network was made for other shapes.
    """

    def __init__(
        self,
        network: DraftNetwork,
        vocabulary: DraftVocabulary,
        target: TransformersTarget,
        *,
        policy: ProposalPolicy = ProposalPolicy.SAMPLE,
        optimize: bool = True,
    ) -> None:
        check_fits(network.config, target)
        if len(vocabulary) != network.config.draft_vocab_size:
            raise ForerunError(
                f"the draft vocabulary has {len(vocabulary)} tokens, the network {network.config.draft_vocab_size}"
            )
        self.config = network.config
        self.vocabulary = vocabulary
        self.policy = policy
        self.borrowed = Borrowed.of(target, vocabulary, dtype=target.dtype, device=target.device)
        self.network = copy.deepcopy(network).to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)
        weights = self.network.head_weights(self.borrowed)
        packs = optimize and can_pack(target.dtype, target.device)
        self.heads: tuple[Head, ...] = tuple(
            PackedLinear(weight, None) if packs else PlainHead(weight) for weight in weights
        )
        if packs:
            pack_linears(self.network)

    @property
    def name(self) -> str:
        """The architecture, and the policy where it is not sampling."""
        policy = "" if self.policy is ProposalPolicy.SAMPLE else f":{self.policy.value}"
        return f"{self.config.architecture}{policy}"

    @property
    def max_horizon(self) -> int:
        """Slots of a block."""
        return self.config.block_size

    @property
    def captured_layers(self) -> tuple[int, ...]:
        """Target layers it reads."""
        return self.config.captured_layers

    @property
    def max_positions(self) -> int | None:
        """Longest sequence it was made for."""
        return self.config.max_positions

    @property
    def dependence(self) -> Dependence:
        """Of the network."""
        return self.network.dependence

    @property
    def prefix_consistent(self) -> bool:
        """Of the network."""
        return self.network.prefix_consistent

    @property
    def saving(self) -> Saving:
        """Of the network."""
        return self.network.saving

    @property
    def needs(self) -> frozenset[Need]:
        """Of the network."""
        return self.network.needs

    @property
    def foresees(self) -> bool:
        """Where no draft changes the law of another."""
        return self.dependence is Dependence.NONE

    def new_session(self) -> NetworkSession:
        """State for one request."""
        return NetworkSession(self)


@final
class NetworkSession(ForeseeingSession):
    """What the network remembers of one request. Only a drafter that ``foresees`` may be asked to foresee.

    Args:
        drafter: whose session it is.
    """

    def __init__(self, drafter: NetworkDrafter) -> None:
        self._drafter = drafter
        self._context = drafter.network.new_context(drafter.borrowed, drafter.heads)
        self._opened: OpenBlock | None = None  # of this round, if it was foreseen

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._context.length

    @torch.inference_mode()
    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DrafterSession`."""
        self._opened = None
        self._context.extend(token_ids.to(features.device), features)

    @torch.inference_mode()
    def foresee(self, last_token: int, limit: int) -> Float[Tensor, " rows"]:
        """See :class:`ForeseeingSession`."""
        self._opened = block = self._context.open(last_token, limit)
        assert isinstance(block, KnownBlock), "this drafter does not foresee"
        first, second = block.rows[:limit].float().topk(2).values.unbind(-1)
        margins = first - second  # of logits, hence of log-probabilities
        return margins[: int(margins.isfinite().cumprod(0).sum())].cpu()

    @torch.inference_mode()
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
        drafter = self._drafter
        block = self._opened or self._context.open(last_token, horizon)
        certain = drafter.policy is ProposalPolicy.ARGMAX
        if isinstance(block, KnownBlock):
            rows = drafter.vocabulary.spread(block.rows[:horizon])
            return draw_rows(rows, processing, uniforms=uniforms, certain=certain, stop=stop)

        def next_logits(drafted: Int[Tensor, " drafted"]) -> Float[Tensor, "1 vocab"]:
            return drafter.vocabulary.spread(block.logits(drafted)[None])

        return draw_chain(
            next_logits,
            horizon,
            processing,
            vocab_size=drafter.config.target_vocab_size,
            uniforms=uniforms,
            certain=certain,
            stop=stop,
            confidence=block.confidence,
        )


def check_fits(config: DrafterConfig, target: TransformersTarget) -> None:
    """Refuse a drafter whose shapes are not this target's.

    Raises:
        ForerunError: naming the first difference.
    """
    for field, found, expected in (
        ("hidden_size", config.hidden_size, target.hidden_size),
        ("target_vocab_size", config.target_vocab_size, target.vocab_size),
    ):
        if found != expected:
            raise ForerunError(f"the drafter was made for a target with {field} {found}; {target.name} has {expected}")
    if max(config.captured_layers, default=0) >= target.num_layers:
        raise ForerunError(
            f"the drafter reads layer {max(config.captured_layers)}; {target.name} has {target.num_layers} from 0"
        )
