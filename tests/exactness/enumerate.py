"""The exact law of what a whole speculative generation emits, by enumeration of its random numbers.

Nothing is derived twice here: draft tokens come from ``Law.sample``, acceptance from ``Rule.verify``, the next token
from ``Outcome.emission``. Only the uniform numbers are ours: they run over the grid 0, 1/grid, ..., (grid - 1)/grid.

Two grids matter. On ``FINE`` (every multiple of 2**-53) the law is right to about 1e-15 for any probabilities. On a
coarse grid it is right to the last bit where all probabilities and acceptance ratios are multiples of 1/grid, and
only there do ``<`` and ``<=`` differ visibly, by 1/grid.

``generation_law`` is fast and keeps every number independent. ``run_law`` is slow and takes any program that asks for
numbers by key, so it can also show what goes wrong when two decisions share one.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise, product
from typing import Any, Protocol

import torch

from forerun.distributions import Law, stack_laws
from forerun.verification import Agreement, BlockVerification, Outcome, Proposal, Rule

FINE = 2**53

Tokens = tuple[int, ...]
Model = Callable[[Tokens], Law]
"""One-row law of the next token after a context. Equal laws should be one object: results are cached by identity."""
Block = Callable[[Tokens, Tokens], tuple[Law, ...]]
"""One-row laws after a context and after each prefix of a draft, as one verification pass makes them."""


class Planned(Protocol):
    """What a policy chose, where that is more than a number: a horizon, and what else its own functions understand."""

    @property
    def horizon(self) -> int:
        """Tokens to draft at most."""


@dataclass(frozen=True)
class PreDraft:
    """All that a horizon policy may know: committed tokens, and what it made of past rounds."""

    context: Tokens
    memory: Hashable
    chosen: "int | Planned" = 0
    """What the policy answered; for the functions that are asked while and after drafting."""


@dataclass(frozen=True)
class Round:
    """What a policy is told after a round; discarded draft tokens included."""

    context: Tokens
    drafted: Tokens
    accepted: int
    emitted: int
    accept_probabilities: tuple[float, ...]
    overlaps: tuple[float, ...]
    chosen: "int | Planned" = 0


Policy = Callable[[PreDraft], Mapping[Any, float]]
"""Probabilities of the horizons (numbers or ``Planned``), so a coin is a mapping with several entries."""


def _forget(memory: Hashable, _: Round) -> Hashable:
    return memory


def _never(_: PreDraft, __: Tokens) -> bool:
    return False


@dataclass(frozen=True)
class Horizons:
    """How long the drafts are.

    Attributes:
        policy: Chooses before anything is drafted.
        memory: What the policy knows in the first round.
        remember: How it learns from a round.
        stop: Asked before each draft token is drawn, given those drawn so far: predictable, hence legal.
        cut: Illegal in general, here for the negative controls: shortens the draft after looking at it.
    """

    policy: Policy
    memory: Hashable = None
    remember: Callable[[Hashable, Round], Hashable] = _forget
    stop: Callable[[PreDraft, Tokens], bool] = _never
    cut: Callable[[PreDraft, Tokens], int] | None = None


def generation_law(
    *,
    target: Model,
    draft: Model,
    rule: Rule,
    horizons: Horizons,
    prompt: Tokens,
    num_tokens: int,
    claimed: Model | None = None,
    block: Block | None = None,
    grid: int = FINE,
) -> dict[Tokens, float]:
    """Joint law of the first ``num_tokens`` output tokens.

    Args:
        target: The target's law.
        draft: The law draft tokens are drawn from.
        rule: The acceptance rule.
        horizons: How the draft lengths come about.
        prompt: The context before the first output token.
        num_tokens: Length of the outputs.
        claimed: The law handed over as the draft's; another one than ``draft`` is a bug to be caught.
        block: The target's laws of a whole block, where they are not made one by one with ``target``.
        grid: Resolution of the draft's and the rule's uniform numbers; emission is always fine.
    """
    claimed = claimed or draft
    target_rows = block or (
        lambda context, drafted: tuple(target(context + drafted[:n]) for n in range(len(drafted) + 1))
    )
    end = len(prompt) + num_tokens

    @cache
    def rest(context: Tokens, memory: Hashable) -> dict[Tokens, float]:
        if len(context) >= end:
            return {context[len(prompt) : end]: 1.0}
        law: defaultdict[Tokens, float] = defaultdict(float)
        info = PreDraft(context, memory)
        for chosen, weight in horizons.policy(info).items():
            planned = replace(info, chosen=chosen)
            horizon = chosen if isinstance(chosen, int) else chosen.horizon
            for drafted, draft_weight in drafts(planned, horizon, ()):
                kept = drafted if horizons.cut is None else drafted[: horizons.cut(planned, drafted)]
                prefixes = [context + kept[:length] for length in range(len(kept) + 1)]
                verdicts = outcomes(
                    rule,
                    target_rows(context, kept),
                    tuple(claimed(prefix) for prefix in prefixes[:-1]),
                    kept,
                    grid,
                )
                for outcome, outcome_weight in verdicts:
                    for token, token_weight in draws(outcome.emission, FINE):
                        told = Round(
                            context,
                            kept,
                            outcome.accepted,
                            token,
                            tuple(outcome.accept_probabilities.tolist()),
                            tuple(outcome.overlaps.tolist()),
                            chosen,
                        )
                        after = context + kept[: outcome.accepted] + (token,)
                        joint = weight * draft_weight * outcome_weight * token_weight
                        for output, tail_weight in rest(after, horizons.remember(memory, told)).items():
                            law[output] += joint * tail_weight
        return law

    def drafts(info: PreDraft, horizon: int, drafted: Tokens) -> Iterator[tuple[Tokens, float]]:
        if len(drafted) == horizon or horizons.stop(info, drafted):
            yield drafted, 1.0
            return
        for token, weight in draws(draft(info.context + drafted), grid):
            for path, path_weight in drafts(info, horizon, (*drafted, token)):
                yield path, weight * path_weight

    return rest(prompt, horizons.memory)


@cache
def draws(law: Law, grid: int) -> list[tuple[int, float]]:
    """Tokens that ``law.sample`` returns on the grid, with the share of numbers that give them."""

    @cache
    def token_at(point: Tokens) -> int:
        return int(law.sample(uniforms=torch.tensor([point[0] / grid], dtype=torch.float64)))

    running = law.dense()[0].cumsum(-1).tolist()
    return [(token_at(low), weight) for low, weight in cells(token_at, [_grid_points(running, grid)], grid)]


@cache
def outcomes(
    rule: Rule, target: tuple[Law, ...], claimed: tuple[Law, ...], drafted: Tokens, grid: int
) -> list[tuple[Outcome, float]]:
    """What ``rule.verify`` says on the grid, with the share of numbers that make it say so."""
    target_law = stack_laws(target)
    # Without draft tokens the target's law only lends its type and size to the empty proposal.
    draft_law = stack_laws(claimed) if claimed else target_law.rows(0, 0)
    proposal = Proposal(torch.tensor(drafted, dtype=torch.int64), draft_law)

    @cache
    def outcome_at(point: Tokens) -> Outcome:
        uniforms = torch.tensor(point, dtype=torch.float64) / grid
        return rule.verify(target_law, proposal, uniforms=uniforms)

    @cache
    def signature_at(point: Tokens) -> Hashable:
        outcome = outcome_at(point)
        return outcome.accepted, tuple(outcome.emission.dense()[0].tolist())

    if isinstance(rule, Agreement):
        hints = [_token_changes(law, grid) for law in target[:-1]]
    else:
        edges = _likely_thresholds(rule, target_law, proposal, outcome_at((0,) * len(drafted)))
        hints = [_grid_points([edge], grid) for edge in edges]
    merged: dict[Hashable, tuple[Outcome, float]] = {}
    for low, weight in cells(signature_at, hints, grid):
        outcome, before = merged.get(signature_at(low), (outcome_at(low), 0.0))
        merged[signature_at(low)] = outcome, before + weight
    return list(merged.values())


def _likely_thresholds(rule: Rule, target: Law, proposal: Proposal, outcome: Outcome) -> list[float]:
    """What each number is probably compared with: hints, so a wrong one costs time and nothing else."""
    weights = outcome.prefix_weights.tolist()
    if not isinstance(rule, BlockVerification):
        return [after / before if before > 0.0 else 0.0 for before, after in pairwise([1.0, *weights])]
    edges = []
    for index, weight in enumerate(weights[:-1]):
        pairs = zip(target.dense()[index + 1].tolist(), proposal.law.dense()[index + 1].tolist(), strict=True)
        mass = sum(max(0.0, weight * left - right) for left, right in pairs)
        edges.append(mass / (mass + 1.0 - weight) if weight < 1.0 else 1.0)
    return [*edges, *weights[-1:]]


def _token_changes(law: Law, grid: int) -> list[int]:
    """The grid points at which a sampled token differs from the one before."""
    drawn = draws(law, grid)
    tops = accumulate(round(weight * grid) for _, weight in drawn)
    return [
        top
        for (before, after), top in zip(pairwise(token for token, _ in drawn), tops, strict=False)
        if before != after
    ]


def _grid_points(edges: Iterable[float], grid: int) -> list[int]:
    return [math.ceil(edge * grid) for edge in edges]


def cells(
    observe: Callable[[Tokens], Hashable], hints: Sequence[Iterable[int]], grid: int
) -> list[tuple[Tokens, float]]:
    """Cuts the grid into boxes on which ``observe`` is constant.

    The hints only save time. A box stands once both its extreme corners are seen to agree; where they differ, the box
    is cut at the change. Why agreeing corners are proof enough: where a rule compares each number with a threshold, the
    accepted count falls as numbers grow, so equal counts at both corners are equal counts between. Agreement draws
    tokens that grow with their numbers, and its outcome names the token that ended the draft while all before it are
    the draft's; so equal outcomes at both corners mean equal tokens at both, hence between.

    Args:
        observe: A function of one grid point (integers below ``grid``) with one integer per hint list.
        hints: Where cuts are likely, for each dimension.
        grid: Number of grid points per dimension.

    Returns:
        The lowest point of each box and the box's share of the grid.
    """
    edges = [sorted({0, grid, *(hint for hint in axis if 0 < hint < grid)}) for axis in hints]
    while True:
        boxes = [tuple(zip(*box, strict=True)) or ((), ()) for box in product(*map(pairwise, edges))]
        for low, above in boxes:
            high = tuple(edge - 1 for edge in above)
            if observe(low) != observe(high):
                axis, cut = _change(observe, low, high)
                edges[axis] = sorted([*edges[axis], cut])
                break
        else:
            return [
                (low, math.prod((top - bottom) / grid for bottom, top in zip(low, above, strict=True)))
                for low, above in boxes
            ]


def _change(observe: Callable[[Tokens], Hashable], low: Tokens, high: Tokens) -> tuple[int, int]:
    """An axis, and the least coordinate on it, at which the answer turns on the way from low to high."""
    for axis in range(len(low)):
        before = (*high[:axis], *low[axis:])
        after = (*high[: axis + 1], *low[axis + 1 :])
        if observe(before) == observe(after):
            continue

        def same(coordinate: int, axis: int = axis, before: Tokens = before) -> bool:
            return observe((*before[:axis], coordinate, *before[axis + 1 :])) == observe(before)

        bottom, top = low[axis], high[axis]  # same(bottom) and not same(top)
        # A hint is off by one grid point at most, so look beside the ends first.
        for probe in (bottom + 1, top - 1):
            if bottom < probe < top:
                bottom, top = (probe, top) if same(probe) else (bottom, probe)
        while top - bottom > 1:
            middle = (bottom + top) // 2
            bottom, top = (middle, top) if same(middle) else (bottom, middle)
        return axis, top
    raise AssertionError("corners differ, so some axis does")


def chain_law(row: Callable[[Tokens], Sequence[float]], prompt: Tokens, num_tokens: int) -> dict[Tokens, float]:
    """Joint law of ``num_tokens`` tokens drawn one after the other from ``row(context)``: the plain decoder."""
    law: dict[Tokens, float] = {(): 1.0}
    for _ in range(num_tokens):
        law = {
            (*output, token): weight * prob
            for output, weight in law.items()
            for token, prob in enumerate(row(prompt + output))
        }
    return law


def distance(left: Mapping[Tokens, float], right: Mapping[Tokens, float]) -> float:
    """Largest difference of two joint laws in the probability of one output."""
    return max(abs(left.get(output, 0.0) - right.get(output, 0.0)) for output in {*left, *right})


def marginal(law: Mapping[Tokens, float], position: int, vocab_size: int) -> list[float]:
    """Law of one output token."""
    probs = [0.0] * vocab_size
    for output, weight in law.items():
        probs[output[position]] += weight
    return probs


def run_law(program: Callable[[Callable[[Hashable], float]], Tokens], grid: int) -> dict[Tokens, float]:
    """Law of what a program returns when each number it asks for runs over the grid.

    The program asks for numbers by key and gets the same number for the same key, so keys say what is shared.
    """
    law: defaultdict[Tokens, float] = defaultdict(float)
    path: list[int] = []
    while True:
        taken: list[int] = []
        numbers: dict[Hashable, float] = {}

        def uniform(
            key: Hashable, path: list[int] = path, taken: list[int] = taken, numbers: dict[Hashable, float] = numbers
        ) -> float:
            if key not in numbers:
                taken.append(path[len(taken)] if len(taken) < len(path) else 0)
                numbers[key] = taken[-1] / grid
            return numbers[key]

        output = program(uniform)
        law[output] += float(grid) ** -len(taken)
        while taken and taken[-1] == grid - 1:
            taken.pop()
        if not taken:
            return law
        taken[-1] += 1
        path = taken
