"""The parity check passes where training and decoding are one function, and fails where they are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from forerun.drafters import BlockInputs, NetworkDrafter, ProposalPolicy, network_drafter
from forerun.drafters.drawing import draw_chain
from forerun.drafters.dspark import DSparkNetwork
from forerun.drafters.parallel import ParallelContext
from forerun.errors import ForerunError
from forerun.evaluation import ParityConfig, ParityReport, check_parity
from forerun.models import TransformersTarget, tiny_target
from forerun.verification import Proposal
from tests.support.networks import tiny_drafter
from tests.support.speed import without_shape_checks

TARGET: TransformersTarget = tiny_target(vocab_size=24, dtype=torch.float32)
PROMPTS = {f"p{index}": [index + 1, 5, 9, 2 * index] for index in range(6)}
CONFIG = ParityConfig(num_tokens=100, max_new_tokens=30)


def checked(drafter: NetworkDrafter, config: ParityConfig = CONFIG) -> ParityReport:
    counted: list[int] = []
    with without_shape_checks():
        report = check_parity(TARGET, drafter, PROMPTS, config, on_tokens=counted.append)
    assert sum(counted) == report.tokens
    return report


def test_a_right_drafter_passes() -> None:
    """Catches a check that compares other blocks than those of the text, or counts other drafts."""
    report = checked(tiny_drafter(TARGET))
    assert report.passed, report
    assert report.tokens == 120 and report.rounds > 20
    assert report.laws == 4 * (4 * 29 - 6)  # four answers of 30 tokens; the last three anchors of each lack slots
    assert 0.0 < report.largest_total_variation < 1e-5
    assert 1.05 < report.predicted_tau < 4


def wrong_position(drafter: NetworkDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rotary position in decoding."""
    original = ParallelContext.open

    def shifted(self: ParallelContext, anchor: int, horizon: int) -> object:
        self._backbone.length += 3
        block = original(self, anchor, horizon)
        self._backbone.length -= 3
        return block

    monkeypatch.setattr(ParallelContext, "open", shifted)


def label_behind(drafter: NetworkDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training reads the token after the one that decoding reads."""
    original = DSparkNetwork.teach

    def shifted(self: DSparkNetwork, inputs: BlockInputs, borrowed: object) -> object:
        later = inputs.previous.roll(1, dims=2)
        moved = BlockInputs(
            token_ids=inputs.token_ids, features=inputs.features, anchors=inputs.anchors, previous=later
        )
        return original(self, moved, borrowed)  # type: ignore[arg-type]

    monkeypatch.setattr(DSparkNetwork, "teach", shifted)


@pytest.mark.parametrize("spoil", [wrong_position, label_behind])
def test_a_difference_between_training_and_decoding_fails(
    spoil: Callable[[NetworkDrafter, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pain 1. Catches a check that cannot fail."""
    drafter = tiny_drafter(TARGET)
    spoil(drafter, monkeypatch)
    report = checked(drafter)
    assert not report.same_laws and not report.passed


def test_certain_drafts_are_predicted_as_such() -> None:
    """Catches the overlap of sampled drafts as the acceptance of certain ones."""
    report = checked(tiny_drafter(TARGET, policy=ProposalPolicy.ARGMAX))
    assert report.passed, report


def test_drafts_that_are_not_drawn_from_their_law_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a tau that does not see the drafts: here the most probable tokens come instead of drawn ones."""

    def stuck(*args: Any, **options: Any) -> Proposal:
        return draw_chain(*args, **{**options, "certain": True})

    monkeypatch.setattr(network_drafter, "draw_chain", stuck)
    report = checked(tiny_drafter(TARGET), ParityConfig(num_tokens=150, max_new_tokens=30))
    assert report.same_laws and not report.same_tau


def test_too_little_text_is_said() -> None:
    with pytest.raises(ForerunError, match="6 prompts have 180 tokens, 1000 are to be checked"):
        checked(tiny_drafter(TARGET), ParityConfig(num_tokens=1000, max_new_tokens=30))
