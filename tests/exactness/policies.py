"""Horizon processes for the exactness matrix: legal ones, which must be exact, and illegal ones, which must not."""

from collections.abc import Hashable

from tests.exactness.enumerate import Horizons, PreDraft, Round, Tokens


def fixed(horizon: int) -> Horizons:
    """Always the same horizon."""
    return Horizons(lambda _: {horizon: 1.0})


def _remember_last(_: Hashable, told: Round) -> Hashable:
    return told


def _after_acceptance(info: PreDraft) -> dict[int, float]:
    """One more than was accepted last time, and a coin while nothing is known."""
    match info.memory:
        case Round(accepted=accepted):
            return {min(accepted + 1, 3): 1.0}
        case _:
            return {0: 0.25, 2: 0.75}


def _after_discarded(info: PreDraft) -> dict[int, float]:
    """Looks at what verification said of the last draft token, even if that token was discarded."""
    match info.memory:
        case Round(accept_probabilities=(*_, last)):
            return {3: 1.0} if last > 0.6 else {1: 0.5, 0: 0.5}
        case _:
            return {2: 1.0}


LEGAL: dict[str, Horizons] = {
    **{f"fixed-{horizon}": fixed(horizon) for horizon in range(4)},
    "epsilon-coin": Horizons(lambda _: {0: 0.0625, 1: 0.0625, 2: 0.8125, 3: 0.0625}),
    "last-token": Horizons(lambda info: {(3, 1, 0)[info.context[-1]]: 1.0}),
    "past-acceptance": Horizons(_after_acceptance, remember=_remember_last),
    "past-discarded-tokens": Horizons(_after_discarded, remember=_remember_last),
    "stop-on-draft-prefix": Horizons(lambda _: {3: 1.0}, stop=lambda _, drafted: drafted[-1:] == (1,)),
    "stop-on-context-and-prefix": Horizons(
        lambda info: {2 + info.context[-1] % 2: 1.0}, stop=lambda info, drafted: sum(info.context + drafted) % 3 == 2
    ),
}
"""Every way of choosing a length that does not look at the token it decides about."""


def _drop_if(token: int) -> Horizons:
    """Draws one token and drops it when it is ``token``."""
    return Horizons(lambda _: {1: 1.0}, cut=lambda _, drafted: 0 if drafted[-1] == token else 1)


def _longest_ending_in_one(_: PreDraft, drafted: Tokens) -> int:
    return max((length for length in range(1, 4) if drafted[length - 1] == 1), default=0)


ILLEGAL: dict[str, Horizons] = {
    "drop-the-token-seen": _drop_if(0),
    "drop-the-second-token-seen": Horizons(lambda _: {2: 1.0}, cut=lambda _, drafted: 1 + drafted[1]),
    "best-prefix-afterwards": Horizons(lambda _: {3: 1.0}, cut=_longest_ending_in_one),
}
"""Lengths chosen after looking at the tokens concerned (for two tokens, 0 and 1)."""
