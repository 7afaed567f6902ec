"""Ways of computing that only an accelerator takes, on the CPU."""

import pytest
from torch import Tensor, nn

from forerun.distributions import processing
from forerun.models import TransformersTarget
from forerun.models.rectangle import Rectangle


def compute_as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed in a way that lets the host wait for sizes that depend on numbers."""
    wanted = Rectangle.wanted

    def places(rectangle: Rectangle, num_logits: int | None, *, may_wait: bool) -> int | Tensor:
        return wanted(rectangle, num_logits, may_wait=False)

    monkeypatch.setattr(Rectangle, "wanted", places)
    monkeypatch.setattr(processing, "_first_look", lambda values, guess: values.shape[-1])


def without_numbers(target: TransformersTarget) -> TransformersTarget:
    """The target on torch's meta device: whatever fetches a number raises, and so does a tensor left on the host."""
    model: nn.Module = target.model
    model.to("meta")
    target.embedding_weight = target.embedding_weight.to("meta")
    target.head_weight = target.head_weight.to("meta")
    return target
