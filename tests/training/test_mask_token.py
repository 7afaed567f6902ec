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
from forerun.training.mask_token import Distilled, Prefix, Spans, distill
from forerun.training.mask_token.loop import _backward, score
from tests.support.networks import provenance
from tests.support.speed import without_shape_checks
from tests.support.tokenizers import text_tokenizer
from tests.support.training import cyclic_target
from tests.support.writers import no_bars
from tests.training.test_run import prepare

VOCAB = 16
CLOSE = 1e-10
"""Float64, sums in another order."""
FLOAT32_WEIGHTS = 1e-6
"""Weights of the places are float32: 0.8 is off by 1e-8."""
GREEDY = SamplingParams(temperature=0.0)
CONFIG = TrainConfig(
    objective=ArgmaxCrossEntropy(), position_weights="uniform", steps=160, rows_per_step=4, blocks_per_row=6,
    learning_rate=0.005, save_every=1000, validation_share=0.2,
)  # fmt: skip


def text_row(index: int, token_ids: Tensor) -> FeatureRow:
    """Distillation looks at the tokens alone."""
    nothing = torch.zeros(len(token_ids), 1)
    return FeatureRow(
        job=f"p{index}/0",
        prompt_length=4,
        token_ids=token_ids,
        features=nothing[:, None],
        final_hidden=nothing,
        log_normaliser=nothing[:, 0],
    )


def row(index: int, length: int = 24) -> FeatureRow:
    """Text of a language that counts modulo 16."""
    return text_row(index, (torch.arange(length) + 5 * index) % VOCAB)


def texts(table: Tensor, count: int, generator: torch.Generator, length: int = 24) -> Tensor:
    """Texts of the language in which row t of ``table`` is the law after token t; they begin anywhere."""
    ids = torch.randint(VOCAB, (count, 1), generator=generator)
    while ids.shape[1] < length:
        ids = torch.cat([ids, torch.multinomial(table[ids[:, -1]], 1, generator=generator)], dim=1)
    return ids


COUNTING = torch.eye(VOCAB).roll(1, dims=1)
NOISY = (2.0 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(3))).softmax(-1)
"""The most probable token has 0.51 on average."""


@cache
def counting_target() -> TransformersTarget:
    """A small Llama that has learned to count modulo 16, in a second."""
    return writer_of(COUNTING, steps=120)


def writer_of(table: Tensor, *, steps: int) -> TransformersTarget:
    """A small Llama that has learned a language."""
    model = tiny_target(vocab_size=VOCAB, dtype=torch.float32, seed=1).model
    model.requires_grad_(True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        ids = texts(table, 16, generator)
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


def random_student(form: str, *, vocab_size: int = VOCAB) -> tuple[MaskTokenStudent, TransformersTarget]:
    """Float64; every weight of the adapter is drawn."""
    target = tiny_target(vocab_size=vocab_size)
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


@pytest.mark.parametrize("prefix", ["accepted", "student"])
@pytest.mark.parametrize("form", ["riders", "copy"])
def test_the_gradient_is_that_of_the_objective_written_out(form: str, prefix: Prefix) -> None:
    """Catches a signal behind proposals that the teacher would not make, and one that is lost before the first of them.

    The oracle goes through blocks and positions one by one, a pass of its own for each block. With three tokens some
    proposals are the teacher's.
    """
    student, teacher = random_student(form, vocab_size=3)
    batch = Spans.of(
        [text_row(index, torch.arange(20 + index) * (index + 1) % 3) for index in range(2)],
        blocks=9, slots=4, generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    student.trained.requires_grad_(True)
    student.trained.zero_grad(set_to_none=True)
    config = replace(CONFIG, position_weights="bound")
    with without_shape_checks():
        _backward(score(student, teacher, batch, prefix=prefix), 5, config, 0, 0.0)
        found = {name: weight.grad for name, weight in student.trained.named_parameters() if weight.grad is not None}
        student.trained.zero_grad(set_to_none=True)
        total, counts = torch.zeros((), dtype=torch.float64), [0, 0, 0, 0]
        for text, anchors in zip(batch.token_ids, batch.anchors.tolist(), strict=True):
            for anchor in anchors:
                before = text[: anchor + 1]
                answer = whole_pass(student.model, torch.cat([before, torch.full((3,), student.mask_id)]), 4)
                own = answer.argmax(-1)
                with torch.no_grad():
                    right = whole_pass(teacher, torch.cat([before, own[:3]]), 4).argmax(-1).tolist()
                for slot in range(1 if form == "riders" else 0, 4):
                    if prefix == "student" or own[:slot].tolist() == right[:slot]:
                        total = total - (5 - slot) / 5 * answer[slot].log_softmax(-1)[right[slot]]
                        counts[slot] += 1
        (total / sum(counts)).backward()
    for name, weight in student.trained.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], weight.grad, rtol=0, atol=FLOAT32_WEIGHTS, msg=name)
    assert len(found) > 10 and (prefix == "student" or counts[1] > counts[2] > counts[3] > 0), counts


