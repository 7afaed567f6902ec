"""Measurement: paired runs, pilots, the demonstration, and checks that a pair decodes exactly. It draws nothing."""

from forerun.evaluation.demo import DemoConfig, DemoPrompt, run_demo, split_prompts
from forerun.evaluation.exactness import ExactnessConfig, ExactnessReport, check_exactness
from forerun.evaluation.greedy_verdict import GreedyAgreement, GreedyVerdict, greedy_verdict
from forerun.evaluation.origin import result_origin, study_origin
from forerun.evaluation.paired import Speed, SpeedPair, SpeedRatio, speed, speed_ratio
from forerun.evaluation.parity import ParityConfig, ParityReport, check_parity
from forerun.evaluation.pilot import CyclingHorizon, HorizonCost, Pilot, run_pilot
from forerun.evaluation.trace import Tracer

__all__ = [
    "CyclingHorizon",
    "DemoConfig",
    "DemoPrompt",
    "ExactnessConfig",
    "ExactnessReport",
    "GreedyAgreement",
    "GreedyVerdict",
    "HorizonCost",
    "ParityConfig",
    "ParityReport",
    "Pilot",
    "Speed",
    "SpeedPair",
    "SpeedRatio",
    "Tracer",
    "check_exactness",
    "check_parity",
    "greedy_verdict",
    "result_origin",
    "run_demo",
    "run_pilot",
    "speed",
    "speed_ratio",
    "split_prompts",
    "study_origin",
]
