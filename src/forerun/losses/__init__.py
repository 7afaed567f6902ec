"""Training objectives and teacher-forced metrics: pure functions of tensors, one value per position.

Every loss has one contract. It takes the target's law as log-probabilities (or the data token) and the drafter's raw
logits, vocabulary last, any leading axes. It returns one value per position, in float32 (float64 if an input is
float64). Gradients reach the draft logits only. Losses of a whole block take the positions on the axis before the
vocabulary and a mask of valid ones; they too return one value per position, such that their mean over the valid
positions is the loss. Reduction is one function (`masked_sum`); position weights and schedules are separate pure
functions; nothing here knows about models, devices, optimisers or data.

An `Objective` is one of these losses with its settings, under the one signature that training calls: blocks and the
moment of the run in, one value per position out. What the moment holds beyond the step (acceptance by position, how
settled it is) was measured over the whole batch, so no objective has a state of its own.

A pruned draft vocabulary is expressed by shorter rows: `draft_rows` gathers the target's log-probabilities at the draft
vocabulary's ids *without renormalising*, and each docstring says what the mass left outside contributes.
"""

from forerun.losses._inputs import LOG_RATIO_FLOOR
from forerun.losses.acceptance import acceptance, token_acceptance
from forerun.losses.acceptance_history import AcceptanceHistory
from forerun.losses.acceptance_length import acceptance_length_bound, expected_acceptance_length
from forerun.losses.block_verification import BlockVerification, block_acceptance_length, block_verification
from forerun.losses.candidates import candidate_rows, top_candidates
from forerun.losses.confidence import confidence_loss
from forerun.losses.cross_entropy import ArgmaxCrossEntropy, CrossEntropy, argmax_cross_entropy, cross_entropy
from forerun.losses.d_pace import DPace, d_pace
from forerun.losses.divergence import Divergence
from forerun.losses.draft_opd import DraftOPD, draft_opd
from forerun.losses.draft_vocabulary import OUTSIDE, draft_labels, draft_rows, outside_mass
from forerun.losses.dspark import DSpark, ce_l1, dspark
from forerun.losses.end_to_end import EndToEndTV, end_to_end_tv
from forerun.losses.first_error import SpecAUF, agreed_prefix, first_error, until_first_error
from forerun.losses.jensen_shannon import JensenShannon, jensen_shannon
from forerun.losses.kullback_leibler import ForwardKL, ReverseKL, forward_kl, reverse_kl
from forerun.losses.left_to_right import LeftToRight, chain_likelihood, left_to_right
from forerun.losses.likelihood_acceptance import LKAlpha, LKLambda, lk_alpha, lk_lambda
from forerun.losses.mixtures import TVPlusCE, TVPlusKL, tv_ce, tv_kl
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights
from forerun.losses.position_weights import bound_weights, exp_weights, geometric_weights, uniform_weights
from forerun.losses.reduction import MaskedSum, masked_sum
from forerun.losses.schedule import adaptive_beta, fixed_beta, linear_beta, reversed_beta
from forerun.losses.soft_cross_entropy import SoftCrossEntropy, soft_cross_entropy
from forerun.losses.total_variation import TotalVariation, total_variation
from forerun.losses.tvp import TVP, tvp

__all__ = [
    "LOG_RATIO_FLOOR",
    "OUTSIDE",
    "TVP",
    "AcceptanceHistory",
    "ArgmaxCrossEntropy",
    "BlockVerification",
    "Blocks",
    "CrossEntropy",
    "DPace",
    "DSpark",
    "Divergence",
    "DraftOPD",
    "EndToEndTV",
    "ForwardKL",
    "JensenShannon",
    "LKAlpha",
    "LKLambda",
    "LeftToRight",
    "MaskedSum",
    "Moment",
    "Need",
    "Objective",
    "PositionWeights",
    "ReverseKL",
    "SoftCrossEntropy",
    "SpecAUF",
    "TVPlusCE",
    "TVPlusKL",
    "TotalVariation",
    "acceptance",
    "acceptance_length_bound",
    "adaptive_beta",
    "agreed_prefix",
    "argmax_cross_entropy",
    "block_acceptance_length",
    "block_verification",
    "bound_weights",
    "candidate_rows",
    "ce_l1",
    "chain_likelihood",
    "confidence_loss",
    "cross_entropy",
    "d_pace",
    "draft_labels",
    "draft_opd",
    "draft_rows",
    "dspark",
    "end_to_end_tv",
    "exp_weights",
    "expected_acceptance_length",
    "first_error",
    "fixed_beta",
    "forward_kl",
    "geometric_weights",
    "jensen_shannon",
    "left_to_right",
    "linear_beta",
    "lk_alpha",
    "lk_lambda",
    "masked_sum",
    "outside_mass",
    "reverse_kl",
    "reversed_beta",
    "soft_cross_entropy",
    "token_acceptance",
    "top_candidates",
    "total_variation",
    "tv_ce",
    "tv_kl",
    "tvp",
    "uniform_weights",
    "until_first_error",
]
