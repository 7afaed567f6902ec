"""Where a result comes from: the machine and the models."""

from typing import Annotated, final

from pydantic import BaseModel, Field, PositiveInt

from forerun.reports.schema.record import RECORD, Name


@final
class Machine(BaseModel):
    """Where the run was measured: a speed means nothing without it.

    Attributes:
        cpu: the processor's name.
        device: what the model ran on: "cpu", or an accelerator's name.
        cores: logical processors visible to the run.
        threads: threads that torch was allowed to use.
        torch_version: for example "2.13.0".
        dtype: number format of the target's weights, for example "float32".
    """

    model_config = RECORD

    cpu: Name
    device: Name
    cores: PositiveInt
    threads: PositiveInt
    torch_version: Name
    dtype: Name


@final
class Artifact(BaseModel):
    """A model that took part, named so that it can be found again.

    Attributes:
        name: what a user calls it.
        sha256: the target's fingerprint or the hash of the drafter's weights, as hexadecimal digits.
    """

    model_config = RECORD

    name: Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
