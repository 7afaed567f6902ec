"""DFlash counts masks, not slots; DFlash2 mixes neighbouring slots and walks through lists of candidates."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import Dependence, DFlash2Network, DFlashNetwork, DrafterConfig, DraftNetwork
from forerun.drafters.block_convolution import BlockConvolution
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import BlockBatch, make_batch
from forerun.training.teacher import Teacher, realised_logits
from tests.support.networks import (
    BLOCK,
    every_other,
    random_network,
    taught_row,
    tiny_dflash,
    tiny_dflash2,
    tiny_drafter,
    whole,
)

VOCAB = 24
TARGET: TransformersTarget = tiny_target(vocab_size=VOCAB, dtype=torch.float32)
TEXT = torch.arange(30) * 7 % VOCAB
ROUNDING = 1e-4
"""Float32 logits of size 10."""


def batch() -> BlockBatch:
    return make_batch([taught_row(TARGET, TEXT, prompt_length=5)], blocks=99, slots=BLOCK, generator=None)


def logits_of(network: DraftNetwork) -> Float[Tensor, "blocks slots vocab"]:
    with torch.no_grad():
        return realised_logits(network, Teacher(TARGET, whole(TARGET)), batch())[0][0]


def test_a_block_of_drafts_has_one_slot_more_and_the_anchors_is_not_scored() -> None:
    """Peers B.0, item 2: the released files count the anchor. The oracle asks the backbone for all its slots."""
    network = random_network(tiny_dflash(TARGET, VOCAB, BLOCK))
    assert isinstance(network, DFlashNetwork)
    inputs, head = batch().inputs, Teacher(TARGET, whole(TARGET)).borrowed.head
    with torch.no_grad():
        slots = network.backbone.taught(inputs, TARGET.embedding_weight, slots=BLOCK + 1)[0] @ head.T
    assert slots.shape[1] == BLOCK + 1
    torch.testing.assert_close(logits_of(network), slots[:, 1:], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("tiny", "expected"), [(tiny_dflash, []), (tiny_dflash2, [2])])
def test_what_a_draft_depends_on(
    tiny: Callable[[TransformersTarget, int, int], DrafterConfig], expected: list[int]
) -> None:
    """Catches a declaration that is not true: none for DFlash, for DFlash2 the draft just before."""
    network, borrowed = random_network(tiny(TARGET, VOCAB, BLOCK)), Teacher(TARGET, whole(TARGET)).borrowed
    taught = batch().inputs
    changed = taught.previous.clone()
    changed[:, :, 2] = (changed[:, :, 2] + 5) % VOCAB
    with torch.no_grad():
        first = network.teach(taught, borrowed).terms
        second = network.teach(replace(taught, previous=changed), borrowed).terms
    pairs = list(zip(first, second, strict=True))
    moved = [
        slot
        for slot in range(BLOCK)
        if any(not torch.equal(one[:, :, slot], other[:, :, slot]) for one, other in pairs)
    ]
    assert moved == expected
    assert network.dependence is (Dependence.FIRST_ORDER if expected else Dependence.NONE)


def test_a_convolution_by_definition() -> None:
    """Catches kernels of the wrong side, tap, group or position, and a block that reads its neighbour's last slot."""
    hidden, group, slots = 8, 2, 3
    own = BlockConvolution(hidden, group).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in own.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    states = torch.randn(1, 2 * slots, hidden, generator=generator, dtype=torch.float64)
    other = torch.randn(hidden, hidden, generator=generator, dtype=torch.float64)
    found = own.around(slots)(states, lambda mixed: mixed @ other)

    predicted = (states @ own.correction.weight.T).view(2 * slots, 2, 2, hidden // group)

    def mixed(values: Tensor, side: int) -> Tensor:
        result = torch.zeros_like(values)
        for place in range(2 * slots):
            for channel in range(hidden):
                for tap in range(2):
                    if tap == 1 and place % slots == 0:
                        continue  # nothing stands before a block
                    kernel = (
                        (tap == 0) + own.base_change[side, tap, channel] + predicted[place, side, tap, channel // group]
                    )
                    result[0, place, channel] += kernel * values[0, place - tap, channel]
        return result

    with torch.no_grad():
        expected = mixed(mixed(states, 0) @ other, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_even_convolutions_stand_around_attention() -> None:
    """Catches an order of the files that only published weights know: here attention says nothing."""
    network = random_network(tiny_dflash2(TARGET, VOCAB, BLOCK))
    assert isinstance(network, DFlash2Network)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith("attention.output.weight"):
                weight.zero_()
        before = logits_of(network)
        for place, moves in ((0, False), (2, False), (1, True)):
            for weight in network.convolutions[place].parameters():
                weight.mul_(1.5)
            assert torch.equal(logits_of(network), before) != moves


def test_dflash2_begins_as_dflash() -> None:
    """Catches a start that is not the identity: the same backbone must give the same logits on every listed token."""
    new, old = DFlash2Network(tiny_dflash2(TARGET, VOCAB, BLOCK)), DFlashNetwork(tiny_dflash(TARGET, VOCAB, BLOCK))
    for network in (new, old):
        network.initialise(TARGET, whole(TARGET), generator=torch.Generator().manual_seed(1))
    old.backbone.load_state_dict(new.backbone.state_dict())
    listed = logits_of(new).isfinite()
    torch.testing.assert_close(logits_of(new)[listed], logits_of(old)[listed], rtol=0, atol=ROUNDING)
    assert torch.equal(listed.sum(-1), torch.full(listed.shape[:-1], 18))
    assert bool(
        (
            logits_of(old).masked_fill(listed, -torch.inf).amax(-1) <= logits_of(new).masked_fill(~listed, 99).amin(-1)
        ).all()
    )


def test_the_selector_by_definition() -> None:
    """Catches another predecessor, a list made after the selector spoke, and draft ids taken for target ids."""
    drafter = tiny_drafter(TARGET, kind="dflash2", vocabulary=every_other(TARGET))
    network = drafter.network
    assert isinstance(network, DFlash2Network)
    session = drafter.new_session()
    session.extend(TEXT[:9], TARGET.forward(TEXT[:9], TARGET.new_cache(), captured=(0, 1)).features)
    anchor = 7  # outside the draft vocabulary
    numbers = torch.tensor([0.3, 0.8, 0.1, 0.6], dtype=torch.float64)
    proposal = session.propose(
        anchor, BLOCK, Processing(SamplingParams(), [*TEXT[:9].tolist(), anchor]), uniforms=numbers
    )

    text = torch.cat([TEXT[:9], torch.tensor([anchor, *proposal.token_ids.tolist()])])
    row = taught_row(TARGET, text, prompt_length=9)
    inputs = make_batch([row], blocks=1, slots=BLOCK, generator=None).inputs
    with torch.no_grad():
        hidden = network.teach(inputs, drafter.borrowed).terms[0][0, 0]
        unary = hidden @ TARGET.head_weight[::2].T
        for slot, law in enumerate(proposal.law.dense()):
            before = int(text[9 + slot])
            codes = network.predecessors.weight[before // 2 if before % 2 == 0 else VOCAB // 2]
            pairs = network.successors @ (codes * (network.selector.weight @ hidden[slot]))
            best = sorted(range(VOCAB // 2), key=lambda token: -float(unary[slot, token]))[: network.candidates]
            weights = [float((unary[slot, token] + pairs[token]).exp()) for token in best]
            expected = torch.zeros(VOCAB, dtype=torch.float64)
            for token, weight in zip(best, weights, strict=True):
                expected[2 * token] = weight / sum(weights)
            torch.testing.assert_close(law.double(), expected, rtol=0, atol=1e-4)
