"""Many answers at once equal the same answers one by one (C32)."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from forerun.distributions import SamplingParams
from forerun.models import TransformersTarget, tiny_target
from forerun.models.batch_sampler import sample_batch
from tests.support.families import FAMILIES, random_model
from tests.support.targets import fresh_greedy

PROMPTS = [[7], [5, 9, 2, 4, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 3]]
CAP = 14


@cache
def target() -> TransformersTarget:
    """Stops often, so that rows end at different times and the batch is made smaller."""
    return tiny_target(vocab_size=24, stop_ids=(3, 17))


@cache
def with_absolute_positions() -> TransformersTarget:
    """GPT-2 learns a vector for every position: rows that are shifted by their padding show."""
    model = random_model(FAMILIES["gpt2"]())
    nn.Module.to(model, torch.float64)
    return TransformersTarget(model, None, name="gpt2")


def numbers(rows: int) -> Float[Tensor, "rows cap"]:
    return torch.rand(rows, CAP, dtype=torch.float64, generator=torch.Generator().manual_seed(8))


def until_stop(ids: list[int], own: TransformersTarget) -> list[int]:
    ends = [index + 1 for index, token_id in enumerate(ids) if token_id in own.stop_ids]
    return ids[: ends[0]] if ends else ids


@pytest.mark.parametrize("make", [target, with_absolute_positions])
def test_greedy_rows_are_the_plain_answers(make: Callable[[], TransformersTarget]) -> None:
    """Catches positions that count padding, padding that is attended to, and rows that swap when others end."""
    own = make()
    answers = sample_batch(
        own, PROMPTS, params=SamplingParams(temperature=0.0), max_new_tokens=CAP, uniforms=numbers(len(PROMPTS))
    )
    expected = [until_stop(fresh_greedy(own, prompt, CAP)[len(prompt) :], own) for prompt in PROMPTS]
    assert answers == expected
    assert make is with_absolute_positions or len({len(answer) for answer in answers}) > 1


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_sampled_rows_do_not_depend_on_their_company(order: list[int]) -> None:
    """Catches draws that go to another row after the batch became smaller."""
    params, uniforms = SamplingParams(temperature=1.3, top_k=20), numbers(len(PROMPTS))
    together = sample_batch(
        target(), [PROMPTS[row] for row in order], params=params, max_new_tokens=CAP, uniforms=uniforms[order]
    )
    for row, answer in zip(order, together, strict=True):
        alone = sample_batch(
            target(), [PROMPTS[row]], params=params, max_new_tokens=CAP, uniforms=uniforms[row : row + 1]
        )
        assert [answer] == alone
        assert until_stop(answer, target()) == answer
        assert len(answer) == CAP or answer[-1] in target().stop_ids


def test_progress_counts_tokens() -> None:
    """Catches a bar that never reaches its end or overtakes it."""
    counted: list[int] = []
    answers = sample_batch(
        target(),
        PROMPTS,
        params=SamplingParams(),
        max_new_tokens=CAP,
        uniforms=numbers(len(PROMPTS)),
        advance=counted.append,
    )
    assert max(counted) == len(PROMPTS)
    assert sum(counted) == sum(map(len, answers))
