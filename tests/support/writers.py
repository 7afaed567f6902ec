"""Targets that read and write text, and the files that training makes of their answers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from forerun.models import TransformersTarget, tiny_target
from forerun.training import FeatureConfig, FeatureRow, TrainingPrompt, capture_features, read_features
from tests.support.tokenizers import EOS, SPECIAL_TOKENS, VOCAB_SIZE, text_tokenizer

STOP_ID = SPECIAL_TOKENS.index(EOS)


def no_bars() -> Progress:
    """Progress that nobody sees."""
    return Progress(disable=True)


def chat_target(
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    stop_ids: tuple[int, ...] = (STOP_ID,),
    max_positions: int = 256,
) -> TransformersTarget:
    """A random two-layer Llama with the byte-level tokenizer and its chat template."""
    bare = tiny_target(
        seed=seed, vocab_size=VOCAB_SIZE, hidden_size=16, dtype=dtype, stop_ids=stop_ids, max_positions=max_positions
    )
    return TransformersTarget(bare.model, text_tokenizer(), name=f"chat-{seed}")


def training_prompt(id: str, text: str, *, domain: str = "chat") -> TrainingPrompt:
    """One prompt under a licence that may be used."""
    return TrainingPrompt(id=id, domain=domain, text=text, source="tests", license="MIT")


def write_jsonl(path: Path, rows: Sequence[object]) -> Path:
    """One JSON text a line; strings are written as they are."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def answer_row(job: str, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> dict[str, Any]:
    """A regenerated row as far as training looks at it."""
    return {
        "job": job,
        "prompt_ids": list(prompt_ids),
        "answer_ids": list(answer_ids),
        "license": "MIT",
        "source": "tests",
    }


def captured(
    target: TransformersTarget,
    sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
    folder: Path,
    *,
    layers: tuple[int, ...] | None = None,
) -> list[FeatureRow]:
    """Features of (prompt, answer) pairs, one prompt id each, through the files that a real run writes.

    All layers are captured; a drafter's own may be taken out of them.
    """
    rows = [answer_row(f"p{index}/0", prompt, answer) for index, (prompt, answer) in enumerate(sequences)]
    answers = write_jsonl(folder / "answers.jsonl", rows)
    config = FeatureConfig(captured_layers=tuple(range(target.num_layers)))
    capture_features(target, answers, folder / "features", config, progress=no_bars())
    return read_features(folder / "features", layers=layers)
