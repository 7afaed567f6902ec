"""Mask tokens: what they compute, and that nothing else of the model moves."""

import copy
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import DynamicCache

from forerun.errors import ForerunError
from forerun.models import Block, MaskAdapter, TransformersTarget, find_sites, tiny_target
from forerun.models.mask_adapter import linear_size
from tests.models.test_recorded_pass import Tape
from tests.support.families import FAMILIES, random_model
from tests.support.masks import add_mask, random_adapter
from tests.support.tokenizers import VOCAB_SIZE

CLOSE = 1e-10
"""Float64 through three layers; sums in another order differ by 1e-15."""
FLOAT32_SOFTMAX = {"gemma2": 1e-5}
IDS = torch.tensor([7, 30, 4, 99, 12, 5, 5, 61, 200, 3])


def family_target(family: str, dtype: torch.dtype = torch.float64, *, optimize: bool = False) -> TransformersTarget:
    model = random_model(FAMILIES[family]())
    nn.Module.to(model, dtype)
    if family == "mixtral":
        model.set_experts_implementation("eager")  # the grouped kernels refuse float64
    return TransformersTarget(model, None, name=family, optimize=optimize)


def merged(target: TransformersTarget, adapter: MaskAdapter) -> Any:
    """A model of which every row is a mask row: the updates are added to its weights."""
    model = copy.deepcopy(target.model)
    layers = dict(model.named_modules())
    stack = next(name for name, module in target.model.named_modules() if module is target.layers)
    with torch.no_grad():
        for name in adapter.sites:
            key = name.replace(".", "/")
            update = adapter.scale * adapter.up[key] @ adapter.down[key]  # (outputs, inputs)
            weight = layers[f"{stack}.{name}"].weight
            assert isinstance(weight, Tensor)
            weight += update if isinstance(layers[f"{stack}.{name}"], nn.Linear) else update.T
    return model


def expected_rows(
    target: TransformersTarget, adapter: MaskAdapter, prefix: Tensor, masks: int
) -> Float[Tensor, "masks vocab"]:
    """Masks behind a prefix, by transformers alone: the model fills a cache, the merged model reads masks after it."""
    cache = DynamicCache(config=target.model.config.get_text_config())
    model: Any = target.model
    with torch.no_grad():
        model(input_ids=prefix[None], cache=cache, use_cache=True)
        rows = merged(target, adapter)(
            inputs_embeds=adapter.embedding.expand(1, masks, -1), cache=cache, use_cache=True
        ).logits[0]
    assert isinstance(rows, Tensor)
    return rows


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "qwen2", "gpt2", "gpt-neox", "phi3", "mixtral"])
def test_masks_ride_in_a_pass_and_no_real_row_notices(family: str) -> None:
    """Catches updates that reach real rows or miss masks, masks that real tokens see, and positions that count masks.

    Behind tokens 0, 2 and 3 of the block stand 2, 1 and 3 masks; windows are 8 tokens long.
    """
    target = family_target(family)
    adapter = random_adapter(target)
    close = FLOAT32_SOFTMAX.get(family, CLOSE)
    cache = target.new_cache()
    target.forward(IDS, cache)
    block = torch.tensor([8, 44, 17, 9])
    plain = target.forward(block, cache, captured=(0, 1))
    cache.rollback(len(IDS))
    mask = target.extra_tokens.add(adapter)
    again = target.forward(block, cache, captured=(0, 1))
    assert torch.equal(again.logits, plain.logits)
    cache.rollback(len(IDS))
    mixed = torch.cat([block, torch.full((6,), mask)])
    parents = (-1, 0, 1, 2, 0, 4, 2, 3, 7, 8)
    step = target.forward_batch([Block(cache=cache, token_ids=mixed, parents=parents)], captured=(0, 1))[0]
    torch.testing.assert_close(step.logits[:4], plain.logits, rtol=0, atol=close)
    torch.testing.assert_close(step.features[:4], plain.features, rtol=0, atol=close)
    places = {0: (4, 5), 2: (6,), 3: (7, 8, 9)}
    for token, rows in places.items():
        expected = expected_rows(target, adapter, torch.cat([IDS, block[: token + 1]]), len(rows))
        torch.testing.assert_close(step.logits[list(rows)], expected, rtol=0, atol=close)
    cache.keep(len(IDS), (0, 1, 2))
    cache_alone = target.new_cache()
    target.forward(torch.cat([IDS, block[:3]]), cache_alone)
    after = [target.forward(torch.tensor([77]), each).logits for each in (cache, cache_alone)]
    torch.testing.assert_close(*after, rtol=0, atol=close)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_plain_pass_keeps_its_bits(optimize: bool) -> None:
    """Float32, joint and packed layers too: catches hooks that compute where no mask stands."""
    target = family_target("llama", torch.float32, optimize=optimize)
    for token_ids in (IDS, IDS[:1]):
        before = target.forward(token_ids, target.new_cache(), captured=(1,))
        mask = add_mask(target)
        after = target.forward(token_ids, target.new_cache(), captured=(1,))
        assert torch.equal(after.logits, before.logits) and torch.equal(after.features, before.features)
        other = target.forward(torch.cat([token_ids, torch.tensor([mask])]), target.new_cache()).logits
        assert not torch.equal(other[-1], before.logits[-1])


