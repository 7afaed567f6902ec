"""Training a path selector: which law the objective is about, and the cross-entropy over the listed tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.drafters import DFlash2Network
from forerun.errors import ForerunError
from forerun.losses import CrossEntropy, TotalVariation
from forerun.models import TransformersTarget, tiny_target
from forerun.training.batch_loss import Scorer
from forerun.training.blocks import BlockBatch, make_batch
from forerun.training.candidates import best_tokens
from forerun.training.jsonl import read_jsonl
from forerun.training.teacher import Teacher, realised_logits
from tests.support.networks import BLOCK, every_other, random_network, taught_row, tiny_dflash2
from tests.support.speed import without_shape_checks
from tests.support.training import SMALL, VOCAB, cyclic_target, run_training

TARGET: TransformersTarget = tiny_target(vocab_size=24, dtype=torch.float32)
VOCABULARY = every_other(TARGET)
TEACHER = Teacher(TARGET, VOCABULARY)
ROUNDING = 1e-4


def network() -> DFlash2Network:
    made = random_network(tiny_dflash2(TARGET, len(VOCABULARY), BLOCK).model_copy(update={"candidates": 4}))
    assert isinstance(made, DFlash2Network)
    return made


def batch() -> BlockBatch:
    row = taught_row(TARGET, torch.arange(40) * 7 % 24, prompt_length=5)
    return make_batch([row, replace(row, prompt_length=20)], blocks=30, slots=BLOCK, generator=None)


def scorer(own: DFlash2Network, **settings: Any) -> Scorer:
    return Scorer(
        network=own,
        teacher=TEACHER,
        weights=torch.linspace(1.0, 0.5, BLOCK),
        total_steps=10,
        **{"objective": TotalVariation(), "fused": True, **settings},
    )


def test_candidates_are_the_law_that_decoding_draws_from() -> None:
    """Catches a list, a predecessor or a target row of another slot.

    Realised laws are made another way: over all tokens, those outside the list at minus infinity; and the overlap
    sum min(target, draft) does not care for these.
    """
    own = network()
    blocks = batch()
    with torch.no_grad():
        scored = scorer(own, draft_law="candidates").score(blocks, step=0, settled=0.0)
        laws = realised_logits(own, TEACHER, blocks)[0].softmax(-1)
        overlap = torch.minimum(laws, TEACHER.log_probs(blocks).exp()).sum(-1)
    assert int(laws.count_nonzero(-1).max()) == 4
    valid = blocks.valid
    torch.testing.assert_close(scored.acceptance[valid], overlap[valid], rtol=0, atol=ROUNDING)
    weights = torch.linspace(1.0, 0.5, BLOCK).expand_as(overlap)
    expected = ((1 - overlap) * weights)[valid].sum()
    torch.testing.assert_close(scored.objective.total, expected, rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("fused", [True, False])
def test_the_backbones_law_leaves_the_selector_alone(fused: bool) -> None:
    """Catches a term that is added all the same: only then would the codebooks get a gradient."""
    own = network()
    scored = scorer(own, draft_law="backbone", objective=CrossEntropy(), fused=fused).score(
        batch(), step=0, settled=0.0
    )
    scored.objective.mean().backward()
    touched = {name.partition(".")[0] for name, weight in own.named_parameters() if weight.grad is not None}
    assert touched == {"backbone", "convolutions"}


@pytest.mark.parametrize("inject", [False, True])
def test_the_selectors_cross_entropy_by_definition(inject: bool) -> None:
    """Catches positions counted without a label, and a label whose place is another token's.

    The oracle goes through positions one by one, over plain lists of scores.
    """
    own = network()
    blocks = batch()
    with torch.no_grad():
        found = scorer(own, selector=True, inject=inject).score(blocks, step=0, settled=0.0).selector
        terms = own.teach(blocks.inputs, TEACHER.borrowed).terms
        unary = terms[0] @ TEACHER.head.T
        scores = unary + terms[1] @ own.successors.T
    assert found is not None
    total, count, skipped = 0.0, 0, 0
    for place in blocks.valid.nonzero().tolist():
        row, block, slot = place
        token = int(blocks.labels[row, block, slot])
        if token % 2:
            continue  # cannot be drafted
        order = sorted(range(12), key=lambda draft: -float(unary[row, block, slot, draft]))[:4]
        if token // 2 not in order:
            skipped += 1
            if not inject:
                continue
            order[-1] = token // 2
        listed = scores[row, block, slot, order].double()
        loss = float(listed.logsumexp(0) - scores[row, block, slot, token // 2])
        total += loss * float(torch.linspace(1.0, 0.5, BLOCK)[slot])
        count += 1
    assert skipped > 0 and count > 0
    assert int(found.count) == count
    assert float(found.total) == pytest.approx(total, rel=1e-4)


def test_the_best_tokens_do_not_depend_on_where_chunks_end() -> None:
    """Catches positions that get lost between two chunks."""
    generator = torch.Generator().manual_seed(0)
    states, weight = torch.randn(3, 201, 8, generator=generator), torch.randn(50, 8, generator=generator)
    found = best_tokens(states, weight, 5)
    assert found.shape == (3, 201, 5)
    expected = (states.double() @ weight.double().T).argsort(-1, descending=True)[..., :5]
    assert torch.equal(found, expected)


def test_the_published_recipe_trains_backbone_and_selector(tmp_path: Path) -> None:
    """Catches a weight that reaches nobody: the selector must have moved, and its loss must have fallen."""
    config = replace(SMALL, steps=40, objective=CrossEntropy(), draft_law="backbone", selector_weight=1.0)
    shape = tiny_dflash2(cyclic_target(), VOCAB, BLOCK)
    with without_shape_checks():
        result = run_training(tmp_path, config, shape=shape)
    log = read_jsonl(tmp_path / "log.jsonl")
    assert log[-1]["selector_loss"] < 0.5 * log[0]["selector_loss"]
    assert 0.0 < log[0]["listed"] < log[-1]["listed"] <= 1.0
    assert isinstance(result.network, DFlash2Network)
    assert float(result.network.successors.detach().abs().max()) > 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"draft_law": "candidates"}, "are for drafters with a path selector; dspark has none"),
        ({"selector_weight": 1.0}, "are for drafters with a path selector; dspark has none"),
        ({"inject_labels": True}, "are for drafters with a path selector; dspark has none"),
    ],
)
def test_settings_of_a_selector_are_refused_without_one(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ForerunError, match=complaint):
        run_training(tmp_path, replace(SMALL, **change))


def test_a_selector_that_nothing_trains_is_refused(tmp_path: Path) -> None:
    shape = tiny_dflash2(cyclic_target(), VOCAB, BLOCK)
    with pytest.raises(ForerunError, match="draft_law backbone leaves the path selector untrained"):
        run_training(tmp_path, replace(SMALL, draft_law="backbone"), shape=shape)
    with pytest.raises(ForerunError, match="draft_law is 'all'; choose one of vocabulary, backbone, candidates"):
        replace(SMALL, draft_law="all")
    with pytest.raises(ForerunError, match="selector_weight is -1"):
        replace(SMALL, selector_weight=-1.0)
