"""A replay is the live run: the same policy on the recorded text, round for round."""

from dataclasses import fields, replace
from pathlib import Path
from typing import final

import numpy as np
import pytest

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.evaluation.recording import (
    RecordedContext,
    RecordingHeader,
    RecordingSettings,
    UncachedPass,
    append_line,
    read_recording,
    record_answer,
    recorded_costs,
    recorded_track,
    resume_recording,
    shortened,
    start_recording,
)
from forerun.evaluation.replay import Priced, replay
from forerun.evaluation.simulator import Curve
from forerun.horizons import AMTP, Choice, FixedHorizon, HorizonPolicy, RoundContext, RoundFeedback
from forerun.horizons.rivals import llama_cpp
from forerun.verification import Agreement
from tests.support.targets import random_table

COSTS = Curve(label="steep", draft_per_token=0.008)
SETTINGS = RecordingSettings(max_new_tokens=40, seed=9)
VOCAB = 4
TARGET = random_table(11, vocab_size=VOCAB, order=2, stop_ids=(3,))
DRAFTER = DraftModel(random_table(12, vocab_size=VOCAB, order=1, spread=0.6), TARGET, max_horizon=3)
PROMPT = [1, 2]
HEADER = RecordingHeader(
    forerun_version="0", commit=None, created="now", command="forerun record run.jsonl", machine={"cores": 1},
    target={"name": "table"}, drafter={"name": "table"}, rule="agreement", seed=9, max_new_tokens=6,
    ignore_stop_ids=True, max_horizon=3, temperatures=(1.0,), prompts=("a", "b"), cached_seconds=(1.0, 2.0, 1.5, 3.0),
    draft_seconds=(0.0, 0.5, 0.5, 0.5),
    uncached=(UncachedPass(length=10, seconds=3.0), UncachedPass(length=30, seconds=7.0)),
)  # fmt: skip


@final
class Watched(HorizonPolicy):
    """Another policy, and what it was told."""

    name = "watched"

    def __init__(self, inner: HorizonPolicy) -> None:
        self.inner = inner
        self.told: list[tuple[object, ...]] = []

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        return self.inner.propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        self.told.append(
            (feedback.choice.horizon, feedback.choice.explored and feedback.choice.planned < feedback.choice.horizon,
             feedback.accepted, feedback.accept_probabilities, feedback.overlaps, feedback.seconds, feedback.censored)
        )  # fmt: skip
        self.inner.observe(feedback)

    def clone(self) -> "Watched":
        return Watched(self.inner.clone())


def policies() -> list[HorizonPolicy]:
    adaptive = AMTP(costs=COSTS.table(3, 10, np.array([0.7, 0.5, 0.3])), epsilon=0.3)
    return [adaptive, FixedHorizon(3), FixedHorizon(0), FixedHorizon(1)]


def test_a_shortened_answer_is_one_recorded_with_a_smaller_cap() -> None:
    """Everything but the measured seconds. Catches a limit that is one off, and drafts longer than it."""
    whole, short = (
        record_answer(
            TARGET, DRAFTER, PROMPT, 1.0, replace(SETTINGS, max_new_tokens=cap, ignore_stop_ids=True), number=1
        )
        for cap in (20, 12)
    )
    same = {"draft_seconds": 0.0, "verify_seconds": 0.0}
    cut, made = (
        [position.model_copy(update=same) for position in answer.positions] for answer in (shortened(whole, 12), short)
    )
    assert cut == made and shortened(whole, 12).token_ids == short.token_ids
    assert shortened(short, 12) == short
    answers = (record_answer(TARGET, DRAFTER, PROMPT, 1.0, SETTINGS, number=number) for number in range(20))
    ended = next(each for each in answers if any(position.censored is not None for position in each.positions))
    with pytest.raises(ForerunError, match="ended by itself"):
        shortened(ended, 1)


@pytest.mark.usefixtures("unchecked_shapes")
def test_live_and_replayed_rounds_are_the_same() -> None:
    """Several answers after each other, with a policy that learns and explores, answers that a stop id ends.

    Catches numbers that move with the round (the text then depends on the horizon), an accepted length of another
    draft, features of another position, coins of another stream, and censored labels that count.
    """
    ended_early = explored = censored = 0
    for policy in policies():
        watched, replayed = Watched(policy.clone()), Watched(policy.clone())
        live = Priced(watched, COSTS)
        for number in range(6):
            temperature = 0.0 if number == 0 else 1.0
            settings = replace(SETTINGS, ignore_stop_ids=number % 2 == 1)
            answer = record_answer(TARGET, DRAFTER, PROMPT, temperature, settings, number=number)
            spoken = generate(
                TARGET, PROMPT, drafter=DRAFTER, horizon=live, sampling=SamplingParams(temperature=temperature),
                max_new_tokens=SETTINGS.max_new_tokens, seed=SETTINGS.seed, request=number, rule=Agreement(),
                ignore_stop_ids=settings.ignore_stop_ids,
            )  # fmt: skip
            records = spoken.records
            assert tuple(spoken.token_ids) == answer.token_ids
            ended_early += len(answer.token_ids) < SETTINGS.max_new_tokens
            if not answer.positions:
                continue
            run = replay(replayed, [recorded_track(answer, coin_seed=SETTINGS.seed)], COSTS)
            assert run.horizons.tolist() == [record.drafted for record in records]
            assert run.emitted.tolist() == [len(record.token_ids) for record in records]
        assert replayed.told == watched.told
        explored += any(told[1] for told in watched.told)
        censored += any(told[-1] is not None for told in watched.told)
    assert ended_early and explored and censored


