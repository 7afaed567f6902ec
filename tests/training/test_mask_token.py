"""Mask tokens in training: packed spans are separate passes, the teacher reads the student's prefix, runs resume."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forerun.distributions import SamplingParams
from forerun.drafters import (
    MaskTokenConfig,
    MaskTokenModel,
    MaskTokenRiders,
    MaskTokenStudent,
    load_drafter,
    load_mask_student,
    save_mask_token,
)
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.losses import TVP, ArgmaxCrossEntropy, CrossEntropy
from forerun.models import TransformersTarget, tiny_target
from forerun.recipes import drafter_config
from forerun.training import FeatureRow, TrainConfig, train_drafter
from forerun.training.mask_token import Distilled, Spans, distill
from forerun.training.mask_token.loop import score
from tests.support.networks import provenance
from tests.support.speed import without_shape_checks
from tests.support.tokenizers import text_tokenizer
from tests.support.training import cyclic_target
from tests.support.writers import no_bars
from tests.training.test_run import prepare

VOCAB = 16
CLOSE = 1e-10
"""Float64, sums in another order."""
GREEDY = SamplingParams(temperature=0.0)
CONFIG = TrainConfig(
    objective=ArgmaxCrossEntropy(), position_weights="uniform", steps=160, rows_per_step=4, blocks_per_row=6,
    learning_rate=0.005, save_every=1000, validation_share=0.2,
)  # fmt: skip


def row(index: int, length: int = 24) -> FeatureRow:
    """Text of a language that counts modulo 16; distillation looks at the tokens alone."""
    nothing = torch.zeros(length, 1)
    return FeatureRow(
        job=f"p{index}/0",
        prompt_length=4,
        token_ids=(torch.arange(length) + 5 * index) % VOCAB,
        features=nothing[:, None],
        final_hidden=nothing,
        log_normaliser=nothing[:, 0],
    )


@cache
def counting_target() -> TransformersTarget:
    """A small Llama that has learned to count modulo 16, in a second."""
    model = tiny_target(vocab_size=VOCAB, dtype=torch.float32, seed=1).model
    model.requires_grad_(True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        ids = (torch.arange(24) + torch.randint(VOCAB, (16, 1), generator=generator)) % VOCAB
        logits = model(input_ids=ids[:, :-1]).logits
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
    return TransformersTarget(model, text_tokenizer(VOCAB), name="counting")


def shape(target: TransformersTarget, form: str, block_size: int = 5) -> MaskTokenConfig:
    name = {"riders": "mask-token", "copy": "mask-token-copy"}[form]
    config = drafter_config(name, target, [f"block_size={block_size}"])
    assert isinstance(config, MaskTokenConfig)
    return config


def random_student(form: str, *, stop_ids: tuple[int, ...] = ()) -> tuple[MaskTokenStudent, TransformersTarget]:
    """Float64; every weight of the adapter is drawn."""
    target = tiny_target(vocab_size=VOCAB, stop_ids=stop_ids)
    student = MaskTokenStudent.of(shape(target, form), target)
    nn.Module.to(student.adapter, torch.float64)
    generator = torch.Generator().manual_seed(5)
    for parameter in student.adapter.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return student, target


def spans(rows: Sequence[FeatureRow], slots: int = 4) -> Spans:
    return Spans.of(list(rows), blocks=3, slots=slots, generator=torch.Generator().manual_seed(3))


def alone(model: TransformersTarget, token_ids: list[int], slots: int) -> Tensor:
    return model.forward(torch.tensor(token_ids), model.new_cache(), num_logits=slots).logits


@pytest.mark.parametrize("form", ["riders", "copy"])
def test_packed_blocks_are_separate_passes(form: str) -> None:
    """Catches blocks that see each other, the text behind their anchor or padding, and positions that count blocks.

    The teacher reads the student's proposals, worked out here one by one; or the text.
    """
    student, teacher = random_student(form)
    rows = [row(0, 14), row(1, 22)]
    batch = spans(rows)
    with torch.no_grad():
        scored = score(student, teacher, batch, prefix="student")
        forced = score(student, teacher, batch, prefix="text")
    seen = 0
    for index, text in enumerate(rows):
        for block, anchor in enumerate(batch.anchors[index].tolist()):
            prefix = text.token_ids[: anchor + 1].tolist()
            answer = alone(student.model, [*prefix, *[student.mask_id] * 3], 4)
            torch.testing.assert_close(scored.student_logits[index, block], answer, rtol=0, atol=CLOSE)
            own = answer.argmax(-1).tolist()
            for later, found in ((own[:3], scored), (text.token_ids[anchor + 1 : anchor + 4].tolist(), forced)):
                expected = alone(teacher, [*prefix, *later], 1 + len(later)).log_softmax(-1).float()
                torch.testing.assert_close(
                    found.teacher_log_probs[index, block, : len(expected)], expected, rtol=0, atol=1e-5
                )
            assert scored.labels[index, block].tolist() == own
            assert scored.valid[index, block].tolist() == [form == "copy", True, True, True]
            seen += 1
    assert seen == 6


def test_no_block_sees_what_comes_later() -> None:
    """Bitwise: another token behind an anchor changes nothing there; one before it does."""
    student, _ = random_student("riders")
    text = row(0, 20)
    batch = spans([text])
    with torch.no_grad():
        before = batch.logits(student.model, student.mask_id)
        for place in range(20):
            changed = batch.token_ids.clone()
            changed[0, place] = (changed[0, place] + 1) % VOCAB
            after = replace(batch, token_ids=changed).logits(student.model, student.mask_id)
            for block, anchor in enumerate(batch.anchors[0].tolist()):
                # the block's own copy of the anchor stays as it was
                same = torch.equal(after[0, block], before[0, block])
                assert same == (place >= anchor), (place, anchor)


def test_nothing_counts_behind_a_stop_of_the_students_own() -> None:
    """Catches a student that is taught what to say after the end of its answer."""
    student, target = random_student("copy")
    batch = spans([row(0, 20)])
    with torch.no_grad():
        first = int(score(student, target, batch, prefix="student").labels[0, 0, 1])
        stopping = TransformersTarget(target.model, None, name="stopping")
        stopping._stop_ids = (first,)
        scored = score(student, stopping, batch, prefix="student")
    for labels, valid in zip(scored.labels[0].tolist(), scored.valid[0].tolist(), strict=True):
        until = labels.index(first) + 1 if first in labels else len(labels)
        assert valid == [place < until for place in range(len(labels))]
    assert not bool(scored.valid.all())


def run(
    folder: Path, config: TrainConfig, *, form: str = "copy", resume: bool = False, block_size: int = 5
) -> Distilled:
    target = counting_target()
    with without_shape_checks():
        return distill(
            target,
            [row(index) for index in range(64)],
            shape(target, form, block_size),
            config,
            folder,
            resume=resume,
            progress=no_bars(),
        )


@pytest.mark.parametrize("form", ["riders", "copy"])
def test_a_resumed_run_ends_in_the_same_weights(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit. Catches random numbers or a schedule that depend on where a run was cut."""
    config = replace(CONFIG, steps=6, save_every=3, objective=TVP())
    whole = run(tmp_path / "whole", config, form=form).student.trained.state_dict()

    with monkeypatch.context() as cut:
        cut.setattr("forerun.training.mask_token.loop.append_jsonl", _after(4))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "early", config, form=form)
    resumed = run(tmp_path / "early", config, form=form, resume=True).student.trained.state_dict()
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def _after(calls: int) -> Any:
    """Fails at that call: in the middle of a run, some steps after its state was saved."""
    left = [calls]

    def append(path: Path, lines: list[object]) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return append


