"""The shipped pair: real weights, real text."""

from __future__ import annotations

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import NetworkDrafter, read_provenance
from forerun.engine import generate
from forerun.recipes import demo_prompts, embedded_drafter
from forerun.training.blocks import make_batch
from forerun.training.features import FeatureRow
from forerun.training.teacher import Teacher, realised_logits
from tests.support.real import real_target, shipped_drafter

pytestmark = pytest.mark.real_model

PARITY_TOLERANCE = 2e-2  # half-precision features against float32 ones, logits of about 20


def test_training_forward_equals_decoding_on_real_text() -> None:
    """Catches a shift, mask or norm that differs between training and decoding: perfect training, useless drafter."""
    target, drafter = real_target(), shipped_drafter()
    assert isinstance(drafter, NetworkDrafter)
    answer = generate(target, demo_prompts()[16].text, sampling=SamplingParams(temperature=0.0), max_new_tokens=40)
    prompt_length = len(answer.request.prompt_ids)
    token_ids = torch.tensor([*answer.request.prompt_ids, *answer.token_ids])
    taught = target.teach(token_ids, captured=drafter.captured_layers)
    row = FeatureRow(
        job="test/0",
        prompt_length=prompt_length,
        token_ids=token_ids,
        features=taught.features.half(),
        final_hidden=taught.final_hidden.half(),
        log_normaliser=taught.logits.logsumexp(dim=-1),
    )
    batch = make_batch([row], blocks=8, slots=drafter.max_horizon, generator=None)
    trained, _ = realised_logits(drafter.network, Teacher(target, drafter.vocabulary), batch)
    for block, anchor in enumerate(batch.inputs.anchors[0].tolist()):
        step = target.forward(token_ids[:anchor], target.new_cache(), captured=drafter.captured_layers, num_logits=1)
        opened = drafter.network.new_context(drafter.borrowed, drafter.heads)
        opened.extend(token_ids[:anchor], step.features)
        block_of = opened.open(int(token_ids[anchor]), drafter.max_horizon)
        following = token_ids[anchor + 1 :]
        for slot in range(int(batch.valid[0, block].sum())):
            decoded = block_of.logits(following[:slot])
            torch.testing.assert_close(
                decoded.softmax(-1), trained[0, block, slot].softmax(-1), atol=PARITY_TOLERANCE, rtol=0
            )


def test_provenance_names_data_and_target_honestly() -> None:
    """Catches a drafter that was trained for other weights, or on prompts that may not shape shipped weights."""
    folder = embedded_drafter(real_target().name)
    assert folder is not None
    provenance = read_provenance(folder)
    assert provenance.target_fingerprint == real_target().fingerprint
    assert provenance.tokenizer_fingerprint == real_target().tokenizer.fingerprint
    assert set(provenance.data_licenses) <= {"MIT", "Apache-2.0"}
    assert sum(file.stat().st_size for file in folder.iterdir()) < 40_000_000
