"""Recorded runs: for every position of an answer, what a round that began there would have met."""

from forerun.evaluation.recording.estimate import estimated_survivals
from forerun.evaluation.recording.format import (
    RecordedAnswer,
    RecordedContext,
    RecordedDraft,
    RecordedPosition,
    RecordingHeader,
    UncachedPass,
)
from forerun.evaluation.recording.make import RecordingSettings, measured_costs, record_answer, record_answers
from forerun.evaluation.recording.store import (
    Recording,
    append_line,
    read_recording,
    resume_recording,
    start_recording,
)
from forerun.evaluation.recording.tracks import recorded_costs, recorded_track, recorded_tracks, shortened

__all__ = [
    "RecordedAnswer",
    "RecordedContext",
    "RecordedDraft",
    "RecordedPosition",
    "Recording",
    "RecordingHeader",
    "RecordingSettings",
    "UncachedPass",
    "append_line",
    "estimated_survivals",
    "measured_costs",
    "read_recording",
    "record_answer",
    "record_answers",
    "recorded_costs",
    "recorded_track",
    "recorded_tracks",
    "resume_recording",
    "shortened",
    "start_recording",
]
