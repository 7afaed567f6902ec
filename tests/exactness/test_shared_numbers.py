"""Which random numbers two decisions may share: none, and no number may serve a position twice.

A small decoder asks for its numbers by key and ``run_law`` lets every number run over the grid. The key scheme is what
is tested: ``by_round`` is that of ``forerun.distributions.Streams``.
"""

from collections.abc import Callable, Hashable

import pytest
import torch

from forerun.distributions import Law, Purpose, Streams, stack_laws
from forerun.verification import Outcome, Proposal, TokenLevel, agreement, token_level
from tests.exactness.enumerate import (
    Horizons,
    Model,
    PreDraft,
    Round,
    Tokens,
    chain_law,
    distance,
    generation_law,
    marginal,
    run_law,
)
from tests.exactness.policies import fixed
from tests.exactness.tables import Table, by_last_token, constant

TOLERANCE = 1e-15
RED = 0.01

Keys = Callable[[Purpose, int, int], Hashable]
"""Key of the number for a purpose, a round that starts at a position, and the n-th token of the round."""


def by_round(purpose: Purpose, start: int, offset: int) -> Hashable:
    """Fresh numbers for every purpose and every round."""
    return purpose, start, offset


def draft_shared_with_accept(purpose: Purpose, start: int, offset: int) -> Hashable:
    """One number draws a token and accepts it."""
    return Purpose.DRAFT if purpose is Purpose.ACCEPT else purpose, start, offset


def emit_shared_with_accept(purpose: Purpose, start: int, offset: int) -> Hashable:
    """The number that rejected a token also draws its correction."""
    return Purpose.ACCEPT if purpose is Purpose.EMIT else purpose, start, offset


def target_tokens_by_position(purpose: Purpose, start: int, offset: int) -> Hashable:
    """What the package does for agreement: a position's target token has one number, whatever round decides it."""
    return (purpose, start, offset) if purpose is Purpose.DRAFT else (Purpose.EMIT, start + offset)


def by_absolute_position(purpose: Purpose, start: int, offset: int) -> Hashable:
    """A discarded position meets its old numbers again in the next round."""
    return purpose, start + offset


def decoder(
    target: Model,
    draft: Model,
    horizons: Horizons,
    prompt: Tokens,
    num_tokens: int,
    keys: Keys,
    verify: Callable[..., Outcome] = token_level,
) -> Callable[[Callable[[Hashable], float]], Tokens]:
    """A whole speculative decoder; its policy must be free of coins."""

    def sample(law: Law, number: float) -> int:
        return int(law.sample(uniforms=torch.tensor([number], dtype=torch.float64)))

    def program(uniform: Callable[[Hashable], float]) -> Tokens:
        context, memory = prompt, horizons.memory
        while len(context) < len(prompt) + num_tokens:
            start = len(context)
            (planned,) = horizons.policy(PreDraft(context, memory))
            horizon = min(planned, len(prompt) + num_tokens - start - 1)
            drafted: Tokens = ()
            for offset in range(horizon):
                drafted += (sample(draft(context + drafted), uniform(keys(Purpose.DRAFT, start, offset))),)
            prefixes = [context + drafted[:length] for length in range(horizon + 1)]
            target_law = stack_laws([target(prefix) for prefix in prefixes])
            draft_law = stack_laws([draft(prefix) for prefix in prefixes[:-1]]) if drafted else target_law.rows(0, 0)
            outcome = verify(
                target_law,
                Proposal(torch.tensor(drafted, dtype=torch.int64), draft_law),
                uniforms=torch.tensor(
                    [uniform(keys(Purpose.ACCEPT, start, offset)) for offset in range(horizon)], dtype=torch.float64
                ),
            )
            token = sample(outcome.emission, uniform(keys(Purpose.EMIT, start, outcome.accepted)))
            told = Round(
                context,
                drafted,
                outcome.accepted,
                token,
                tuple(outcome.accept_probabilities.tolist()),
                tuple(outcome.overlaps.tolist()),
            )
            context, memory = context + drafted[: outcome.accepted] + (token,), horizons.remember(memory, told)
        return context[len(prompt) : len(prompt) + num_tokens]

    return program


def missed_by(
    target_rows: list[list[float]],
    draft: Table,
    horizons: Horizons,
    prompt: Tokens,
    num_tokens: int,
    grid: int,
    keys: Keys,
) -> float:
    """Distance of the decoder's law from the target's."""
    law = run_law(decoder(by_last_token(target_rows), draft, horizons, prompt, num_tokens, keys), grid)
    return distance(law, chain_law(lambda context: target_rows[context[-1]], prompt, num_tokens))


