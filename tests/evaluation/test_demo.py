"""The demonstration's measurement on a tiny pair: counters, order, and the report's format."""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from forerun.engine import Generation, generate
from forerun.evaluation import DemoConfig, DemoPrompt, demo, pilot, run_demo, split_prompts
from forerun.models import TransformersTarget
from forerun.reports import parse_result
from forerun.reports.schema import ArmResult, DemoResult
from tests.support.networks import tiny_drafter
from tests.support.speed import without_shape_checks
from tests.support.writers import chat_target

TASKS = ("math", "code", "chat")
PROMPTS = [
    DemoPrompt(id=f"{task}-{index}", task=task, text=f"{task} {'why ' * index}?")
    for index in range(4)
    for task in TASKS
]
CONFIG = DemoConfig(prompts_per_task=1, max_new_tokens=9, pilot_tokens=16, temperatures=(0.0, 0.5, 1.0), seeds=(0, 1))


@cache
def target() -> TransformersTarget:
    """A target that stops often: the demonstration has to pass its stops over."""
    return chat_target(stop_ids=tuple(range(100, 160)))


@dataclass
class Watched:
    """A demonstration and everything it was seen to do."""

    result: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    answers: int = 0

    @property
    def measured(self) -> list[dict[str, Any]]:
        """Calls after the pilots."""
        return [call for call in self.calls if call["max_new_tokens"] == CONFIG.max_new_tokens]

    def answered(self) -> None:
        """One more answer."""
        self.answers += 1


@pytest.fixture(scope="module")
def watched() -> Watched:
    seen = Watched()

    def watch(target: TransformersTarget, prompt: str, **settings: Any) -> Generation:
        seen.calls.append({"prompt": prompt, **settings})
        return generate(target, prompt, **settings)

    with pytest.MonkeyPatch.context() as patched, without_shape_checks():
        for module in (demo, pilot):
            patched.setattr(module, "generate", watch)
        seen.result = run_demo(
            target(), tiny_drafter(target()), "ab" * 32, PROMPTS, CONFIG,
            command="forerun demo", on_stage=seen.stages.append, on_answer=seen.answered,
        )  # fmt: skip
    return seen


@pytest.fixture(scope="module")
def result(watched: Watched) -> DemoResult:
    return parse_result(json.dumps(watched.result))


def test_the_result_is_in_the_reports_format(result: DemoResult) -> None:
    """Catches a field that the page cannot read, hours after it was measured."""
    assert result.command == "forerun demo" and result.seeds == (0, 1) and not result.quick
    assert result.max_new_tokens == 9 and result.temperatures == (0.0, 0.5, 1.0)
    assert result.target.name == "chat-0" and result.target.sha256 == target().fingerprint
    assert result.drafter.name == "dspark" and result.drafter.sha256 == "ab" * 32
    assert result.machine.dtype == "float64" and result.machine.device == "cpu"
    assert result.cost_curve is not None
    assert [point.horizon for point in result.cost_curve.points] == [0, 1, 2, 3, 4]


def test_plain_comes_first_and_every_arm_is_everywhere(result: DemoResult) -> None:
    """Catches tables whose columns change places because the best fixed horizon differs between temperatures."""
    assert result.arms[0] == "plain" and result.arms[-1] == "AMTP"
    assert all(arm.startswith("fixed k=") for arm in result.arms[1:-1])
    for temperature in result.temperatures:
        tasks = result.by_task_at(temperature)
        assert [task for task, _ in tasks] == [*TASKS, "all"]
        for _, runs in tasks:
            assert [run.arm[:5] for run in runs] == ["plain", "fixed", "AMTP"]


def test_counters_agree_with_what_was_asked_for(result: DemoResult) -> None:
    """Catches answers cut at stop ids, prefill tokens counted as emitted, and rounds over the cap."""
    for run in result.runs:
        answers = 2 * (3 if run.task == "all" else 1)
        assert run.num_prompts == answers
        assert run.emitted_tokens == answers * (CONFIG.max_new_tokens - 1)
        assert run.emitted_tokens == run.rounds + run.accepted_tokens
        assert sum(run.drafted_by_position) == run.drafted_tokens
        assert sum(run.accepted_by_position) == run.accepted_tokens
        assert run.exact
        if run.arm == "plain":
            assert run.rounds == run.emitted_tokens and run.drafted_tokens == 0
            assert run.ratio_to_plain is None
        else:
            assert run.ratio_to_plain is not None and run.ratio_to_plain.num_pairs == answers
            assert run.drafted_tokens > 0 or run.arm == "AMTP"
        assert run.seconds.total > 0


