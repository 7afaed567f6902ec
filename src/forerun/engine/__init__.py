"""The engine: rounds of draft, verify, commit or roll back. Plain decoding is horizon 0 of the same code."""

from forerun.engine.batch_generation import BatchGeneration
from forerun.engine.generate import generate, generate_batch
from forerun.engine.generation import Generation
from forerun.engine.metrics import RoundTotals
from forerun.engine.record import Finish, Prefill, RoundRecord, RoundSeconds
from forerun.engine.request import Request

__all__ = [
    "BatchGeneration",
    "Finish",
    "Generation",
    "Prefill",
    "Request",
    "RoundRecord",
    "RoundSeconds",
    "RoundTotals",
    "generate",
    "generate_batch",
]
