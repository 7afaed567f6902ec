"""Pearson's chi-square test, for the tests that draw."""

from collections.abc import Sequence

import torch


def chi_square_p_value(counts: Sequence[int], probs: Sequence[float]) -> float:
    """Probability of counts at least this far from their expectation, if ``probs`` is the law.

    Tokens of probability zero must not have been counted, and do not add a degree of freedom.
    """
    total = sum(counts)
    assert all(count == 0 for count, prob in zip(counts, probs, strict=True) if prob == 0.0), counts
    terms = [(count - total * prob) ** 2 / (total * prob) for count, prob in zip(counts, probs, strict=True) if prob]
    freedom = torch.tensor((len(terms) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(sum(terms) / 2, dtype=torch.float64)))
