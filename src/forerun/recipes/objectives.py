"""Names of training objectives."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from forerun import losses
from forerun.errors import ForerunError
from forerun.losses import TVP, Objective

OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "tvp": TVP,
    "tvp-from-quarter": lambda: TVP(beta=0.25),
    "tvp-from-half": lambda: TVP(beta=0.5),
    "tvp-fixed-zero": lambda: TVP(schedule="fixed"),
    "tvp-fixed-half": lambda: TVP(schedule="fixed", beta=0.5),
    "tvp-reversed": lambda: TVP(schedule="reversed"),
    "tvp-adaptive": lambda: TVP(schedule="adaptive"),
    "tvp-top-16": lambda: TVP(candidates=16),
    "tv": losses.TotalVariation,
    "kl": losses.ForwardKL,
    "reverse-kl": losses.ReverseKL,
    "js": losses.JensenShannon,
    "ce": losses.CrossEntropy,
    "ce-argmax": losses.ArgmaxCrossEntropy,
    "eagle3": losses.SoftCrossEntropy,
    "tv+kl": losses.TVPlusKL,
    "tv+ce": losses.TVPlusCE,
    "lk": losses.LKLambda,
    "lk-token": lambda: losses.LKLambda(aggregate="token"),
    "lk-log": losses.LKAlpha,
    "bv": losses.BlockVerification,
    "e2e-tv": losses.EndToEndTV,
    "d-pace": losses.DPace,
    "spec-auf": losses.SpecAUF,
    "l2r": losses.LeftToRight,
    "dspark": losses.DSpark,
    "draft-opd": losses.DraftOPD,
}


def objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        ForerunError: unknown name; its neighbours are listed.
    """
    if name not in OBJECTIVES:
        near = difflib.get_close_matches(name, OBJECTIVES) or list(OBJECTIVES)
        raise ForerunError(f"unknown loss {name!r}; did you mean {', '.join(near)}?")
    return OBJECTIVES[name]()
