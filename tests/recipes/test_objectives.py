"""Objectives by name."""

import inspect
import math
import re
from pathlib import Path

import pytest
import torch

from forerun import losses
from forerun.errors import ForerunError
from forerun.losses import TVP, Blocks, Moment, Need, Objective, masked_sum
from forerun.recipes import OBJECTIVES, objective


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_makes_an_objective_of_its_own(name: str) -> None:
    """Catches a name that stands for a mistake nobody has ever constructed, and two names for one thing."""
    words = objective(name).describe()
    assert words
    assert sum(objective(other).describe() == words for other in OBJECTIVES) == 1


def test_names_mean_what_they_say() -> None:
    """Catches a start or schedule under the wrong name."""
    for name, start, middle, end in (
        ("tvp", 0.0, 0.5, 1.0),
        ("tvp-from-quarter", 0.25, 0.625, 1.0),
        ("tvp-from-half", 0.5, 0.75, 1.0),
        ("tvp-fixed-half", 0.5, 0.5, 0.5),
        ("tvp-fixed-zero", 0.0, 0.0, 0.0),
        ("tvp-top-16", 0.0, 0.5, 1.0),
        ("tvp-reversed", 1.0, 0.5, 0.0),
    ):
        made = objective(name)
        assert isinstance(made, TVP)
        assert [made.beta_at(step, 100) for step in (0, 40, 80)] == pytest.approx([start, middle, end]), name


@pytest.mark.parametrize(("name", "neighbour"), [("tpv", "tvp"), ("tvp-from-quater", "tvp-from-quarter"), ("TV", "tv")])
def test_an_unknown_name_lists_its_neighbours(name: str, neighbour: str) -> None:
    with pytest.raises(ForerunError, match=f"unknown loss {name!r}; did you mean .*{neighbour}"):
        objective(name)


def test_a_name_near_nothing_lists_all() -> None:
    with pytest.raises(ForerunError, match=re.escape(", ".join(OBJECTIVES))):
        objective("cosine")


MOMENT = Moment(
    step=20, total_steps=100, position_acceptance=torch.tensor([0.7, 0.5, 0.4], dtype=torch.float64), settled=0.6
)


def random_blocks(count: int = 6, vocab: int = 20) -> Blocks:
    generator = torch.Generator().manual_seed(1)
    target, draft = torch.randn(2, count, 3, vocab, generator=generator, dtype=torch.float64) * 2
    labels = torch.randint(-1, vocab, (count, 3), generator=generator)
    return Blocks(
        target_log_probs=target.log_softmax(-1), draft_logits=draft, labels=labels,
        mask=torch.ones(count, 3, dtype=torch.bool),
    )  # fmt: skip


def loss_and_gradient(made: Objective, blocks: Blocks) -> tuple[float, torch.Tensor]:
    """What a trainer does with an objective."""
    logits = blocks.draft_logits.clone().requires_grad_()
    teacher = blocks.target_log_probs.clone().requires_grad_()
    asked = Blocks(target_log_probs=teacher, draft_logits=logits, labels=blocks.labels, mask=blocks.mask)
    values = made.values(asked, MOMENT)
    assert values.shape == blocks.labels.shape and values.dtype == torch.float64
    mean = masked_sum(values, blocks.mask & made.kept(asked)).mean()
    torch.autograd.backward(mean)
    assert teacher.grad is None  # the target is never trained
    assert logits.grad is not None
    return mean.item(), logits.grad


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_can_be_trained(name: str) -> None:
    """One contract under every name: a value per position, a gradient that reaches the draft and nothing else."""
    loss, gradient = loss_and_gradient(objective(name), random_blocks())
    assert math.isfinite(loss) and loss > 0
    assert gradient.isfinite().all() and gradient.abs().max().item() > 1e-4
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(6, 3, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_masks_equal_dropping(name: str) -> None:
    """Blocks that fill the batch, and blocks that end with their text, change nothing whatever they hold."""
    made, blocks = objective(name), random_blocks()
    for kept in ((slice(0, 4), slice(None)), (slice(None), slice(0, 2))):
        mask = torch.zeros_like(blocks.mask)
        mask[kept] = True
        logits = blocks.draft_logits.clone()
        logits[~mask, 3:] = -math.inf
        loss, gradient = loss_and_gradient(
            made,
            Blocks(target_log_probs=blocks.target_log_probs, draft_logits=logits, labels=blocks.labels, mask=mask),
        )
        cut = Blocks(
            target_log_probs=blocks.target_log_probs[kept],
            draft_logits=blocks.draft_logits[kept],
            labels=blocks.labels[kept],
            mask=blocks.mask[kept],
        )
        if name == "lk":
            moment = Moment(
                step=20,
                total_steps=100,
                position_acceptance=MOMENT.position_acceptance[: cut.mask.shape[1]],
                settled=0.6,
            )
            mean = masked_sum(made.values(cut, moment), cut.mask).mean().item()
            assert loss == pytest.approx(mean, rel=1e-12)
            continue
        expected, expected_gradient = loss_and_gradient(made, cut)
        assert loss == pytest.approx(expected, rel=1e-12)
        torch.testing.assert_close(gradient[kept], expected_gradient, rtol=1e-11, atol=1e-15)
        assert gradient[~mask].abs().max().item() == 0


def test_no_objective_is_without_a_name() -> None:
    """Catches a class that was written and cannot be trained from the command line."""
    public = {vars(losses)[name] for name in losses.__all__}
    written = {item for item in public if inspect.isclass(item) and issubclass(item, Objective)} - {Objective}
    assert {type(objective(name)) for name in OBJECTIVES} == written


def documented() -> dict[str, list[str]]:
    """Rows of the table in docs/losses.md, by name."""
    page = Path(__file__).parents[2] / "docs" / "losses.md"
    rows = [line.strip("|").split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_guide_lists_every_objective() -> None:
    """Catches a name that the guide does not know, and one that only the guide knows."""
    assert list(documented()) == list(OBJECTIVES)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_guide_says_what_an_objective_needs(name: str) -> None:
    """Catches a table that goes out of date: needs and position weights are those of the object."""
    *_, state, needs, weights = documented()[name]
    made = objective(name)
    assert needs == ", ".join(need.value for need in Need if need in made.needs)
    assert weights == made.weights
    measured = {"lk": "batch acceptance by position", "tvp-adaptive": "acceptance history"}
    by_step = isinstance(made, TVP) and made.schedule in ("linear", "reversed")
    assert state == measured.get(name, "step" if by_step else "none")
