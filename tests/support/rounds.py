"""Rounds without models: a world that accepts drafts with a given probability and plays any horizon policy."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from forerun.horizons import (
    Choice,
    CostTable,
    DraftStatistics,
    DrawnToken,
    HorizonPolicy,
    RoundContext,
    RoundFeedback,
    StopRule,
)

TABLE = CostTable.from_profile([(k, 1.0 + 0.2 * k) for k in range(17)])


@dataclass(frozen=True)
class World:
    """How rounds go.

    Attributes:
        stands: probability that a draft is accepted, given those before it, by round and place from 1.
        limit: of a round.
        seconds: of a round, by horizon.
        ends: probability that an answer's end cuts the round.
    """

    stands: Callable[[int, int], float] = lambda _, __: 0.7
    limit: Callable[[random.Random], int] = lambda rng: rng.randrange(9)
    seconds: Callable[[int], float] = lambda drafted: 1.0 + 0.2 * drafted
    ends: float = 0.05


def play(policy: HorizonPolicy, rounds: int, *, seed: int, world: World | None = None) -> list[RoundFeedback]:
    """Rounds of a policy in a world; the same seed gives the same contexts, drafts and coins whatever it chooses."""
    world = World() if world is None else world
    told = []
    for index in range(rounds):
        rng = random.Random(f"{seed} {index}")
        now = context(
            limit=world.limit(rng), generated=1 + index, context_length=20 + index, target_entropy=rng.expovariate(1.5),
            target_top_prob=rng.random(), target_margin=rng.random(),
        )  # fmt: skip
        choice = policy.propose(now, uniform=rng.random())
        offered = [drawn_token(rng) for _ in range(17)]
        drawn = drawn_under(choice.stop, offered[: choice.horizon])
        bits = [rng.random() < world.stands(index, place) for place in range(1, 18)]
        accepted = bits.index(False) if False in bits else len(bits)
        told.append(
            feedback(
                choice, min(accepted, len(drawn)), now=now, drawn=drawn, seconds=world.seconds(len(drawn)),
                censored=rng.randrange(len(drawn) + 1) if rng.random() < world.ends else None,
            )
        )  # fmt: skip
        policy.observe(told[-1])
    return told


def drawn_under(stop: StopRule | None, offered: Sequence[DrawnToken]) -> tuple[DrawnToken, ...]:
    """The draft that comes of these tokens under a rule."""
    if stop is None:
        return tuple(offered)
    drawn: list[DrawnToken] = []
    for token in offered:
        if not stop.draws(drawn, token.law):
            break
        drawn.append(token)
        if not stop.continues(drawn):
            break
    return tuple(drawn[: stop.submits(drawn)])


def drawn_token(rng: random.Random) -> DrawnToken:
    """From a law with a likely token, another one, and a long tail."""
    top = rng.uniform(0.2, 1.0)
    second = (1.0 - top) * rng.uniform(0.0, min(1.0, top / (1.0 - top)))
    law = DraftStatistics(entropy=4.0 * (1.0 - top), top_prob=top, margin=top - second)
    return DrawnToken(law, top if rng.random() < top else second / 2.0)


def context(limit: int = 8, **known: object) -> RoundContext:
    """Of a round in the middle of an answer, unless told otherwise."""
    plain = RoundContext(limit=limit, context_length=100, generated=50, temperature=1.0, target_entropy=1.0)
    return replace(plain, **known)  # type: ignore[arg-type]


def feedback(
    choice: Choice,
    accepted: int,
    *,
    now: RoundContext | None = None,
    drafted: int | None = None,
    drawn: tuple[DrawnToken, ...] = (),
    seconds: float = 1.0,
    censored: int | None = None,
) -> RoundFeedback:
    """What a policy is told; the draft is as long as `drawn`, or `drafted`, or the choice's horizon."""
    length = len(drawn) if drawn or (choice.stop is not None and drafted is None) else drafted
    length = choice.horizon if length is None else length
    return RoundFeedback(
        choice=choice,
        context=context(len(choice.propensities)) if now is None else now,
        accepted=accepted,
        accept_probabilities=(0.7,) * length,
        overlaps=(0.7,) * length,
        seconds=seconds,
        censored=censored,
        drawn=drawn,
    )
