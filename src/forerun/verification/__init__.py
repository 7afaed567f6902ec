"""Acceptance rules: which draft tokens stand, and from which law the next token comes.

Pure functions of laws and uniform numbers. The package knows nothing of models, drafters, caches or stop tokens.
"""

from forerun.verification.agreement import Agreement, agreement
from forerun.verification.block import BlockVerification, block_verification
from forerun.verification.candidates import Candidates
from forerun.verification.exclusion import excluding
from forerun.verification.greedy import Greedy, greedy
from forerun.verification.lenient import Lenient, lenient
from forerun.verification.multi_round import multi_round
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.residual import residual_law
from forerun.verification.rule import Rule, Truncation
from forerun.verification.target_only import TargetOnly, target_only
from forerun.verification.token_level import TokenLevel, token_level
from forerun.verification.tree_agreement import TreeAgreement, tree_agreement
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import ROOT, TreeProposal
from forerun.verification.tree_rule import TreeRule
from forerun.verification.tree_token_level import TreeTokenLevel
from forerun.verification.typical import MEDUSA_DELTA, MEDUSA_EPSILON, TypicalAcceptance, typical_acceptance

__all__ = [
    "MEDUSA_DELTA",
    "MEDUSA_EPSILON",
    "ROOT",
    "Agreement",
    "BlockVerification",
    "Candidates",
    "Greedy",
    "Lenient",
    "Outcome",
    "Proposal",
    "Rule",
    "TargetOnly",
    "TokenLevel",
    "TreeAgreement",
    "TreeOutcome",
    "TreeProposal",
    "TreeRule",
    "TreeTokenLevel",
    "Truncation",
    "TypicalAcceptance",
    "agreement",
    "block_verification",
    "excluding",
    "greedy",
    "lenient",
    "multi_round",
    "residual_law",
    "target_only",
    "token_level",
    "tree_agreement",
    "typical_acceptance",
]
