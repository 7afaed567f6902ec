"""What a caller sees of a request: seeds, laziness, independence, and refusals in one line."""

from collections.abc import Callable
from itertools import zip_longest

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel, PromptLookup
from forerun.engine import Generation, generate
from forerun.errors import ForerunError
from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback
from forerun.models import TableTarget, tiny_target
from tests.support.horizons import Forced
from tests.support.targets import random_table

GREEDY = SamplingParams(temperature=0.0)
FLOAT32 = 1e-5
"""Signals are computed in float32."""
VOCAB = 8
TARGET = random_table(5, vocab_size=VOCAB)
DRAFTER = DraftModel(random_table(6, vocab_size=VOCAB), TARGET)


def sampled(seed: int = 0, request: int = 0, temperature: float = 1.0, horizon: int = 3, cap: int = 24) -> Generation:
    return generate(
        TARGET,
        [1, 2],
        drafter=DRAFTER,
        horizon=horizon,
        sampling=SamplingParams(temperature=temperature),
        max_new_tokens=cap,
        seed=seed,
        request=request,
    )


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    """C27. Catches generators that are shared, missing, or fed by the global random state."""
    assert sampled(seed=1).token_ids == sampled(seed=1).token_ids
    answers = {tuple(sampled(seed=seed, request=request).token_ids) for seed in (1, 2, 3) for request in (0, 1)}
    assert len(answers) == 6


def test_greedy_answers_do_not_depend_on_the_seed() -> None:
    """C27. Catches draws where nothing is to be drawn."""
    assert len({tuple(sampled(seed=seed, temperature=0.0).token_ids) for seed in range(3)}) == 1


def test_a_longer_answer_begins_with_the_shorter_one() -> None:
    """Catches draws that depend on the cap: random numbers belong to places, not to what is left."""
    plain = [sampled(horizon=0, cap=cap).token_ids for cap in (5, 24)]
    assert plain[1][:5] == plain[0]


