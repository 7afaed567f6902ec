"""Suffix look-up against its definition, and its proposals through the whole of verification."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import Law, PointLaw, Processing, SamplingParams
from forerun.drafters import PastOutputs, ProposalPolicy, SuffixLookup
from forerun.engine import generate, generate_batch
from forerun.errors import ForerunError
from forerun.models import tiny_target
from forerun.verification import BlockVerification, Proposal, Rule, TokenLevel
from tests.exactness.enumerate import FINE, Tokens, chain_law, distance, draws, outcomes
from tests.exactness.tables import plain_model, processed, random_logits
from tests.support.speed import without_shape_checks
from tests.support.targets import fresh_greedy

VOCAB = 4
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=16)
GREEDY = SamplingParams(temperature=0.0)
Draft = tuple[Tokens, tuple[Law, ...], float]


def drafter_of(
    outputs: list[list[int]], *, max_match: int = 4, factor: float | None = None, least: float = 0.0,
    policy: ProposalPolicy = ProposalPolicy.ARGMAX, vocab_size: int = VOCAB,
) -> SuffixLookup:  # fmt: skip
    past = PastOutputs(max_match=max_match)
    for output in outputs:
        past.add(output)
    return SuffixLookup(
        vocab_size, max_match=max_match, match_factor=factor, min_probability=least, policy=policy, past=past
    )


def proposal_of(
    drafter: SuffixLookup, committed: list[int], horizon: int, params: SamplingParams = GREEDY, *numbers: float
) -> Proposal:
    session = drafter.new_session()
    session.extend(torch.tensor(committed[:-1], dtype=torch.int64), torch.zeros(len(committed) - 1, 0, 1))
    uniforms = torch.tensor([*numbers, *[0.5] * (horizon - len(numbers))], dtype=torch.float64)
    return session.propose(committed[-1], horizon, Processing(params, committed), uniforms=uniforms)


def followers(word: list[int], text: list[int]) -> list[int]:
    """What stands after each occurrence of a word, in order."""
    return [text[end] for end in range(len(word), len(text)) if text[end - len(word) : end] == word]


def known_suffix(words: list[int], text: list[int], max_match: int) -> list[int]:
    sizes = range(min(max_match, len(words)), 0, -1)
    return next((words[-size:] for size in sizes if followers(words[-size:], text)), [])


def by_definition(
    committed: list[int], output: list[int], horizon: int, max_match: int, factor: float | None, least: float
) -> list[int]:
    """The text with the longest known suffix is copied from: its most frequent follower, and so on."""
    words = committed
    text = max([committed[:-1], output], key=lambda text: len(known_suffix(words, text, max_match)))
    length = len(known_suffix(words, text, max_match))
    horizon = horizon if factor is None else min(horizon, int(factor * length))
    copied: list[int] = []
    words, probability = known_suffix(words, text, max_match), 1.0
    while len(copied) < horizon and words:
        after = followers(words, text)
        counts = Counter(after)
        if probability * max(counts.values()) / len(after) < least:
            break
        best = max(counts, key=lambda token: (counts[token], max(i for i, t in enumerate(after) if t == token)))
        probability *= counts[best] / len(after)
        copied.append(best)
        words = known_suffix([*words, best], text, max_match)
    return copied


@given(
    tokens=TOKENS, last=st.integers(0, VOCAB - 1), output=TOKENS, horizon=st.integers(1, 6),
    max_match=st.integers(1, 4), factor=st.sampled_from([None, 0.5, 1.0, 2.0]), least=st.sampled_from([0.0, 0.3, 0.6]),
)  # fmt: skip
def test_the_most_frequent_follower_of_the_longest_match_is_copied(
    tokens: list[int], last: int, output: list[int], horizon: int, max_match: int, factor: float | None, least: float
) -> None:
    """Catches a shorter match in place of a longer one, the wrong source, counts of other words, and every cap."""
    drafter = drafter_of([output], max_match=max_match, factor=factor, least=least)
    proposal = proposal_of(drafter, [*tokens, last], horizon)
    expected = by_definition([*tokens, last], output, horizon, max_match, factor, least)
    assert proposal.token_ids.tolist() == expected
    assert isinstance(proposal.law, PointLaw) and not proposal.cut_short


@pytest.mark.parametrize(
    ("tokens", "outputs", "expected"),
    [
        ([1], [], []),  # one token
        ([1, 1], [], []),  # the suffix never finds itself
        ([1, 2, 1, 3, 1, 3, 1, 2, 0, 1], [], [2, 0]),  # 2 and 3 followed twice each; 2 is newer
        ([0, 1, 2, 0, 1, 2, 0, 1], [], [2, 0, 1, 2]),  # a cycle goes on beyond the end of what is known
        ([3, 3, 3, 3], [], [3, 3, 3, 3]),
        ([0, 1], [[0, 1, 1], [2, 0, 1, 3, 2], [2, 0, 1, 3, 2]], [3, 2, 0, 1]),  # 1, 3, 2 ended; after 2 alone came 0
        ([2, 3], [[2], [3, 1]], [1]),  # no match reaches from one output into the next
        ([2, 0, 1, 3, 2, 0], [[2, 0, 2]], [1, 3, 2, 0]),  # equal matches: the request itself goes first
        ([0, 1], [[0, 1, 2, *[3] * 9], [0, 1, 3]], [3]),  # equal matches: the newer answer goes first
    ],
)
def test_small_cases(tokens: list[int], outputs: list[list[int]], expected: list[int]) -> None:
    """Values that can be checked by eye."""
    assert proposal_of(drafter_of(outputs), tokens, 4).token_ids.tolist() == expected


def test_the_least_probability_is_one_of_the_whole_draft() -> None:
    """After 1 came 2 with 4/5, after 1, 2 always 0, then 1 with 3/4. Catches a bound on each token alone."""
    tokens = [1, 3, 0, *[1, 2, 0] * 4, 3, 2, 1]
    for least, expected in ((0.5, [2, 0, 1]), (0.7, [2, 0])):
        assert proposal_of(drafter_of([], least=least), tokens, 3).token_ids.tolist() == expected


def test_rounds_go_on_in_earlier_answers() -> None:
    """Catches a place in an earlier answer that is lost when tokens come in."""
    session = drafter_of([[0, 1, 2, 3, 0]]).new_session()
    for piece in ([0], [1, 2]):
        session.extend(torch.tensor(piece), torch.zeros(len(piece), 0, 1))
    assert session.match_after(3).length == 4


def test_a_match_is_told_before_anything_is_drafted() -> None:
    """Catches a match that depends on drafts, and a frequency that counts the newest place."""
    session = drafter_of([]).new_session()
    assert session.length == 0
    session.extend(torch.tensor([1, 2, 3, 1, 2, 0, 1]), torch.zeros(7, 0, 1))
    found = session.match_after(2)
    assert (found.length, found.frequency) == (2, 2)
    assert [session.match_after(token).length for token in (3, 7)] == [1, 0] and session.length == 7


def chains(drafter: SuffixLookup, context: Tokens, params: SamplingParams) -> Iterator[Draft]:
    """Every draft of up to three tokens that can come out, with its laws and its probability.

    A token is made to come out by a number in the middle of its part of the law.
    """

    def further(drafted: Tokens, numbers: tuple[float, ...], weight: float) -> Iterator[Draft]:
        proposal = proposal_of(drafter, list(context), 3, params, *numbers)
        laws = tuple(proposal.law.rows(row, row + 1) for row in range(proposal.horizon))
        assert tuple(proposal.token_ids.tolist())[: len(drafted)] == drafted
        if proposal.horizon == len(drafted):
            yield drafted, laws, weight
            return
        probs = laws[len(drafted)].dense()[0].tolist()
        below = 0.0
        for token, prob in enumerate(probs):
            if prob > 0.0:
                yield from further((*drafted, token), (*numbers, below + prob / 2), weight * prob)
            below += prob

    yield from further((), (), 1.0)


@pytest.mark.parametrize("rule", [TokenLevel(), BlockVerification()])
@pytest.mark.parametrize("policy", ProposalPolicy)
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.7, repetition_penalty=1.3)])
def test_decoding_with_it_is_exact(rule: Rule, policy: ProposalPolicy, params: SamplingParams) -> None:
    """By enumeration. Catches a law that is not the one drawn from, and lengths that look at the token they decide on.

    With the threshold some drafts end because of what was drawn before, which is legal.
    """
    logits, prompt = random_logits(3, 3, 1), (0, 1, 2, 0, 1, 1, 0, 2, 0, 1)
    plain_params = SamplingParams(temperature=params.temperature)
    drafter = drafter_of([[0, 1, 0, 0, 1, 2]], factor=1.0, least=0.3, policy=policy, vocab_size=3)
    target = processed(logits, plain_params)
    lengths: set[int] = set()

    @cache
    def rest(context: Tokens) -> dict[Tokens, float]:
        if len(context) >= len(prompt) + 3:
            return {context[len(prompt) : len(prompt) + 3]: 1.0}
        law: defaultdict[Tokens, float] = defaultdict(float)
        for drafted, laws, weight in chains(drafter, context, params):
            lengths.add(len(drafted))
            rows = tuple(target(context + drafted[:count]) for count in range(len(drafted) + 1))
            for outcome, share in outcomes(rule, rows, laws, drafted, FINE):
                for token, prob in draws(outcome.emission, FINE):
                    after = (*context, *drafted[: outcome.accepted], token)
                    for output, tail in rest(after).items():
                        law[output] += weight * share * prob * tail
        return law

    with without_shape_checks():
        found = rest(prompt)
    assert len(lengths) > 1
    assert distance(found, chain_law(plain_model(logits, plain_params), prompt, 3)) <= 1e-12


def test_finished_answers_serve_later_requests() -> None:
    """Catches answers that are not added, added while a request runs, or that change what is written.

    The second answer to the same prompt is known; a request that began before the first one ended does not see it.
    """
    target, prompt = tiny_target(), [5, 9, 2]
    drafter = SuffixLookup(target.vocab_size, past=PastOutputs(), match_factor=None)
    past = drafter.past
    assert past is not None

    def decode(count: int = 24) -> tuple[list[int], int]:
        answer = generate(target, prompt, drafter=drafter, horizon=8, sampling=GREEDY, max_new_tokens=count)
        return answer.token_ids, answer.totals.accepted

    early = drafter.new_session()
    early.extend(torch.tensor(prompt), torch.zeros(3, 0, 1))
    first, alone = decode()
    assert [list(output) for segment in past.segments for output in segment.outputs] == [first]
    second, helped = decode()
    assert first == second == fresh_greedy(target, prompt, 24)[3:] and helped > max(alone, 16)
    assert early.match_after(first[0]).length == 0
    cancelled = generate(target, prompt, drafter=drafter, horizon=8, sampling=GREEDY, max_new_tokens=24)
    next(iter(cancelled))
    before = past.num_tokens
    cancelled.cancel()
    assert past.num_tokens == before + len(cancelled.token_ids) + 1


def test_requests_that_wait_read_what_was_finished_before_they_began() -> None:
    """Catches a memory that is looked at when a request is handed in: in a batch that is before anything is known."""
    target, prompt = tiny_target(), [5, 9, 2]
    drafter = SuffixLookup(target.vocab_size, past=PastOutputs(), match_factor=None)
    batch = generate_batch(
        target, [prompt] * 2, max_batch=1, drafter=drafter, horizon=8, sampling=GREEDY, max_new_tokens=20
    )
    first, second = batch.answers
    assert first.token_ids == second.token_ids == fresh_greedy(target, prompt, 20)[3:]
    assert second.totals.rounds < 5 < first.totals.rounds


def test_drawn_copies_follow_processing() -> None:
    """Catches counts that are handed over unprocessed: a forbidden follower must not be drawn."""
    drafter = drafter_of([], policy=ProposalPolicy.SAMPLE)
    tokens = [1, 2, 1, 3, 1, 3, 0, 1]
    free = proposal_of(drafter, tokens, 1, SamplingParams()).law.dense()[0].tolist()
    assert free == pytest.approx([0, 0, 1 / 3, 2 / 3])
    held = proposal_of(drafter, tokens, 1, SamplingParams(bad_words=[[3]])).law.dense()[0].tolist()
    assert held == [0, 0, 1, 0]
    assert proposal_of(drafter, tokens, 1, SamplingParams(bad_words=[[3], [2]])).cut_short


def test_settings_out_of_range_are_refused() -> None:
    """Catches a drafter that silently never drafts."""
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"max_match": 0}, "at least 1, got 0 and 16"),
        ({"match_factor": 0.0}, "match_factor is 0.0"),
        ({"min_probability": 1.5}, "min_probability is 1.5"),
        ({"past": PastOutputs(max_match=3)}, "past outputs have max_match 3, the drafter 32"),
    )
    for settings, complaint in cases:
        with pytest.raises(ForerunError, match=complaint):
            SuffixLookup(VOCAB, **settings)
