"""Small table models for exactness tests, and the processing of logits once more in plain Python."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import final

import torch

from forerun.distributions import DenseLaw, Law, PointLaw, SamplingParams, law_from_logits
from tests.exactness.enumerate import Tokens


@final
class Table:
    """A next-token law for each value of the last ``order`` tokens; a model in the sense of ``enumerate``."""

    def __init__(self, laws: Mapping[Tokens, Law], order: int) -> None:
        """Stores the table."""
        self._laws = laws
        self._order = order

    def __call__(self, context: Tokens) -> Law:
        """The row of a context."""
        return self._laws[context[len(context) - self._order :]]


def constant(probs: Sequence[float]) -> Table:
    """The same law after every context."""
    return Table({(): DenseLaw(torch.tensor([probs], dtype=torch.float64))}, 0)


def always(token: int, vocab_size: int) -> Table:
    """A deterministic drafter: one token after every context."""
    return Table({(): PointLaw(torch.tensor([token]), vocab_size)}, 0)


def by_last_token(rows: Sequence[Sequence[float]]) -> Table:
    """Row t is the law after token t."""
    return Table({(last,): DenseLaw(torch.tensor([row], dtype=torch.float64)) for last, row in enumerate(rows)}, 1)


LogitTable = dict[Tokens, list[float]]


def random_logits(seed: int, vocab_size: int, order: int) -> LogitTable:
    """Logits for every context of ``order`` tokens.

    A spread of 1.2 makes targets and drafts disagree clearly; each row is shifted, which must not matter.
    """
    numbers = random.Random(seed)
    return {
        state: [shift + numbers.gauss(0.0, 1.2) for _ in range(vocab_size)]
        for state in product(range(vocab_size), repeat=order)
        for shift in (numbers.gauss(0.0, 3.0),)
    }


def processed(logits: LogitTable, params: SamplingParams) -> Table:
    """The table after the package's own processing."""
    order = len(next(iter(logits)))
    rows = {state: torch.tensor([row], dtype=torch.float64) for state, row in logits.items()}
    return Table({state: law_from_logits(row, params) for state, row in rows.items()}, order)


def plain_row(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Processing by definition, one token at a time: the oracle for ``law_from_logits``."""
    tokens = range(len(logits))
    logits = [logit + dict(params.logit_bias).get(token, 0.0) for token, logit in enumerate(logits)]
    if params.temperature < 1e-5:
        best = max(tokens, key=lambda token: (logits[token], -token))
        return [1.0 if token == best else 0.0 for token in tokens]
    weights = [math.exp((logit - max(logits)) / params.temperature) for logit in logits]
    if params.top_k is not None:
        weights = [w if sum(other > w for other in weights) < params.top_k else 0.0 for w in weights]
    total = sum(weights)
    weights = [w if sum(other for other in weights if other > w) < params.top_p * total else 0.0 for w in weights]
    weights = [w if w >= params.min_p * max(weights) else 0.0 for w in weights]
    probs = [w / sum(weights) for w in weights]
    if params.typical_p < 1.0:
        probs = most_typical(probs, params.typical_p)
    return probs


def most_typical(probs: Sequence[float], mass: float) -> list[float]:
    """Locally typical sampling: each token stays unless the more typical ones reach the mass without it."""
    entropy = -math.fsum(prob * math.log(prob) for prob in probs if prob > 0.0)
    oddness = [abs(-math.log(prob) - entropy) if prob > 0.0 else math.inf for prob in probs]
    better = [math.fsum(p for p, o in zip(probs, oddness, strict=True) if o < own) for own in oddness]
    kept = [prob if before < mass else 0.0 for prob, before in zip(probs, better, strict=True)]
    return [prob / math.fsum(kept) for prob in kept]


def plain_model(logits: LogitTable, params: SamplingParams) -> Callable[[Tokens], list[float]]:
    """The same table through the oracle: for ``chain_law``."""
    order = len(next(iter(logits)))
    rows = {state: plain_row(row, params) for state, row in logits.items()}
    return lambda context: rows[context[len(context) - order :]]
