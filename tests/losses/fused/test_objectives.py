"""Objectives that say they are a mixture of divergences are that mixture."""

import pytest
import torch

from forerun import losses
from forerun.losses.fused import Projection, TargetStates, fused_values
from forerun.recipes import OBJECTIVES
from tests.support.fused import problem

STEP, TOTAL, SETTLED = 30, 100, 0.7  # in the middle of every schedule

WITHOUT = {
    "tvp-top-16", "reverse-kl", "js", "ce-argmax", "lk", "lk-token", "bv", "e2e-tv", "d-pace", "spec-auf", "l2r",
    "draft-opd",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_divergence_is_the_objective(name: str) -> None:
    """Catches a forgotten factor 2 of L1, shares that are swapped, and a beta from another step; on pruned laws."""
    objective = OBJECTIVES[name]()
    divergence = objective.divergence(step=STEP, total_steps=TOTAL, settled=SETTLED)
    assert (divergence is None) == (name in WITHOUT)
    if divergence is None:
        return
    given, size = problem(), 60
    ids = torch.randperm(97, generator=torch.Generator().manual_seed(1))[:size]
    labels = torch.where(given.labels < size, given.labels, losses.OUTSIDE).view(10, 4)
    hidden, weight = given.hidden.detach().view(10, 4, 8), given.weight.detach()[:size]
    blocks = losses.Blocks(
        target_log_probs=losses.draft_rows(given.target_log_probs, ids).view(10, 4, size),
        draft_logits=hidden @ weight.T,
        labels=labels,
        mask=torch.ones(10, 4, dtype=torch.bool),
    )
    moment = losses.Moment(step=STEP, total_steps=TOTAL, position_acceptance=torch.full((4,), 0.5), settled=SETTLED)
    target = TargetStates(hidden=given.target_hidden.view(10, 4, 8), weight=given.target_weight, draft_token_ids=ids)
    rows = fused_values(Projection(hidden=hidden, weight=weight), target, divergence, labels=labels, chunk=16)
    torch.testing.assert_close(rows.values, objective.values(blocks, moment), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(objective.kept(blocks), objective.kept_labels(labels))
