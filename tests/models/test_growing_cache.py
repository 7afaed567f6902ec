"""The cache that grows in place holds what transformers' own holds, after any sequence of operations."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from forerun.models import tiny_target
from forerun.models.growing_cache import growing_cache

HEADS, WIDTH = 2, 3


def contents(cache: Cache) -> list[tuple[Tensor, Tensor]]:
    layers = [layer for layer in cache.layers if isinstance(layer, DynamicLayer)]
    assert len(layers) == len(cache.layers)
    return [(layer.keys, layer.values) for layer in layers if layer.keys is not None and layer.values is not None]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 90)),
            st.tuples(st.just("drop"), st.integers(0, 40)),
            st.tuples(st.just("keep"), st.integers(0, 2)),
        ),
        max_size=8,
    )
)
def test_any_sequence_of_operations(steps: list[tuple[str, int]]) -> None:
    """Catches keys that are lost or left over when the buffers grow, shrink, or lose rows of the batch."""
    generator = torch.Generator().manual_seed(0)
    own, reference, rows = growing_cache(), DynamicCache(), 3
    for number, (kind, size) in enumerate([("add", 2), *steps]):
        length = reference.get_seq_length()
        if kind == "add":
            for layer in range(2):
                keys, values = torch.rand(2, rows, HEADS, size, WIDTH, generator=generator)
                own_view = own.update(keys, values, layer)
                for view, expected in zip(own_view, reference.update(keys, values, layer), strict=True):
                    assert torch.equal(view, expected)
        elif kind == "drop":
            for cache in (own, reference):
                cache.crop(-min(size, length - 1))
        else:
            kept = torch.tensor([row for row in range(rows) if row != size % rows or rows == 1])
            rows = len(kept)
            for cache in (own, reference):
                cache.batch_select_indices(kept)
        assert own.get_seq_length() == reference.get_seq_length(), number
        for (keys, values), (other_keys, other_values) in zip(contents(own), contents(reference), strict=True):
            assert torch.equal(keys, other_keys)
            assert torch.equal(values, other_values)


def test_a_long_answer_token_by_token_equals_one_pass() -> None:
    """Catches the first growth of the buffers, which short tests never reach."""
    target = tiny_target()
    ids = torch.arange(150) * 7 % 64
    cache = target.new_cache()
    rows = [target.forward(ids[place : place + 1], cache).logits for place in range(150)]
    torch.testing.assert_close(torch.cat(rows), target.forward(ids, target.new_cache()).logits, rtol=0, atol=1e-9)
