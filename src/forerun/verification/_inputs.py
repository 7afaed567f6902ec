"""What every chain rule does to its inputs before its equation."""

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, check_uniforms
from forerun.errors import ForerunError
from forerun.verification.proposal import Proposal


def check_fit(target: Law, proposal: Proposal, uniforms: Float64[Tensor, " count"]) -> None:
    """Refuses parts that do not belong together.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.
    """
    assert proposal.was_read, "a proposal is read before it is verified"
    horizon = proposal.horizon
    if len(target) != horizon + 1 or target.vocab_size != proposal.law.vocab_size:
        raise ForerunError(
            f"target law has {len(target)} rows over {target.vocab_size} tokens; a proposal of {horizon} tokens over "
            f"{proposal.law.vocab_size} needs {horizon + 1} rows over the same tokens"
        )
    check_uniforms(uniforms, horizon)
