"""Drafting on another device than the host's, which on a machine without one is torch's meta device.

It computes shapes and no numbers: whatever fetches one raises, and so does a tensor left on the host.
"""

import copy

import pytest
import torch

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import Borrowed, DraftModel, NetworkDrafter, ProposalPolicy
from forerun.drafters.network import PlainHead
from forerun.models import TransformersTarget, tiny_target
from tests.support.accelerator import compute_as_on_an_accelerator, without_numbers
from tests.support.networks import every_other, kinds_with_slow_variants, tiny_drafter

WAYS = {
    "drawn": (ProposalPolicy.SAMPLE, SamplingParams()),
    "drawn after all steps": (
        ProposalPolicy.SAMPLE,
        SamplingParams(temperature=0.5, top_k=9, top_p=0.9, min_p=0.01, typical_p=0.9, logit_bias={1: 2.0}),
    ),
    "most probable": (ProposalPolicy.ARGMAX, SamplingParams(temperature=0.0)),
}


def on_the_device(drafter: NetworkDrafter) -> NetworkDrafter:
    """The same drafter without numbers."""
    borrowed = drafter.borrowed
    drafter.network.to("meta")
    drafter.borrowed = Borrowed(
        embedding=borrowed.embedding.to("meta"),
        head=borrowed.head.to("meta"),
        final_norm=copy.deepcopy(borrowed.final_norm).to("meta"),
        vocabulary=borrowed.vocabulary,
    )
    drafter.heads = tuple(PlainHead(weight) for weight in drafter.network.head_weights(drafter.borrowed))
    return drafter


@pytest.mark.parametrize(("policy", "params"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("kind", kinds_with_slow_variants())
def test_drafts_stay_on_the_device(
    kind: str, policy: ProposalPolicy, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a draft that the host fetches, inside torch too, and a tensor that stayed on the host."""
    compute_as_on_an_accelerator(monkeypatch)
    target = tiny_target(vocab_size=40)
    drafter = on_the_device(tiny_drafter(target, kind=kind, vocabulary=every_other(target), policy=policy))
    session = drafter.new_session()
    features = torch.zeros(5, len(drafter.captured_layers), target.hidden_size, dtype=target.dtype, device="meta")
    for taken, length in ((5, 4), (1, 1), (3, 2)):
        session.extend(torch.arange(taken), features[:taken])
        numbers = torch.full((length,), 0.5, dtype=torch.float64)
        proposal = session.propose(2, length, Processing(params, [3, 1]), uniforms=numbers)
        assert (proposal.horizon, proposal.law.vocab_size) == (length, 40)
        assert proposal.token_ids.device.type == proposal.law.device.type == "meta"
        with pytest.raises(NotImplementedError, match="meta tensor"):
            proposal.read()


@pytest.mark.parametrize("pruned", [False, True])
def test_a_draft_model_drafts_on_its_device(pruned: bool) -> None:
    """Catches drafts that the small model fetches to read them."""
    target = tiny_target(vocab_size=40)
    small = tiny_target(seed=1, vocab_size=40, hidden_size=16)
    drafter = DraftModel(small, target, vocabulary=every_other(target) if pruned else None)
    for model in {id(each): each for each in (small, drafter.small.model)}.values():
        assert isinstance(model, TransformersTarget)
        without_numbers(model)
    session = drafter.new_session()
    session.extend(torch.tensor([3, 1]), torch.zeros(2, 0, target.hidden_size))
    numbers = torch.full((4,), 0.5, dtype=torch.float64)
    proposal = session.propose(2, 4, Processing(SamplingParams(), [3, 1]), uniforms=numbers)
    assert (proposal.horizon, proposal.token_ids.device.type, session.length) == (4, "meta", 2)
