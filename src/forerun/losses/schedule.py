"""Schedules of the TVP exponent beta.

Three are pure functions of the step, so that a resumed run needs no state. Steps are counted from 0 to total_steps - 1
in optimiser updates; a step past the budget keeps the last value. The fourth knows no budget: it is a pure function of
what an `AcceptanceHistory` has measured.
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


def adaptive_beta(settled: float, *, start: float = 0.5, full: float = 0.9) -> float:
    """Anneal from coverage to acceptance as the draft settles; nobody has to know when the run ends.

        beta = min(1, max(0, (settled - start) / (full - start)))

    1 - `settled` is the mean time at which the draft gained its acceptance, as a share of the run so far (see
    `AcceptanceHistory`). While acceptance grows steadily that is one half and beta is 0: coverage first. Once the gain
    lies in the first tenth of the run, on average, beta is 1. An acceptance that approaches its limit like 1 - e^(-t/T)
    gives beta 0.39 at 2T, 0.77 at 5T and 1 from 10T on.

    Args:
        settled: `AcceptanceHistory.settled`, in [0, 1]; it never falls, so beta never falls.
        start: where beta leaves 0; 0.5 is steady growth.
        full: where beta is 1.

    Raises:
        ForerunError: start and full are not ordered within [0, 1].

    Example:
        >>> [round(adaptive_beta(settled), 3) for settled in (0.3, 0.5, 0.7, 0.9, 1.0)]
        [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    if not 0.0 <= start < full <= 1.0:
        raise ForerunError(f"start is {start} and full is {full}; give 0 <= start < full <= 1")
    return min(1.0, max(0.0, (settled - start) / (full - start)))


def _progress(step: int, total_steps: int, fraction: float) -> float:
    """Share of the annealing that is done, in [0, 1]."""
    if total_steps < 1:
        raise ForerunError(f"total_steps is {total_steps}; a schedule needs a budget of at least one step")
    if step < 0:
        raise ForerunError(f"step is {step}; steps are counted from 0")
    if not 0.0 < fraction <= 1.0:
        raise ForerunError(f"fraction is {fraction}; give the annealed share of the run in (0, 1]")
    return min(1.0, step / (fraction * total_steps))
