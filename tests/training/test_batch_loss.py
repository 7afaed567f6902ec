"""The two ways to score a batch: from all logits, and chunk by chunk from hidden states."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, final

import pytest
import torch
from torch import Tensor

from forerun.drafters import DraftVocabulary
from forerun.losses import TVP, Blocks, CrossEntropy, Divergence, DSpark, Moment, Need, Objective
from forerun.training.jsonl import read_jsonl
from tests.support.training import SMALL, run_training

ROUNDING = 2e-5
"""Ten steps of AdamW at 0.01 turn float32 rounding of gradients into this; another loss moves weights by 1e-2."""


@pytest.mark.parametrize("objective", [TVP(), TVP(schedule="adaptive"), CrossEntropy(), DSpark()])
def test_both_ways_train_the_same_weights(tmp_path: Path, objective: Objective) -> None:
    """Catches a head, a mask, a weight or a count that only one of them has; half the tokens cannot be drafted."""
    vocabulary = DraftVocabulary(torch.arange(0, 16, 2), 16)
    networks = []
    for fused in (True, False):
        config = replace(SMALL, objective=objective, fused=fused)
        result = run_training(tmp_path / str(fused), config, vocabulary=vocabulary)
        networks.append(result.network.state_dict())
    for name, found in networks[0].items():
        torch.testing.assert_close(found, networks[1][name], rtol=0, atol=ROUNDING, msg=name)
    first, second = (read_jsonl(tmp_path / name / "log.jsonl") for name in ("True", "False"))
    for one, other in zip(first, second, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-6)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _OnlyFromStates(Objective):
    """Total variation that refuses logits."""

    title: ClassVar[str] = "only from hidden states"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Tensor:
        raise AssertionError("logits of the whole batch")

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        return Divergence(total_variation=1.0)


def test_the_switch_decides(tmp_path: Path) -> None:
    """Catches a switch that nothing reads."""
    config = replace(SMALL, steps=1, objective=_OnlyFromStates())
    run_training(tmp_path / "fused", replace(config, fused=True))
    with pytest.raises(AssertionError, match="logits of the whole batch"):
        run_training(tmp_path / "eager", replace(config, fused=False))
