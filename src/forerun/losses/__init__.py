"""Training objectives and teacher-forced metrics: pure functions of tensors, one value per position.

Every loss has one contract. It takes the target's law as log-probabilities (or the data token) and the drafter's raw
logits, vocabulary last, any leading axes. It returns one value per position, in float32 (float64 if an input is
float64). Gradients reach the draft logits only. Reduction is one function (`masked_sum`); position weights and
schedules are separate pure functions; nothing here knows about models, devices, optimisers or data.

A pruned draft vocabulary is expressed by shorter rows: `draft_rows` gathers the target's log-probabilities at the draft
vocabulary's ids *without renormalising*, and each docstring says what the mass left outside contributes.
"""

from forerun.losses.acceptance import acceptance, token_acceptance
from forerun.losses.acceptance_length import acceptance_length_bound, expected_acceptance_length
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.draft_vocabulary import OUTSIDE, draft_labels, draft_rows, outside_mass
from forerun.losses.kullback_leibler import forward_kl
from forerun.losses.position_weights import bound_weights, exp_weights, uniform_weights
from forerun.losses.reduction import MaskedSum, masked_sum
from forerun.losses.schedule import fixed_beta, linear_beta, reversed_beta
from forerun.losses.total_variation import total_variation
from forerun.losses.tvp import LOG_RATIO_FLOOR, tvp

__all__ = [
    "LOG_RATIO_FLOOR",
    "OUTSIDE",
    "MaskedSum",
    "acceptance",
    "acceptance_length_bound",
    "bound_weights",
    "cross_entropy",
    "draft_labels",
    "draft_rows",
    "exp_weights",
    "expected_acceptance_length",
    "fixed_beta",
    "forward_kl",
    "linear_beta",
    "masked_sum",
    "outside_mass",
    "reversed_beta",
    "token_acceptance",
    "total_variation",
    "tvp",
    "uniform_weights",
]
