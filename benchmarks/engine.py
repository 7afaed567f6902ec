"""The engine's own cost, and its speed beside ``transformers.generate`` on the same weights.

    python -m benchmarks.engine [--quick]

1. Host overhead: the share of a round that is not spent in a model's forward pass, at 1 to 16 rows.
2. Plain decoding against ``transformers.generate`` with its dynamic and its static cache.
3. Speculative decoding against transformers' assisted generation, both with the same drafts: prompt look-up with
   transformers' own look-up, and a small assistant model (the target's first layers), four tokens a round, greedy.

All float32, arms in turn for every prompt, whole calls (prefill included), processor time of one thread, which leaves
out what other processes took. Ratios above 1 say that forerun is faster.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from benchmarks.timing import machine, spread
from forerun import load_target
from forerun.distributions import PointLaw, Processing, SamplingParams
from forerun.drafters import Dependence, Drafter, DrafterSession, DraftModel, DraftStop, Need, Saving
from forerun.engine import generate, generate_batch
from forerun.evaluation.paired import SpeedPair, speed_ratio
from forerun.models import EMBEDDED_TARGET, TransformersTarget
from forerun.models.quiet import quiet_transformers
from forerun.recipes.demo import demo_prompts
from forerun.verification import Proposal

GREEDY = SamplingParams(temperature=0.0)
HORIZON = 4
ASSISTANT_LAYERS = 6


def measure(*, quick: bool) -> dict[str, Any]:
    """All three parts; each is shown on standard error as soon as it is there."""
    tokens, prompts_per_task = (24, 1) if quick else (32, 2)
    eager = load_target(EMBEDDED_TARGET.name, optimize=False)
    packed = load_target(EMBEDDED_TARGET.name, optimize=True)
    prompts = chosen_prompts(packed, prompts_per_task)
    reference = copy.deepcopy(eager.model)
    assert reference.generation_config is not None
    reference.generation_config.eos_token_id = None  # every call writes the same number of tokens
    parts: dict[str, Callable[[], Any]] = {
        "plain": lambda: against_generate(reference, eager, packed, prompts, tokens=tokens),
        "assisted": lambda: against_assisted(reference, eager, packed, prompts, tokens=tokens),
        "overhead": lambda: overhead(packed, prompts, tokens=16, sizes=(1, 4) if quick else (1, 2, 4, 8, 16)),
    }
    results: dict[str, Any] = {"machine": machine()}
    for name, part in parts.items():
        results[name] = part()
        print(json.dumps({name: results[name]}), file=sys.stderr)  # whole parts survive an interruption
    return results


def chosen_prompts(target: TransformersTarget, per_task: int) -> list[tuple[str, list[int]]]:
    """Task and ids of the first shipped prompts of each task."""
    chosen: list[tuple[str, list[int]]] = []
    for task in ("math", "code", "chat"):
        texts = [prompt.text for prompt in demo_prompts() if prompt.task == task][:per_task]
        chosen += [(task, target.tokenizer.chat([{"role": "user", "content": text}])) for text in texts]
    return chosen


@final
class ForwardClock:
    """Seconds spent inside the forward passes of some modules while it is attached."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = modules
        self._depth = 0
        self._started = 0.0
        self.seconds = 0.0

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Count while the block runs."""
        handles = [module.register_forward_pre_hook(self._enter) for module in self._modules]
        handles += [module.register_forward_hook(self._leave) for module in self._modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, *_: Any) -> None:
        if self._depth == 0:
            self._started = time.perf_counter()
        self._depth += 1

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._started


def overhead(
    target: TransformersTarget, prompts: list[tuple[str, list[int]]], *, tokens: int, sizes: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Share of decoding rounds outside the target's forward pass; the drafts cost next to nothing here."""
    lookup = TransformersLookup(target.vocab_size)
    ids = [prompt for _, prompt in prompts]
    arms: dict[str, tuple[Drafter | None, int, float]] = {
        "plain, T=0": (None, 0, 0.0),
        "plain, T=1": (None, 0, 1.0),
        "look-up k=4, T=0": (lookup, HORIZON, 0.0),
        "look-up k=4, T=1": (lookup, HORIZON, 1.0),
    }
    rows = []
    for name, (drafter, horizon, temperature) in arms.items():
        for size in sizes:
            clock = ForwardClock(target.model)
            batch = generate_batch(
                target,
                [ids[index % len(ids)] for index in range(size)],
                drafter=drafter,
                horizon=horizon,
                sampling=SamplingParams(temperature=temperature),
                max_new_tokens=tokens,
                max_batch=size,
                ignore_stop_ids=True,
            )
            for answer in batch.answers:
                _ = answer.prefill
            with clock.attached():
                totals = batch.totals
            rows.append(
                {
                    "arm": name,
                    "rows": size,
                    "rounds_of_the_batch": max(len(answer.records) for answer in batch.answers),
                    "seconds": totals.seconds,
                    "forward_seconds": clock.seconds,
                    "overhead": 1.0 - clock.seconds / totals.seconds,
                    "tokens_per_second": totals.tokens_per_second,
                }
            )
    return rows


def against_generate(
    reference: PreTrainedModel,
    eager: TransformersTarget,
    packed: TransformersTarget,
    prompts: list[tuple[str, list[int]]],
    *,
    tokens: int,
) -> dict[str, Any]:
    """Plain greedy decoding, whole calls."""
    ways: dict[str, Callable[[list[int]], object]] = {
        "transformers, dynamic cache": lambda ids: _transformers(reference, ids, tokens),
        "transformers, static cache": lambda ids: _transformers(reference, ids, tokens, cache_implementation="static"),
        "forerun": lambda ids: _forerun(eager, ids, tokens),
        "forerun --optimize": lambda ids: _forerun(packed, ids, tokens),
    }
    seconds = _in_turn(ways, prompts)
    best = min(list(ways)[:2], key=lambda name: sum(seconds[name]))
    return {"baseline": best} | _report(seconds, prompts, tokens, {"forerun": best, "forerun --optimize": best})


