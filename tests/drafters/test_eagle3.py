"""What EAGLE-3 alone has: pairs, flags of its norms, the mask of training-time test, heads of two kinds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from forerun.drafters import (
    Borrowed,
    DraftVocabulary,
    Eagle3Config,
    Eagle3Network,
    Need,
    PlainHead,
    load_network_drafter,
    save_drafter,
)
from forerun.drafters.eagle3_layer import slot_visibility
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import make_batch
from tests.support.families import FAMILIES, random_model
from tests.support.networks import every_other, provenance, random_network, taught_row, tiny_eagle3
from tests.support.tokenizers import text_tokenizer

VOCAB = 24
SLOTS = 4
TARGET: TransformersTarget = tiny_target(vocab_size=VOCAB, num_layers=3)
TEXT = torch.arange(17) * 7 % VOCAB
CLOSE = 1e-10
"""Float64: the same sums in another order."""


def network_with(**flags: bool) -> Eagle3Network:
    config = tiny_eagle3(TARGET, VOCAB, SLOTS, captured_layers=(0, 1, 2))
    network = random_network(Eagle3Config.model_validate(config.model_dump() | flags), seed=3)
    assert isinstance(network, Eagle3Network)
    return network.double()


def normed(vector: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return weight * vector / (vector.square().mean() + eps).sqrt()


def turned(heads: Tensor, position: int, frequencies: tuple[float, ...]) -> Tensor:
    """Number i and number i + half are real and imaginary part of a complex number that turns."""
    half = heads.shape[-1] // 2
    angles = torch.tensor([position * frequency for frequency in frequencies], dtype=torch.float64)
    complexes = torch.complex(heads[..., :half], heads[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([complexes.real, complexes.imag], dim=-1)


def published(network: Eagle3Network, features: Tensor, tokens: list[int], anchor: int) -> Float[Tensor, "slots vocab"]:
    """A block as SGLang and vLLM run it: one causal sequence of pairs, one vector and one head at a time."""
    config, weights = network.config, dict(network.named_parameters())
    shape, embedding = config.layer, TARGET.embedding_weight
    fed_back: list[Tensor] = []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    logits = []
    for place in range(anchor + SLOTS):
        token = embedding[tokens[place + 1]]
        if place < anchor:
            rows = features[place]
            if config.fc_norm:
                each = zip(rows, weights["each_feature_norm.weight"], strict=True)
                rows = torch.stack([normed(row, weight) for row, weight in each])
            joint = rows.flatten()
            if config.norm_before_fc:
                joint = normed(joint, weights["joint_feature_norm.weight"])
            hidden = weights["feature_projection.weight"] @ joint
        else:
            hidden = fed_back[-1]
        hidden_normed = normed(hidden, weights["layer.hidden_norm.weight"])
        pair = torch.cat([normed(token, weights["layer.embedding_norm.weight"]), hidden_normed])
        query, key, value = (
            (weights[f"layer.attention.{name}.weight"] @ pair).view(-1, shape.head_dim)
            for name in ("query", "key", "value")
        )
        frequencies = shape.rope.inverse_frequencies
        keys.append(turned(key, place, frequencies))
        values.append(value)
        query = turned(query, place, frequencies)
        heads = []
        for head in range(shape.num_heads):
            group = head * shape.num_kv_heads // shape.num_heads
            scores = torch.stack([query[head] @ one[group] for one in keys]) / shape.head_dim**0.5
            heads.append(sum(share * one[group] for share, one in zip(scores.softmax(0), values, strict=True)))
        attended = weights["layer.attention.output.weight"] @ torch.cat(heads)
        states = (hidden_normed if config.norm_before_residual else hidden) + attended
        inner = normed(states, weights["layer.mlp_norm.weight"])
        gate, up = weights["layer.mlp.gate.weight"] @ inner, weights["layer.mlp.up.weight"] @ inner
        states = states + weights["layer.mlp.down.weight"] @ (gate * gate.sigmoid() * up)
        final = normed(states, weights["final_norm.weight"])
        if place >= anchor - 1:
            fed_back.append(final if config.norm_output else states)
            logits.append((weights["head"] if config.own_head else TARGET.head_weight) @ final)
    return torch.stack(logits[:SLOTS])


FLAGS: dict[str, dict[str, bool]] = {
    "eagle-3": {},
    "eagle-3.1": {"fc_norm": True, "norm_output": True},
    "gpt-oss": {"norm_before_fc": True, "norm_before_residual": True},
    "target's head": {"own_head": False},
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_block_is_what_the_published_layer_computes(name: str) -> None:
    """Pains 1, 9, 21. Catches norms that are missing, doubled or in another place, and halves that changed places.

    A position off by one against the pair's, and a feature of another token, too.
    """
    network = network_with(**FLAGS[name])
    step = TARGET.teach(TEXT, captured=(0, 1, 2))
    vocabulary = DraftVocabulary(torch.arange(VOCAB), VOCAB)
    borrowed = Borrowed.of(TARGET, vocabulary, dtype=torch.float64, device="cpu")
    batch = make_batch([taught_row(TARGET, TEXT, prompt_length=2, captured=(0, 1, 2))], blocks=99, slots=SLOTS,
                       generator=None)  # fmt: skip
    inputs = replace(batch.inputs, features=step.features[None])  # the batch's are in float32
    heads = [PlainHead(weight) for weight in network.head_weights(borrowed)]
    with torch.no_grad():
        logits = network.teach(inputs, borrowed).logits(heads)
        for anchor in (2, 7):
            block = inputs.anchors[0].tolist().index(anchor)
            expected = published(network, step.features, TEXT.tolist(), anchor)
            torch.testing.assert_close(logits[0, block], expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("window", [None, 3])
def test_the_mask_of_training_time_test_is_its_definition(window: int | None) -> None:
    """Causal on the keys of step 1, diagonal on those of later steps; catches other blocks' slots and later pairs."""
    first, length = torch.tensor([[0, 3, 5], [4, 1, 2]]), 7
    for slot in range(4):
        found = slot_visibility(first, slot=slot, length=length, window=window)
        assert found.shape == (2, 3, length + 3 * slot)
        for row in range(2):
            for block in range(3):
                start = int(first[row, block])
                near = [place for place in range(start + slot + 1) if window is None or place > start + slot - window]
                pairs = {place for place in near if place <= start}
                own = {length + 3 * (place - start - 1) + block for place in near if place > start}
                assert set(found[row, block].nonzero()[:, 0].tolist()) == pairs | own


