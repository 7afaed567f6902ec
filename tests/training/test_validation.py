"""What validation reports, against the same numbers from decoding's side and from definitions."""

import math
from pathlib import Path

import pytest
import torch

from forerun.losses import draft_labels
from forerun.models import tiny_target
from forerun.training.blocks import make_batch
from forerun.training.teacher import Teacher, realised_logits
from forerun.training.validation import validate
from tests.support.networks import every_other, random_network, taught_row, tiny_config
from tests.support.speed import without_shape_checks

BOUNDS = {"length_bound_0": 0.0, "length_bound_half": 0.5, "length_bound_1": 1.0}


def test_every_number_is_that_of_its_definition(tmp_path: Path) -> None:
    """Position by position in Python floats. Catches blocks that end early, labels of the wrong slot, a mean of means.

    The drafter is random and its vocabulary is half of the target's, so nothing is near 0 or 1 but the bounds.
    """
    target = tiny_target(vocab_size=24, hidden_size=16)
    vocabulary = every_other(target)
    network = random_network(tiny_config(target, draft_vocab_size=len(vocabulary)))
    generator = torch.Generator().manual_seed(5)
    rows = [
        taught_row(target, torch.randint(24, (length,), generator=generator), prompt_length=3, job=f"p{length}/0")
        for length in (8, 12, 13)
    ]
    teacher = Teacher(target, vocabulary)
    with without_shape_checks(), torch.no_grad():
        found = validate(network, teacher, rows, blocks=99)
        alphas: dict[int, list[float]] = {slot: [] for slot in range(4)}
        tokens, by_block, prefixes = [], [], []
        costs: dict[str, list[list[float]]] = {name: [] for name in BOUNDS}
        for row in rows:
            batch = make_batch([row], blocks=99, slots=4, generator=None)
            logits, _ = realised_logits(network, teacher, batch)
            targets, drafts = teacher.log_probs(batch)[0].double().exp(), logits[0].double().softmax(-1)
            labels = draft_labels(batch.labels, vocabulary.target_ids)[0]
            for block in range(labels.shape[0]):
                valid = batch.valid[0, block].tolist()
                overlaps = [float(torch.minimum(targets[block, k], drafts[block, k]).sum()) for k in range(4)]
                for slot in range(4):
                    if valid[slot]:
                        alphas[slot].append(overlaps[slot])
                if not all(valid):
                    continue
                survived, product, smallest, length, length_by_block, prefix = 1.0, 1.0, 1.0, 1.0, 1.0, 0
                for slot in range(4):
                    law, draft, label = targets[block, slot], drafts[block, slot], int(labels[block, slot])
                    length += survived * overlaps[slot]
                    length_by_block += float(torch.minimum(smallest * law, product * draft).sum())
                    ratio = float(draft[label] / law[label]) if label >= 0 else 0.0
                    survived, product = survived * min(1.0, ratio), product * ratio
                    smallest = min(smallest, product)
                    prefix += int(prefix == slot and int(draft.argmax()) == label)
                tokens.append(length)
                by_block.append(length_by_block)
                prefixes.append(prefix)
                for name, beta in BOUNDS.items():
                    costs[name].append([divergence(targets[block, k], drafts[block, k], beta) for k in range(4)])
    assert len(tokens) == 1 + 5 + 6
    assert [found[f"acceptance_{slot + 1}"] for slot in range(4)] == pytest.approx(
        [sum(values) / len(values) for values in alphas.values()], abs=1e-5
    )
    assert found["predicted_tau"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-5)
    assert found["predicted_tau_block"] == pytest.approx(sum(by_block) / len(by_block), abs=1e-5)
    assert found["mean_accepted_prefix"] == pytest.approx(sum(prefixes) / len(prefixes), abs=1e-6)
    for name, beta in BOUNDS.items():
        weighted = sum((4 - k) / 4 * sum(cost[k] for cost in costs[name]) / len(tokens) for k in range(4))
        bound = 4 * math.exp(-weighted) if beta == 0 else 4 * max(0.0, 1 - beta * weighted) ** (1 / beta)
        assert found[name] == pytest.approx(bound, rel=1e-3, abs=1e-6)
        assert found[name] <= found["predicted_tau"] - 1


def divergence(target: torch.Tensor, draft: torch.Tensor, beta: float) -> float:
    """D_beta with the documented floor; what lies outside the draft vocabulary counts as missed."""
    outside = 1 - float(target.sum())
    ratios = (draft / target).clamp(max=1.0)
    if beta == 0:
        return float(-(target * ratios.log()).sum()) + outside * 149 * math.log(2)
    return (float((target * (1 - ratios**beta)).sum()) + outside) / beta
