"""Tiny drafter networks of every architecture with random weights for any target, and rows to train them on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from forerun.drafters import (
    DFlash2Config,
    DFlashConfig,
    DrafterConfig,
    DraftNetwork,
    DraftVocabulary,
    DSparkConfig,
    Eagle3Config,
    LayerShape,
    MarkovKind,
    MedusaConfig,
    NetworkDrafter,
    ParallelHeadsConfig,
    ProposalPolicy,
    Provenance,
    Rope,
    network_of,
)
from forerun.models import TransformersTarget
from forerun.training.features import FeatureRow

BLOCK = 4


def tiny_layer(*, head_norms: bool = True, window: int | None = None) -> LayerShape:
    """Grouped heads, and every number that a layer needs."""
    return LayerShape(
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=24,
        head_norms=head_norms,
        rope=Rope.plain(10_000.0, 8),
        norm_eps=1e-6,
        window=window,
    )


def tiny_dspark(
    target: TransformersTarget,
    draft_vocab_size: int,
    block: int,
    *,
    markov_head: MarkovKind = "vanilla",
    confidence_reads_markov: bool = True,
    window: int | None = None,
) -> DSparkConfig:
    """Two layers over the outputs of the target's layers 0 and 1."""
    return DSparkConfig(
        hidden_size=target.hidden_size,
        target_vocab_size=target.vocab_size,
        captured_layers=(0, 1),
        num_layers=2,
        layer=tiny_layer(window=window),
        block_size=block,
        markov_head=markov_head,
        markov_rank=5,
        confidence_head=True,
        confidence_reads_markov=confidence_reads_markov,
        draft_vocab_size=draft_vocab_size,
        max_positions=target.max_positions,
    )


def tiny_medusa(
    target: TransformersTarget, draft_vocab_size: int, block: int, *, num_blocks: int = 1, own_heads: bool = False
) -> MedusaConfig:
    """Heads on the last layer."""
    return MedusaConfig(
        hidden_size=target.hidden_size,
        target_vocab_size=target.vocab_size,
        captured_layers=(target.num_layers - 1,),
        num_blocks=num_blocks,
        own_heads=own_heads,
        block_size=block,
        draft_vocab_size=draft_vocab_size,
        max_positions=target.max_positions,
    )


def tiny_eagle3(
    target: TransformersTarget,
    draft_vocab_size: int,
    block: int,
    *,
    captured_layers: tuple[int, ...] = (0, 1),
    own_head: bool = True,
    head_norms: bool = False,
    later_norms: bool = False,
    window: int | None = None,
) -> Eagle3Config:
    """As published at first; ``later_norms`` are those of EAGLE-3.1 and vLLM."""
    return Eagle3Config(
        hidden_size=target.hidden_size,
        target_vocab_size=target.vocab_size,
        captured_layers=captured_layers,
        layer=tiny_layer(head_norms=head_norms, window=window),
        block_size=block,
        own_head=own_head,
        norm_before_fc=False,
        fc_norm=later_norms,
        norm_before_residual=later_norms,
        norm_output=later_norms,
        draft_vocab_size=draft_vocab_size,
        max_positions=target.max_positions,
    )


def tiny_dflash(
    target: TransformersTarget, draft_vocab_size: int, block: int, *, window: int | None = None
) -> DFlashConfig:
    """Two layers over the outputs of the target's layers 0 and 1."""
    return DFlashConfig(
        hidden_size=target.hidden_size,
        target_vocab_size=target.vocab_size,
        captured_layers=(0, 1),
        num_layers=2,
        layer=tiny_layer(window=window),
        block_size=block,
        draft_vocab_size=draft_vocab_size,
        max_positions=target.max_positions,
    )