def whole_pass(model: TransformersTarget, token_ids: Tensor, count: int) -> Tensor:
    """The last rows of a plain causal pass, with their gradient."""
    width = len(token_ids)
    visible = torch.ones(1, width, width, dtype=torch.bool).tril()
    return model.forward_visible(token_ids[None], torch.arange(width)[None], visible, num_logits=count)[0]


def run(
    folder: Path,
    config: TrainConfig,
    *,
    form: str = "copy",
    resume: bool = False,
    block_size: int = 5,
    target: TransformersTarget | None = None,
    rows: Sequence[FeatureRow] | None = None,
) -> Distilled:
    target = counting_target() if target is None else target
    with without_shape_checks():
        return distill(
            target,
            [row(index) for index in range(64)] if rows is None else list(rows),
            shape(target, form, block_size),
            config,
            folder,
            resume=resume,
            progress=no_bars(),
        )


def test_the_first_span_of_riders_stands_behind_the_prompt(tmp_path: Path) -> None:
    """As in decoding, where the prompt's own pass carries one. Catches a first round that was never trained.

    A row of 24 tokens with a prompt of 4 has 20 such places, counted anew when a run is resumed.
    """
    for first_slot, anchors in ((1, [3, 4, 5, 6]), (0, [4, 5, 6])):
        found = Spans.of([row(0, 8)], blocks=9, slots=2, generator=None, first_slot=first_slot)
        assert found.anchors[0][found.used[0]].tolist() == anchors
    config = replace(CONFIG, steps=1, blocks_per_row=20)
    for resume in (False, True):
        assert run(tmp_path / "run", config, form="riders", resume=resume).anchors == 4 * 20


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


RIDERS = replace(CONFIG, steps=300, learning_rate=0.01)


def greedy_drafts(target: TransformersTarget, student: MaskTokenStudent, starts: Tensor) -> float:
    """Accepted drafts of a round of four, mean over all rounds that drafted four."""
    riders = MaskTokenRiders(target, student.mask_id, max_horizon=4, growth=0)
    accepted = []
    with without_shape_checks():
        for prompt in starts.tolist():
            answer = generate(target, prompt, drafter=riders, horizon=4, sampling=GREEDY, max_new_tokens=20)
            accepted += [record.accepted for record in answer if record.drafted == 4]
    return sum(accepted) / len(accepted)


def test_riders_learn_from_their_own_tokens(tmp_path: Path) -> None:
    """From nothing, the target untouched bit for bit. Catches labels behind garbage, from which nothing is learned."""
    target, prompt = counting_target(), torch.tensor([3, 4, 5, 6])
    before = target.forward(prompt, target.new_cache(), captured=(0, 1))
    result = run(tmp_path / "run", replace(RIDERS, steps=70), form="riders")
    after = target.forward(prompt, target.new_cache(), captured=(0, 1))
    assert torch.equal(before.logits, after.logits) and torch.equal(before.features, after.features)
    assert greedy_drafts(target, result.student, prompt[None]) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize(("prefix", "least", "most"), [("own", 3.8, 4), ("text", 3.8, 4), ("student", 0, 0.5)])
def test_riders_learn_to_count(prefix: str, least: float, most: float, tmp_path: Path) -> None:
    """300 updates, seed 0: on its own tokens as from the text, and nothing if every position counts, as published.

    In the beginning the student proposes one token everywhere; then so do the labels behind it.
    """
    result = run(tmp_path / "run", replace(RIDERS, prefix=prefix), form="riders")
    target = counting_target()
    save_mask_token(tmp_path / "drafter", result.student, target, provenance(target))
    student = load_mask_student(tmp_path / "drafter", target, optimize=False)
    starts = torch.stack([row(index, 4).token_ids for index in range(VOCAB)])
    assert least <= greedy_drafts(target, student, starts) <= most


@pytest.mark.slow
def test_riders_learn_a_language_with_noise(tmp_path: Path) -> None:
    """800 updates, seed 0, 16 prompts: on its own tokens it learns at least what it learns from the text.

    Behind the student's own tokens the right draft is a function of the prompt; along sampled text it is not.
    """
    target, generator = writer_of(NOISY, steps=300), torch.Generator().manual_seed(11)
    rows = [text_row(index, ids) for index, ids in enumerate(texts(NOISY, 64, generator))]
    starts = texts(NOISY, 16, generator, length=4)
    plain = target.forward(starts[0], target.new_cache()).logits
    drafts = {}
    for prefix in ("own", "text"):
        result = run(
            tmp_path / prefix, replace(RIDERS, prefix=prefix, steps=800), form="riders", target=target, rows=rows
        )
        drafts[prefix] = greedy_drafts(target, result.student, starts)
    assert torch.equal(target.forward(starts[0], target.new_cache()).logits, plain)
    assert drafts["own"] > max(1.5, 0.9 * drafts["text"]), drafts
