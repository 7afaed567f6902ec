"""Mutated copies of the package's own functions, made from their source text."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification import Outcome, Proposal, Rule, Truncation


def mutated(function: Callable[..., Any], old: str, new: str, **names: object) -> Callable[..., Any]:
    """The function with one piece of its source replaced, and ``names`` in place of what its module holds.

    The piece must occur exactly once: a mutation that no longer applies is an error, not a pass.
    """
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise AssertionError(f"{old!r} occurs {source.count(old)} times in {function.__name__}: renew this mutation")
    namespace = {**vars(inspect.getmodule(function)), **names}
    exec(source.replace(old, new), namespace)
    copy: Callable[..., Any] = namespace[function.__name__]
    return copy


@final
class FunctionRule(Rule):
    """Any function with the signature of ``token_level`` as a rule."""

    def __init__(self, function: Callable[..., Outcome]) -> None:
        """Stores the function."""
        self._function = function

    @property
    def name(self) -> str:
        """Not for records."""
        return "mutant"

    @property
    def exact(self) -> bool:
        """That is what the tests find out."""
        return False

    @property
    def needs_draft_law(self) -> bool:
        """Unknown, so yes."""
        return True

    @property
    def truncation(self) -> Truncation:
        """The stricter one."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Calls the function."""
        return self._function(target, proposal, uniforms=uniforms)
