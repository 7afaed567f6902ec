"""Measurement: paired runs, pilots, and the demonstration. It judges nothing and draws nothing."""

from forerun.evaluation.demo import DemoConfig, DemoPrompt, run_demo, split_prompts
from forerun.evaluation.paired import SpeedPair, SpeedRatio, speed_ratio
from forerun.evaluation.pilot import CyclingHorizon, HorizonCost, Pilot, run_pilot
from forerun.evaluation.trace import Tracer

__all__ = [
    "CyclingHorizon",
    "DemoConfig",
    "DemoPrompt",
    "HorizonCost",
    "Pilot",
    "SpeedPair",
    "SpeedRatio",
    "Tracer",
    "run_demo",
    "run_pilot",
    "speed_ratio",
    "split_prompts",
]
