"""One training run: what a step minimises, on which rows, and when it stops."""

from collections import Counter
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.distributions import DenseLaw, overlap
from forerun.drafters import DraftVocabulary, NetworkDrafter, network_of
from forerun.errors import ForerunError
from forerun.losses import TVP, AcceptanceHistory, CrossEntropy, MaskedSum, TotalVariation, adaptive_beta
from forerun.models import TransformersTarget, tiny_target
from forerun.recipes import OBJECTIVES
from forerun.recipes import objective as named
from forerun.training import FeatureRow, TrainConfig
from forerun.training.jsonl import read_jsonl
from forerun.training.trainer import learning_rate_at, split_rows
from tests.support.networks import every_other, taught_row, tiny_config
from tests.support.training import SMALL, cyclic_rows, run_training

FLOAT32 = 2e-4  # the trainer works in float32, the decoding path here in float64


def random_rows(target: TransformersTarget, count: int = 12) -> list[FeatureRow]:
    generator = torch.Generator().manual_seed(5)
    return [
        taught_row(
            target,
            torch.randint(target.vocab_size, (10 + index % 4,), generator=generator),
            prompt_length=3,
            job=f"p{index}/0",
        )
        for index in range(count)
    ]


WEIGHTS = {
    "uniform": (1.0, 1.0, 1.0, 1.0),
    "bound": (1.0, 0.75, 0.5, 0.25),
    "exp": (1.0, exp(-0.25), exp(-0.5), exp(-0.75)),
    "geometric": (1.0, 0.8, 0.64, 0.512),
    "own": (1.0, 0.75, 0.5, 0.25),
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_first_loss_is_the_one_that_decoding_would_have(tmp_path: Path, weights: str) -> None:
    """Catches a trainer that minimises something else than what the drafter is judged by in decoding.

    Every number is made a second time: features from the target's own cached pass, hidden states from a decoding
    session, laws over the whole vocabulary, 1 - TV from the verification side; every anchor of every training row.
    """
    target = tiny_target(vocab_size=24, hidden_size=16)
    vocabulary = every_other(target)
    rows = random_rows(target)
    training, _ = split_rows(rows, SMALL.validation_share)
    config = replace(
        SMALL, steps=1, objective=TotalVariation(), position_weights=weights, rows_per_step=len(training),
        blocks_per_row=99,
    )  # fmt: skip
    run_training(tmp_path, config, rows=rows, target=target, vocabulary=vocabulary)
    (logged,) = read_jsonl(tmp_path / "log.jsonl")

    network = network_of(tiny_config(target, draft_vocab_size=len(vocabulary)))
    network.initialise(target, vocabulary, generator=torch.Generator().manual_seed(0))
    drafter = NetworkDrafter(network, vocabulary, target, optimize=False)
    overlaps = [
        per_slot
        for row in training
        for anchor in range(row.prompt_length, len(row.token_ids) - 1)
        for per_slot in decoded_overlaps(target, drafter, row, anchor)
    ]
    weight = WEIGHTS[weights]
    loss = sum(weight[slot] * (1 - value) for slot, value in overlaps) / len(overlaps)
    assert logged["valid"] == len(overlaps)
    assert logged["acceptance"] == pytest.approx(sum(value for _, value in overlaps) / len(overlaps), abs=FLOAT32)
    assert logged["loss"] == pytest.approx(loss, abs=FLOAT32)


def decoded_overlaps(
    target: TransformersTarget, drafter: NetworkDrafter, row: FeatureRow, anchor: int
) -> list[tuple[int, float]]:
    """1 - TV at every slot with a label, along the row's own text, from the parts that decoding uses."""
    step = target.forward(row.token_ids, target.new_cache(), captured=(0, 1))
    context = drafter.network.new_context(drafter.borrowed, drafter.heads)
    context.extend(row.token_ids[:anchor], step.features[:anchor])
    block = context.open(int(row.token_ids[anchor]), drafter.max_horizon)
    result = []
    for slot in range(min(4, len(row.token_ids) - 1 - anchor)):
        logits = block.logits(row.token_ids[anchor + 1 : anchor + 1 + slot])
        draft = torch.zeros(1, target.vocab_size, dtype=torch.float64)
        draft[0, drafter.vocabulary.target_ids] = logits.softmax(-1)
        law = DenseLaw(step.logits[anchor + slot].softmax(-1)[None])
        result.append((slot, float(overlap(law, DenseLaw(draft)))))
    return result


def test_training_teaches(tmp_path: Path) -> None:
    """Catches gradients that do not arrive, or that climb."""
    result = run_training(tmp_path, replace(SMALL, steps=60))
    log = read_jsonl(tmp_path / "log.jsonl")
    assert log[0]["acceptance"] < 0.3 and log[0]["loss"] > 5 * log[-1]["loss"]
    assert sum(row["acceptance"] for row in log[-5:]) / 5 > 0.6
    assert result.validation["acceptance_4"] > 0.6
    assert log[-1]["confidence_loss"] < log[0]["confidence_loss"]
    assert result.anchors == 60 * SMALL.rows_per_step * SMALL.blocks_per_row


def test_the_adaptive_schedule_follows_the_logged_acceptance(tmp_path: Path) -> None:
    """Catches a history that is not fed, that looks ahead, or that feeds another beta than the one that is trained."""
    run_training(tmp_path, replace(SMALL, steps=12, objective=TVP(schedule="adaptive")))
    log = read_jsonl(tmp_path / "log.jsonl")
    history = AcceptanceHistory()
    for row in log:
        assert row["settled"] == pytest.approx(history.settled, abs=1e-6)
        assert row["beta"] == pytest.approx(adaptive_beta(row["settled"]))
        history.observe(
            MaskedSum(total=torch.tensor(row["acceptance"] * row["valid"]), count=torch.tensor(row["valid"]))
        )
    assert 0 < log[-1]["settled"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_trains(tmp_path: Path, name: str) -> None:
    """Catches an objective that the trainer cannot feed, or whose gradient drives the draft away from the target.

    The language is certain, so every objective raises the acceptance of a cold draft within 60 updates: by 0.6 for
    likelihoods, by a few hundredths for TV, BV and end-to-end TV, whose gradients vanish where little is covered.
    """
    run_training(tmp_path, replace(SMALL, steps=60, objective=named(name)))
    log = read_jsonl(tmp_path / "log.jsonl")
    first, last = (sum(row["acceptance"] for row in rows) / 5 for rows in (log[:5], log[-5:]))
    assert last > first + (0.02 if name in {"tv", "bv", "e2e-tv"} else 0.1), (first, last)


def test_validation_rows_are_never_trained_on(tmp_path: Path) -> None:
    """Catches held-out prompts that leak into training: here they hold what cannot be trained on."""
    rows = cyclic_rows()
    _, held_out = split_rows(rows, SMALL.validation_share)
    spoilt = [
        replace(row, features=torch.full_like(row.features, torch.nan)) if row in held_out else row for row in rows
    ]
    result = run_training(tmp_path, SMALL, rows=spoilt)
    assert all(bool(torch.isfinite(weight).all()) for weight in result.network.parameters())
    assert result.validation["acceptance_1"] != result.validation["acceptance_1"]  # NaN: they were validated on


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path: Path) -> None:
    """Catches a run that goes on for hours with NaN weights, and a saved state that holds them."""
    rows = cyclic_rows()
    training, _ = split_rows(rows, SMALL.validation_share)
    bad = training[-1]
    spoilt = [replace(row, log_normaliser=row.log_normaliser * torch.nan) if row is bad else row for row in rows]
    with pytest.raises(
        ForerunError, match=r"step \d+: the gradient is not finite \(loss nan\); lower the learning rate"
    ):
        run_training(tmp_path, SMALL, rows=spoilt)
    if (tmp_path / "state.pt").is_file():
        weights = torch.load(tmp_path / "state.pt", weights_only=True)["network"]
        assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())


