"""Which calls have their annotations checked: the first ones of every function in every test.

A check costs several times what a small function does, and what a function is handed keeps its kind through a test. The
checks are also made ready late, when a function is first called: most tests call few of the package's functions.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jaxtyping

CHECKED_CALLS = 10
"""Of each function, in each test."""

Anything = TypeVar("Anything", bound=Callable[..., Any])
Decorator = Callable[[Anything], Anything]

_check_all = jaxtyping.jaxtyped
_tests_begun = 0


def begin_test() -> None:
    """Every function's next calls are checked again."""
    global _tests_begun
    _tests_begun += 1


def check_first_calls(*, typechecker: Callable[..., Any]) -> Decorator[Any]:
    """Stands in for ``jaxtyping.jaxtyped``, which the import hook puts before every function and class."""
    checks = _check_all(typechecker=typechecker)

    def decorate(item: Any) -> Any:
        if inspect.isfunction(item):
            return _first_calls(item, checks)
        if "__init__" in vars(item):  # of a dataclass; others carry their decorator themselves
            plain = item.__init__
            checks(item)
            checked = item.__init__
            if checked is not plain:
                item.__init__ = _first_calls(plain, lambda _: checked)
        return item

    return decorate


def _first_calls(function: Callable[..., Any], checks: Decorator[Any]) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None
    test = -1
    left = 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, test, left
        if test != _tests_begun:
            test, left = _tests_begun, CHECKED_CALLS
        if left == 0:
            return function(*args, **kwargs)
        left -= 1
        if checked is None:
            checked = checks(function)
        return checked(*args, **kwargs)

    return call
