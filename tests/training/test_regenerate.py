"""Answers written by the target: the same rows whatever the batches, the order and the interruptions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest
import torch
from rich.progress import Progress, TaskID

from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.training import RegenerationConfig, RegenerationReport, TrainingPrompt, regenerate
from forerun.training.jsonl import read_jsonl
from tests.exactness.statistics import chi_square_p_value
from tests.support.targets import fresh_greedy
from tests.support.tokenizers import byte_tokenizer
from tests.support.writers import STOP_ID, chat_target, no_bars, training_prompt

STOPS = (STOP_ID, *range(100, 130))
PROMPTS = [
    training_prompt(f"p{index}", "why " * (index + 1), domain="math" if index < 3 else "chat") for index in range(7)
]
CONFIG = RegenerationConfig(samples_per_prompt={"math": 2}, max_prompts={}, max_new_tokens=10, batch_size=4)


@final
class Killed(Progress):
    """A bar that interrupts the work when it has moved ``count`` times."""

    def __init__(self, count: int) -> None:
        super().__init__(disable=True)
        self.count = count

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        self.count -= 1
        if self.count < 0:
            raise KeyboardInterrupt


def run(
    output: Path,
    config: RegenerationConfig = CONFIG,
    *,
    target: TransformersTarget | None = None,
    prompts: Sequence[TrainingPrompt] = PROMPTS,
    progress: Progress | None = None,
) -> RegenerationReport:
    return regenerate(
        chat_target(stop_ids=STOPS) if target is None else target,
        list(prompts),
        output,
        config,
        progress=no_bars() if progress is None else progress,
    )


def by_job(output: Path) -> dict[str, dict[str, Any]]:
    rows = read_jsonl(output)
    assert len({row["job"] for row in rows}) == len(rows), "a job was written twice"
    return {row["job"]: row for row in rows}


def test_rows_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    """Catches draws that belong to a place in the batch, and padding that changes an answer."""
    for size in (1, 3, 64):
        report = run(tmp_path / f"{size}.jsonl", replace(CONFIG, batch_size=size))
        assert (report.rows, report.written_now) == (10, 10)
    rows = by_job(tmp_path / "1.jsonl")
    assert rows == by_job(tmp_path / "3.jsonl") == by_job(tmp_path / "64.jsonl")
    assert set(rows) == {f"p{index}/{sample}" for index in range(7) for sample in range(2 if index < 3 else 1)}
    assert len({tuple(row["answer_ids"]) for row in rows.values()}) == 10  # every job has draws of its own


@pytest.mark.parametrize("moves", [0, 5, 12, 25])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, moves: int) -> None:
    """Catches rows lost, written twice, or drawn differently after a restart in the middle of a batch."""
    run(tmp_path / "whole.jsonl")
    output = tmp_path / "parts.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(output, progress=Killed(moves))
    before = len(read_jsonl(output)) if output.is_file() else 0
    assert before % 4 == 0 and before < 10
    report = run(output, replace(CONFIG, batch_size=3))
    assert (report.rows, report.written_now) == (10, 10 - before)
    assert by_job(output) == by_job(tmp_path / "whole.jsonl")
    untouched = output.read_bytes()
    assert run(output).written_now == 0
    assert output.read_bytes() == untouched


def test_a_torn_row_is_written_again(tmp_path: Path) -> None:
    """Catches a half row that blocks the resume or that is glued to the next one."""
    run(tmp_path / "whole.jsonl")
    output = tmp_path / "torn.jsonl"
    output.write_bytes((tmp_path / "whole.jsonl").read_bytes()[:-30])
    assert run(output).written_now == 1
    assert by_job(output) == by_job(tmp_path / "whole.jsonl")


def test_a_short_run_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    """Catches answers that depend on how many were asked for."""
    run(tmp_path / "whole.jsonl")
    output = tmp_path / "more.jsonl"
    assert run(output, replace(CONFIG, max_rows=4)).rows == 4
    first = by_job(output)
    report = run(output)
    assert (report.rows, report.written_now) == (10, 6)
    assert by_job(output) == by_job(tmp_path / "whole.jsonl") == by_job(output) | first


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"temperature": 0.9}, {"max_new_tokens": 11}], ids=lambda change: next(iter(change))
)
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Catches a file of mixed laws; whoever changes a setting must say where the new answers go."""
    output = tmp_path / "answers.jsonl"
    run(output, replace(CONFIG, max_rows=2))
    before = output.read_bytes()
    with pytest.raises(ForerunError, match=r"answers\.jsonl was written with other settings.*--output"):
        run(output, replace(CONFIG, **change))
    assert output.read_bytes() == before


def test_another_target_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "answers.jsonl"
    run(output, replace(CONFIG, max_rows=2))
    for other in (chat_target(seed=1, stop_ids=STOPS), chat_target(dtype=torch.float32, stop_ids=STOPS)):
        with pytest.raises(ForerunError, match="another target"):
            run(output, target=other)


def test_rows_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    """Catches a traceback, or new answers among somebody else's, when --output names another kind of file."""
    output = tmp_path / "prompts.jsonl"
    output.write_text('{"id": "a", "turns": ["mine"]}\n', encoding="utf-8")
    with pytest.raises(ForerunError, match="other settings"):
        run(output)
    assert output.read_text(encoding="utf-8") == '{"id": "a", "turns": ["mine"]}\n'


