"""A mask token in the real target: what training computes is what decoding computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from forerun.drafters import MaskTokenConfig, MaskTokenStudent
from forerun.recipes import demo_prompts, drafter_config
from forerun.training import FeatureRow
from forerun.training.mask_token import Spans
from tests.support.real import real_target

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

TOKENS, SLOTS = 200, 8
TOLERANCE = 1e-3
"""Float32, logits of about 30: packed weights and other widths of a pass differ by 1e-4, a wrong mask by far more."""


def test_training_forward_equals_decoding_on_real_text() -> None:
    """Untrained masks with random updates behind 200 tokens. Catches a shift or mask that only one side has."""
    target = real_target()
    config = drafter_config("mask-token", target, [f"block_size={SLOTS}"])
    assert isinstance(config, MaskTokenConfig)
    student = MaskTokenStudent.of(config, target)
    generator = torch.Generator().manual_seed(0)
    student.initialise(generator=generator)
    for name, parameter in student.adapter.named_parameters():
        if name.startswith("up."):
            nn.init.normal_(parameter, std=0.02, generator=generator)
    student.adapter.requires_grad_(False)
    text = " ".join(prompt.text for prompt in demo_prompts())
    token_ids = torch.tensor(target.tokenizer.encode(text)[:TOKENS])
    nothing = torch.zeros(TOKENS, 1)
    row = FeatureRow(
        job="test/0",
        prompt_length=20,
        token_ids=token_ids,
        features=nothing[:, None],
        final_hidden=nothing,
        log_normaliser=nothing[:, 0],
    )
    spans = Spans.of([row], blocks=6, slots=SLOTS, generator=None)
    with torch.no_grad():
        trained = spans.logits(target, student.mask_id)[0]
    masks = torch.full((SLOTS - 1,), student.mask_id)
    for block, anchor in enumerate(spans.anchors[0].tolist()):
        cache = target.new_cache()
        target.forward(token_ids[:anchor], cache, num_logits=1)
        decoded = target.forward(torch.cat([token_ids[anchor : anchor + 1], masks]), cache).logits
        torch.testing.assert_close(trained[block], decoded, rtol=0, atol=TOLERANCE)
