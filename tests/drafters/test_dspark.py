"""What DSpark alone has: heads for the token before, and for the drafts' own chances."""

import torch

from forerun.drafters import DSparkNetwork
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import make_batch
from forerun.training.teacher import Teacher, realised_logits
from tests.support.networks import taught_row, tiny_drafter, tiny_dspark, whole

TARGET: TransformersTarget = tiny_target(vocab_size=24, dtype=torch.float32)
ROW = taught_row(TARGET, torch.arange(30) * 7 % 24, prompt_length=4)


def test_the_confidence_head_does_not_bend_the_backbone() -> None:
    """Catches gradients of the calibration in the backbone; the Markov table, which both heads read, has them."""
    own = tiny_drafter(TARGET)
    own.network.requires_grad_(True)
    batch = make_batch([ROW], blocks=4, slots=4, generator=None)
    _, states = realised_logits(own.network, Teacher(TARGET, own.vocabulary), batch)
    assert states.confidence is not None
    states.confidence.sum().backward()
    touched = {name for name, weight in own.network.named_parameters() if weight.grad is not None}
    assert touched == {"confidence.weight", "confidence.bias", "markov_previous.weight"}


def test_the_markov_term_starts_as_no_correction_and_the_norm_as_the_targets() -> None:
    """Catches a start that is random where the design says it is not, and draws from the global generator."""
    networks = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        fresh = DSparkNetwork(tiny_dspark(TARGET, 24, 4))
        fresh.initialise(TARGET, whole(TARGET), generator=torch.Generator().manual_seed(7))
        networks.append(fresh)
    for name, weight in networks[0].state_dict().items():
        assert torch.equal(weight, networks[1].state_dict()[name]), name
    assert torch.equal(networks[0].backbone.final_norm.weight, TARGET.final_norm_weight)
    assert float(networks[0].markov_next.detach().abs().max()) == 0.0
    assert float(networks[0].backbone.mask_embedding.detach().abs().max()) > 0.0