@pytest.mark.parametrize(
    ("target_rows", "horizon", "num_tokens", "grid"),
    [
        ([[0.25, 0.75], [0.5, 0.5]], 0, 3, 4),
        ([[0.25, 0.75], [0.5, 0.5]], 1, 2, 4),
        ([[0.0, 1.0], [0.5, 0.5]], 2, 3, 2),
    ],
)
def test_fresh_numbers_are_exact(target_rows: list[list[float]], horizon: int, num_tokens: int, grid: int) -> None:
    """The key scheme of the package, by brute force; and the fast enumeration agrees with it."""
    draft = constant([0.5, 0.5])
    assert missed_by(target_rows, draft, fixed(horizon), (0,), num_tokens, grid, by_round) <= TOLERANCE
    fast = generation_law(
        target=by_last_token(target_rows),
        draft=draft,
        rule=TokenLevel(),
        horizons=fixed(horizon),
        prompt=(0,),
        num_tokens=num_tokens,
        grid=grid,
    )
    assert distance(fast, chain_law(lambda context: target_rows[context[-1]], (0,), num_tokens)) <= TOLERANCE


@pytest.mark.parametrize("keys", [draft_shared_with_accept, emit_shared_with_accept])
def test_one_number_for_two_purposes_is_red(keys: Keys) -> None:
    """C27: reusing a uniform number for drafting and accepting must fail."""
    target_rows, draft = [[0.25, 0.375, 0.375]] * 3, constant([0.5, 0.25, 0.25])

    def first_token(scheme: Keys) -> list[float]:
        law = run_law(decoder(by_last_token(target_rows), draft, fixed(1), (0,), 2, scheme), 4)
        return marginal(law, 0, 3)

    assert first_token(by_round) == [0.25, 0.375, 0.375]
    assert max(abs(left - right) for left, right in zip(first_token(keys), target_rows[0], strict=True)) > RED


def test_numbers_tied_to_absolute_positions_are_red() -> None:
    """A policy may look at discarded tokens, so the next round must not draw with their numbers again.

    After prompt token 2 the target wants 0. A first draft 1 is rejected, and the second draft token x is discarded;
    the policy sees whether the target would have taken x = 0 and drafts on only then. With its old number the second
    position is then 0 again, instead of a fair coin.
    """
    target_rows = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    draft = constant([0.5, 0.5, 0.0])

    def after_discarded(info: PreDraft) -> dict[int, float]:
        match info.memory:
            case Round(accept_probabilities=(*_, last)):
                return {1 if last > 0.5 else 0: 1.0}
            case _:
                return {2: 1.0}

    horizons = Horizons(after_discarded, remember=lambda _, told: told)
    assert missed_by(target_rows, draft, horizons, (2,), 3, 2, by_round) <= TOLERANCE
    assert missed_by(target_rows, draft, horizons, (2,), 3, 2, by_absolute_position) > RED


def test_agreement_may_keep_a_number_for_each_position() -> None:
    """Replay rests on both: the law is the target's for a policy that looks at everything, and no text depends on k.

    A rule that told of the numbers behind its first disagreement (through accept probabilities that are bits, say)
    would bias what the policy lets the next round draw with them.
    """
    target_rows = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.5, 0.0]]
    draft = constant([0.5, 0.5, 0.0])
    target = by_last_token(target_rows)

    def nosy(info: PreDraft) -> dict[int, float]:
        match info.memory:
            case Round(drafted=drafted, accepted=accepted, accept_probabilities=probs):
                return {(sum(drafted) + accepted + (1 if probs and probs[-1] > 0.0 else 0)) % 3: 1.0}
            case _:
                return {2: 1.0}

    looking = Horizons(nosy, remember=lambda _, told: told)

    def program(horizons: Horizons) -> Callable[[Callable[[Hashable], float]], Tokens]:
        return decoder(target, draft, horizons, (2,), 3, target_tokens_by_position, agreement)

    def pair(uniform: Callable[[Hashable], float]) -> Tokens:
        return program(looking)(uniform) + program(fixed(0))(uniform)

    law = run_law(pair, 2)
    assert all(text[:3] == text[3:] for text in law)
    plain = chain_law(lambda context: target_rows[context[-1]], (2,), 3)
    assert distance({text[:3]: weight for text, weight in law.items()}, plain) <= TOLERANCE


def test_streams_use_the_scheme_shown_exact() -> None:
    """Streams that repeated a number for another purpose, round or token would fall under the red tests above."""
    streams = Streams(seed=5)
    numbers = [
        number for purpose in Purpose for start in range(6) for number in streams.uniforms(purpose, start, 4).tolist()
    ]
    assert len(set(numbers)) == len(numbers)