def tiny_dflash2(target: TransformersTarget, draft_vocab_size: int, block: int) -> DFlash2Config:
    """The same with mixed slots, and paths through three quarters of the vocabulary."""
    shared = tiny_dflash(target, draft_vocab_size, block).model_dump(exclude={"architecture", "layer"})
    return DFlash2Config(
        **shared,
        layer=tiny_layer(),
        convolution_group_size=4,
        selector_rank=5,
        candidates=max(1, 3 * draft_vocab_size // 4),
    )


def tiny_parallel_heads(
    target: TransformersTarget, draft_vocab_size: int, block: int, *, window: int | None = None
) -> ParallelHeadsConfig:
    """Heads on the layer before the last."""
    return ParallelHeadsConfig(
        hidden_size=target.hidden_size,
        target_vocab_size=target.vocab_size,
        captured_layers=(max(0, target.num_layers - 2),),
        layer=tiny_layer(window=window),
        start="random",
        block_size=block,
        draft_vocab_size=draft_vocab_size,
        max_positions=target.max_positions,
    )


CONFIGS: dict[str, Callable[[TransformersTarget, int, int], DrafterConfig]] = {
    "dspark": tiny_dspark,
    "dspark, gated": lambda target, vocab, block: tiny_dspark(
        target, vocab, block, markov_head="gated", confidence_reads_markov=False
    ),
    "dspark, rnn": lambda target, vocab, block: tiny_dspark(target, vocab, block, markov_head="rnn"),
    "dspark, window": lambda target, vocab, block: tiny_dspark(target, vocab, block, window=6),
    "eagle3": tiny_eagle3,
    "eagle3, later norms": lambda target, vocab, block: tiny_eagle3(target, vocab, block, later_norms=True),
    "eagle3, DeepSpec": lambda target, vocab, block: tiny_eagle3(target, vocab, block, own_head=False, head_norms=True),
    "eagle3, window": lambda target, vocab, block: tiny_eagle3(target, vocab, block, window=3),
    "dflash": tiny_dflash,
    "dflash, window": lambda target, vocab, block: tiny_dflash(target, vocab, block, window=6),
    "dflash2": tiny_dflash2,
    "medusa": tiny_medusa,
    "medusa, own heads": lambda target, vocab, block: tiny_medusa(target, vocab, block, num_blocks=2, own_heads=True),
    "parallel heads": tiny_parallel_heads,
    "parallel heads, window": lambda target, vocab, block: tiny_parallel_heads(target, vocab, block, window=6),
}
"""Every architecture and every option that changes its network; the parity suite runs over all of them."""

VARIANTS = {kind for kind in CONFIGS if "," in kind}
"""Options of an architecture; they are among the slow tests wherever the network itself is not what is tested."""


def kinds_with_slow_variants() -> list[Any]:
    """For ``pytest.mark.parametrize``: every kind, variants marked slow."""
    return [pytest.param(kind, marks=pytest.mark.slow) if kind in VARIANTS else kind for kind in CONFIGS]


def tiny_config(
    target: TransformersTarget, *, draft_vocab_size: int | None = None, block: int = BLOCK, kind: str = "dspark"
) -> DrafterConfig:
    """The configuration of a kind of network for this target."""
    return CONFIGS[kind](target, target.vocab_size if draft_vocab_size is None else draft_vocab_size, block)


def random_network(config: DrafterConfig, *, seed: int = 0) -> DraftNetwork:
    """Every weight is random and large enough to matter: a part that is left out changes the logits."""
    generator = torch.Generator().manual_seed(seed)
    network = network_of(config)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(1.0 + 0.3 * noise if name.endswith("norm.weight") else 0.4 * noise)
    return network


def every_other(target: TransformersTarget) -> DraftVocabulary:
    """A draft vocabulary of half of the target's."""
    return DraftVocabulary(torch.arange(0, target.vocab_size, 2), target.vocab_size)


def whole(target: TransformersTarget) -> DraftVocabulary:
    """A draft vocabulary that leaves nothing out."""
    return DraftVocabulary(torch.arange(target.vocab_size), target.vocab_size)


def tiny_drafter(
    target: TransformersTarget,
    *,
    vocabulary: DraftVocabulary | None = None,
    seed: int = 0,
    block: int = BLOCK,
    kind: str = "dspark",
    policy: ProposalPolicy = ProposalPolicy.SAMPLE,
) -> NetworkDrafter:
    """Weights as they are, not packed."""
    chosen = whole(target) if vocabulary is None else vocabulary
    config = tiny_config(target, draft_vocab_size=len(chosen), block=block, kind=kind)
    return NetworkDrafter(random_network(config, seed=seed), chosen, target, policy=policy, optimize=False)


def taught_row(
    target: TransformersTarget,
    token_ids: Int[Tensor, " length"],
    *,
    prompt_length: int,
    job: str = "job/0",
    captured: tuple[int, ...] = (0, 1),
) -> FeatureRow:
    """What the target says of a sequence, in full precision."""
    step = target.teach(token_ids, captured=captured)
    return FeatureRow(
        job=job,
        prompt_length=prompt_length,
        token_ids=token_ids,
        features=step.features,
        final_hidden=step.final_hidden,
        log_normaliser=step.logits.logsumexp(-1),
    )


def provenance(target: TransformersTarget) -> Provenance:
    """Made up, but complete."""
    return Provenance(
        commands=("forerun train",),
        data_sha256="0" * 64,
        data_rows=1,
        data_tokens=2,
        data_licenses={"MIT": 1},
        data_sources={"test": 1},
        target_name=target.name,
        target_fingerprint=target.fingerprint,
        tokenizer_fingerprint=target.tokenizer.fingerprint,
        loss="none",
        steps=0,
        anchors=0,
        seed=0,
        seconds=0.0,
        vocabulary_coverage=1.0,
        validation={},
        versions={},
        machine="none",
        commit=None,
        created="2000-01-01T00:00:00Z",
    )
