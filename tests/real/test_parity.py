"""Every architecture on real text with the real target: training and decoding are one function there, too."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from forerun.drafters import BlockInputs, DraftVocabulary, MaskTokenConfig, NetworkDrafter, network_of
from forerun.recipes import DRAFTERS, demo_prompts, drafter_config
from tests.support.real import real_target
from tests.support.speed import without_shape_checks

pytestmark = pytest.mark.real_model

NUM_TOKENS, FIRST_ANCHOR, STEP, BLOCK, DRAFT_VOCABULARY = 200, 20, 12, 4, 2048
TOLERANCE = 1e-3
"""Total variation of two laws in float32; a position off by one moves them by more than 0.1."""


@cache
def text() -> Tensor:
    """Tokens of the shipped prompts."""
    ids = real_target().tokenizer.encode(" ".join(prompt.text for prompt in demo_prompts()))
    return torch.tensor(ids[:NUM_TOKENS])


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
@torch.inference_mode()
def test_training_and_decoding_compute_the_same_laws_on_real_text(name: str) -> None:
    """Pain 1, on 200 real tokens. Catches what tiny models hide: long contexts, large features, packed layers."""
    target = real_target()
    config = drafter_config(name, target, [f"block_size={BLOCK}", f"draft_vocab_size={DRAFT_VOCABULARY}"])
    if isinstance(config, MaskTokenConfig):
        pytest.skip("the target itself drafts; tests/training/test_mask_token.py has its parity")
    vocabulary = DraftVocabulary(torch.arange(DRAFT_VOCABULARY) * 20, target.vocab_size)
    network = network_of(config)
    generator = torch.Generator().manual_seed(0)
    network.initialise(target, vocabulary, generator=generator)
    for weight in network.parameters():
        weight.add_(0.02 * torch.randn(weight.shape, generator=generator))  # nothing stays at its neutral start
    drafter = NetworkDrafter(network, vocabulary, target)
    ids = text()
    features = target.forward(ids, target.new_cache(), captured=drafter.captured_layers, num_logits=1).features
    anchors = torch.arange(FIRST_ANCHOR, NUM_TOKENS - BLOCK - 1, STEP)
    inputs = BlockInputs(
        token_ids=ids[None],
        features=features[None],
        anchors=anchors[None],
        previous=ids[anchors[:, None] + torch.arange(BLOCK)][None],
    )
    with without_shape_checks():
        taught = drafter.network.teach(inputs, drafter.borrowed).realised_logits(drafter.heads)[0]
        context = drafter.network.new_context(drafter.borrowed, drafter.heads)
        for block, anchor in enumerate(anchors.tolist()):
            context.extend(ids[context.length : anchor], features[context.length : anchor])
            opened = context.open(int(ids[anchor]), BLOCK)
            for slot in range(BLOCK):
                decoded = opened.logits(ids[anchor + 1 : anchor + 1 + slot])
                variation = (decoded.softmax(-1) - taught[block, slot].softmax(-1)).abs().sum() / 2
                assert float(variation) < TOLERANCE, (anchor, slot, float(variation))
