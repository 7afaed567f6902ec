"""Objectives as a recipe holds them: their values, their schedules, their words."""

import pytest
import torch

from forerun.losses import (
    OUTSIDE,
    TVP,
    Blocks,
    CrossEntropy,
    DPace,
    DraftOPD,
    ForwardKL,
    LKLambda,
    Moment,
    Objective,
    SpecAUF,
    TotalVariation,
    draft_opd,
    lk_lambda,
)

TARGET = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
DRAFT = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def blocks_of(labels: list[list[int]], *, accepted: torch.Tensor | None = None) -> Blocks:
    """The laws of C40 at every position."""
    ids = torch.tensor(labels)
    shape = (*ids.shape, 3)
    return Blocks(
        target_log_probs=TARGET.log().expand(shape),
        draft_logits=DRAFT.log().expand(shape),
        labels=ids,
        mask=torch.ones_like(ids, dtype=torch.bool),
        accepted=accepted,
    )


def moment_of(*, step: int = 0, settled: float = 0.0, acceptance: float = 0.5) -> Moment:
    """One step of a hundred."""
    return Moment(
        step=step, total_steps=100, position_acceptance=torch.tensor([acceptance], dtype=torch.float64), settled=settled
    )


def value(objective: Objective, *, step: int = 0, label: int = 1, settled: float = 0.0) -> float:
    """On the laws of C40, in a block of one position."""
    values = objective.values(blocks_of([[label]]), moment_of(step=step, settled=settled))
    assert values.shape == (1, 1)
    return float(values)


def test_linear_beta_is_one_from_four_fifths_on() -> None:
    """C42. Catches a schedule that ends with the run, or counts steps from one."""
    betas = [TVP().beta_at(step, 100) for step in range(100)]
    assert betas[0] == 0.0 and betas[40] == pytest.approx(0.5) and betas[80] == betas[99] == 1.0
    assert betas == sorted(betas)


def test_the_other_schedules() -> None:
    assert TVP(beta=0.25).beta_at(0, 100) == 0.25
    assert TVP(beta=0.25).beta_at(40, 100) == pytest.approx(0.625)
    assert TVP(schedule="fixed", beta=0.5).beta_at(99, 100) == TVP(schedule="fixed", beta=0.5).beta_at(0, 100) == 0.5
    assert TVP(schedule="reversed").beta_at(0, 100) == 1.0
    assert TVP(schedule="reversed").beta_at(40, 100) == pytest.approx(0.5)
    assert TVP(schedule="reversed").beta_at(80, 100) == 0.0
    assert TVP(fraction=0.5).beta_at(25, 100) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("objective", "step", "expected"),
    [
        (TVP(), 0, 0.579785),
        (TVP(), 20, 0.525136),
        (TVP(), 40, 0.477647),
        (TVP(), 60, 0.436236),
        (TVP(), 80, 0.4),
        (TVP(), 99, 0.4),
        (TotalVariation(), 0, 0.4),
        (ForwardKL(), 0, 0.5 * 0.916291 + 0.3 * 0.405465 - 0.2 * 1.098612),
        (CrossEntropy(), 0, 1.609438),
    ],
)
def test_values_of_c40(objective: Objective, step: int, expected: float) -> None:
    """Catches a step that does not reach the schedule, arguments that are swapped, and a loss under another name."""
    assert value(objective, step=step) == pytest.approx(expected, abs=2e-6)


def test_only_cross_entropy_looks_at_the_data_token() -> None:
    """Catches an objective that learns from the one token that happened to be drawn."""
    for objective in (TVP(), TotalVariation(), ForwardKL()):
        assert value(objective, label=0) == value(objective, label=2) == value(objective, label=OUTSIDE)
    assert value(CrossEntropy(), label=2) == pytest.approx(0.510826, abs=1e-6)
    assert value(CrossEntropy(), label=OUTSIDE) == 0.0


def test_positions_that_count() -> None:
    blocks = blocks_of([[0, OUTSIDE], [OUTSIDE, 2]])  # the draft's best token is 2
    for of_laws in (TVP(), TotalVariation(), ForwardKL()):
        assert of_laws.kept(blocks).all()
    for of_labels in (CrossEntropy(), DPace()):
        assert of_labels.kept(blocks).tolist() == [[True, False], [False, True]]
    assert SpecAUF().kept(blocks).tolist() == [[True, False], [False, False]]
    assert SpecAUF().kept(blocks_of([[2, 0], [2, 2]])).all()


def test_adaptive_beta_follows_the_run_not_the_step() -> None:
    """Catches a budget that slips into the schedule that is to know none."""
    adaptive = TVP(schedule="adaptive")
    for step in (0, 99):
        assert value(adaptive, step=step, settled=0.3) == pytest.approx(0.579785, abs=2e-6)
        assert value(adaptive, step=step, settled=0.7) == pytest.approx(0.477647, abs=2e-6)
        assert value(adaptive, step=step, settled=0.95) == pytest.approx(0.4, abs=2e-6)
    assert adaptive.measures(moment_of(settled=0.7)) == {"beta": pytest.approx(0.5)}


def test_top_candidates_are_the_drafts() -> None:
    """One candidate, the draft's token 2 of probability 1 on the list: overlap 0.2, the rest of the target lost."""
    assert value(TVP(schedule="fixed", beta=1.0, candidates=1)) == pytest.approx(0.8)


def test_lambda_takes_the_acceptance_of_the_whole_batch() -> None:
    """Catches the per-token share under the paper's name: the batch says 0.5, the position itself has 0.6."""
    rows = (TARGET.log()[None], DRAFT.log()[None])
    assert value(LKLambda()) == pytest.approx(float(lk_lambda(*rows, acceptances=torch.tensor([0.5]))), abs=1e-7)
    assert value(LKLambda(aggregate="token")) == pytest.approx(float(lk_lambda(*rows)))
    assert value(LKLambda()) != pytest.approx(float(lk_lambda(*rows)), abs=1e-3)


def test_draft_rollouts_say_what_was_accepted() -> None:
    """Catches the stand-in for teacher-forced text used where the truth is known."""
    accepted = torch.tensor([[True, False]])
    blocks = blocks_of([[2, 2]])
    rows = (blocks.target_log_probs, blocks.draft_logits)
    told = DraftOPD().values(blocks_of([[2, 2]], accepted=accepted), moment_of())
    torch.testing.assert_close(told, draft_opd(*rows, accepted))
    torch.testing.assert_close(DraftOPD().values(blocks, moment_of()), draft_opd(*rows, torch.tensor([[True, True]])))


def test_descriptions_tell_objectives_apart() -> None:
    """Catches a resume that takes one schedule for another: the description is the run's identity."""
    objectives = [
        TVP(), TVP(beta=0.25), TVP(fraction=0.7), TVP(schedule="fixed"), TVP(schedule="reversed"),
        TVP(schedule="fixed", beta=0.5), TotalVariation(), ForwardKL(), CrossEntropy(),
    ]  # fmt: skip
    assert len({objective.describe() for objective in objectives}) == len(objectives)
