"""Ways of computing that only an accelerator takes, on the CPU."""

import pytest
from torch import Tensor

from forerun.distributions import processing
from forerun.models.rectangle import Rectangle


def compute_as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed in a way that lets the host wait for sizes that depend on numbers."""
    wanted = Rectangle.wanted

    def places(rectangle: Rectangle, num_logits: int | None, *, may_wait: bool) -> int | Tensor:
        return wanted(rectangle, num_logits, may_wait=False)

    monkeypatch.setattr(Rectangle, "wanted", places)
    monkeypatch.setattr(processing, "_first_look", lambda values, guess: values.shape[-1])
