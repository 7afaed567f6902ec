"""From a recording to what replay needs: tracks, and the costs that were measured."""

from __future__ import annotations

import numpy as np

from forerun.distributions import Purpose, Streams
from forerun.errors import ForerunError
from forerun.evaluation.recording.format import RecordedAnswer, RecordingHeader
from forerun.evaluation.recording.store import Recording
from forerun.evaluation.replay import CostRegime, Track
from forerun.evaluation.simulator import MeasuredCached, MeasuredUncached


def recorded_tracks(
    recording: Recording, *, temperature: float | None = None, coin_seed: int | None = None
) -> tuple[Track, ...]:
    """One track for each answer, in order.

    Args:
        recording: as read.
        temperature: only answers at this one; ``None`` for all.
        coin_seed: of the policies' coins; ``None`` for the recording's own, which a live run would meet. The text and
            the drafts stay as they were recorded.

    Raises:
        ForerunError: no answer has that temperature.
    """
    seed = recording.header.seed if coin_seed is None else coin_seed
    chosen = [answer for answer in recording.answers if temperature in (None, answer.temperature)]
    if not chosen:
        raise ForerunError(f"the recording holds no answers at temperature {temperature}")
    return tuple(recorded_track(answer, coin_seed=seed) for answer in chosen)


def recorded_track(answer: RecordedAnswer, *, coin_seed: int) -> Track:
    """The track of one answer; coins are those of the engine's streams under this seed."""
    streams = Streams(coin_seed, answer.number)
    positions = answer.positions
    return Track(
        name=f"{answer.prompt}, temperature {answer.temperature:g}",
        task=answer.task,
        contexts=tuple(position.context.round_context() for position in positions),
        coins=tuple(
            float(streams.uniforms(Purpose.EXPLORE, position.context.context_length, 1)) for position in positions
        ),
        accepted=tuple(position.accepted for position in positions),
        accept_probabilities=tuple(position.accept_probabilities for position in positions),
        overlaps=tuple(position.overlaps for position in positions),
        censored=tuple(position.censored for position in positions),
        drawn=tuple(tuple(draft.drawn_token() for draft in position.drafts) for position in positions),
        time_factors=(1.0,) * len(positions),
        survivals=None,
    )


def shortened(answer: RecordedAnswer, num_tokens: int) -> RecordedAnswer:
    """The answer as recorded with a smaller cap: limits near its end are smaller, and drafts are cut to them.

    Drafts of a shorter window are the beginning of those of a longer one, since the drafter is prefix-consistent.

    Args:
        answer: that the cap ended.
        num_tokens: the smaller cap; an answer that is short enough stays as it is.

    Raises:
        ForerunError: the answer ended by itself.
    """
    if num_tokens >= len(answer.token_ids):
        return answer
    if any(position.censored is not None for position in answer.positions):
        raise ForerunError(f"answer {answer.number} ended by itself: only answers that their cap ended are shortened")
    positions = []
    for position in answer.positions[: num_tokens - 1]:
        limit = min(position.context.limit, num_tokens - position.context.generated - 1)
        shorter = {
            "context": position.context.model_copy(update={"limit": limit}),
            "accepted": min(position.accepted, limit),
            "accept_probabilities": position.accept_probabilities[:limit],
            "overlaps": position.overlaps[:limit],
            "drafts": position.drafts[:limit],
        }
        positions.append(position.model_copy(update=shorter))
    return answer.model_copy(update={"token_ids": answer.token_ids[:num_tokens], "positions": tuple(positions)})


def recorded_costs(header: RecordingHeader, kind: str) -> CostRegime:
    """The regime that was measured when the recording was made.

    Args:
        header: of the recording.
        kind: ``cached`` or ``uncached``.

    Raises:
        ForerunError: another kind.
    """
    # a longer round cannot really be cheaper: noise of the measurement, as cost tables see it too
    drafting = tuple(np.maximum.accumulate(header.draft_seconds).tolist())
    if kind == "cached":
        return MeasuredCached(tuple(np.maximum.accumulate(header.cached_seconds).tolist()), drafting)
    if kind == "uncached":
        lengths = np.array([point.length for point in header.uncached], dtype=np.float64)
        seconds = np.array([point.seconds for point in header.uncached])
        slope, fixed = np.polyfit(lengths, seconds, 1)
        return MeasuredUncached(float(max(fixed, 0.0)), float(max(slope, 0.0)), drafting)
    raise ForerunError(f"costs are {kind!r}; give cached or uncached")
