"""What all targets promise, and what identifies one."""

import copy

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from forerun.errors import ForerunError
from forerun.models import Target, TransformersTarget, tiny_target
from tests.support.families import FAMILIES, random_model
from tests.support.targets import random_table, successor_target

TARGETS: dict[str, Target] = {
    "table": random_table(1, vocab_size=16),
    "tiny": tiny_target(vocab_size=16, num_layers=3),
    "tied": tiny_target(vocab_size=16, tied=True),
    "successor": successor_target({1: 2}, vocab_size=16),
}
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]


def test_pieces_equal_the_whole(target: Target) -> None:
    """Catches a cache that does not continue where it stopped."""
    whole = target.forward(IDS, target.new_cache(), captured=(0,))
    cache = target.new_cache()
    steps = [target.forward(IDS[start:stop], cache, captured=(0,)) for start, stop in ((0, 3), (3, 4), (4, 8))]
    assert cache.length == len(IDS)
    torch.testing.assert_close(torch.cat([step.logits for step in steps]), whole.logits)
    torch.testing.assert_close(torch.cat([step.features for step in steps]), whole.features)
    assert whole.logits.shape == (8, target.vocab_size)
    assert whole.features.shape == (8, 1, target.hidden_size)
    assert whole.logits.dtype == target.dtype == torch.float64


def test_the_last_rows_are_the_last_rows(target: Target) -> None:
    """Catches ``num_logits`` rows from the front, and features that are cut with the logits."""
    whole = target.forward(IDS, target.new_cache())
    step = target.forward(IDS, target.new_cache(), num_logits=3, captured=(0,))
    torch.testing.assert_close(step.logits, whole.logits[-3:])
    assert len(step.features) == len(IDS)


def test_after_a_roll_back_other_tokens_follow(target: Target) -> None:
    """Catches keys of rejected tokens that stay visible."""
    cache = target.new_cache()
    target.forward(IDS, cache)
    cache.rollback(8)
    assert cache.length == 8
    cache.rollback(2)
    assert cache.length == 2
    other = torch.tensor([7, 7, 8])
    expected = target.forward(torch.cat([IDS[:2], other]), target.new_cache(), num_logits=3).logits
    torch.testing.assert_close(target.forward(other, cache).logits, expected)
    with pytest.raises(AssertionError):
        cache.rollback(6)


def test_caches_do_not_see_each_other(target: Target) -> None:
    """Catches state in the target itself."""
    caches = [target.new_cache(), target.new_cache()]
    alone = [target.forward(ids, target.new_cache()).logits for ids in (IDS, IDS.flip(0))]
    in_turn = [
        torch.cat([target.forward(ids[start : start + 4], cache).logits for start in (0, 4)])
        for ids, cache in zip((IDS, IDS.flip(0)), caches, strict=True)
    ]
    for rows, expected in zip(in_turn, alone, strict=True):
        torch.testing.assert_close(rows, expected)


def test_a_tiny_target_is_repeatable_and_leaves_the_global_seed_alone() -> None:
    """Catches tests that change each other's random numbers."""
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = tiny_target(seed=3)
    assert torch.equal(torch.rand(1), expected)
    assert first.fingerprint == tiny_target(seed=3).fingerprint != tiny_target(seed=4).fingerprint


def changed(original: TransformersTarget, change: float) -> TransformersTarget:
    model = copy.deepcopy(original.model)
    weight = dict(model.named_parameters())["model.layers.1.mlp.down_proj.weight"]
    with torch.no_grad():
        weight[7, 11] += change
    return TransformersTarget(model, None, name=original.name)


def test_the_fingerprint_follows_the_weights_and_not_the_name() -> None:
    """Catches a drafter or cache that is taken over by a fine-tune, or refused because the folder moved."""
    original = tiny_target()
    assert changed(original, 0.0).fingerprint == original.fingerprint
    assert changed(original, 0.1).fingerprint != original.fingerprint
    assert TransformersTarget(original.model, None, name="other").fingerprint == original.fingerprint
    assert tiny_target(max_positions=128).fingerprint != original.fingerprint  # the configuration counts too
    assert tiny_target(stop_ids=(3,)).fingerprint != original.fingerprint


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_fingerprint_is_that_of_the_weights_in_bfloat16(dtype: torch.dtype) -> None:
    """A target is the same whether it is loaded in float32, float64 or bfloat16; the type is recorded elsewhere.

    Catches a drafter that is refused because its target was loaded in another type.
    """
    model = random_model(FAMILIES["llama"]())
    expected = TransformersTarget(copy.deepcopy(model), None, name="a").fingerprint
    nn.Module.to(model, dtype)
    assert TransformersTarget(model, None, name="a").fingerprint == expected


def test_a_model_without_a_head_is_refused() -> None:
    """Catches encoders and bare decoders: without a head there are no laws."""
    body = random_model(FAMILIES["llama"]()).base_model
    assert isinstance(body, PreTrainedModel)
    with pytest.raises(ForerunError, match="no language-model head"):
        TransformersTarget(body, None, name="body")