def test_losses_that_need_the_text_are_refused_behind_the_students_own_tokens(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="cross-entropy, data token needs more than the target's laws"):
        run(tmp_path / "run", replace(CONFIG, objective=CrossEntropy()))
    assert run(tmp_path / "run", replace(CONFIG, objective=CrossEntropy(), prefix="text", steps=1)).anchors == 24


def test_a_copy_learns_to_count_and_is_saved(tmp_path: Path) -> None:
    """The whole way: trained on its own prefixes, written, read; then every round drafts K tokens and emits K + 1."""
    target = counting_target()
    result = run(tmp_path / "run", CONFIG)
    assert result.validation["predicted_tau"] > 5.9
    save_mask_token(tmp_path / "drafter", result.student, target, provenance(target))
    drafter = load_drafter(tmp_path / "drafter", target, optimize=False)
    assert isinstance(drafter, MaskTokenModel)
    answer = generate(target, [3, 4, 5, 6], drafter=drafter, horizon=5, sampling=GREEDY, max_new_tokens=19)
    assert answer.token_ids == [(7 + place) % VOCAB for place in range(19)]
    assert [record.accepted for record in answer] == [5] * 3
    # the copy can be the target itself, and then its masks ride
    student = load_mask_student(tmp_path / "drafter", target, optimize=False)
    riders = MaskTokenRiders(student.model, student.mask_id, max_horizon=4, growth=0)
    own = generate(student.model, [3, 4, 5, 6], drafter=riders, horizon=4, sampling=GREEDY, max_new_tokens=19)
    assert own.token_ids == answer.token_ids
    assert [record.accepted for record in own] == [4, 4, 4, 2]