def test_joint_and_packed_layers_are_updated_like_plain_ones() -> None:
    """Catches updates that a joint product swallows."""
    rows = []
    for optimize in (False, True):
        target = family_target("llama", torch.float32, optimize=optimize)
        mask = add_mask(target)
        rows.append(target.forward(torch.cat([IDS, torch.tensor([mask, mask])]), target.new_cache()).logits)
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-4, atol=1e-4)


def test_two_mask_tokens_of_one_model_do_not_mix() -> None:
    """Catches an adapter that acts on all extra tokens: two drafters may share a target."""
    target = family_target("llama")
    first, second = random_adapter(target, seed=1), random_adapter(target, seed=2)
    ids = [target.extra_tokens.add(adapter) for adapter in (first, second)]
    assert ids == [VOCAB_SIZE, VOCAB_SIZE + 1]
    tokens = torch.cat([IDS, torch.tensor(ids)])
    parents = (*range(-1, len(IDS) - 1), len(IDS) - 1, len(IDS) - 1)
    step = target.forward_batch([Block(cache=target.new_cache(), token_ids=tokens, parents=parents)])[0]
    for row, adapter in enumerate((first, second), start=len(IDS)):
        expected = expected_rows(target, adapter, IDS, 1)
        torch.testing.assert_close(step.logits[row : row + 1], expected, rtol=0, atol=CLOSE)


def test_recorded_passes_know_masks() -> None:
    """Catches a recording made without masks that is replayed for one with them, and masks frozen in their places."""
    targets = [
        TransformersTarget(tiny_target(vocab_size=256, num_layers=1).model, None, name="llama", recorder=tape)
        for tape in (None, Tape(traced=True))
    ]
    caches = [target.new_cache() for target in targets]
    masks = [target.extra_tokens.add(random_adapter(target, names=("q_proj", "up_proj"))) for target in targets]
    for tokens in (IDS.tolist(), [5, 6, 7], [5, masks[0], masks[0]], [masks[0], 8, 9], [1, 2, 3]):
        steps = [target.forward(torch.tensor(tokens), cache) for target, cache in zip(targets, caches, strict=True)]
        torch.testing.assert_close(steps[0].logits, steps[1].logits, rtol=0, atol=CLOSE)
        for cache in caches:
            cache.rollback(len(IDS))


def test_whole_sequences_in_one_pass() -> None:
    """The pass without a cache: catches masks by slot instead of by what the caller says, and lost gradients."""
    target = tiny_target()
    adapter = random_adapter(target).requires_grad_(True)
    mask = target.extra_tokens.add(adapter)
    prefix, width = IDS % 64, len(IDS)
    visible = torch.ones(width + 2, width + 2, dtype=torch.bool).tril()
    visible[width:, 4:width] = False  # two masks behind token 3, in the last slots
    tokens = torch.cat([prefix, torch.tensor([mask, mask])])
    positions = torch.tensor([*range(width), 4, 5])
    logits = target.forward_visible(tokens[None], positions[None], visible[None], num_logits=2)[0]
    expected = target.forward(torch.cat([prefix[:4], tokens[-2:]]), target.new_cache()).logits[-2:]
    torch.testing.assert_close(logits.detach(), expected.clone(), rtol=0, atol=CLOSE)
    logits.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in adapter.parameters())
    assert all(parameter.grad is None for parameter in target.model.parameters())


def test_sites_are_found_by_name() -> None:
    """Catches experts and routers, whose inputs are no rows of tokens, and names that match nothing."""
    target = family_target("mixtral")
    every = find_sites(target.layers, (), target.smallest_pass)
    assert {name.rpartition(".")[2] for name in every} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    some = find_sites(target.layers, ("q_proj", "o_proj"), target.smallest_pass)
    modules = dict(target.layers.named_modules())
    assert some == {name: linear_size(modules[name]) for name in every if name[-6:] in ("q_proj", "o_proj")}
    with pytest.raises(ForerunError, match="no linear layer is called 'query'; this model has k_proj, o_proj"):
        find_sites(target.layers, ("query",), target.smallest_pass)


def test_another_models_mask_token_is_refused() -> None:
    """Catches updates of another shape, which would fail in the middle of a pass or not at all."""
    adapter = random_adapter(tiny_target(hidden_size=16))
    with pytest.raises(ForerunError, match=r"updates layer 0.self_attn.q_proj of size \(16, 16\); this model has \(32"):
        tiny_target().extra_tokens.add(adapter)
    with pytest.raises(ForerunError, match=r"updates layer 1\.\S+ of size \(32, 32\); this model has None there"):
        tiny_target(num_layers=1).extra_tokens.add(random_adapter(tiny_target()))
