"""The parallel backbone's positions and attention by definition."""

import cmath
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.drafters import Rope
from forerun.drafters.attention import dense_mask
from forerun.drafters.backbone import Backbone, BackboneContext, block_rule
from tests.support.networks import BLOCK, tiny_layer

ROOT = Path(__file__).parents[2]
CONTEXT = 6
CPU = torch.device("cpu")
ROUNDING = 1e-9


def network(window: int | None = None) -> Backbone:
    made = Backbone(hidden_size=32, num_captured=2, num_layers=2, shape=tiny_layer(window=window)).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.requires_grad_(False).copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return made


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hidden_of(
    own: Backbone, features: Float[Tensor, "context layers hidden"], first_position: int = 0, gap: int = 0
) -> Float[Tensor, "slots hidden"]:
    """A block right behind the context, or ``gap`` positions later."""
    context = own.context(features[None], first_position)
    anchor = torch.tensor([[first_position + len(features) + gap]])
    return own.block(context, draws(1, 1, 32, seed=1), anchor, BLOCK, None)[0, 0]


def test_slots_know_their_place() -> None:
    """Catches slots that all stand at the anchor's position: mask slots would then be the same and draft the same."""
    states = hidden_of(network(), draws(CONTEXT, 2, 32))
    assert states.shape == (BLOCK, 32)
    gaps = torch.cdist(states, states) + torch.eye(BLOCK)
    assert float(gaps.min()) > 1e-3


def test_a_block_stands_right_behind_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a gap or an overlap between the two that training and decoding share, so that no parity can see it."""
    seen: list[list[int]] = []
    original = Rope.rotation

    def spy(self: Rope, positions: Tensor, dtype: torch.dtype) -> object:
        seen.append(positions[0].tolist())
        return original(self, positions, dtype)

    monkeypatch.setattr(Rope, "rotation", spy)
    context = BackboneContext(network(), draws(9, 32))
    context.extend(draws(CONTEXT, 2, 32))
    context.block(3, BLOCK)
    assert seen == [list(range(CONTEXT)), list(range(CONTEXT, CONTEXT + BLOCK))]


@pytest.mark.parametrize("shift", [1, 37, 1000])
def test_only_distances_matter(shift: int) -> None:
    """Catches context and block that count positions differently; and positions that are left out altogether."""
    own, features = network(), draws(CONTEXT, 2, 32)
    states = hidden_of(own, features)
    torch.testing.assert_close(hidden_of(own, features, first_position=shift), states, rtol=0, atol=ROUNDING)
    assert float((hidden_of(own, features, gap=1) - states).abs().max()) > 1e-3


def test_the_context_is_a_sequence() -> None:
    """Catches a context that is read as a bag of features."""
    own, features = network(), draws(CONTEXT, 2, 32)
    assert float((hidden_of(own, features.flip(0)) - hidden_of(own, features)).abs().max()) > 1e-3


@pytest.mark.parametrize("turned_pairs", [2, 4])
def test_rotation_is_multiplication_by_a_unit_complex_number(turned_pairs: int) -> None:
    """The oracle turns pair (i, i + pairs) by position * frequency in the complex plane; the rest stays."""
    rope = Rope(inverse_frequencies=(1.0, 0.3, 0.02, 0.004)[:turned_pairs], attention_scaling=1.25)
    heads = draws(1, 1, 3, 8)
    positions = (0, 5, 200)
    rotated = rope.rotation(torch.tensor([positions]), torch.float64).turn(heads)
    for place, position in enumerate(positions):
        for index, frequency in enumerate(rope.inverse_frequencies):
            pair = complex(heads[0, 0, place, index], heads[0, 0, place, index + turned_pairs])
            turned = 1.25 * pair * cmath.exp(1j * position * frequency)
            assert float(rotated[0, 0, place, index]) == pytest.approx(turned.real, abs=ROUNDING)
            assert float(rotated[0, 0, place, index + turned_pairs]) == pytest.approx(turned.imag, abs=ROUNDING)
        assert torch.equal(rotated[0, 0, place, 2 * turned_pairs :], heads[0, 0, place, 2 * turned_pairs :])


@pytest.mark.parametrize("window", [None, 4])
def test_visibility_by_definition(window: int | None) -> None:
    """The oracle asks for every pair of slot and key whether decoding would have the key."""
    anchors = torch.tensor([[2, 5, 0], [1, 1, 6]])
    length, slots = 7, 3
    rule = block_rule(anchors, length=length, slots=slots, window=window)
    visible = dense_mask(rule, rows=2, queries=3 * slots, keys=length + 3 * slots, device=CPU)
    assert visible.shape == (2, 3 * slots, length + 3 * slots)
    for batch_row in range(2):
        for block in range(3):
            for slot in range(slots):
                for key in range(length + 3 * slots):
                    anchor = int(anchors[batch_row, block])
                    if key < length:
                        expected = key < anchor and (window is None or key > anchor + slot - window)
                    else:
                        expected = (key - length) // slots == block
                    assert bool(visible[batch_row, block * slots + slot, key]) == expected


def test_flex_attention_computes_the_same_states() -> None:
    """Catches a block mask of another rule, grouped heads that are paired differently, and another scale."""
    command = [sys.executable, "-W", "error", "-m", "tests.support.flex_backbone"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (gap, _), (windowed_gap, effect) = [map(float, line.split()) for line in done.stdout.splitlines()]
    assert max(gap, windowed_gap) < ROUNDING < 1e-3 < effect


def test_a_window_longer_than_the_context_changes_nothing_and_a_short_one_does() -> None:
    """Pain 45. Catches windows that decoding ignores, and keys beyond the window that still count."""
    features, embedding = draws(20, 2, 32), draws(5, 32, seed=3)

    def decoded(window: int | None, seen: Tensor) -> Tensor:
        context = BackboneContext(network(window), embedding)
        for piece in seen.split([3, 1, len(seen) - 4]):
            context.extend(piece)
        return context.block(2, BLOCK)

    everything = decoded(None, features)
    torch.testing.assert_close(decoded(64, features), everything, rtol=0, atol=ROUNDING)
    short = decoded(6, features)
    assert float((short - everything).abs().max()) > 1e-3
    forgotten = features.clone()
    forgotten[:15] = 0.0  # slot 0 stands at 20 and reads 15..19
    torch.testing.assert_close(decoded(6, forgotten), short, rtol=0, atol=ROUNDING)