def test_riders_through_the_files_of_a_real_run(tmp_path: Path) -> None:
    """Features without layers, training, a folder of the drafter; read again it computes the same, and errors name why.

    Catches a drafter of another kind for any of the shared steps.
    """
    prepare(tmp_path, layers=())
    target = cyclic_target()
    output = tmp_path / "drafter"
    result = train_drafter(
        target,
        tmp_path / "features",
        tmp_path / "answers.jsonl",
        shape(target, "riders"),
        replace(CONFIG, steps=2, learning_rate=0.05),
        output,
        tmp_path / "run",
        command="forerun train",
        resume=False,
        progress=no_bars(),
    )
    assert isinstance(result, Distilled)
    drafter = load_drafter(output, target)
    assert isinstance(drafter, MaskTokenRiders)
    assert (drafter.max_horizon, drafter.name) == (4, "mask-token:riders:sample")
    ids = [3, 4, 5]
    rows = [
        target.forward(torch.tensor([*ids, mask, mask]), target.new_cache(), num_logits=2).logits
        for mask in (drafter.mask_id, result.student.mask_id)
    ]
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=0.05 * float(rows[1].abs().max()))  # bfloat16
    config = output / "config.json"
    config.write_text(config.read_text().replace('"rank": 16', '"rank": 8'))
    with pytest.raises(ForerunError, match=r"tensor down\.0/mlp/down_proj has shape \(16, 8\), the config asks for"):
        load_drafter(output, target)
    config.write_text(config.read_text().replace('"rank": 8', '"rank": 16').replace('"alpha": 32.0', '"alpha": 3200.0'))
    with pytest.raises(ForerunError, match="its golden logits differ by"):
        load_drafter(output, target)


@pytest.mark.slow
def test_riders_learn_to_count(tmp_path: Path) -> None:
    """Low-rank updates alone: the first position is the target's own, so K positions emit K tokens a round."""
    config = replace(CONFIG, steps=400, learning_rate=0.01, prefix="text")
    result = run(tmp_path / "run", config, form="riders")
    target = counting_target()
    save_mask_token(tmp_path / "drafter", result.student, target, provenance(target))
    drafter = load_drafter(tmp_path / "drafter", target, optimize=False)
    assert isinstance(drafter, MaskTokenRiders)
    answer = generate(target, [3, 4, 5, 6], drafter=drafter, horizon=4, sampling=GREEDY, max_new_tokens=19)
    assert answer.token_ids == [(7 + place) % VOCAB for place in range(19)]
    assert answer.totals.accepted / answer.totals.drafted > 0.95
