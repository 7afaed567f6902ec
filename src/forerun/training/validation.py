"""How far drafts get on text that training never saw."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun import losses
from forerun.drafters import DraftNetwork
from forerun.training.blocks import make_batch
from forerun.training.calibration import sequential_temperatures, survival_errors
from forerun.training.features import FeatureRow
from forerun.training.teacher import Teacher, realised_logits

_BOUNDS = {0.0: "length_bound_0", 0.5: "length_bound_half", 1.0: "length_bound_1"}


@torch.no_grad()
def validate(network: DraftNetwork, teacher: Teacher, rows: list[FeatureRow], *, blocks: int = 16) -> dict[str, float]:
    """Teacher-forced metrics on rows that training never saw, over evenly spaced anchors; calibrates the confidence.

    All but ``acceptance_k`` and the confidence's error are over blocks whose every slot has a label.

    Args:
        network: the drafter.
        teacher: the target's side.
        rows: held-out answers.
        blocks: anchors per row at most.

    Returns:
        By name: ``acceptance_k``, mean alpha at slot k; ``predicted_tau`` and ``predicted_tau_block``, one plus the
        unbiased expected acceptance length under token and block verification (not the product of the alphas);
        ``mean_accepted_prefix``, leading slots whose most probable draft is the text's token; ``length_bound_0``,
        ``_half`` and ``_1``, the lower bounds on the acceptance length that D_beta proves at beta 0, 0.5 and 1;
        where the network has such a head
        ``confidence_mean_squared_error``, and ``survival_error_raw`` and ``survival_error``, the expected calibration
        error of the predicted survival, mean over the slots, before and after sequential temperature scaling on
        every other one of these blocks, measured on the rest.
    """
    slots = network.config.block_size
    per_position = losses.MaskedSum(total=torch.zeros(slots), count=torch.zeros(slots, dtype=torch.int64))
    lengths: dict[str, list[Tensor]] = {"predicted_tau": [], "predicted_tau_block": [], "mean_accepted_prefix": []}
    divergences: dict[float, list[Tensor]] = {beta: [] for beta in _BOUNDS}
    squared = []
    confidences, acceptances, labelled = [], [], []
    for row in rows:
        batch = make_batch([row], blocks=blocks, slots=slots, generator=None)
        logits, states = realised_logits(network, teacher, batch)
        target_log_probs = teacher.log_probs(batch)
        acceptance = losses.acceptance(target_log_probs, logits)
        per_position = per_position + losses.masked_sum(acceptance, batch.valid, by_position=True)
        if states.confidence is not None:
            squared.append(((states.confidence.sigmoid() - acceptance) ** 2)[batch.valid])
            confidences.append(states.confidence[0])
            acceptances.append(acceptance[0])
            labelled.append(batch.valid[0])
        whole = batch.valid.all(dim=-1)
        labels = losses.draft_labels(batch.labels, teacher.vocabulary.target_ids)[whole]
        target_log_probs, logits = target_log_probs[whole], logits[whole]  # (blocks, slots, vocab)
        ratios = losses.token_acceptance(labels, target_log_probs, logits)
        lengths["predicted_tau"].append(1.0 + losses.expected_acceptance_length(acceptance[whole], ratios))
        by_block = losses.block_acceptance_length(labels, target_log_probs, logits)
        lengths["predicted_tau_block"].append(1.0 + by_block)
        lengths["mean_accepted_prefix"].append(losses.agreed_prefix(labels, logits).sum(-1).float())
        for beta, values in divergences.items():
            values.append(losses.tvp(target_log_probs, logits, beta=beta))
    metrics = {f"acceptance_{index + 1}": float(alpha) for index, alpha in enumerate(per_position.mean())}
    metrics |= {name: float(torch.cat(values).mean()) for name, values in lengths.items()}
    for beta, name in _BOUNDS.items():
        metrics[name] = float(losses.acceptance_length_bound(torch.cat(divergences[beta]).mean(0), beta=beta))
    if squared:
        metrics["confidence_mean_squared_error"] = float(torch.cat(squared).mean())
        metrics |= _calibrated(network, torch.cat(confidences), torch.cat(acceptances), torch.cat(labelled))
    return metrics


def _calibrated(network: DraftNetwork, confidence: Tensor, acceptance: Tensor, valid: Tensor) -> dict[str, float]:
    """Fit temperatures on every other block, say what they bring on the rest, and leave those of all blocks behind."""
    fitted = sequential_temperatures(confidence[::2], acceptance[::2], valid[::2])
    rest = slice(1, None, 2)
    errors = {}
    for name, temperatures in (("survival_error_raw", torch.ones_like(fitted)), ("survival_error", fitted)):
        by_slot = survival_errors(confidence[rest], acceptance[rest], valid[rest], temperatures)
        errors[name] = sum(by_slot) / len(by_slot)
    network.calibrate(sequential_temperatures(confidence, acceptance, valid))
    return errors
