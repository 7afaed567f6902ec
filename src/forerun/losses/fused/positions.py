"""The positions that a mask leaves, cut into runs."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool
from torch import Tensor


@final
class Positions:
    """A run of valid positions of a batch: a slice of it where nothing is masked, a list of places otherwise."""

    def __init__(self, places: slice | Tensor, count: int) -> None:
        self._places = places
        self.count = count

    @classmethod
    def valid(cls, mask: Bool[Tensor, " positions"] | None, total: int) -> Positions:
        """All of `total` positions that the mask leaves."""
        if mask is None or bool(mask.all()):
            return cls(slice(0, total), total)
        places = mask.nonzero()[:, 0]
        return cls(places, len(places))

    def run(self, start: int, stop: int) -> Positions:
        """The positions numbered `start` to `stop` of this run; fewer where it ends before."""
        stop = min(stop, self.count)
        if isinstance(self._places, Tensor):
            return Positions(self._places[start:stop], stop - start)
        return Positions(slice(self._places.start + start, self._places.start + stop), stop - start)

    def read(self, values: Tensor) -> Tensor:
        """Rows of `values` at these positions; not a copy where they are a slice."""
        return values[self._places]

    def write(self, values: Tensor, new: Tensor) -> None:
        """Replace the rows of `values` at these positions."""
        values[self._places] = new.to(values.dtype)
