"""The statistical check: its classes against brute force, its chi-square against closed forms, and bugs it must see."""

import math
from itertools import product

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.errors import ForerunError
from forerun.evaluation.answer_classes import AnswerClasses
from forerun.evaluation.sampling_check import SamplingCheck, check_sampling, chi_square
from forerun.models import TableTarget
from forerun.verification import Rule
from tests.exactness.tables import plain_row
from tests.support.speed import without_shape_checks
from tests.support.targets import random_table
from tests.support.wrong import AcceptEverything, StuckDice

VOCAB = 5
PROMPT = (2, 4)
SEED = 5
ANSWERS = 250
TARGET = random_table(21, vocab_size=VOCAB)
DRAFTER = DraftModel(random_table(22, vocab_size=VOCAB), TARGET, max_horizon=4)


def law_after(prefix: tuple[int, ...]) -> list[float]:
    logits = TARGET.forward(torch.tensor(prefix), TARGET.new_cache(), num_logits=1).logits[0].tolist()
    return plain_row(logits, SamplingParams())


@pytest.mark.parametrize("num_tokens", [1, 2, 3])
@pytest.mark.parametrize("floor", [1e-9, 0.01, 0.05, 0.3, 1.0])
def test_classes_hold_what_brute_force_says(num_tokens: int, floor: float) -> None:
    """Catches classes that overlap, leave answers out, have another law's probability or are too rare to count."""
    with without_shape_checks():
        classes = AnswerClasses(TARGET, PROMPT, num_tokens=num_tokens, floor=floor)
        expected = [0.0] * len(classes)
        for tokens in product(range(VOCAB), repeat=num_tokens):
            prob = math.prod(law_after(PROMPT + tokens[:place])[token] for place, token in enumerate(tokens))
            expected[classes.class_of(tokens)] += prob
    assert classes.probs == pytest.approx(expected, abs=1e-12)
    assert min(classes.probs) >= floor - 1e-12
    if floor == 1e-9:
        assert len(classes) == VOCAB**num_tokens
    if floor in (0.01, 0.05):
        assert len(classes) > VOCAB * num_tokens / 2


def test_a_flat_law_has_classes_too() -> None:
    """Catches a test without classes where no single token is likely."""
    flat = TableTarget(lambda _: torch.zeros(40, dtype=torch.float64), vocab_size=40)
    classes = AnswerClasses(flat, [0], num_tokens=2, floor=0.1)
    assert classes.probs == pytest.approx([0.1] * 10)


def test_a_certain_answer_is_one_class_and_refused() -> None:
    """Catches a check that cannot fail."""
    certain = TableTarget(lambda _: torch.tensor([0.0, 99.0], dtype=torch.float64), vocab_size=2)
    assert AnswerClasses(certain, [0], num_tokens=2, floor=0.01).probs == pytest.approx([1.0])
    with pytest.raises(ForerunError, match="500 answers to this prompt would fall into one class"):
        check_sampling(
            certain,
            DraftModel(certain, certain),
            [0],
            horizons=(1,),
            num_answers=500,
            num_tokens=2,
            seed=0,
            on_answer=print,
        )


@pytest.mark.parametrize("counts", [[30, 70], [49, 51], [9, 1]])
def test_two_classes_follow_the_normal_law(counts: list[int]) -> None:
    """With one degree of freedom the p-value is erfc(sqrt(x / 2)), x the square of the standardised count."""
    total = sum(counts)
    squared = (counts[0] - 0.3 * total) ** 2 / (total * 0.3 * 0.7)
    statistic, p_value = chi_square(counts, [0.3, 0.7])
    assert statistic == pytest.approx(squared) and p_value == pytest.approx(math.erfc(math.sqrt(squared / 2)))


def test_three_classes_follow_the_exponential_law() -> None:
    """With two degrees of freedom the p-value is exp(-x / 2)."""
    statistic, p_value = chi_square([10, 20, 30], [0.25, 0.25, 0.5])
    assert statistic == pytest.approx(25 / 15 + 25 / 15 + 0.0) and p_value == pytest.approx(math.exp(-statistic / 2))


def checked(drafter: DraftModel | StuckDice, rule: Rule | None = None) -> SamplingCheck:
    steps: list[int] = []
    with without_shape_checks():
        found = check_sampling(
            TARGET, drafter, PROMPT, horizons=(3, 1), num_answers=ANSWERS, num_tokens=3, seed=SEED, rule=rule,
            on_answer=lambda: steps.append(1),
        )  # fmt: skip
    assert len(steps) == found.num_answers == ANSWERS
    return found


def test_an_exact_pair_passes() -> None:
    found = checked(DRAFTER)
    assert found.passed and found.num_classes > 20, found
    assert 0 < found.accepted < found.drafted, "both branches were taken"


def test_a_drafter_that_draws_from_another_law_is_seen() -> None:
    """The commonest bug: what is verified is not what was sampled. Greedy answers cannot show it."""
    found = checked(StuckDice(DRAFTER))
    assert not found.passed and found.p_value < 1e-6, found


def test_a_rule_that_accepts_everything_is_seen() -> None:
    found = checked(DRAFTER, AcceptEverything())
    assert not found.passed and found.p_value < 1e-6, found