def test_answers_end_at_a_stop_id_or_at_the_cap(tmp_path: Path) -> None:
    """Catches a stop id that is cut off, tokens behind it, answers over the cap, and a flag that says the opposite."""
    report = run(tmp_path / "answers.jsonl", replace(CONFIG, samples_per_prompt={"math": 8, "chat": 8}))
    rows = list(by_job(tmp_path / "answers.jsonl").values())
    for row in rows:
        *earlier, last = row["answer_ids"]
        assert not set(earlier) & set(STOPS)
        assert row["truncated"] == (last not in STOPS)
        assert len(row["answer_ids"]) == 10 if row["truncated"] else len(row["answer_ids"]) <= 10
    assert 0 < report.truncated < len(rows) == 56
    assert report.truncated == sum(row["truncated"] for row in rows)
    assert report.answer_tokens == sum(len(row["answer_ids"]) for row in rows)


def test_a_row_says_what_the_target_read_and_wrote(tmp_path: Path) -> None:
    """C52. Catches a doubled BOS, a prompt without its template, and text that does not belong to the ids."""
    run(tmp_path / "answers.jsonl")
    row = by_job(tmp_path / "answers.jsonl")["p1/0"]
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(row["prompt_ids"]) == "<bos><user>why why <assistant>"
    assert row["answer"] == tokenizer.decode(row["answer_ids"], skip_special_tokens=True)
    assert (row["domain"], row["source"], row["license"], row["prompt"]) == ("math", "tests", "MIT", "why why ")


def test_prompts_and_samples_by_domain(tmp_path: Path) -> None:
    """Catches counts that go to the wrong domain, and limits that cut answers instead of prompts."""
    config = replace(CONFIG, samples_per_prompt={"chat": 3}, max_prompts={"chat": 2, "math": 0})
    run(tmp_path / "answers.jsonl", config)
    jobs = by_job(tmp_path / "answers.jsonl")
    assert {row["domain"] for row in jobs.values()} == {"chat"}
    assert len({job.rpartition("/")[0] for job in jobs}) == 2 and len(jobs) == 6


def test_prompts_without_room_are_left_out_and_counted(tmp_path: Path) -> None:
    """Catches answers that run over the end of the target's context, and prompts dropped without a word."""
    config = replace(CONFIG, samples_per_prompt={})
    run(tmp_path / "all.jsonl", config)
    lengths = sorted(len(row["prompt_ids"]) for row in by_job(tmp_path / "all.jsonl").values())
    report = run(tmp_path / "short.jsonl", replace(config, max_prompt_tokens=lengths[2]))
    kept = sorted(len(row["prompt_ids"]) for row in by_job(tmp_path / "short.jsonl").values())
    assert kept == lengths[:3] and report.too_long_prompts == 4
    small = chat_target(stop_ids=STOPS, max_positions=lengths[3] + CONFIG.max_new_tokens)
    report = run(tmp_path / "context.jsonl", config, target=small)
    kept = sorted(len(row["prompt_ids"]) for row in by_job(tmp_path / "context.jsonl").values())
    assert kept == lengths[:4] and report.too_long_prompts == 3


def test_nothing_to_write_is_an_error(tmp_path: Path) -> None:
    """Catches an empty file, or a complaint about a missing one, when no prompt fits."""
    with pytest.raises(ForerunError, match="no prompt is short enough: 3 tokens at most"):
        run(tmp_path / "new" / "answers.jsonl", replace(CONFIG, max_prompt_tokens=3))
    assert not (tmp_path / "new").exists()


def test_a_negative_temperature_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="temperature"):
        run(tmp_path / "new" / "answers.jsonl", replace(CONFIG, temperature=-1.0))
    assert not (tmp_path / "new").exists()


def test_temperature_zero_is_the_greedy_answer(tmp_path: Path) -> None:
    """Catches a temperature that is read but not used."""
    target = chat_target(stop_ids=STOPS)
    run(tmp_path / "answers.jsonl", replace(CONFIG, temperature=0.0), target=target)
    for row in by_job(tmp_path / "answers.jsonl").values():
        greedy = fresh_greedy(target, row["prompt_ids"], len(row["answer_ids"]))
        assert row["answer_ids"] == greedy[len(row["prompt_ids"]) :]


def test_first_tokens_follow_the_targets_own_law(tmp_path: Path) -> None:
    """Catches answers drawn from another law than the one the drafter will meet.

    Seed 0, 2000 draws, alpha 1e-4. The ten likeliest tokens each have a class, all others share one.
    """
    target = chat_target(stop_ids=STOPS)
    target.head_weight.mul_(5.0)  # a law far from uniform
    config = RegenerationConfig(samples_per_prompt={"math": 2000}, max_prompts={}, max_new_tokens=1, batch_size=500)
    run(tmp_path / "answers.jsonl", config, target=target, prompts=PROMPTS[:1])
    rows = list(by_job(tmp_path / "answers.jsonl").values())
    step = target.forward(torch.tensor(rows[0]["prompt_ids"]), target.new_cache(), num_logits=1)
    probs = step.logits[0].softmax(dim=-1)
    likeliest = probs.topk(10).indices.tolist()
    written = [row["answer_ids"][0] for row in rows]
    counts = [sum(token == each for token in written) for each in likeliest]
    expected = [float(probs[each]) for each in likeliest]
    p_value = chi_square_p_value([*counts, len(rows) - sum(counts)], [*expected, 1.0 - sum(expected)])
    assert p_value > 1e-4, (counts, expected)
