"""What all stored records have in common."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

RECORD = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
"""Unknown fields, wrong types and non-finite numbers are errors; a record does not change."""

PLAIN = "plain"
"""Name of the arm that decodes without a drafter, which every other arm is compared with."""

Task = Literal["math", "code", "chat", "all"]
"""Where prompts come from; "all" is every prompt of the run."""

Name = Annotated[str, Field(min_length=1)]
