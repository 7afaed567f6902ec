"""Small training runs that take a second."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from rich.progress import Progress

from forerun.drafters import DrafterConfig, DraftVocabulary
from forerun.models import TransformersTarget
from forerun.training import FeatureRow, TrainConfig, TrainResult, train
from tests.support.networks import taught_row, tiny_config, whole
from tests.support.targets import successor_target
from tests.support.tokenizers import text_tokenizer
from tests.support.writers import no_bars

VOCAB = 16


@cache
def cyclic_target() -> TransformersTarget:
    """C49's language: every token is followed by the next one, modulo 16, with certainty."""
    successors = {token: (token + 1) % VOCAB for token in range(VOCAB)}
    return successor_target(successors, vocab_size=VOCAB, tokenizer=text_tokenizer(VOCAB))


def cyclic_rows(count: int = 24, *, length: int = 14, captured: tuple[int, ...] = (0, 1)) -> list[FeatureRow]:
    """Answers that the cyclic target would write to prompts of two to five tokens."""
    rows = []
    for index in range(count):
        token_ids = (torch.arange(length + index % 3) + 5 * index) % VOCAB
        rows.append(
            taught_row(cyclic_target(), token_ids, prompt_length=2 + index % 4, job=f"p{index}/0", captured=captured)
        )
    return rows


SMALL = TrainConfig(
    steps=10, rows_per_step=3, blocks_per_row=4, learning_rate=0.01, save_every=5, validation_share=0.25
)
"""Ten quick steps with a quarter of the prompts held out."""


def run_training(
    folder: Path,
    config: TrainConfig,
    *,
    resume: bool = False,
    rows: Sequence[FeatureRow] | None = None,
    target: TransformersTarget | None = None,
    vocabulary: DraftVocabulary | None = None,
    shape: DrafterConfig | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """A run on the cyclic language, unless something else is given."""
    model = cyclic_target() if target is None else target
    chosen = whole(model) if vocabulary is None else vocabulary
    return train(
        model,
        cyclic_rows() if rows is None else list(rows),
        tiny_config(model, draft_vocab_size=len(chosen)) if shape is None else shape,
        chosen,
        config,
        folder,
        resume=resume,
        progress=no_bars() if progress is None else progress,
    )
