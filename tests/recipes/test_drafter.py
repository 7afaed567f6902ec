"""Drafter shapes taken over from targets of many families, and the shipped drafter."""

import pytest
import torch

from forerun.drafters.dspark import DSparkNetwork
from forerun.models import EMBEDDED_TARGET, TransformersTarget, tiny_target
from forerun.recipes import dspark_for, embedded_drafter
from tests.support.families import FAMILIES, random_model
from tests.support.tokenizers import text_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_a_drafter_that_runs(family: str) -> None:
    """Catches configurations that name their numbers differently, or leave some out."""
    target = TransformersTarget(random_model(FAMILIES[family]()), text_tokenizer(), name=family)
    config = dspark_for(target, markov_rank=4, draft_vocab_size=50, block_size=3)
    assert (config.hidden_size, config.target_vocab_size, config.num_heads) == (32, 300, 4)
    assert config.captured_layers == (0, 1, 2) and config.max_positions == 128
    network = DSparkNetwork(config)
    network.initialise(generator=torch.Generator().manual_seed(0), final_norm_weight=torch.ones(32))
    features = target.teach(torch.arange(5), captured=config.captured_layers).features
    with torch.inference_mode():
        context = network.context_layers(features[None], 0)
        hidden = network.block_hidden(context, target.embedding_weight[7].view(1, 1, -1), torch.tensor([[5]]), None)
    assert hidden.shape == (1, 1, 3, 32) and bool(torch.isfinite(hidden).all())


def test_the_targets_own_rotary_base_is_taken() -> None:
    """Catches a default in the place of the target's number, in families that nest it, too."""
    llama = TransformersTarget(random_model(FAMILIES["llama"]()), text_tokenizer(), name="llama")
    assert dspark_for(llama).rope_theta == 10_000.0
    config = FAMILIES["llama"]()
    config.rope_parameters = {"rope_type": "default", "rope_theta": 500_000.0}
    assert dspark_for(TransformersTarget(random_model(config), text_tokenizer(), name="far")).rope_theta == 500_000.0
    gemma = TransformersTarget(random_model(FAMILIES["gemma3"]()), text_tokenizer(), name="gemma3")
    assert dspark_for(gemma).rope_theta == 1_000_000.0  # of the layers with full attention


def test_arguments_reach_the_configuration() -> None:
    target = tiny_target(vocab_size=40)
    config = dspark_for(target, num_layers=3, block_size=5, markov_rank=6, draft_vocab_size=30, max_positions=77)
    assert (config.num_layers, config.block_size, config.markov_rank) == (3, 5, 6)
    assert (config.draft_vocab_size, config.max_positions) == (30, 77)
    assert dspark_for(target).draft_vocab_size == 40  # cut to the vocabulary
    assert dspark_for(target).max_positions == target.max_positions


@pytest.mark.parametrize(
    ("layers", "captured"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (4, (0, 1, 2, 3)),
        (6, (1, 2, 3)),
        (12, (1, 3, 5, 7, 9)),
        (30, (1, 8, 14, 20, 27)),
    ],
)
def test_captured_layers_reach_from_the_second_to_the_third_from_last(layers: int, captured: tuple[int, ...]) -> None:
    """Catches layers that do not exist, come twice, or stand out of order. Halves round to even numbers."""
    assert dspark_for(tiny_target(num_layers=layers, vocab_size=8, hidden_size=8)).captured_layers == captured


def test_the_shipped_drafter_belongs_to_the_embedded_target_alone() -> None:
    """Catches a drafter that is offered to targets it was never trained for."""
    assert embedded_drafter("somebody/else") is None
    assert embedded_drafter("") is None
    folder = embedded_drafter(EMBEDDED_TARGET.name)
    assert folder is None or (folder / "config.json").is_file()