@pytest.mark.usefixtures("unchecked_shapes")
def test_recording_keeps_the_plain_text_and_every_position() -> None:
    """A recorded window that was committed would skip positions; accepted drafts are the text's own tokens."""
    settings = replace(SETTINGS, ignore_stop_ids=True)
    answer = record_answer(TARGET, DRAFTER, PROMPT, 1.0, settings, number=1)
    plain = generate(
        TARGET, PROMPT, max_new_tokens=settings.max_new_tokens, seed=settings.seed, request=1, ignore_stop_ids=True
    )
    assert list(answer.token_ids) == plain.token_ids
    assert [position.context.context_length for position in answer.positions] == list(range(3, 42))
    assert max(position.accepted for position in answer.positions) >= 1
    assert answer.positions[-1].overlaps == () and len(answer.positions[0].overlaps) == 3


def test_files_are_whole_or_refused(tmp_path: Path) -> None:
    """A cut line is dropped on resume; another recording's file, missing answers and unknown fields are errors."""
    path = tmp_path / "run.jsonl"
    settings = replace(SETTINGS, max_new_tokens=6, ignore_stop_ids=True)
    answers = [record_answer(TARGET, DRAFTER, PROMPT, 1.0, settings, number=number) for number in range(2)]
    start_recording(path, HEADER)
    append_line(path, answers[0])
    with pytest.raises(ForerunError, match="1 of 2 answers"):
        read_recording(path)
    with path.open("a") as sink:
        sink.write(answers[1].model_dump_json()[:50])
    with pytest.raises(ForerunError, match="line 3"):
        read_recording(path, whole=False)
    with pytest.raises(ForerunError, match="recorded with seed 9, not 8"):
        resume_recording(path, {"seed": 8})
    assert resume_recording(path, {"seed": 9}) == 1
    append_line(path, answers[1])
    assert read_recording(path).answers == tuple(answers)
    with pytest.raises(ForerunError, match="exists"):
        start_recording(path, HEADER)
    path.write_text(path.read_text().replace('"accepted"', '"accepted_tokens"', 1))
    with pytest.raises(ForerunError, match=r"line 2: positions\.0\.accepted"):
        read_recording(path)


def test_recorded_contexts_have_every_field() -> None:
    """A new field of the context that recordings forgot would reach replayed policies as its default."""
    assert set(RecordedContext.model_fields) == {field.name for field in fields(RoundContext)}


def test_measured_costs_become_regimes() -> None:
    """By hand: a dip is noise and is lifted; passes of 10 and 30 tokens in 3 and 7 seconds are 1 + 0.2 n."""
    lengths = np.array([10])
    cached = recorded_costs(HEADER, "cached").round_seconds(np.arange(4), lengths)
    assert cached[0].tolist() == [1.0, 2.0, 2.0, 3.0]
    uncached = recorded_costs(HEADER, "uncached").round_seconds(np.arange(4), lengths)
    assert uncached[0].tolist() == pytest.approx([3.0, 3.7, 3.9, 4.1])
    with pytest.raises(ForerunError, match="cached or uncached"):
        recorded_costs(HEADER, "free")


def test_a_stop_rule_pays_for_the_laws_it_looks_at() -> None:
    """A gate that lets nothing through has had the first draft made: plain decoding and half a second.

    Catches a stop rule that looks for nothing: gates then seem faster than plain decoding where they are slower.
    """
    answer = record_answer(TARGET, DRAFTER, PROMPT, 1.0, replace(SETTINGS, ignore_stop_ids=True), number=1)
    track = recorded_track(answer, coin_seed=0)
    for kind in ("cached", "uncached"):
        costs = recorded_costs(HEADER, kind)
        plain = replay(FixedHorizon(0), [track], costs)
        gated = replay(llama_cpp(n_max=3, p_min=1.0), [track], costs)
        looked = track.limits[gated.positions] > 0
        assert len(gated) == len(plain) and gated.horizons.max() == 0
        assert (gated.seconds - plain.seconds).tolist() == pytest.approx(np.where(looked, 0.5, 0.0).tolist())
    assert recorded_costs(HEADER, "cached").unused_seconds(1, 3) == 0.0
