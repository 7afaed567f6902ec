"""From logits to next-token laws, and random numbers to draw from them.

Logits become a law here and nowhere else: what a drafter samples and what verification tests is one object.
The package knows nothing of models, drafters or acceptance.
"""

from forerun.distributions.divergences import overlap, total_variation
from forerun.distributions.law import DenseLaw, Law, PointLaw, stack_laws
from forerun.distributions.logprobs import TokenLogprob, token_logprobs
from forerun.distributions.params import GREEDY_TEMPERATURE, LogitsProcessor, SamplingParams
from forerun.distributions.processing import UnusableLogits, law_from_logits
from forerun.distributions.request_processing import Processing
from forerun.distributions.streams import Purpose, Streams
from forerun.distributions.uniforms import check_uniforms

__all__ = [
    "GREEDY_TEMPERATURE",
    "DenseLaw",
    "Law",
    "LogitsProcessor",
    "PointLaw",
    "Processing",
    "Purpose",
    "SamplingParams",
    "Streams",
    "TokenLogprob",
    "UnusableLogits",
    "check_uniforms",
    "law_from_logits",
    "overlap",
    "stack_laws",
    "token_logprobs",
    "total_variation",
]
