"""Counts how often the host would wait for an accelerator, on a machine that has none.

A tensor counts as the device's unless it is known to come from the host: made from numbers, or computed from such
tensors alone. Whatever a model, its cache and its logits took part in is the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

_READING = frozenset(
    {
        "item",
        "tolist",
        "numpy",
        "cpu",
        "nonzero",
        "argwhere",
        "masked_select",
        "unique",
        "equal",
        "__int__",
        "__float__",
        "__bool__",
        "__index__",
        "__contains__",
    }
)
"""Functions that hand numbers of a tensor to the host, or whose result has a size that depends on them."""

_INDEXING = frozenset({"__getitem__", "__setitem__"})


@final
class DeviceReads(TorchFunctionMode):
    """Within this context, `count` grows with every read of a tensor of the device.

    Args:
        host: tensors that the host made before.

    Example:
        >>> logits = torch.zeros(3)  # made outside: a model's, say
        >>> with DeviceReads() as reads:
        ...     best = int(logits.argmax()) + int(torch.tensor([1, 2]).sum())
        ...     row = logits[logits.argmax()]  # an index without a dimension is fetched
        >>> reads.count
        2
    """

    def __init__(self, host: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.count = 0
        self._host = WeakIdKeyDictionary()
        for tensor in host:
            self._host[tensor] = True

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Every call of torch passes here."""
        given = kwargs or {}
        from_device = "device" in given or any(tensor not in self._host for tensor in _tensors((args, given)))
        reads = from_device and (function.__name__ in _READING or _fetches_an_index(function, args))
        self.count += reads
        result = function(*args, **given)
        if reads or not from_device:
            for tensor in _tensors(result):
                self._host[tensor] = True
        return result


def _fetches_an_index(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """A mask's result has a size that depends on it, and an index without a dimension becomes a number of the host."""
    if function.__name__ not in _INDEXING:
        return False
    return any(index.dtype == torch.bool or index.ndim == 0 for index in _tensors(args[1]))


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    match value:
        case Tensor():
            yield value
        case dict():
            yield from _tensors(tuple(value.values()))
        case list() | tuple():
            for each in value:
                yield from _tensors(each)
