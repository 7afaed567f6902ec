"""A law without some of its tokens."""

from jaxtyping import Int64
from torch import Tensor

from forerun.distributions import DenseLaw, Law


def excluding(law: Law, token_ids: Int64[Tensor, " excluded"]) -> Law:
    """The law given that none of the tokens comes: their probabilities set to 0, the others divided by what is left.

    Where nothing is left the condition has probability zero; the answer is defined to be the law itself.

    Args:
        law: One row.
        token_ids: Tokens that cannot come.

    Example:
        >>> import torch
        >>> law = DenseLaw(torch.tensor([[0.5, 0.25, 0.25]]))
        >>> excluding(law, torch.tensor([0])).dense().tolist()
        [[0.0, 0.5, 0.5]]
    """
    left = law.dense().index_fill(-1, token_ids.to(law.device), 0.0)
    total = left.sum(-1, keepdim=True)
    if not bool(total > 0.0):
        return law
    return DenseLaw(left / total)
