"""Answers sorted into classes by their first tokens, each with its exact probability: what a chi-square test counts.

The probabilities come from one-token passes of the target alone, without drafts, rounds or acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import SamplingParams, law_from_logits
from forerun.models import Target, TargetCache

_NEXT_TOKEN_DECIDES = -1


@final
class AnswerClasses:
    """Classes that leave no answer out and overlap nowhere, none rarer than ``floor``.

    After a beginning that is likely enough, every token that is likely enough begins classes of its own; the others are
    put together, likely ones with likely ones, until each class has the probability ``floor``.

    Args:
        target: the model, at temperature 1.
        prompt_ids: what the answers follow.
        num_tokens: tokens that a class may look at, at least 1.
        floor: smallest probability of a class, above 0 and at most 1.
    """

    def __init__(self, target: Target, prompt_ids: Sequence[int], *, num_tokens: int, floor: float) -> None:
        self.num_tokens = num_tokens
        self.floor = floor
        self.probs: list[float] = []
        """Of each class."""
        self._class_after: dict[tuple[int, ...], list[int]] = {}  # beginning -> class by next token, or -1
        cache = target.new_cache()
        logits = target.forward(torch.tensor(prompt_ids), cache, num_logits=1).logits
        self._split((), 1.0, target, cache, logits)

    def __len__(self) -> int:
        """Number of classes."""
        return len(self.probs)

    def class_of(self, tokens: Sequence[int]) -> int:
        """Which class an answer belongs to.

        Args:
            tokens: at least ``num_tokens`` of them.
        """
        for length in range(self.num_tokens):
            found = self._class_after[tuple(tokens[:length])][tokens[length]]
            if found != _NEXT_TOKEN_DECIDES:
                return found
        raise AssertionError(f"{list(tokens)} falls into no class")

    def _split(
        self,
        beginning: tuple[int, ...],
        prob: float,
        target: Target,
        cache: TargetCache,
        logits: Float[Tensor, "1 vocab"],
    ) -> None:
        """Make the classes after a beginning of this probability; the cache holds it, the logits follow it."""
        following = prob * law_from_logits(logits, SamplingParams()).dense()[0]
        by_next = [_NEXT_TOKEN_DECIDES] * len(following)
        self._class_after[beginning] = by_next
        for group in _groups(following, self.floor):
            group_prob = float(following[group].sum())
            divisible = len(beginning) + 1 < self.num_tokens and group_prob >= 2 * self.floor
            if len(group) == 1 and divisible:
                length = cache.length
                step = target.forward(torch.tensor(group), cache)
                self._split((*beginning, group[0]), group_prob, target, cache, step.logits)
                cache.rollback(length)
                continue
            for token in group:
                by_next[token] = len(self.probs)
            self.probs.append(group_prob)


def _groups(probs: Float[Tensor, " vocab"], floor: float) -> list[list[int]]:
    """All tokens, from the likeliest down, in groups of at least ``floor``; what is left at the end joins the last."""
    groups: list[list[int]] = []
    group: list[int] = []
    mass = 0.0
    order = probs.argsort(descending=True, stable=True)
    for token, prob in zip(order.tolist(), probs[order].tolist(), strict=True):
        group.append(token)
        mass += prob
        if mass >= floor:
            groups.append(group)
            group, mass = [], 0.0
    if groups:
        groups[-1] += group
        return groups
    return [group]
