"""How far drafts get on text that training never saw."""

from __future__ import annotations

import torch

from forerun import losses
from forerun.drafters.dspark import DSparkNetwork
from forerun.training.blocks import make_batch
from forerun.training.features import FeatureRow
from forerun.training.teacher import Teacher, draft_logits


@torch.no_grad()
def validate(network: DSparkNetwork, teacher: Teacher, rows: list[FeatureRow], *, blocks: int = 16) -> dict[str, float]:
    """Teacher-forced metrics on rows that training never saw, over evenly spaced anchors.

    ``predicted_tau`` is one plus the unbiased expected acceptance length (not the product of the alphas), over blocks
    whose every slot has a label.
    """
    slots = network.config.block_size
    per_position, totals, lengths, squared = torch.zeros(slots), torch.zeros(slots), [], []
    for row in rows:
        batch = make_batch([row], blocks=blocks, slots=slots, generator=None)
        logits, confidence = draft_logits(network, teacher, batch)
        target_log_probs = teacher.log_probs(batch)
        acceptance = losses.acceptance(target_log_probs, logits)
        labels = losses.draft_labels(batch.labels, teacher.vocabulary.target_ids)
        ratios = losses.token_acceptance(labels, target_log_probs, logits)
        per_position += (acceptance * batch.valid).sum(dim=(0, 1))
        totals += batch.valid.sum(dim=(0, 1))
        whole = batch.valid.all(dim=-1)
        lengths.append(losses.expected_acceptance_length(acceptance[whole], ratios[whole]))
        squared.append(((confidence.sigmoid() - acceptance) ** 2)[batch.valid])
    alphas = per_position / totals.clamp(min=1)
    metrics = {f"acceptance_{index + 1}": float(alpha) for index, alpha in enumerate(alphas)}
    metrics["predicted_tau"] = 1.0 + float(torch.cat(lengths).mean())
    metrics["confidence_mean_squared_error"] = float(torch.cat(squared).mean())
    return metrics
