"""The one place where logits become a law; knows nothing of the tokens before a row."""

import math
from typing import final

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from forerun.distributions.law import DenseLaw, Law, PointLaw
from forerun.distributions.params import SamplingParams
from forerun.errors import ForerunError

NUCLEUS_GUESS = 1024
"""How many of the largest logits top-p ranks at first; a flatter law than this holds takes a second, longer look."""


@final
class UnusableLogits(ForerunError):
    """A row of logits is no law: it holds NaN or plus infinity, or nothing but minus infinity.

    Attributes:
        row: The first such row.
        peak: Its largest entry.
    """

    def __init__(self, row: int, peak: float) -> None:
        """Says which row, and its largest entry."""
        super().__init__(
            f"logits of row {row} have largest entry {peak}; a row needs a finite one, and no NaN or plus infinity: "
            "check the model and its number type, and what bias, bad words and processors forbid"
        )
        self.row = row
        self.peak = peak


def law_from_logits(logits: Float[Tensor, "rows vocab"], params: SamplingParams) -> Law:
    """The law of the next token under ``params``, for steps that look at nothing but the row.

    Greedy: all mass on the largest logit plus bias, the lowest id among equals. Otherwise, in float32 (float64
    stays): add the bias; divide by the temperature; drop what lies below the ``top_k``-th largest; drop what lies
    below the smallest logit of the nucleus; drop what lies below ``min_p`` times the largest probability; keep the
    most typical tokens; softmax in float64. Top-p and typical-p count the mass that the cuts before them left, min-p
    the peak. Every cut is by value, so tokens with equal logits stay or go together and the law does not depend on
    how tokens are numbered.

    A token v is the more typical the smaller ``|-log prob(v) - entropy|`` is; the smallest set of most typical tokens
    whose mass reaches ``typical_p`` stays.

    Args:
        logits: Unnormalised log-probabilities; ``-inf`` forbids a token.
        params: The processing; with penalties, bad words and the like, see ``Processing``.

    Returns:
        ``PointLaw`` if ``params.greedy``, else ``DenseLaw``.

    Raises:
        UnusableLogits: A row holds NaN or plus infinity, or nothing but minus infinity.
        ForerunError: A step of ``params`` looks at the tokens before the row, or a biased id is not in the vocabulary.

    Example:
        >>> logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
        >>> law_from_logits(logits, SamplingParams(top_p=0.5)).dense().tolist()
        [[1.0, 0.0, 0.0]]

    References:
        Fan et al. 2018, arXiv:1805.04833 (top-k); Holtzman et al. 2020, arXiv:1904.09751 (top-p);
        Nguyen et al. 2024, arXiv:2407.01082 (min-p); Meister et al. 2023, arXiv:2202.00666
        (typical-p). The reference code is transformers' ``generation/logits_process.py``, which differs in one case:
        where several tokens tie at the edge of the nucleus it keeps some of them by sort order, here all stay.
    """
    tempered = _tempered(logits, params)
    peaks = tempered.amax(-1, keepdim=True)  # (rows, 1)
    _check_peaks(peaks[:, 0])
    return _truncated(tempered, peaks, params)


def law_without_waiting(
    logits: Float[Tensor, "rows vocab"], params: SamplingParams
) -> tuple[Law, Bool[Tensor, " rows"]]:
    """``law_from_logits`` that leaves it to the caller to find out, later, which rows are laws.

    Nothing is read from the device, so the host need not wait for it; a row that is no law stands in as a uniform one.

    Args:
        logits: As there.
        params: As there; their bias must have been checked against the vocabulary.

    Returns:
        The laws, and which rows are any.
    """
    tempered = _tempered(logits, params)
    peaks = tempered.amax(-1, keepdim=True)  # (rows, 1)
    usable = peaks.isfinite()
    return _truncated(tempered.where(usable, 0.0), peaks.where(usable, 0.0), params), usable[:, 0]


def _tempered(logits: Float[Tensor, "rows vocab"], params: SamplingParams) -> Float[Tensor, "rows vocab"]:
    """Logits plus bias over temperature; greedy decoding leaves the temperature out."""
    if not params.row_only:
        raise ForerunError("penalties, bad words, min_new_tokens and processors look at earlier tokens; use Processing")
    if params.logit_bias:
        params.check_vocabulary(logits.shape[-1])
        logits = biased(logits, params)
    if params.greedy:
        return logits
    scaled = widened(logits)
    return scaled if params.temperature == 1.0 else scaled / params.temperature


