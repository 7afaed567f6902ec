"""Answers written by the target itself: the text on which a drafter is trained.

A drafter trained on other people's answers learns contexts that decoding never visits. Rows are appended as they are
finished; a run that is killed goes on where it stopped, and a row's text does not depend on when it was written.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from forerun.distributions import Purpose, SamplingParams, Streams
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.models.batch_sampler import sample_batch
from forerun.training.jsonl import append_jsonl, drop_torn_line, read_jsonl
from forerun.training.prompts import TrainingPrompt

_WINDOW_BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RegenerationConfig:
    """How answers are written.

    Attributes:
        samples_per_prompt: answers per prompt, by domain; a domain that is not named gets one.
        max_prompts: prompts per domain at most, by domain; a domain that is not named keeps all of them.
        max_rows: rows in all; ``None`` for every job.
        max_prompt_tokens: longer prompts are left out and counted; one of them would pad its whole batch. So are
            those that leave no room for ``max_new_tokens`` in the target's context.
        max_new_tokens: cap on an answer; longer ones are kept and flagged as truncated.
        temperature: 1.0 draws from the target's own law, which is what the drafter has to match.
        batch_size: rows written side by side.
        seed: of the prompt order and of every draw.
    """

    samples_per_prompt: dict[str, int]
    max_prompts: dict[str, int]
    max_rows: int | None = None
    max_prompt_tokens: int = 256
    max_new_tokens: int = 256
    temperature: float = 1.0
    batch_size: int = 96
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegenerationReport:
    """What lies in the file at the end."""

    rows: int
    answer_tokens: int
    truncated: int
    too_long_prompts: int
    written_now: int


def regenerate(
    target: TransformersTarget,
    prompts: list[TrainingPrompt],
    output: Path,
    config: RegenerationConfig,
    *,
    progress: Progress,
) -> RegenerationReport:
    """Write one JSON line per (prompt, sample): ids of prompt and answer, text, settings' hash, truncation flag.

    Args:
        target: the model whose answers are wanted; needs a chat template.
        prompts: what to answer.
        output: file to append to; rows that it holds already are not written again.
        config: sampling settings; a file written under others is refused.
        progress: the caller's bars.

    Raises:
        ForerunError: ``output`` was written with other settings or by another target, or no prompt is short enough.
    """
    params = SamplingParams(temperature=config.temperature)
    key = _settings_key(target, config)
    jobs = _jobs(target, prompts, config)
    drop_torn_line(output)
    existing = read_jsonl(output) if output.is_file() else []
    for row in existing:
        if row.get("settings") != key:
            raise ForerunError(
                f"{output} was written with other settings or another target; give another --output or delete it"
            )
    done = {row["job"] for row in existing}
    longest = min(config.max_prompt_tokens, target.max_positions - config.max_new_tokens)
    too_long = sum(len(job.prompt_ids) > longest for job in jobs)
    jobs = [job for job in jobs if len(job.prompt_ids) <= longest]
    if not jobs:
        raise ForerunError(
            f"no prompt is short enough: {max(longest, 0)} tokens at most, from --max-prompt-tokens and from what "
            f"--max-new-tokens leaves of a context of {target.max_positions}"
        )
    todo = _windows([job for job in jobs if job.name not in done], _WINDOW_BATCHES * config.batch_size)
    output.parent.mkdir(parents=True, exist_ok=True)
    task = progress.add_task("Answers", total=len(jobs), completed=len(jobs) - len(todo))
    tokens = progress.add_task("Tokens", total=None)
    for start in range(0, len(todo), config.batch_size):
        batch = todo[start : start + config.batch_size]
        rows = _write_batch(target, batch, params, config, key, lambda amount: progress.advance(tokens, amount))
        append_jsonl(output, rows)
        progress.advance(task, len(batch))
    rows = read_jsonl(output)
    return RegenerationReport(
        rows=len(rows),
        answer_tokens=sum(len(row["answer_ids"]) for row in rows),
        truncated=sum(row["truncated"] for row in rows),
        too_long_prompts=too_long,
        written_now=len(todo),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    prompt: TrainingPrompt
    prompt_ids: list[int]
    sample: int

    @property
    def name(self) -> str:
        return f"{self.prompt.id}/{self.sample}"

    @property
    def request(self) -> int:
        """Number of this job's random streams: a hash of its name, so that it does not depend on the other jobs."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:6], "little")


def _jobs(target: TransformersTarget, prompts: list[TrainingPrompt], config: RegenerationConfig) -> list[_Job]:
    shuffled = random.Random(config.seed).sample(prompts, len(prompts))
    taken: dict[str, int] = {}
    jobs = []
    for prompt in shuffled:
        taken[prompt.domain] = taken.get(prompt.domain, 0) + 1
        if taken[prompt.domain] <= config.max_prompts.get(prompt.domain, len(prompts)):
            prompt_ids = target.tokenizer.chat([{"role": "user", "content": prompt.text}])
            samples = range(config.samples_per_prompt.get(prompt.domain, 1))
            jobs += [_Job(prompt=prompt, prompt_ids=prompt_ids, sample=sample) for sample in samples]
    return random.Random(config.seed + 1).sample(jobs, len(jobs))[: config.max_rows]


def _windows(jobs: list[_Job], size: int) -> list[_Job]:
    """Neighbours of like prompt length, so that batches pad little.

    Only within windows: a run that is cut short still holds a fair sample of the prompts.
    """
    return [
        job
        for start in range(0, len(jobs), size)
        for job in sorted(jobs[start : start + size], key=lambda job: len(job.prompt_ids))
    ]


def _write_batch(
    target: TransformersTarget,
    batch: list[_Job],
    params: SamplingParams,
    config: RegenerationConfig,
    key: str,
    advance: Callable[[int], None],
) -> list[dict[str, Any]]:
    uniforms = torch.stack(
        [Streams(config.seed, request=job.request).uniforms(Purpose.EMIT, 0, config.max_new_tokens) for job in batch]
    )
    answers = sample_batch(
        target,
        [job.prompt_ids for job in batch],
        params=params,
        max_new_tokens=config.max_new_tokens,
        uniforms=uniforms,
        advance=advance,
    )
    return [
        {
            "job": job.name,
            "settings": key,
            "domain": job.prompt.domain,
            "source": job.prompt.source,
            "license": job.prompt.license,
            "prompt": job.prompt.text,
            "answer": target.tokenizer.decode(answer),
            "prompt_ids": job.prompt_ids,
            "answer_ids": answer,
            "truncated": answer[-1] not in target.stop_ids,
        }
        for job, answer in zip(batch, answers, strict=True)
    ]


def _settings_key(target: TransformersTarget, config: RegenerationConfig) -> str:
    """Hash of what shapes a row's text; batch size and the choice of prompts do not."""
    settings = {key: value for key, value in asdict(config).items() if key in ("max_new_tokens", "temperature", "seed")}
    settings |= {"target": target.fingerprint, "tokenizer": target.tokenizer.fingerprint, "dtype": str(target.dtype)}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
