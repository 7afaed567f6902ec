"""Another model as drafter."""

import pytest
import torch

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import DraftModel
from forerun.errors import ForerunError
from forerun.models import Target
from tests.support.targets import random_table

VOCAB = 5
TARGET = random_table(1, vocab_size=VOCAB)
SMALL = random_table(2, vocab_size=VOCAB)
IDS = [3, 1, 4, 1]


@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(temperature=0.6, top_k=3, min_p=0.05), SamplingParams(repetition_penalty=1.6)],
)
def test_laws_are_the_small_models_own_after_the_draft_prefix(params: SamplingParams) -> None:
    """Catches a law of the wrong row or before processing: the oracle runs the small model on every whole prefix."""
    session = DraftModel(SMALL, TARGET).new_session()
    session.extend(torch.tensor(IDS), torch.zeros(len(IDS), 0, 1))
    numbers = torch.tensor([0.9, 0.2, 0.7, 0.4], dtype=torch.float64)
    proposal = session.propose(2, 4, Processing(params, [*IDS, 2]), uniforms=numbers)
    prefix = [*IDS, 2]
    for place, token in enumerate(proposal.token_ids.tolist()):
        logits = SMALL.forward(torch.tensor(prefix), SMALL.new_cache(), num_logits=1).logits
        expected = Processing(params, prefix).law(logits)
        assert torch.equal(proposal.law.rows(place, place + 1).dense(), expected.dense())
        assert token == int(expected.sample(uniforms=numbers[place : place + 1]))
        prefix.append(token)


def test_its_limits_are_the_small_models() -> None:
    """Catches drafts beyond the small model's positions (C31)."""
    drafter = DraftModel(random_table(2, vocab_size=VOCAB, max_positions=9), TARGET, max_horizon=3)
    assert (drafter.max_positions, drafter.max_horizon, drafter.captured_layers) == (9, 3, ())
    assert drafter.name == "model:table"


def test_another_vocabulary_is_refused() -> None:
    """Catches pairs without a common tokenizer: every draft would be noise or out of range."""
    other: Target = random_table(3, vocab_size=VOCAB + 1)
    with pytest.raises(ForerunError, match="draft model table has 6 tokens, table has 5; choose a pair"):
        DraftModel(other, TARGET)
