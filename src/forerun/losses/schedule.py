"""Schedules of the TVP exponent beta: pure functions of the step, so a resumed run needs no state.

Steps are counted from 0 to total_steps - 1 in optimiser updates. A step past the budget keeps the last value.
"""

from forerun.errors import ForerunError
from forerun.losses._inputs import check_beta


def linear_beta(step: int, total_steps: int, *, start: float = 0.0, fraction: float = 0.8) -> float:
    """Anneal from coverage to acceptance: beta rises linearly from `start` to 1 over the first part of the run.

        beta = min(1, start + (1 - start) step / (fraction total_steps))

    Args:
        step: optimiser updates already made.
        total_steps: the budget of the run, in updates.
        start: beta at step 0. The paper compares 0 (best), 0.25 and 0.5.
        fraction: share of the budget after which beta is 1. The paper's main runs use 0.8.

    Raises:
        ForerunError: negative step, total_steps below 1, start outside [0, 1] or fraction outside (0, 1].

    Example:
        >>> [linear_beta(step, 100) for step in (0, 40, 80, 99)]
        [0.0, 0.5, 1.0, 1.0]

    References:
        TVP paper, pre-training from scratch, over plain TV: start 0.5 +2.9 %, 0.25 +3.8 %, 0 +4.2 %.
    """
    check_beta(start)
    return start + (1.0 - start) * _progress(step, total_steps, fraction)


def reversed_beta(step: int, total_steps: int, *, fraction: float = 0.8) -> float:
    """The annealing run backwards, from 1 (acceptance) to 0 (coverage): a control, 8.3 % worse in the TVP paper.

    Args:
        step: optimiser updates already made.
        total_steps: the budget of the run, in updates.
        fraction: share of the budget after which beta is 0.

    Raises:
        ForerunError: negative step, total_steps below 1, or fraction outside (0, 1].
    """
    return 1.0 - _progress(step, total_steps, fraction)


def fixed_beta(step: int, total_steps: int, *, beta: float) -> float:
    """The same beta at every step: a control, always worse than annealing in the TVP paper (1 is plain TV).

    Args:
        step: optimiser updates already made.
        total_steps: the budget of the run, in updates.
        beta: the exponent.

    Raises:
        ForerunError: negative step, total_steps below 1, or beta outside [0, 1].
    """
    check_beta(beta)
    _progress(step, total_steps, 1.0)
    return beta


def _progress(step: int, total_steps: int, fraction: float) -> float:
    """Share of the annealing that is done, in [0, 1]."""
    if total_steps < 1:
        raise ForerunError(f"total_steps is {total_steps}; a schedule needs a budget of at least one step")
    if step < 0:
        raise ForerunError(f"step is {step}; steps are counted from 0")
    if not 0.0 < fraction <= 1.0:
        raise ForerunError(f"fraction is {fraction}; give the annealed share of the run in (0, 1]")
    return min(1.0, step / (fraction * total_steps))
