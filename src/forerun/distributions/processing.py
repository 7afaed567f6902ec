"""The one place where logits become a law."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from forerun.distributions.law import DenseLaw, Law, PointLaw
from forerun.distributions.params import SamplingParams
from forerun.errors import ForerunError

NUCLEUS_GUESS = 1024
"""How many of the largest logits top-p looks at before it sorts a whole row (ten times as slow at 49152 tokens)."""


def law_from_logits(logits: Float[Tensor, "rows vocab"], params: SamplingParams) -> Law:
    """The law of the next token under ``params``.

    Greedy: all mass on the largest logit, the lowest id among equals. Otherwise, in float32 (float64 stays):
    divide by the temperature; drop what lies below the ``top_k``-th largest; drop what lies below the smallest
    logit of the nucleus; drop what lies below ``min_p`` times the largest probability; softmax in float64.
    Top-p counts the mass that top-k left, min-p the peak. Every cut is by value, so tokens with equal logits stay or
    go together and the law does not depend on how tokens are numbered.

    Args:
        logits: Unnormalised log-probabilities; ``-inf`` forbids a token.
        params: The processing.

    Returns:
        ``PointLaw`` if ``params.greedy``, else ``DenseLaw``.

    Raises:
        ForerunError: A row holds NaN or plus infinity, or nothing but minus infinity.

    References:
        Fan et al. 2018, arXiv:1805.04833 (top-k); Holtzman et al. 2020, arXiv:1904.09751 (top-p);
        Nguyen et al. 2024, arXiv:2407.01082 (min-p). The reference code is transformers'
        ``generation/logits_process.py``, which differs in one case: where several tokens tie at the edge of the
        nucleus it keeps some of them by sort order, here all stay.
    """
    if params.greedy:
        _check_peaks(logits.amax(-1))
        return PointLaw(logits.argmax(-1), logits.shape[-1])  # torch: the first index among equals
    scaled = logits if logits.dtype == torch.float64 else logits.float()
    if params.temperature != 1.0:
        scaled = scaled / params.temperature
    peaks = scaled.amax(-1, keepdim=True)  # (rows, 1)
    _check_peaks(peaks[:, 0])
    if params.top_k is not None and params.top_k < scaled.shape[-1]:
        kth_largest = scaled.topk(params.top_k, sorted=True).values[:, -1:]
        scaled = scaled.masked_fill(scaled < kth_largest, -math.inf)
    if params.top_p < 1.0:
        scaled = scaled.masked_fill(scaled < _nucleus_edge(scaled, params.top_p), -math.inf)
    if params.min_p > 0.0:
        scaled = scaled.masked_fill(scaled < peaks + math.log(params.min_p), -math.inf)
    return DenseLaw.from_log_weights(scaled)


def _check_peaks(peaks: Float[Tensor, " rows"]) -> None:
    """The largest entry of a row is finite unless the row has NaN, plus infinity, or only minus infinity."""
    usable = peaks.isfinite()
    if not bool(usable.all()):
        row = int(usable.logical_not().nonzero()[0, 0])
        raise ForerunError(
            f"logits of row {row} have largest entry {float(peaks[row])}; "
            "a row needs a finite one, and no NaN or plus infinity: check the model and its number type"
        )


def _nucleus_edge(scaled: Float[Tensor, "rows vocab"], top_p: float) -> Float[Tensor, "rows 1"]:
    """The smallest logit of the smallest set of largest logits whose mass reaches ``top_p``."""
    log_totals = scaled.logsumexp(-1, keepdim=True)
    for width in (min(NUCLEUS_GUESS, scaled.shape[-1]), scaled.shape[-1]):
        largest = scaled.topk(width, sorted=True).values
        mass: Float64[Tensor, "rows width"] = (largest - log_totals).double().exp()
        before = mass.cumsum(-1) - mass  # of strictly better ranked tokens
        sizes = (before < top_p).sum(-1, keepdim=True)
        if int(sizes.max()) < width:
            break
    return largest.gather(-1, sizes - 1)