def against_assisted(
    reference: PreTrainedModel,
    eager: TransformersTarget,
    packed: TransformersTarget,
    prompts: list[tuple[str, list[int]]],
    *,
    tokens: int,
) -> dict[str, Any]:
    """Greedy speculative decoding with the same drafts."""
    assistant = first_layers(reference, ASSISTANT_LAYERS)
    small = TransformersTarget(copy.deepcopy(assistant), None, name="first layers")
    small_packed = TransformersTarget(copy.deepcopy(assistant), None, name="first layers", optimize=True)
    generation = assistant.generation_config
    assert generation is not None
    generation.num_assistant_tokens = HORIZON
    generation.num_assistant_tokens_schedule = "constant"
    generation.assistant_confidence_threshold = 0.0
    lookup = TransformersLookup(eager.vocab_size)
    ways: dict[str, Callable[[list[int]], object]] = {
        "transformers, look-up": lambda ids: _transformers(reference, ids, tokens, prompt_lookup_num_tokens=HORIZON),
        "forerun, look-up": lambda ids: _forerun(eager, ids, tokens, lookup),
        "forerun --optimize, look-up": lambda ids: _forerun(packed, ids, tokens, lookup),
        "transformers, assistant": lambda ids: _transformers(reference, ids, tokens, assistant_model=assistant),
        "forerun, assistant": lambda ids: _forerun(eager, ids, tokens, DraftModel(small, eager)),
        "forerun --optimize, assistant": lambda ids: _forerun(packed, ids, tokens, DraftModel(small_packed, packed)),
    }
    baselines = {name: f"transformers, {name.split(', ')[1]}" for name in ways if name.startswith("forerun")}
    return _report(_in_turn(ways, prompts), prompts, tokens, baselines)


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """The same embeddings, norm and head around the first layers: an assistant with the same tokenizer."""
    small = copy.deepcopy(model)
    layers = small.base_model.get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    small.base_model.set_submodule("layers", layers[:count])
    small.config.num_hidden_layers = count
    return small


@final
class TransformersLookup(Drafter):
    """Prompt look-up that drafts exactly what transformers' own look-up drafts.

    Args:
        vocab_size: of the target.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    name = "transformers-look-up"
    max_horizon = 16
    captured_layers = ()
    max_positions = None
    prefix_consistent = True
    dependence = Dependence.FULL
    saving = Saving.BOTH
    needs: frozenset[Need] = frozenset()

    def new_session(self) -> TransformersLookupSession:
        """State for one request."""
        return TransformersLookupSession(self.vocab_size)


@final
class TransformersLookupSession(DrafterSession):
    """The tokens so far."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._tokens = torch.empty(0, dtype=torch.int64)

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return len(self._tokens)

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """Keeps the tokens."""
        self._tokens = torch.cat([self._tokens, token_ids])

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """What transformers would draft."""
        generator = PromptLookupCandidateGenerator(num_output_tokens=horizon, max_length=1 << 30)
        known: Any = torch.cat([self._tokens, torch.tensor([last_token])])[None]
        drafts = generator.get_candidates(known)[0][0, known.shape[1] :]
        return Proposal(token_ids=drafts, law=PointLaw(drafts, self._vocab_size))


def _transformers(model: PreTrainedModel, ids: list[int], tokens: int, **options: Any) -> list[int]:
    assert isinstance(model, GenerationMixin)
    with quiet_transformers(), torch.inference_mode():
        output = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
            max_new_tokens=tokens,
            do_sample=False,
            **options,
        )
    return list(output[0, len(ids) :].tolist())


def _forerun(target: TransformersTarget, ids: list[int], tokens: int, drafter: Drafter | None = None) -> list[int]:
    horizon = 0 if drafter is None else HORIZON
    answer = generate(
        target, ids, drafter=drafter, horizon=horizon, sampling=GREEDY, max_new_tokens=tokens, ignore_stop_ids=True
    )
    return answer.token_ids


def _in_turn(
    ways: dict[str, Callable[[list[int]], object]], prompts: list[tuple[str, list[int]]]
) -> dict[str, list[float]]:
    """Processor seconds of each way for each prompt."""
    names = list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        ways[name](prompts[0][1])  # warm-up
    for turn, (_, ids) in enumerate(prompts):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            started = time.process_time()
            ways[name](ids)
            seconds[name].append(time.process_time() - started)
    return seconds


def _report(
    seconds: dict[str, list[float]],
    prompts: list[tuple[str, list[int]]],
    tokens: int,
    baselines: dict[str, str],
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "tokens_per_call": tokens,
        "seconds_per_call": {name: spread(values) for name, values in seconds.items()},
        "speed_ratio": {},
    }
    for name, baseline in baselines.items():
        for task in ("all", *dict.fromkeys(task for task, _ in prompts)):
            pairs = [
                SpeedPair(tokens=tokens, seconds=own, baseline_tokens=tokens, baseline_seconds=base)
                for (own_task, _), own, base in zip(prompts, seconds[name], seconds[baseline], strict=True)
                if task in (own_task, "all")
            ]
            ratio = speed_ratio(pairs, seed=0)
            report["speed_ratio"][f"{name} / {baseline}, {task}"] = (
                None
                if ratio is None
                else {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high, "num_pairs": ratio.num_pairs}
            )
    return report


if __name__ == "__main__":
    print(json.dumps(measure(quick="--quick" in sys.argv)))