def test_all_is_the_sum_of_the_tasks(result: DemoResult) -> None:
    def sums(runs: list[ArmResult]) -> tuple[int, int, int, int]:
        return (
            sum(run.rounds for run in runs),
            sum(run.emitted_tokens for run in runs),
            sum(run.drafted_tokens for run in runs),
            sum(run.accepted_tokens for run in runs),
        )

    for run in result.runs:
        if run.task == "all":
            parts = [
                part for part in result.runs
                if part.task != "all" and (part.arm, part.temperature) == (run.arm, run.temperature)
            ]  # fmt: skip
            assert len(parts) == 3 and sums(parts) == sums([run])


def test_ratios_are_speeds_over_plain_speeds(result: DemoResult) -> None:
    """Catches a ratio turned upside down: the estimate follows from the counters of both arms."""
    for temperature in result.temperatures:
        for _, (plain, *others) in result.by_task_at(temperature):
            for run in others:
                assert run.ratio_to_plain is not None and run.tokens_per_second and plain.tokens_per_second
                assert run.ratio_to_plain.estimate == pytest.approx(run.tokens_per_second / plain.tokens_per_second)


def test_arms_take_turns(watched: Watched) -> None:
    """Catches arms measured in blocks (the machine changes), and an arm that always goes first at some temperature."""
    calls = watched.measured
    assert len(calls) == watched.answers == CONFIG.num_answers == 3 * 3 * 3 * 2
    firsts: Counter[tuple[float, str]] = Counter()
    for start in range(0, len(calls), 3):
        trio = calls[start : start + 3]
        shared = {(call["prompt"], call["sampling"].temperature, call["seed"], call["request"]) for call in trio}
        assert len(shared) == 1  # a pair is one prompt decoded both ways, one right after the other
        assert len({call["horizon"].name for call in trio}) == 3
        firsts[calls[start]["sampling"].temperature, kind(trio[0])] += 1
    assert set(firsts.values()) == {2} and len(firsts) == 9


def kind(call: dict[str, Any]) -> str:
    if call["drafter"] is None:
        return "plain"
    return "AMTP" if call["horizon"].name.startswith("amtp") else "fixed"


def test_one_adaptive_policy_learns_through_a_temperature(watched: Watched) -> None:
    """Catches a policy that starts afresh for every prompt, and one that mixes temperatures."""
    policies = {
        temperature: {id(call["horizon"]) for call in watched.measured if kind(call) == "AMTP"
                      and call["sampling"].temperature == temperature}
        for temperature in CONFIG.temperatures
    }  # fmt: skip
    assert all(len(each) == 1 for each in policies.values())
    assert len(set.union(*policies.values())) == 3


def test_pilots_use_other_prompts_and_come_first(watched: Watched) -> None:
    """Catches a controller that was tuned on the prompts it is measured on."""
    pilots = [call for call in watched.calls if call["max_new_tokens"] == CONFIG.pilot_tokens]
    assert watched.calls[: len(pilots)] == pilots
    assert not {call["prompt"] for call in pilots} & {call["prompt"] for call in watched.measured}
    assert [call["sampling"].temperature for call in pilots] == [0.0] * 3 + [0.5] * 3 + [1.0] * 3
    assert watched.stages == [f"Pilot at temperature {each}" for each in ("0", "0.5", "1")] + ["Measuring"]


def test_greedy_traces_tell_the_same_text(result: DemoResult) -> None:
    """Catches a trace that loses or repeats tokens, and decoding that is not exact."""
    assert len(result.traces) == 9
    texts = {
        trace.opening + "".join(token for each in trace.rounds for token in each.tokens)
        for trace in result.traces
        if trace.temperature == 0.0
    }
    assert len(texts) == 1
    for trace in result.traces:
        assert sum(len(each.tokens) for each in trace.rounds) == CONFIG.max_new_tokens - 1
        assert all(each.accepted <= each.horizon and each.accepted < len(each.tokens) for each in trace.rounds)


def test_prompts_are_split_by_task() -> None:
    first, measured = split_prompts(PROMPTS, 2)
    assert [prompt.id for prompt in first] == ["math-3", "code-3", "chat-3"]
    assert [prompt.id for prompt in measured] == ["math-0", "math-1", "code-0", "code-1", "chat-0", "chat-1"]
    assert [len(part) for part in split_prompts(PROMPTS, 99)] == [3, 9]


def test_a_single_prompt_has_no_interval() -> None:
    """Catches a division by nothing where there is one prompt of each task."""
    drafter = tiny_drafter(target())
    config = DemoConfig(prompts_per_task=1, max_new_tokens=4, pilot_tokens=16, temperatures=(1.0,))
    with without_shape_checks():
        parsed = parse_result(
            json.dumps(
                run_demo(target(), drafter, "ab" * 32, PROMPTS, config, command="c", on_stage=print, on_answer=print)
            )
        )
    ratios = [run.ratio_to_plain for run in parsed.runs if run.arm != "plain" and run.task != "all"]
    assert ratios == [None] * 6
