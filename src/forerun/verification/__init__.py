"""Acceptance rules: which draft tokens stand, and from which law the next token comes.

Pure functions of laws and uniform numbers. The package knows nothing of models, drafters, caches or stop tokens.
"""

from forerun.verification.agreement import Agreement, agreement
from forerun.verification.block import BlockVerification, block_verification
from forerun.verification.greedy import Greedy, greedy
from forerun.verification.lenient import Lenient, lenient
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.residual import residual_law
from forerun.verification.rule import Rule, Truncation
from forerun.verification.token_level import TokenLevel, token_level
from forerun.verification.typical import MEDUSA_DELTA, MEDUSA_EPSILON, TypicalAcceptance, typical_acceptance

__all__ = [
    "MEDUSA_DELTA",
    "MEDUSA_EPSILON",
    "Agreement",
    "BlockVerification",
    "Greedy",
    "Lenient",
    "Outcome",
    "Proposal",
    "Rule",
    "TokenLevel",
    "Truncation",
    "TypicalAcceptance",
    "agreement",
    "block_verification",
    "greedy",
    "lenient",
    "residual_law",
    "token_level",
    "typical_acceptance",
]
