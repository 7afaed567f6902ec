"""Confidence that means what it says."""

import pytest
import torch

from forerun.training.calibration import calibration_error, sequential_temperatures, survival_errors

BLOCKS, SLOTS = 4000, 3


def overconfident(factors: list[float]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """True log-odds times a factor for each slot; acceptance is what the true ones say."""
    generator = torch.Generator().manual_seed(5)
    true = 1.0 + 1.2 * torch.randn(BLOCKS, SLOTS, generator=generator)
    return true * torch.tensor(factors), true.sigmoid(), torch.ones(BLOCKS, SLOTS, dtype=torch.bool)


def test_the_temperatures_undo_what_was_done_to_the_log_odds() -> None:
    """Catches temperatures that are fitted to their own slot's confidence alone, or multiply instead of dividing."""
    factors = [3.0, 0.5, 1.0]
    confidence, acceptance, valid = overconfident(factors)
    found = sequential_temperatures(confidence, acceptance, valid)
    assert found.tolist() == pytest.approx(factors, rel=0.07)  # steps of the grid
    raw = survival_errors(confidence, acceptance, valid, torch.ones(SLOTS))
    fitted = survival_errors(confidence, acceptance, valid, found)
    assert max(fitted) < 0.01 < min(raw[:2])


def test_a_calibrated_head_is_left_alone() -> None:
    """Catches a grid that prefers any other temperature to none."""
    confidence, acceptance, valid = overconfident([1.0, 1.0, 1.0])
    assert sequential_temperatures(confidence, acceptance, valid).tolist() == pytest.approx([1.0] * SLOTS, rel=0.07)


def test_masked_slots_do_not_count() -> None:
    """Mask equals dropping. Catches blocks without a label that move a temperature; a slot without any keeps 1."""
    confidence, acceptance, valid = overconfident([2.0, 2.0, 2.0])
    valid[1000:, 1] = False
    valid[:, 2] = False
    spoiled = confidence.clone()
    spoiled[~valid] = 50.0
    found = sequential_temperatures(spoiled, acceptance, valid)
    first = sequential_temperatures(confidence[:, :1], acceptance[:, :1], valid[:, :1])
    assert found[0] == first[0] and found[2] == 1.0
    assert float(found[1]) == pytest.approx(2.0, rel=0.15)


def test_the_error_by_hand() -> None:
    """Two bins are used: (0.62 - 1 + 0.64 - 0) / 4 in one, (0.2 - 0.5 + 0.22 - 0.1) / 4 in the other."""
    predicted, observed = torch.tensor([0.62, 0.64, 0.2, 0.22]), torch.tensor([1.0, 0.0, 0.5, 0.1])
    assert calibration_error(predicted, observed, num_bins=5) == pytest.approx((0.26 + 0.18) / 4, abs=1e-6)