def test_ten_tokens() -> None:
    """C46. State i and depth d predict token i + d + 2; the last prompt state is used; no label beyond the end.

    The answer is tokens 4..9: depth 0 trains labels 5..9, depth 1 one fewer. Token 4 is the target's own.
    """
    row = taught_row(TARGET, TEXT[:10], prompt_length=4, captured=(0, 1, 2))
    batch = make_batch([row], blocks=9, slots=3, generator=None)
    anchors = batch.inputs.anchors[0].tolist()
    for depth, labels in enumerate([[5, 6, 7, 8, 9], [6, 7, 8, 9], [7, 8, 9]]):
        kept = batch.valid[0, :, depth].nonzero()[:, 0].tolist()
        states = [anchors[block] - 1 for block in kept]  # the pair of slot 0 has the feature before the anchor
        assert [state + depth + 2 for state in states] == labels
        assert batch.labels[0, kept, depth].tolist() == TEXT[labels].tolist()
        assert states[0] == 3


def test_the_gradient_goes_through_every_slot() -> None:
    """Training-time test, float64: a slot whose feedback is detached still has gradients, but not these.

    The oracle is the central difference of the last slot's logits along a random direction of the features' mixture.
    """
    network = network_with()
    row = taught_row(TARGET, TEXT, prompt_length=4, captured=(0, 1, 2))
    inputs = make_batch([row], blocks=1, slots=SLOTS, generator=None).inputs
    inputs = replace(inputs, features=inputs.features.double())
    vocabulary = DraftVocabulary(torch.arange(VOCAB), VOCAB)
    borrowed = Borrowed.of(TARGET, vocabulary, dtype=torch.float64, device="cpu")
    weight = network.feature_projection.weight
    direction = torch.randn(weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def last_slot(step: float) -> Tensor:
        with torch.no_grad():
            weight.add_(direction, alpha=step)
        total = network.teach(inputs, borrowed).terms[0][0, 0, -1].square().sum() / 2
        with torch.no_grad():
            weight.sub_(direction, alpha=step)
        return total

    numeric = float((last_slot(1e-5) - last_slot(-1e-5)).detach()) / 2e-5
    (gradient,) = torch.autograd.grad(network.teach(inputs, borrowed).terms[0][0, 0, -1].square().sum() / 2, weight)
    assert float((gradient * direction).sum()) == pytest.approx(numeric, rel=1e-5)


def test_the_head_begins_as_the_targets_rows() -> None:
    """Catches rows of other tokens, and draws from the global generator."""
    vocabulary = every_other(TARGET)
    networks = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        fresh = Eagle3Network(tiny_eagle3(TARGET, len(vocabulary), SLOTS))
        fresh.initialise(TARGET, vocabulary, generator=torch.Generator().manual_seed(7))
        networks.append(fresh)
    for name, weight in networks[0].state_dict().items():
        assert torch.equal(weight, networks[1].state_dict()[name]), name
    assert torch.equal(networks[0].head.double(), TARGET.head_weight[::2].float().double())
    assert torch.equal(networks[0].final_norm.weight, TARGET.final_norm_weight.float())


def test_what_it_needs_depends_on_its_head() -> None:
    assert network_with().needs == {Need.FEATURES, Need.EMBEDDING}
    assert network_with(own_head=False).needs == {Need.FEATURES, Need.EMBEDDING, Need.HEAD}


def test_features_are_normed_once() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        network_with(norm_before_fc=True, fc_norm=True)


def test_a_checkpoint_whose_flags_were_changed_is_refused(tmp_path: Path) -> None:
    """Pain 21. The weights fit both readings; only the golden block can tell them apart."""
    target = TransformersTarget(random_model(FAMILIES["llama"]()), text_tokenizer(), name="llama")
    vocabulary = every_other(target)
    network = random_network(tiny_eagle3(target, len(vocabulary), SLOTS))
    save_drafter(tmp_path / "drafter", network, vocabulary, target, provenance(target))
    loaded = load_network_drafter(tmp_path / "drafter", target, optimize=False)
    assert loaded.config == network.config
    assert torch.equal(loaded.vocabulary.offsets(), torch.arange(len(vocabulary)))
    file = tmp_path / "drafter" / "config.json"
    written = file.read_text()
    for flag in ("norm_before_residual", "norm_output"):
        file.write_text(written.replace(f'"{flag}": false', f'"{flag}": true'))
        with pytest.raises(ForerunError, match="golden block's logits differ"):
            load_network_drafter(tmp_path / "drafter", target)