def test_samples_of_one_prompt_stay_on_one_side() -> None:
    """Catches validation on a prompt whose other answer was trained on; ids may hold slashes themselves.

    2000 prompts at a share of a quarter: 500 with a standard deviation of 19.4; five of them are allowed.
    """
    row = cyclic_rows(1)[0]
    rows = [replace(row, job=f"suite/p{prompt}/{sample}") for prompt in range(2000) for sample in range(3)]
    training, validation = split_rows(rows, 0.25)
    assert len(training) + len(validation) == len(rows)
    sides = [Counter(row.job.rpartition("/")[0] for row in side) for side in (training, validation)]
    assert not sides[0].keys() & sides[1].keys()
    assert set(sides[0].values()) == set(sides[1].values()) == {3}
    assert abs(len(sides[1]) - 500) < 97
    more = split_rows([*rows, replace(row, job="suite/new/0")], 0.25)
    assert {row.job for row in validation} <= {row.job for row in more[1]}  # more data moves no prompt


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_empty_side_is_an_error(share: float) -> None:
    with pytest.raises(ForerunError, match=r"leave .* for training and .* for validation; add data"):
        split_rows(cyclic_rows(), share)


def test_answers_too_short_to_validate_on_are_refused_at_once(tmp_path: Path) -> None:
    """Catches a NaN for predicted tau at the end of the run, which the drafter's file cannot hold."""
    rows = [replace(row, prompt_length=len(row.token_ids) - 4) for row in cyclic_rows()]
    with pytest.raises(ForerunError, match=r"none of .* held-out answers is longer than a block of 4 tokens"):
        run_training(tmp_path / "run", SMALL, rows=rows)
    assert not (tmp_path / "run").exists()
    longer = [replace(row, prompt_length=len(row.token_ids) - 5) for row in cyclic_rows()]
    assert 1.0 <= run_training(tmp_path / "run", SMALL, rows=longer).validation["predicted_tau"] <= 5.0


