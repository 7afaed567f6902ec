"""What parallel heads alone have: a start as the target's last layer, and a query at the last committed token."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.drafters import DraftVocabulary, ParallelHeadsNetwork, can_start_as_last_layer
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from forerun.recipes import parallel_heads_for
from forerun.training.blocks import make_batch
from forerun.training.teacher import Teacher, realised_logits
from tests.support.families import FAMILIES, random_model
from tests.support.networks import (
    BLOCK,
    every_other,
    random_network,
    taught_row,
    tiny_layer,
    tiny_parallel_heads,
    whole,
)

TARGET: TransformersTarget = tiny_target(vocab_size=24, num_layers=3, dtype=torch.float32)
TEXT = torch.arange(30) * 7 % 24
ANCHORS = (5, 6, 20)
ROUNDING = 1e-4
"""Float32 logits of size 10."""


def logits_of(
    network: ParallelHeadsNetwork, vocabulary: DraftVocabulary, target: TransformersTarget = TARGET
) -> Float[Tensor, "anchors slots draft_vocab"]:
    row = taught_row(target, TEXT, prompt_length=ANCHORS[0], captured=network.config.captured_layers)
    batch = make_batch([row], blocks=99, slots=BLOCK, generator=None)
    blocks = [batch.inputs.anchors[0].tolist().index(anchor) for anchor in ANCHORS]
    with torch.no_grad():
        return realised_logits(network, Teacher(target, vocabulary), batch)[0][0, blocks]


def test_heads_begin_as_the_targets_last_layer() -> None:
    """Catches a wrong trunk, a missing norm, a query at the anchor, or keys that end before the query.

    The oracle is the target's own row of logits at the token before the anchor.
    """
    vocabulary = every_other(TARGET)
    config = parallel_heads_for(TARGET, block_size=BLOCK, draft_vocab_size=len(vocabulary))
    assert (config.start, config.captured_layers) == ("last_layer", (1,))
    network = ParallelHeadsNetwork(config)
    network.initialise(TARGET, vocabulary, generator=torch.Generator())
    rows = TARGET.teach(TEXT, captured=(0,)).logits[[anchor - 1 for anchor in ANCHORS]][:, ::2]
    found = logits_of(network, vocabulary)
    for slot in range(BLOCK):
        torch.testing.assert_close(found[:, slot], rows, rtol=0, atol=ROUNDING)


def test_heads_are_layers_of_their_own() -> None:
    """Catches heads that share weights: a change of one must move its own slot alone."""
    network = random_network(tiny_parallel_heads(TARGET, 24, BLOCK))
    assert isinstance(network, ParallelHeadsNetwork)
    before = logits_of(network, whole(TARGET))
    with torch.no_grad():
        for weight in network.heads[2].parameters():
            weight.mul_(1.5)
    after = logits_of(network, whole(TARGET))
    assert [slot for slot in range(BLOCK) if not torch.equal(before[:, slot], after[:, slot])] == [2]


STARTS = {"llama": True, "qwen3": True, "qwen2": False, "gemma3": False, "olmo2": False, "phi3": False}


@pytest.mark.parametrize("family", STARTS)
def test_only_layers_of_the_same_kind_are_copied(family: str) -> None:
    """Catches weights that fit by name and compute something else: other norms, activations or positions."""
    target = TransformersTarget(random_model(FAMILIES[family]()), None, name=family)
    config = parallel_heads_for(target, block_size=2, draft_vocab_size=40)
    assert (config.start == "last_layer") == STARTS[family]
    assert can_start_as_last_layer(config.layer, target) == STARTS[family]
    if not STARTS[family]:
        wrong = ParallelHeadsNetwork(config.model_copy(update={"start": "last_layer"}))
        with pytest.raises(ForerunError, match=f"cannot begin as the last layer of {family} .*; set start to random"):
            wrong.initialise(target, whole(target), generator=torch.Generator())


def test_a_layer_that_computes_something_else_is_refused() -> None:
    """Catches a copy that goes by names and shapes alone: another activation has the same tensors."""
    config = FAMILIES["llama"]()
    config.hidden_act = "gelu"
    target = TransformersTarget(random_model(config), None, name="gelu")
    network = ParallelHeadsNetwork(tiny_parallel_heads(target, 40, 2).model_copy(update={"start": "last_layer"}))
    assert network.config.layer.head_norms
    plain = network.config.layer.model_copy(update={"head_norms": False, "intermediate_size": 48})
    network = ParallelHeadsNetwork(network.config.model_copy(update={"layer": plain}))
    with pytest.raises(ForerunError, match="computes something else from the same weights"):
        network.initialise(target, whole(target), generator=torch.Generator())


def test_another_shape_and_a_target_of_one_layer_are_refused() -> None:
    """Catches copies that are cut or broadcast."""
    assert not can_start_as_last_layer(tiny_layer(head_norms=True), TARGET)
    assert not can_start_as_last_layer(tiny_layer(head_norms=False), tiny_target(num_layers=1))
    narrow = tiny_layer(head_norms=False).model_copy(update={"intermediate_size": 10})
    assert not can_start_as_last_layer(narrow, TARGET)
