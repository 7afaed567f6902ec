"""Many answers at once are the answers one by one; float64, so ids must be equal."""

from typing import Any

import pytest
import torch
from torch import nn

from forerun.distributions import SamplingParams, law_from_logits
from forerun.models import TransformersTarget
from forerun.models.batch_sampler import sample_batch
from tests.support.families import FAMILIES, random_model
from tests.support.writers import chat_target

STOPS = tuple(range(100, 160))  # about one token in five ends an answer
CAP = 12
PROMPTS = [[5], [7, 8, 9, 10, 11, 12, 13, 14, 15], [42, 41], [200, 201, 202, 203], [5], [250, 3, 17]] * 3


def uniforms(rows: int, *, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, CAP, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(target: TransformersTarget, prompt: list[int], params: SamplingParams, draws: torch.Tensor) -> list[int]:
    """The definition: a whole pass with a new cache for every token, no padding, no batch."""
    ids = list(prompt)
    for uniform in draws:
        logits = target.forward(torch.tensor(ids), target.new_cache(), num_logits=1).logits
        ids.append(int(law_from_logits(logits, params).sample(uniforms=uniform[None])))
        if ids[-1] in target.stop_ids:
            break
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.001),
    ],
    ids=["law", "greedy", "processed"],
)
def test_a_batch_writes_what_each_row_would_write_alone(params: SamplingParams) -> None:
    """Catches padding that is attended to, positions counted from the padding, keys of dropped rows, shared draws."""
    target = chat_target(stop_ids=STOPS)
    draws = uniforms(len(PROMPTS))
    answers = sample_batch(target, PROMPTS, params=params, max_new_tokens=CAP, uniforms=draws)
    assert answers == [one_by_one(target, prompt, params, row) for prompt, row in zip(PROMPTS, draws, strict=True)]
    if params == SamplingParams():  # all kinds of endings were there
        assert {len(answer) for answer in answers} > {1, CAP}
        assert any(answer[-1] not in STOPS for answer in answers)


@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_padding_has_no_place_among_the_positions(family: str) -> None:
    """Catches positions counted from the padding, which rotary models forgive, and windows that slide over it."""
    config = FAMILIES[family]()
    config.eos_token_id = list(STOPS)
    target = TransformersTarget(random_model(config).double(), None, name=family)
    draws = uniforms(len(PROMPTS), seed=2)
    answers = sample_batch(target, PROMPTS, params=SamplingParams(), max_new_tokens=CAP, uniforms=draws)
    assert answers == [
        one_by_one(target, prompt, SamplingParams(), row) for prompt, row in zip(PROMPTS, draws, strict=True)
    ]


def test_the_order_of_the_rows_changes_nothing() -> None:
    """Catches rows that are mixed up once finished ones are dropped."""
    target = chat_target(stop_ids=STOPS)
    draws = uniforms(len(PROMPTS), seed=1)
    forwards = sample_batch(target, PROMPTS, params=SamplingParams(), max_new_tokens=CAP, uniforms=draws)
    backwards = sample_batch(target, PROMPTS[::-1], params=SamplingParams(), max_new_tokens=CAP, uniforms=draws.flip(0))
    assert forwards == backwards[::-1]


def test_finished_rows_cost_nothing_and_every_token_is_reported() -> None:
    """Catches batches that keep computing finished rows to the end, and a bar that does not reach its total."""
    target = chat_target(stop_ids=STOPS)
    widths: list[int] = []

    def watch(_module: nn.Module, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        widths.append(int(kwargs["input_ids"].shape[0]))

    advanced: list[int] = []
    handle = target.model.register_forward_pre_hook(watch, with_kwargs=True)
    answers = sample_batch(
        target,
        PROMPTS,
        params=SamplingParams(),
        max_new_tokens=CAP,
        uniforms=uniforms(len(PROMPTS)),
        advance=advanced.append,
    )
    handle.remove()
    assert widths[0] == len(PROMPTS) and widths == sorted(widths, reverse=True)
    writing = [sum(len(answer) > step for answer in answers) for step in range(len(widths))]
    assert all(0.8 * width <= count <= width for width, count in zip(widths[1:], writing[1:], strict=True))
    assert advanced == writing
    assert sum(advanced) == sum(len(answer) for answer in answers)


def test_nothing_runs_after_the_last_answer_has_ended() -> None:
    """Catches loops that always run to the cap."""
    everything = tuple(range(300))
    target = chat_target(stop_ids=everything)
    passes: list[int] = []
    handle = target.model.register_forward_pre_hook(lambda _module, _args: passes.append(1))
    answers = sample_batch(target, [[5], [6, 7]], params=SamplingParams(), max_new_tokens=CAP, uniforms=uniforms(2))
    handle.remove()
    assert [len(answer) for answer in answers] == [1, 1] and len(passes) == 1