def test_the_learning_rate_rises_and_falls() -> None:
    """Catches a warm-up from the wrong end, a peak that is never reached, and a floor other than a tenth."""
    config = TrainConfig(steps=100, warmup=0.1, learning_rate=0.5)
    rates = [learning_rate_at(config, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[9] == rates[10] == pytest.approx(0.5) and max(rates) == pytest.approx(0.5)
    assert rates[55] == pytest.approx(0.275)  # half way down from the peak to a tenth of it
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.05 < rates[99] < 0.0506
    assert learning_rate_at(TrainConfig(steps=1), 0) == TrainConfig().learning_rate


def test_rows_come_once_an_epoch(tmp_path: Path) -> None:
    """Catches rows drawn with replacement, or the same order in every epoch."""
    rows = cyclic_rows()
    training, _ = split_rows(rows, SMALL.validation_share)
    epoch = replace(SMALL, steps=1, rows_per_step=len(training), blocks_per_row=99, objective=TotalVariation())
    twice = replace(epoch, rows_per_step=2 * len(training))
    run_training(tmp_path / "once", epoch, rows=rows)
    run_training(tmp_path / "twice", twice, rows=rows)
    (once,), (double,) = (read_jsonl(tmp_path / name / "log.jsonl") for name in ("once", "twice"))
    assert double["valid"] == 2 * once["valid"] == 2 * labels_of(training)
    assert double["loss"] == pytest.approx(once["loss"], rel=1e-5)


def labels_of(rows: list[FeatureRow]) -> int:
    """Slots with a label inside the answer, for blocks of four at every anchor."""
    return sum(
        min(4, len(row.token_ids) - 1 - anchor)
        for row in rows
        for anchor in range(row.prompt_length, len(row.token_ids) - 1)
    )


def test_tokens_that_cannot_be_drafted_do_not_dilute_cross_entropy(tmp_path: Path) -> None:
    """Catches a mean over positions without a value: with half the vocabulary the loss would be half as large."""
    rows = cyclic_rows()
    training, _ = split_rows(rows, SMALL.validation_share)
    config = replace(SMALL, steps=1, rows_per_step=len(training), blocks_per_row=99)
    vocabulary = DraftVocabulary(torch.arange(0, 16, 2), 16)
    for objective in (CrossEntropy(), TotalVariation()):
        folder = tmp_path / objective.describe()
        run_training(folder, replace(config, objective=objective), rows=rows, vocabulary=vocabulary)
    drafted, everything = (
        read_jsonl(tmp_path / each.describe() / "log.jsonl")[0] for each in (CrossEntropy(), TotalVariation())
    )
    assert everything["valid"] == labels_of(training)
    assert drafted["valid"] == sum(
        int((row.token_ids[anchor + 1 : anchor + 5] % 2 == 0).sum())
        for row in training
        for anchor in range(row.prompt_length, len(row.token_ids) - 1)
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"position_weights": "linear"},
            "position_weights is 'linear'; choose one of own, bound, exp",
        ),
        ({"matmul_precision": "low"}, "matmul_precision is 'low'"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; give a number between 0 and 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**31}, "seed is 2147483648; give a whole number"),
    ],
)
def test_senseless_settings_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ForerunError, match=complaint):
        replace(TrainConfig(), **change)
