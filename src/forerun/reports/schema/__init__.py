"""The result of a demonstration run, as it is stored: raw counters, from which every metric is derived.

Whatever measures writes these fields; reports read them. What can be computed from the counters is a property and is
not stored, so a result cannot contradict itself.

Conventions: seconds are wall-clock seconds; positions within a draft count from 1, so index 0 of a tuple by position is
position 1; the token that the prefill emits belongs to no round and is counted nowhere.
"""

from forerun.reports.schema.arm_result import ArmResult, PairedRatio, PhaseSeconds, Verdict
from forerun.reports.schema.cost_curve import CostCurve, CostPoint
from forerun.reports.schema.demo_result import DemoResult
from forerun.reports.schema.provenance import Artifact, Machine
from forerun.reports.schema.record import PLAIN, Task
from forerun.reports.schema.trace import Trace, TraceRound

__all__ = [
    "PLAIN",
    "ArmResult",
    "Artifact",
    "CostCurve",
    "CostPoint",
    "DemoResult",
    "Machine",
    "PairedRatio",
    "PhaseSeconds",
    "Task",
    "Trace",
    "TraceRound",
    "Verdict",
]
