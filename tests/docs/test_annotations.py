"""What the guide says of the tests themselves: annotations are checked while they run, in each test anew."""

import jaxtyping
import pytest
import torch

from forerun.distributions import SamplingParams, law_from_logits
from tests.support.annotations import CHECKED_CALLS


@pytest.mark.parametrize("earlier", [CHECKED_CALLS - 1, CHECKED_CALLS - 1], ids=["in one test", "in the next"])
def test_wrong_shapes_are_refused(earlier: int) -> None:
    """Catches an import hook that decorates nothing, checks that stop too early, and ones that never start again."""
    for _ in range(earlier):
        law_from_logits(torch.zeros(2, 3), SamplingParams())
    with pytest.raises(jaxtyping.TypeCheckError, match="law_from_logits"):
        law_from_logits(torch.zeros(3), SamplingParams())


def test_wrong_fields_are_refused() -> None:
    """Catches dataclasses that are left out: their constructors are generated, and the hook does not see them."""
    with pytest.raises(jaxtyping.TypeCheckError, match="SamplingParams"):
        SamplingParams(top_k="three")  # type: ignore[arg-type]
