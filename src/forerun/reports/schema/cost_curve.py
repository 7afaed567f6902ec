"""What rounds cost on one machine, and how many tokens they must emit to pay."""

from typing import Annotated, final

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from forerun.reports.schema.record import RECORD


@final
class CostPoint(BaseModel):
    """What a round costs at one horizon.

    Attributes:
        horizon: tokens drafted.
        draft_seconds: proposing them.
        verify_seconds: the target's pass over them and the last committed token.
    """

    model_config = RECORD

    horizon: NonNegativeInt
    draft_seconds: NonNegativeFloat
    verify_seconds: PositiveFloat


@final
class CostCurve(BaseModel):
    """What rounds cost on this machine, against a plain decoding step.

    Attributes:
        plain_seconds: one plain decoding step.
        context_length: tokens in the cache when it was measured.
        num_repeats: measurements behind each number, which is their median.
        points: one for each horizon measured, in rising order.
    """

    model_config = RECORD

    plain_seconds: PositiveFloat
    context_length: NonNegativeInt
    num_repeats: PositiveInt
    points: Annotated[tuple[CostPoint, ...], Field(min_length=1)]

    def break_even_tau(self, point: CostPoint) -> float:
        """Tokens a round at this point must emit to be as fast as plain decoding: its cost in plain steps.

        break-even tau = (draft seconds + verify seconds) / plain seconds
        """
        return (point.draft_seconds + point.verify_seconds) / self.plain_seconds

    @model_validator(mode="after")
    def _rising(self) -> "CostCurve":
        horizons = [point.horizon for point in self.points]
        if horizons != sorted(set(horizons)):
            raise ValueError(f"horizons of the cost curve must rise, not {horizons}")
        return self
