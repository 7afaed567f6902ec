"""Drafter shapes taken over from targets of many families, and the shipped drafter."""

import pytest
import torch

from forerun.drafters import Borrowed, DraftVocabulary, DSparkNetwork, PlainHead
from forerun.models import EMBEDDED_TARGET, TransformersTarget, tiny_target
from forerun.recipes import dspark_for, eagle3_deepspec_for, eagle3_for, embedded_drafter
from tests.support.families import FAMILIES, random_model
from tests.support.tokenizers import text_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_a_drafter_that_runs(family: str) -> None:
    """Catches configurations that name their numbers differently, or leave some out."""
    target = TransformersTarget(random_model(FAMILIES[family]()), text_tokenizer(), name=family)
    config = dspark_for(target, markov_rank=4, draft_vocab_size=50, block_size=3)
    assert (config.hidden_size, config.target_vocab_size, config.layer.num_heads) == (32, 300, 4)
    assert config.captured_layers == (0, 1, 2) and config.max_positions == 128
    network = DSparkNetwork(config)
    vocabulary = DraftVocabulary(torch.arange(50), 300)
    network.initialise(target, vocabulary, generator=torch.Generator().manual_seed(0))
    features = target.teach(torch.arange(5), captured=config.captured_layers).features
    borrowed = Borrowed.of(target, vocabulary, dtype=torch.float32, device="cpu")
    with torch.inference_mode():
        context = network.new_context(borrowed, [PlainHead(weight) for weight in network.head_weights(borrowed)])
        context.extend(torch.arange(5), features)
        logits = context.open(7, 3).logits(torch.empty(0, dtype=torch.int64))
    assert logits.shape == (50,) and bool(torch.isfinite(logits).all())


ROPES: dict[str, dict[str, object]] = {
    "plain": {"rope_type": "default", "rope_theta": 500_000.0},
    "scaled": {
        "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", ROPES)
def test_the_targets_own_rotary_frequencies_are_taken(name: str) -> None:
    """Pain 22. Catches a default base or a lost scaling; the oracle is the buffer that the target computes with."""
    config = FAMILIES["llama"]()
    config.rope_parameters = ROPES[name]
    model = random_model(config)
    rope = dspark_for(TransformersTarget(model, text_tokenizer(), name=name)).layer.rope
    own = model.get_submodule("model.rotary_emb")
    expected = dict(own.named_buffers())["inv_freq"].double()
    torch.testing.assert_close(torch.tensor(rope.inverse_frequencies).double(), expected, rtol=1e-6, atol=0)
    assert rope.attention_scaling == pytest.approx(own.attention_scaling)


def test_of_nested_frequencies_those_of_full_attention_are_taken() -> None:
    gemma = TransformersTarget(random_model(FAMILIES["gemma3"]()), text_tokenizer(), name="gemma3")
    frequencies = dspark_for(gemma).layer.rope.inverse_frequencies
    assert frequencies[1] == pytest.approx(1_000_000.0 ** (-1 / len(frequencies)))


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


@pytest.mark.parametrize(
    ("layers", "captured"), [(1, (0,)), (2, (0, 1)), (6, (1, 2)), (12, (1, 5, 8)), (30, (1, 14, 26)), (36, (1, 17, 32))]
)
def test_eagle3_reads_low_middle_and_high_layers(layers: int, captured: tuple[int, ...]) -> None:
    """Pain 10. EAGLE's 2, N / 2 and N - 3 are inputs; for 36 layers SpecForge writes 1, 17 and 32."""
    assert eagle3_for(tiny_target(num_layers=layers, vocab_size=8, hidden_size=8)).captured_layers == captured


def test_the_two_published_shapes_of_eagle3() -> None:
    target = tiny_target(num_layers=12, vocab_size=40)
    first = eagle3_for(target, draft_vocab_size=30, block_size=5, max_positions=77)
    assert (first.draft_vocab_size, first.block_size, first.max_positions) == (30, 5, 77)
    assert first.own_head and not first.layer.head_norms
    other = eagle3_deepspec_for(target)
    assert (other.captured_layers, other.draft_vocab_size) == ((1, 3, 5, 7, 9), 40)
    assert not other.own_head and other.layer.head_norms
    assert (other.block_size, other.max_positions) == (7, target.max_positions)


def test_the_shipped_drafter_belongs_to_the_embedded_target_alone() -> None:
    """Catches a drafter that is offered to targets it was never trained for."""
    assert embedded_drafter("somebody/else") is None
    assert embedded_drafter("") is None
    folder = embedded_drafter(EMBEDDED_TARGET.name)
    assert folder is None or (folder / "config.json").is_file()
