"""The result of a demonstration run."""

from typing import Literal, final, get_args

from pydantic import AwareDatetime, BaseModel, NonNegativeInt, PositiveInt, model_validator

from forerun.reports.schema.arm_result import ArmResult
from forerun.reports.schema.cost_curve import CostCurve
from forerun.reports.schema.provenance import Artifact, Machine
from forerun.reports.schema.record import RECORD, Name, Task
from forerun.reports.schema.trace import Trace


@final
class DemoResult(BaseModel):
    """Everything one demonstration run measured, and what is needed to run it again.

    Attributes:
        format: names this layout.
        forerun_version: of the package that measured.
        commit: of the source tree it ran from; None outside one.
        created: when, with a time zone.
        command: what was typed.
        quick: whether this was the short version of the run.
        machine: where.
        target: the model whose law is kept.
        drafter: the model that proposes.
        seeds: one for each repetition.
        max_new_tokens: cap on an answer's length.
        runs: every arm on every task at every temperature; arms are shown in the order in which they come first.
        traces: answers worth looking at.
        cost_curve: what rounds cost on this machine; None when not measured.
    """

    model_config = RECORD

    format: Literal["forerun-demo-1"] = "forerun-demo-1"
    forerun_version: Name
    commit: Name | None
    created: AwareDatetime
    command: Name
    quick: bool
    machine: Machine
    target: Artifact
    drafter: Artifact
    seeds: tuple[NonNegativeInt, ...]
    max_new_tokens: PositiveInt
    runs: tuple[ArmResult, ...]
    traces: tuple[Trace, ...]
    cost_curve: CostCurve | None

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Temperatures measured, lowest first."""
        return tuple(sorted({run.temperature for run in self.runs}))

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms in the order in which they first appear."""
        return tuple(dict.fromkeys([run.arm for run in self.runs] + [trace.arm for trace in self.traces]))

    def by_task_at(self, temperature: float) -> tuple[tuple[Task, tuple[ArmResult, ...]], ...]:
        """Runs at one temperature, task by task, each in the order of the arms."""
        runs = sorted(
            (run for run in self.runs if run.temperature == temperature), key=lambda run: self.arms.index(run.arm)
        )
        tasks: tuple[Task, ...] = get_args(Task)
        grouped = ((task, tuple(run for run in runs if run.task == task)) for task in tasks)
        return tuple((task, group) for task, group in grouped if group)

    def overall_at(self, temperature: float) -> tuple[ArmResult, ...]:
        """Runs at one temperature over all prompts together."""
        return dict(self.by_task_at(temperature)).get("all", ())

    @model_validator(mode="after")
    def _runs_differ(self) -> "DemoResult":
        seen: set[tuple[str, str, float]] = set()
        for run in self.runs:
            key = (run.arm, run.task, run.temperature)
            if key in seen:
                raise ValueError(f"arm {run.arm!r} on task {run.task!r} at temperature {run.temperature} appears twice")
            seen.add(key)
        return self
