"""Expected acceptance length: the estimator and the bounds against enumeration of small context-dependent chains."""

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses import (
    OUTSIDE,
    acceptance,
    acceptance_length_bound,
    block_acceptance_length,
    block_verification,
    bound_weights,
    end_to_end_tv,
    expected_acceptance_length,
    token_acceptance,
    tvp,
)

Row = tuple[float, ...]
Chain = dict[tuple[int, ...], tuple[Row, Row]]  # prefix -> (target law, draft law)

CHAINS = st.tuples(st.integers(0, 10_000), st.integers(2, 3), st.integers(1, 4), st.sampled_from([0.2, 1.0, 4.0]))


def random_chain(seed: int, vocab: int, horizon: int, spread: float) -> Chain:
    """Laws that depend on the whole prefix. Some rows exclude a token, so that zero probabilities are met."""
    source = random.Random(seed)

    def law() -> Row:
        weights = [math.exp(source.gauss(0, spread)) for _ in range(vocab)]
        if source.random() < 0.2:
            weights[source.randrange(vocab)] = 0.0
        return tuple(weight / sum(weights) for weight in weights)

    prefixes = (prefix for length in range(horizon) for prefix in itertools.product(range(vocab), repeat=length))
    return {prefix: (law(), law()) for prefix in prefixes}


def true_acceptance_length(chain: Chain, vocab: int, horizon: int) -> float:
    """By playing every round: draft each block, accept token by token with probability min(1, target/draft)."""
    total = 0.0
    for block in itertools.product(range(vocab), repeat=horizon):
        drafted, accepted = 1.0, 1.0
        expected = 0.0
        for position, token in enumerate(block):
            target, draft = chain[block[:position]]
            drafted *= draft[token]
            accepted *= min(1.0, target[token] / draft[token]) if draft[token] > 0 else 0.0
            expected += accepted
        total += drafted * expected
    return total


def true_block_acceptance_length(chain: Chain, vocab: int, horizon: int) -> float:
    """By playing every round of block verification (arXiv 2403.10444, Algorithm 2): the last success of all tests."""
    total = 0.0
    for block in itertools.product(range(vocab), repeat=horizon):
        drafted, kept = 1.0, 1.0
        successes = []
        for position, token in enumerate(block):
            target, draft = chain[block[:position]]
            drafted *= draft[token]
            kept = min(1.0, kept * target[token] / draft[token]) if draft[token] > 0 else 0.0
            if position + 1 == horizon:
                successes.append(kept)
                continue
            next_target, next_draft = chain[block[: position + 1]]
            gap = sum(max(0.0, kept * p - q) for p, q in zip(next_target, next_draft, strict=True))
            successes.append(gap / (gap + 1 - kept) if gap + 1 - kept > 0 else 1.0)
        nothing_later = 1.0
        for accepted in range(horizon, 0, -1):
            total += drafted * accepted * successes[accepted - 1] * nothing_later
            nothing_later *= 1 - successes[accepted - 1]
    return total