def test_nothing_runs_before_it_is_asked_for_and_nothing_runs_twice() -> None:
    """Catches work in ``generate`` itself, and a second pass over rounds that have run."""
    lengths: list[int] = []

    def counting(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        lengths.append(len(prefix))
        return 9.0 * torch.eye(VOCAB, dtype=torch.float64)[(prefix[-1] + 1) % VOCAB]

    target = TableTarget(counting, vocab_size=VOCAB)
    generation = generate(target, [3], sampling=GREEDY, max_new_tokens=6)
    assert lengths == []
    rounds = iter(generation)
    first = next(rounds)
    assert lengths == [1, 2]
    assert next(iter(generation)) is first
    assert lengths == [1, 2]
    assert generation.token_ids == [4, 5, 6, 7, 0, 1]  # runs to the end
    assert list(rounds) == generation.records[1:]
    assert generation.records == list(generation)
    assert lengths == [1, 2, 3, 4, 5, 6]


def test_the_prefill_can_be_asked_for_alone() -> None:
    """Catches a prefill that runs twice, or that runs rounds."""
    generation = sampled()
    assert generation.prefill is generation.prefill
    assert (generation.prefill.prompt_tokens, generation.prefill.finish) == (2, None)
    assert generation.prefill.token_id == generation.token_ids[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_requests_in_turn_equal_requests_one_after_the_other(temperature: float) -> None:
    """Catches state that two requests share: caches, sessions, random streams, stop watches."""
    alone = [sampled(seed=seed, temperature=temperature, horizon=horizon).records for seed, horizon in ((1, 3), (2, 1))]
    both = [sampled(seed=seed, temperature=temperature, horizon=horizon) for seed, horizon in ((1, 3), (2, 1))]
    for records_in_turn in zip_longest(*both):
        assert any(record is not None for record in records_in_turn)
    for generation, records in zip(both, alone, strict=True):
        assert [record.token_ids for record in generation] == [record.token_ids for record in records]
        assert [record.accepted for record in generation] == [record.accepted for record in records]


def test_a_policy_that_is_handed_on_goes_on_learning() -> None:
    """Catches a policy that is copied or reset: its state belongs to the caller."""
    policy = Forced([2, 0])
    for _ in range(2):
        rounds = len(generate(TARGET, [1], drafter=DRAFTER, horizon=policy, max_new_tokens=9).records)
        assert rounds
    assert len(policy.feedback) == len(policy.contexts) > rounds


def test_the_context_of_a_round_holds_what_is_known_before_it() -> None:
    """Catches signals of the wrong row: they describe the law behind the last committed token, at temperature 1."""
    policy = Forced([2, 0, 3])
    generation = generate(
        TARGET, [1], drafter=DRAFTER, horizon=policy, sampling=SamplingParams(temperature=0.5), max_new_tokens=12
    )
    committed = [1, *generation.token_ids]
    for record, context in zip(generation, policy.contexts, strict=True):
        known = committed[: context.context_length]
        assert context.generated == len(known) - 1
        assert context.temperature == 0.5
        assert context.last_token_repeats == (known[-1] in known[:-1])
        logits = TARGET.forward(torch.tensor(known[:-1]), TARGET.new_cache(), num_logits=1).logits[0]
        probs = logits.softmax(-1).sort(descending=True).values
        assert context.target_top_prob == pytest.approx(float(probs[0]), rel=FLOAT32)
        assert context.target_margin == pytest.approx(float(probs[0] - probs[1]), abs=FLOAT32)
        assert context.target_entropy == pytest.approx(float(-(probs * probs.log()).sum()), rel=FLOAT32)
        assert record.choice.horizon <= context.limit


BAD_REQUESTS: dict[str, tuple[Callable[[], Generation], str]] = {
    "empty prompt": (lambda: generate(TARGET, []), "the prompt is empty; give at least one token"),
    "blank text": (lambda: generate(tiny_target(), "  \n"), "the prompt is empty; give some text"),
    "text for a table": (lambda: generate(TARGET, "hello"), "table has no tokenizer; give token ids"),
    "text without tokenizer": (lambda: generate(tiny_target(), "hello"), "tiny-0 has no tokenizer"),
    "id too large": (lambda: generate(TARGET, [1, VOCAB]), f"prompt token {VOCAB} lies outside the vocabulary"),
    "negative id": (lambda: generate(TARGET, [-1]), "prompt token -1 lies outside"),
    "no tokens": (lambda: generate(TARGET, [1], max_new_tokens=0), "max_new_tokens is 0"),
    "empty stop": (lambda: generate(TARGET, [1], stop=["a", ""]), "an empty stop string"),
    "stop for a table": (lambda: generate(TARGET, [1], stop=["a"]), "table has no tokenizer; use its stop ids"),
    "stop without tokenizer": (lambda: generate(tiny_target(), [1], stop=["a"]), "tiny-0 has no tokenizer"),
    "stop as one text": (lambda: generate(tiny_target(), [1], stop="END"), "stop is a list of texts"),
    "horizon too large": (
        lambda: generate(TARGET, [1], drafter=PromptLookup(VOCAB, max_horizon=4), horizon=5),
        "horizon 5 is above the 4 tokens that prompt-lookup can draft",
    ),
    "horizon alone": (lambda: generate(TARGET, [1], horizon=2), "horizon 2 needs a drafter"),
    "negative horizon": (lambda: generate(TARGET, [1], drafter=DRAFTER, horizon=-1), "horizon -1 is negative"),
    "negative seed": (lambda: generate(TARGET, [1], seed=-1), "seed is -1"),
    "cold": (lambda: sampled(temperature=-1.0), "temperature"),
    "other vocabulary": (
        lambda: generate(TARGET, [1], drafter=DraftModel(random_table(1, vocab_size=4), TARGET)),
        "has 4 tokens",
    ),
}


@pytest.mark.parametrize(("request_", "message"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_wrong_use_is_refused_in_one_line(request_: Callable[[], Generation], message: str) -> None:
    """Catches wrong input that is silently ignored or that ends in an error far below."""
    with pytest.raises(ForerunError) as error:
        request_()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_above_the_limit_is_our_own_mistake() -> None:
    """Catches drafts beyond the cap, which a policy that ignores the limit would cause."""

    class Greedy(HorizonPolicy):
        name = "greedy"

        def propose(self, context: RoundContext, *, uniform: float) -> Choice:
            return Choice(horizon=4, planned=4, explored=False, propensities=(1.0,) * 4)

        def observe(self, feedback: RoundFeedback) -> None:
            raise NotImplementedError

        def clone(self) -> HorizonPolicy:
            raise NotImplementedError

    with pytest.raises(AssertionError, match="limit"):
        list(generate(TARGET, [1], drafter=DRAFTER, horizon=Greedy(), max_new_tokens=4))
