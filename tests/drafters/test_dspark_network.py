"""DSpark's positions and attention by definition."""

import cmath

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.drafters.dspark import DSparkNetwork
from forerun.drafters.dspark.network import _rotate, _rotation
from forerun.models import tiny_target
from tests.support.dspark import BLOCK, random_network, tiny_config

CONTEXT = 6
ROUNDING = 1e-9


def network() -> DSparkNetwork:
    return random_network(tiny_config(tiny_target())).double()


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hidden_of(
    own: DSparkNetwork, features: Float[Tensor, "context layers hidden"], first_position: int = 0, gap: int = 0
) -> Float[Tensor, "slots hidden"]:
    """A block right behind the context, or ``gap`` positions later."""
    context = own.context_layers(features[None], first_position)
    anchor = torch.tensor([[first_position + len(features) + gap]])
    with torch.no_grad():
        return own.block_hidden(context, draws(1, 1, 32, seed=1), anchor, None)[0, 0]


def test_slots_know_their_place() -> None:
    """Catches slots that all stand at the anchor's position: mask slots would then be the same and draft the same."""
    states = hidden_of(network(), draws(CONTEXT, 2, 32))
    assert states.shape == (BLOCK, 32)
    gaps = torch.cdist(states, states) + torch.eye(BLOCK)
    assert float(gaps.min()) > 1e-3


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


def test_rotation_is_multiplication_by_a_unit_complex_number() -> None:
    """The oracle turns pair (i, i + half) by position / theta^(2i / dim) in the complex plane."""
    config = tiny_config(tiny_target())
    heads = draws(1, 1, 3, config.head_dim)
    positions = torch.tensor([[0, 5, 200]])
    rotated = _rotate(heads, _rotation(positions, config, torch.float64))
    half = config.head_dim // 2
    for place, position in enumerate((0, 5, 200)):
        for index in range(half):
            pair = complex(heads[0, 0, place, index], heads[0, 0, place, index + half])
            turned = pair * cmath.exp(1j * position * config.rope_theta ** (-2 * index / config.head_dim))
            assert float(rotated[0, 0, place, index]) == pytest.approx(turned.real, abs=ROUNDING)
            assert float(rotated[0, 0, place, index + half]) == pytest.approx(turned.imag, abs=ROUNDING)


def test_the_markov_term_starts_as_no_correction_and_the_norm_as_the_targets() -> None:
    """Catches a start that is random where the design says it is not, and draws from the global generator."""
    config = tiny_config(tiny_target())
    norm_weight = draws(32).float()
    networks = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        fresh = DSparkNetwork(config)
        fresh.initialise(generator=torch.Generator().manual_seed(7), final_norm_weight=norm_weight)
        networks.append(fresh)
    for name, weight in networks[0].state_dict().items():
        assert torch.equal(weight, networks[1].state_dict()[name]), name
    assert torch.equal(networks[0].final_norm.weight, norm_weight)
    with torch.no_grad():
        assert float(networks[0].markov_logits(torch.arange(5)).abs().max()) == 0.0
        assert float(networks[0].mask_embedding.abs().max()) > 0.0