def rollouts(chain: Chain, vocab: int, horizon: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All texts the target can write: (probability, token ids, target rows, draft logits)."""
    texts = list(itertools.product(range(vocab), repeat=horizon))
    rows = torch.tensor([[chain[text[:h]] for h in range(horizon)] for text in texts], dtype=torch.float64).log()
    token_ids = torch.tensor(texts)
    target, draft = rows[:, :, 0], rows[:, :, 1]
    probability = target.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1).sum(-1).exp()
    return probability, token_ids, target, draft


@given(CHAINS)
def test_estimator_is_unbiased(parameters: tuple[int, int, int, float]) -> None:
    """EAL = E_{v~target} sum prod rho, exactly. Catches the product of acceptances, and off-by-one prefixes."""
    chain = random_chain(*parameters)
    probability, token_ids, target, draft = rollouts(chain, *parameters[1:3])
    estimates = expected_acceptance_length(acceptance(target, draft), token_acceptance(token_ids, target, draft))
    assert (probability * estimates).sum().item() == pytest.approx(
        true_acceptance_length(chain, *parameters[1:3]), abs=1e-12
    )


@given(CHAINS)
def test_one_sample_product_is_unbiased(parameters: tuple[int, int, int, float]) -> None:
    """The identity TVP starts from, with the last factor sampled too: pins `token_acceptance` by itself."""
    chain = random_chain(*parameters)
    probability, token_ids, target, draft = rollouts(chain, *parameters[1:3])
    sampled = token_acceptance(token_ids, target, draft).cumprod(-1).sum(-1)
    assert (probability * sampled).sum().item() == pytest.approx(
        true_acceptance_length(chain, *parameters[1:3]), abs=1e-12
    )


@given(CHAINS)
def test_block_estimators_are_unbiased(parameters: tuple[int, int, int, float]) -> None:
    """EAL_block = E_{v~target} sum min(1, min R), exactly, for K = 1..4, and with the last token summed exactly.

    Catches a running minimum that forgets the 1 or the past, and a last factor weighted by the wrong prefix.
    """
    chain = random_chain(*parameters)
    exact = true_block_acceptance_length(chain, *parameters[1:3])
    probability, token_ids, target, draft = rollouts(chain, *parameters[1:3])
    sampled = (1 - block_verification(token_ids, target, draft)).sum(-1)
    assert (probability * sampled).sum().item() == pytest.approx(exact, abs=1e-12)
    estimates = block_acceptance_length(token_ids, target, draft)
    assert (probability * estimates).sum().item() == pytest.approx(exact, abs=1e-12)
    assert exact >= true_acceptance_length(chain, *parameters[1:3]) - 1e-12


def test_the_block_verification_papers_example() -> None:
    """Target (1/3, 2/3), draft (2/3, 1/3), two tokens: 11/9 by block, 10/9 by token."""
    row = ((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    chain: Chain = {(): row, (0,): row, (1,): row}
    assert true_block_acceptance_length(chain, 2, 2) == pytest.approx(11 / 9)
    probability, token_ids, target, draft = rollouts(chain, 2, 2)
    assert (probability * block_acceptance_length(token_ids, target, draft)).sum().item() == pytest.approx(11 / 9)
    tokens = expected_acceptance_length(acceptance(target, draft), token_acceptance(token_ids, target, draft))
    assert (probability * tokens).sum().item() == pytest.approx(10 / 9)


def test_blocks_end_for_block_verification_too() -> None:
    """Same meaning of the mask as in the token-level estimator: nothing behind the first masked position counts."""
    token_ids = torch.tensor([0, 1, 0, 1])
    target = torch.tensor([[0.6, 0.4]] * 4).log()
    draft = torch.tensor([[0.3, 0.7]] * 4).log()
    masks = torch.tensor([[True, True, False, True], [False, True, True, True]])
    blocks = block_acceptance_length(
        token_ids.expand(2, 4), target.expand(2, 4, 2), draft.expand(2, 4, 2), masks
    ).tolist()
    assert blocks == [pytest.approx(block_acceptance_length(token_ids[:2], target[:2], draft[:2]).item()), 0.0]


@given(CHAINS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_every_member_bounds_the_acceptance_length(
    parameters: tuple[int, int, int, float], first: float, second: float
) -> None:
    """EAL >= K [1 - beta L]_+^(1/beta) and 1 - EAL/K <= L_1 <= L_b2 <= L_b1. Catches a wrong normalisation C."""
    chain, horizon = random_chain(*parameters), parameters[2]
    probability, _, target, draft = rollouts(chain, *parameters[1:3])
    exact = true_acceptance_length(chain, *parameters[1:3])
    losses = []
    for beta in (1.0, max(first, second), min(first, second), 0.0):
        mean_divergences = (probability.unsqueeze(-1) * tvp(target, draft, beta=beta)).sum(0)
        losses.append((bound_weights(horizon) * mean_divergences).sum().item())
        assert acceptance_length_bound(mean_divergences, beta=beta).item() <= exact + 1e-10
    assert 1 - exact / horizon <= losses[0] + 1e-12
    assert all(low <= high + 1e-10 for low, high in itertools.pairwise(losses))


@pytest.mark.parametrize("beta", [0.0, 5e-324, 1e-9, 0.3, 1.0])
def test_bound_is_tight_for_one_position(beta: float) -> None:
    """One position, one under-covered token in a one-hot target: Jensen is an equality, so the bound is the acceptance.

    Catches a bound that is valid but too low, which no inequality would.
    """
    target_log_probs = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)
    draft_logits = torch.tensor([[0.7, 0.3]], dtype=torch.float64).log()
    bound = acceptance_length_bound(tvp(target_log_probs, draft_logits, beta=beta), beta=beta)
    assert bound.item() == pytest.approx(0.7, rel=1e-7)


def test_bound_of_a_perfect_and_of_a_useless_draft() -> None:
    assert acceptance_length_bound(torch.zeros(2, 5), beta=0.5).tolist() == [5.0, 5.0]
    assert acceptance_length_bound(torch.ones(5), beta=1.0).item() == 0.0
    assert acceptance_length_bound(torch.full((5,), 1e30), beta=0.0).item() == 0.0


@pytest.mark.parametrize("beta", [-0.1, 1.1, math.nan])
def test_bound_needs_a_member_of_the_family(beta: float) -> None:
    with pytest.raises(ForerunError, match="beta is"):
        acceptance_length_bound(torch.zeros(5), beta=beta)


def test_cumulative_product_of_acceptances_is_another_number() -> None:
    """The two-position example: 1.25 tokens are accepted; the product of acceptances along the text says 1.3125."""
    chain: Chain = {
        (): ((0.75, 0.25), (0.5, 0.5)),
        (0,): ((0.5, 0.5), (0.5, 0.5)),  # perfect
        (1,): ((1.0, 0.0), (0.0, 1.0)),  # wrong
    }
    probability, token_ids, target, draft = rollouts(chain, 2, 2)
    accepted = acceptance(target, draft)
    estimate = expected_acceptance_length(accepted, token_acceptance(token_ids, target, draft))
    assert (probability * estimate).sum().item() == pytest.approx(1.25, abs=1e-15)
    assert (probability * accepted.cumprod(-1).sum(-1)).sum().item() == pytest.approx(1.3125, abs=1e-15)
    bebop = (1 - end_to_end_tv(target, draft)).sum(-1)
    assert (probability * bebop).sum().item() == pytest.approx(1.3125, abs=1e-15)  # its loss is that other number


def test_block_ends_at_its_first_masked_position() -> None:
    """Catches positions after the end of a text that still count because only their own entry was masked."""
    accepted = torch.tensor([0.5, 0.5, 0.5, 0.5])
    ratios = torch.tensor([0.25, 1.0, 1.0, 1.0])
    mask = torch.tensor([[True, True, False, True], [True, True, False, False], [False, True, True, True]])
    blocks = expected_acceptance_length(accepted.expand(3, 4), ratios.expand(3, 4), mask)
    assert blocks[:2].tolist() == [expected_acceptance_length(accepted[:2], ratios[:2]).item()] * 2
    assert blocks.tolist() == [0.625, 0.625, 0.0]


def test_masked_positions_may_hold_anything() -> None:
    nan = math.nan
    block = expected_acceptance_length(torch.tensor([0.5, nan]), torch.tensor([0.5, nan]), torch.tensor([True, False]))
    assert block.item() == 0.5


def test_token_outside_the_draft_vocabulary_ends_the_prefix() -> None:
    """The drafter cannot say it: the prefix dies there, though the position's own acceptance still counts."""
    target = torch.tensor([[0.6, 0.3], [0.6, 0.3]]).log()
    draft = torch.tensor([[2 / 3, 1 / 3], [2 / 3, 1 / 3]]).log()
    ratios = token_acceptance(torch.tensor([OUTSIDE, 0]), target, draft)
    assert ratios.tolist() == [0.0, 1.0]
    assert expected_acceptance_length(acceptance(target, draft), ratios).item() == pytest.approx(0.9)


def test_token_the_target_cannot_say_has_ratio_one() -> None:
    target = torch.tensor([[0.0, -math.inf], [0.0, -math.inf]])
    draft = torch.tensor([[0.0, 0.0], [0.0, -math.inf]])
    assert token_acceptance(torch.tensor([1, 1]), target, draft).tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_must_agree() -> None:
    with pytest.raises(ForerunError, match="must have one shape"):
        expected_acceptance_length(torch.ones(2, 3), torch.ones(3))
    with pytest.raises(ForerunError, match="must have one shape"):
        expected_acceptance_length(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, dtype=torch.bool))
