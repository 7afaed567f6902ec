"""Do sampled answers follow the target's law? Counts of first tokens from the whole engine against the exact law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter
from forerun.engine import generate_batch
from forerun.errors import ForerunError
from forerun.evaluation.answer_classes import AnswerClasses
from forerun.models import Target
from forerun.verification import Rule

MIN_EXPECTED = 5.0
"""Answers that a class of the chi-square test must expect; the usual rule of thumb."""

_MAX_BATCH = 16  # answers that share a pass

ALPHA = 1e-3
"""A correct engine fails the test with this probability; the seed is fixed, so it then fails every time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingCheck:
    """Result of the test.

    Attributes:
        horizons: tokens drafted each round; one part of the answers each.
        seed: of the first horizon's answers, one more for the next; each answer has random streams of its own.
        num_answers: drawn.
        num_tokens: of each answer that were looked at.
        num_classes: that the answers were sorted into.
        chi_square: Pearson's statistic, with ``num_classes - 1`` degrees of freedom.
        p_value: probability of counts at least this far from their expectation, if the law is right.
        alpha: below which the test fails.
        drafted: tokens proposed in the rounds that were looked at.
        accepted: of them.
    """

    horizons: tuple[int, ...]
    seed: int
    num_answers: int
    num_tokens: int
    num_classes: int
    chi_square: float
    p_value: float
    alpha: float
    drafted: int
    accepted: int

    @property
    def passed(self) -> bool:
        """Whether the counts are believable."""
        return self.p_value >= self.alpha


def check_sampling(
    target: Target,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    horizons: Sequence[int],
    num_answers: int,
    num_tokens: int,
    seed: int,
    rule: Rule | None = None,
    on_answer: Callable[[], None],
) -> SamplingCheck:
    """Draw the first tokens of many answers at temperature 1 and compare their counts with the exact law.

    Args:
        target: the model.
        drafter: proposes.
        prompt_ids: one prompt for all answers.
        horizons: tokens to draft each round, at most ``num_answers``; one part of the answers each, for the law is the
            same with all.
        num_answers: to draw.
        num_tokens: of each answer, at least 2: the first comes from the prompt's pass, all others from rounds.
        seed: of the first horizon's answers, one more for the next.
        rule: acceptance rule; ``None`` for the engine's own.
        on_answer: called after each answer.

    Raises:
        ForerunError: the target leaves these tokens no choice, or there are too few answers to see one.
    """
    classes = AnswerClasses(target, prompt_ids, num_tokens=num_tokens, floor=min(MIN_EXPECTED / num_answers, 1.0))
    if len(classes) < 2:
        raise ForerunError(
            f"{num_answers} answers to this prompt would fall into one class; draw more answers or give another prompt"
        )
    counts = [0] * len(classes)
    drafted = accepted = 0
    for turn, horizon in enumerate(horizons):
        batch = generate_batch(
            target,
            [prompt_ids],
            num_return_sequences=len(range(turn, num_answers, len(horizons))),
            max_batch=_MAX_BATCH,
            drafter=drafter,
            horizon=horizon,
            sampling=SamplingParams(),
            max_new_tokens=num_tokens + horizon,  # so that no round is shortened
            ignore_stop_ids=True,
            seed=seed + turn,
            rule=rule,
        )
        answers: dict[int, list[int]] = {}
        for index, record in batch:
            tokens = answers.setdefault(index, [batch.answers[index].prefill.token_id])
            tokens += record.token_ids
            drafted += record.drafted
            accepted += record.accepted
            if len(tokens) >= num_tokens:
                batch.answers[index].cancel()
                counts[classes.class_of(tokens)] += 1
                on_answer()
    statistic, p_value = chi_square(counts, classes.probs)
    return SamplingCheck(
        horizons=tuple(horizons),
        seed=seed,
        num_answers=num_answers,
        num_tokens=num_tokens,
        num_classes=len(classes),
        chi_square=statistic,
        p_value=p_value,
        alpha=ALPHA,
        drafted=drafted,
        accepted=accepted,
    )


def chi_square(counts: Sequence[int], probs: Sequence[float]) -> tuple[float, float]:
    """Pearson's statistic ``sum (count - expected)^2 / expected`` and its p-value.

    The p-value is the regularised upper incomplete gamma function ``Q(freedom / 2, statistic / 2)``.

    Args:
        counts: of each class.
        probs: of each class, above 0, with sum 1.

    Example:
        >>> statistic, p_value = chi_square([30, 70], [0.5, 0.5])
        >>> round(statistic, 9), round(p_value, 7)
        (16.0, 6.33e-05)
    """
    total = sum(counts)
    statistic = sum((count - total * prob) ** 2 / (total * prob) for count, prob in zip(counts, probs, strict=True))
    halves = torch.tensor([len(counts) - 1, statistic], dtype=torch.float64) / 2
    return statistic, float(torch.special.gammaincc(halves[0], halves[1]))
