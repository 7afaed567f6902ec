"""Acceptance rules: which draft tokens stand, and from which law the next token comes.

Pure functions of laws and uniform numbers. The package knows nothing of models, drafters, caches or stop tokens.
"""

from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.residual import residual_law
from forerun.verification.rule import Rule, Truncation
from forerun.verification.token_level import TokenLevel, token_level

__all__ = ["Outcome", "Proposal", "Rule", "TokenLevel", "Truncation", "residual_law", "token_level"]