def _truncated(scaled: Float[Tensor, "rows vocab"], peaks: Float[Tensor, "rows 1"], params: SamplingParams) -> Law:
    """The law of usable rows, whose largest entries are ``peaks``."""
    if params.greedy:
        return PointLaw.of_largest(scaled)
    if params.top_k is not None and params.top_k < scaled.shape[-1]:
        kth_largest = scaled.topk(params.top_k, sorted=True).values[:, -1:]
        scaled = scaled.masked_fill(scaled < kth_largest, -math.inf)
    if params.top_p < 1.0:
        scaled = scaled.masked_fill(scaled < _nucleus_edge(scaled, peaks, params), -math.inf)
    if params.min_p > 0.0:
        scaled = scaled.masked_fill(scaled < peaks + math.log(params.min_p), -math.inf)
    if params.typical_p < 1.0:
        scaled = _most_typical(scaled, params.typical_p)
    return DenseLaw.from_log_weights(scaled)


def widened(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """The number type in which logits are processed: float32, or float64 for float64."""
    return logits if logits.dtype == torch.float64 else logits.float()


def biased(logits: Float[Tensor, "rows vocab"], params: SamplingParams) -> Float[Tensor, "rows vocab"]:
    """Logits plus ``params.logit_bias``, whose ids must lie in the vocabulary."""
    token_ids, values = zip(*params.bias_pairs, strict=True)
    wide = widened(logits)
    bias = torch.tensor(values, dtype=wide.dtype, device=wide.device)
    return wide.index_add(-1, torch.tensor(token_ids, device=wide.device), bias.expand(len(wide), -1))


def _check_peaks(peaks: Float[Tensor, " rows"]) -> None:
    """The largest entry of a row is finite unless the row has NaN, plus infinity, or only minus infinity."""
    usable = peaks.isfinite()
    if not bool(usable.all()):
        row = int(usable.logical_not().nonzero()[0, 0])
        raise UnusableLogits(row, float(peaks[row]))


def _nucleus_edge(
    scaled: Float[Tensor, "rows vocab"], peaks: Float[Tensor, "rows 1"], params: SamplingParams
) -> Float[Tensor, "rows 1"]:
    """The smallest logit of the smallest set of largest logits whose mass reaches ``top_p``."""
    vocab_size = scaled.shape[-1]
    peak_probs = torch.softmax(scaled, -1).amax(-1, keepdim=True).double()
    # One more than top-k left always suffices, unless tokens tie with the last of them.
    width = _first_look(scaled, NUCLEUS_GUESS if params.top_k is None else params.top_k + 1)
    edge, found = _edge_among(scaled.topk(width, sorted=True).values, peaks, peak_probs, params.top_p, vocab_size)
    if not found:
        # Tokens below half of an equal share of 1 - top_p cannot matter: together they weigh less than 1 - top_p.
        floor = peaks + ((1.0 - params.top_p) / (2 * vocab_size) / peak_probs).log()
        width = int((scaled >= floor).sum(-1).max())
        edge, _ = _edge_among(scaled.topk(width, sorted=True).values, peaks, peak_probs, params.top_p, vocab_size)
    return edge


def _edge_among(
    largest: Float[Tensor, "rows width"],
    peaks: Float[Tensor, "rows 1"],
    peak_probs: Float64[Tensor, "rows 1"],
    top_p: float,
    vocab_size: int,
) -> tuple[Float[Tensor, "rows 1"], bool]:
    """The edge if it lies among the ``largest`` logits (sorted), and whether it surely does in every row."""
    return _last_needed(largest, (largest - peaks).double().exp() * peak_probs, top_p, vocab_size)


def _last_needed(
    ranked: Float[Tensor, "rows width"], mass: Float64[Tensor, "rows width"], share: float, vocab_size: int
) -> tuple[Float[Tensor, "rows 1"], bool]:
    """The value, best first, with which the running mass reaches ``share``, and whether it surely does."""
    before = mass.cumsum(-1) - mass  # of better ranked tokens
    sizes = (before < share).sum(-1, keepdim=True)
    width = ranked.shape[-1]
    return ranked.gather(-1, sizes - 1), width == vocab_size or int(sizes.max()) < width


def _first_look(values: Float[Tensor, "rows vocab"], guess: int) -> int:
    """How many entries of each row to rank at first.

    Ranking a whole row is slow on the CPU. An accelerator does it sooner than the host learns whether
    a part was enough.
    """
    vocab_size = values.shape[-1]
    return min(guess, vocab_size) if values.device.type == "cpu" else vocab_size


def _most_typical(scaled: Float[Tensor, "rows vocab"], typical_p: float) -> Float[Tensor, "rows vocab"]:
    """Minus infinity in place of all but the smallest typical set of mass ``typical_p``."""
    log_probs = torch.log_softmax(scaled.double(), -1)  # with dtype= in place of double() it is ten times slower
    probs = log_probs.exp()
    distances = (log_probs + torch.special.entr(probs).sum(-1, keepdim=True)).abs()
    vocab_size = scaled.shape[-1]
    for width in (_first_look(scaled, NUCLEUS_GUESS), vocab_size):
        nearest, token_ids = distances.topk(width, largest=False, sorted=True)
        edge, found = _last_needed(nearest, probs.gather(-1, token_ids), typical_p, vocab_size)
        if found:
            break
    return scaled.masked_fill(distances > edge, -math.inf)
