"""What Medusa alone has: where its heads begin, and what each of them computes."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from forerun.drafters import DraftVocabulary, MedusaNetwork
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import make_batch
from forerun.training.teacher import Teacher, realised_logits
from tests.support.networks import BLOCK, every_other, random_network, taught_row, tiny_medusa

TARGET: TransformersTarget = tiny_target(vocab_size=24, dtype=torch.float32)
LAST = TARGET.num_layers - 1
TEXT = torch.arange(30) * 7 % 24
ANCHORS = (5, 6, 20)
ROUNDING = 1e-5


def logits_of(network: MedusaNetwork, vocabulary: DraftVocabulary) -> Tensor:
    """Of the blocks at some anchors: (blocks, slots, draft vocabulary)."""
    row = taught_row(TARGET, TEXT, prompt_length=ANCHORS[0], captured=(LAST,))
    batch = make_batch([row], blocks=99, slots=BLOCK, generator=None)
    blocks = [batch.inputs.anchors[0].tolist().index(anchor) for anchor in ANCHORS]
    with torch.no_grad():
        return realised_logits(network, Teacher(TARGET, vocabulary), batch)[0][0, blocks]


@pytest.mark.parametrize("own_heads", [False, True])
def test_every_head_begins_as_the_targets(own_heads: bool) -> None:
    """Catches a missing or doubled final norm, a state of another place, and own rows in another order.

    The oracle is the target's own row of logits at the token before the anchor.
    """
    vocabulary = every_other(TARGET)
    network = MedusaNetwork(tiny_medusa(TARGET, len(vocabulary), BLOCK, own_heads=own_heads))
    network.initialise(TARGET, vocabulary, generator=torch.Generator())
    rows = TARGET.teach(TEXT, captured=(LAST,)).logits[[anchor - 1 for anchor in ANCHORS]][:, ::2]
    found = logits_of(network, vocabulary)
    for slot in range(BLOCK):
        torch.testing.assert_close(found[:, slot], rows, rtol=0, atol=ROUNDING)


def test_heads_by_definition() -> None:
    """Catches residual blocks or heads that share weights: the published code repeats one block where it means two."""
    vocabulary = every_other(TARGET)
    network = random_network(tiny_medusa(TARGET, len(vocabulary), BLOCK, num_blocks=2, own_heads=True))
    assert isinstance(network, MedusaNetwork)
    weights = network.state_dict()
    hidden = TARGET.teach(TEXT, captured=(LAST,)).final_hidden[[anchor - 1 for anchor in ANCHORS]]
    found = logits_of(network, vocabulary)
    for slot in range(BLOCK):
        states = hidden
        for block in range(2):
            name = f"heads.{slot}.{block}.linear"
            states = states + functional.silu(states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
        expected = states @ weights[f"unembeddings.{slot}"].T
        torch.testing.assert_close(found[:, slot], expected, rtol=1e-5, atol=1e-4)


def test_only_the_last_layer_will_do() -> None:
    """Catches heads on a state that the target's norm and head do not understand."""
    config = tiny_medusa(TARGET, 24, BLOCK).model_copy(update={"captured_layers": (0,)})
    with pytest.raises(ForerunError, match=r"the last layer, which is 1 in tiny-0; captured_layers is \[0\]"):
        MedusaNetwork(config).initialise(TARGET, every_other(TARGET), generator=torch.Generator())
