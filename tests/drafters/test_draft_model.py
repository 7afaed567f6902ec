"""Another model as drafter, with all of its head or a part."""

from functools import cache

import pytest
import torch

from forerun.distributions import Law, Processing, SamplingParams
from forerun.drafters import DraftModel, DraftModelTree, DraftVocabulary
from forerun.errors import ForerunError
from forerun.models import TableTarget, Target
from forerun.verification import BlockVerification, Candidates, Rule, TokenLevel
from tests.exactness.enumerate import Tokens, chain_law, distance, generation_law
from tests.exactness.policies import LEGAL
from tests.exactness.tables import LogitTable, plain_model, processed, random_logits
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


KEPT = DraftVocabulary(torch.tensor([1, 3, 4]), VOCAB)


@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0.6, top_k=2), SamplingParams(temperature=0.0)]
)
def test_a_pruned_head_drafts_from_its_part_of_the_law(params: SamplingParams) -> None:
    """Catches draft ids taken for target ids, and a law that gives tokens outside any probability.

    By definition: the small model's logits, minus infinity outside, then processing.
    """
    session = DraftModel(SMALL, TARGET, vocabulary=KEPT).new_session()
    session.extend(torch.tensor(IDS), torch.zeros(len(IDS), 0, 1))
    proposal = session.propose(2, 4, Processing(params, [*IDS, 2]), uniforms=torch.linspace(0, 0.9, 4).double())
    prefix = [*IDS, 2]
    for place, token in enumerate(proposal.token_ids.tolist()):
        logits = SMALL.forward(torch.tensor(prefix), SMALL.new_cache(), num_logits=1).logits.clone()
        logits[:, [0, 2]] = -torch.inf
        expected = Processing(params, prefix).law(logits)
        assert torch.equal(proposal.law.rows(place, place + 1).dense(), expected.dense())
        assert token in (1, 3, 4)
        prefix.append(token)


def as_target(logits: LogitTable) -> TableTarget:
    rows = {state: torch.tensor(row, dtype=torch.float64) for state, row in logits.items()}
    return TableTarget(lambda prefix: rows[prefix[-1:]], vocab_size=len(logits))


@pytest.mark.parametrize("rule", [TokenLevel(), BlockVerification()])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.7, top_k=2)])
def test_a_pruned_pair_is_exact(rule: Rule, params: SamplingParams) -> None:
    """C54, by enumeration. Catches a token outside that comes out with less or more than the target's probability."""
    target_logits, small_logits = random_logits(1, 3, 1), random_logits(2, 3, 1)
    drafter = DraftModel(
        as_target(small_logits), as_target(target_logits), vocabulary=DraftVocabulary(torch.tensor([0, 2]), 3)
    )

    @cache
    def draft(context: Tokens) -> Law:
        session = drafter.new_session()
        session.extend(torch.tensor(context[:-1], dtype=torch.int64), torch.zeros(len(context) - 1, 0, 1))
        half = torch.tensor([0.5], dtype=torch.float64)
        return session.propose(context[-1], 1, Processing(params, context), uniforms=half).law

    assert float(draft((1,)).dense()[0, 1]) == 0.0
    found = generation_law(
        target=processed(target_logits, params),
        draft=draft,
        rule=rule,
        horizons=LEGAL["fixed-2"],
        prompt=(1,),
        num_tokens=3,
    )
    expected = chain_law(plain_model(target_logits, params), (1,), 3)
    assert distance(found, expected) <= 1e-12
    assert any(1 in tokens and weight > 0.0 for tokens, weight in found.items())


@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_pruned_tree_holds_kept_tokens_only(candidates: Candidates, temperature: float) -> None:
    """Catches siblings of a greedy law that are filled up with tokens outside, and more siblings than tokens."""
    drafter = DraftModelTree(SMALL, TARGET, branching=(3, 2), candidates=candidates, vocabulary=KEPT)
    session = drafter.new_session()
    session.extend(torch.tensor(IDS), torch.zeros(len(IDS), 0, 1))
    numbers = torch.linspace(0, 0.99, drafter.max_nodes(2)).double()
    tree = session.propose_tree(2, 2, Processing(SamplingParams(temperature=temperature), [*IDS, 2]), uniforms=numbers)
    assert set(tree.token_ids.tolist()) <= {1, 3, 4} and drafter.name == "model-tree:table:3-tokens:3x2"
    if candidates is Candidates.DETERMINISTIC:
        assert sorted(tree.token_ids[:3].tolist()) == [1, 3, 4]
    with pytest.raises(ForerunError, match=r"from 1 to the 3 tokens"):
        DraftModelTree(SMALL, TARGET, branching=(4,), vocabulary=KEPT)


def test_a_draft_vocabulary_of_another_size_is_refused() -> None:
    """Catches ids beyond the logits."""
    with pytest.raises(ForerunError, match="chooses from 9 tokens, table has 5"):
        DraftModel(SMALL, TARGET, vocabulary=DraftVocabulary(torch.tensor([1, 2]), 9))
