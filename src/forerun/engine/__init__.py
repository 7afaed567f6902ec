"""The engine: rounds of draft, verify, commit or roll back. Plain decoding is horizon 0 of the same code."""

from forerun.engine.generate import generate
from forerun.engine.generation import Generation, Request
from forerun.engine.metrics import RoundTotals
from forerun.engine.record import Finish, Prefill, RoundRecord, RoundSeconds

__all__ = ["Finish", "Generation", "Prefill", "Request", "RoundRecord", "RoundSeconds", "RoundTotals", "generate"]
