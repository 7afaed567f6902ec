"""How a drafter came to be, stored beside its weights."""

from __future__ import annotations

from typing import final

from pydantic import BaseModel, ConfigDict


@final
class Provenance(BaseModel):
    """Everything needed to judge a drafter and to make it again.

    Attributes:
        commands: shell commands, in order, that make it from nothing.
        data_sha256: of the regenerated rows.
        data_rows, data_tokens, data_licenses, data_sources: what it was trained on.
        target_*: the model it drafts for.
        loss: objective and schedule in words and numbers.
        steps, anchors, seed, seconds: of the run.
        validation: metrics on held-out rows at the end.
        versions: of the libraries that ran.
        machine: processor and threads.
        commit: of this repository, ``None`` outside a checkout.
        created: UTC, ISO 8601.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    commands: tuple[str, ...]
    data_sha256: str
    data_rows: int
    data_tokens: int
    data_licenses: dict[str, int]
    data_sources: dict[str, int]
    target_name: str
    target_fingerprint: str
    tokenizer_fingerprint: str
    loss: str
    steps: int
    anchors: int
    seed: int
    seconds: float
    vocabulary_coverage: float
    validation: dict[str, float]
    versions: dict[str, str]
    machine: str
    commit: str | None
    created: str
