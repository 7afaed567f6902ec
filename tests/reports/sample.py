"""Made-up results for the tests of reports: every number is invented."""

from datetime import UTC, datetime

from forerun.reports.schema import (
    PLAIN,
    ArmResult,
    Artifact,
    CostCurve,
    CostPoint,
    DemoResult,
    Machine,
    PairedRatio,
    PhaseSeconds,
    Task,
    Trace,
    TraceRound,
)

FASTER = PairedRatio(estimate=1.3, low=1.2, high=1.4, num_pairs=8)
SLOWER = PairedRatio(estimate=0.8, low=0.7, high=0.9, num_pairs=8)
UNCLEAR = PairedRatio(estimate=1.05, low=0.95, high=1.15, num_pairs=8)


def arm_run(
    arm: str = "AMTP",
    *,
    task: Task = "all",
    temperature: float = 0.0,
    ratio: PairedRatio | None = FASTER,
    exact: bool = True,
) -> ArmResult:
    """100 rounds that emitted 250 tokens in 10 seconds, or 100 in 10 for plain decoding."""
    drafts = arm != PLAIN
    return ArmResult(
        arm=arm,
        task=task,
        temperature=temperature,
        exact=exact,
        num_prompts=8,
        rounds=100,
        emitted_tokens=250 if drafts else 100,
        drafted_tokens=180 if drafts else 0,
        accepted_tokens=150 if drafts else 0,
        drafted_by_position=(100, 80, 0) if drafts else (),
        accepted_by_position=(90, 60, 0) if drafts else (),
        seconds=PhaseSeconds(controller=0.01, draft=2.0 if drafts else 0.0, verify=7.5, commit=0.49),
        ratio_to_plain=ratio if drafts else None,
    )


def answer_trace(arm: str = "AMTP", rounds: tuple[TraceRound, ...] | None = None, opening: str = "The") -> Trace:
    """An answer of two rounds, unless other rounds are given."""
    default = (
        TraceRound(tokens=(" cat", " sat", " down"), horizon=3, accepted=2),
        TraceRound(tokens=(".",), horizon=0, accepted=0),
    )
    return Trace(
        arm=arm,
        task="chat",
        temperature=0.0,
        prompt="Where is the cat?",
        opening=opening,
        rounds=default if rounds is None else rounds,
    )


def demo_result(
    *,
    runs: tuple[ArmResult, ...] | None = None,
    traces: tuple[Trace, ...] | None = None,
    cost_curve: CostCurve | None = None,
    command: str = "forerun demo",
    commit: str | None = "0123456789abcdef",
    quick: bool = False,
) -> DemoResult:
    """Plain decoding and one faster arm at temperature 0, unless other runs are given."""
    return DemoResult(
        forerun_version="0.1.0",
        commit=commit,
        created=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        command=command,
        quick=quick,
        machine=Machine(cpu="Made-up 9000", device="cpu", cores=2, threads=1, torch_version="2.13.0", dtype="float32"),
        target=Artifact(name="made-up-target", sha256="ab" * 32),
        drafter=Artifact(name="made-up-drafter", sha256="cd" * 32),
        seeds=(0, 1),
        max_new_tokens=64,
        runs=(arm_run(PLAIN), arm_run()) if runs is None else runs,
        traces=(answer_trace(),) if traces is None else traces,
        cost_curve=cost_curve,
    )


def cost_curve() -> CostCurve:
    """A plain step of 0.1 s; a round costs 1, 1.5 and 2 of them at horizons 0, 2 and 4."""
    points = (
        CostPoint(horizon=0, draft_seconds=0.0, verify_seconds=0.1),
        CostPoint(horizon=2, draft_seconds=0.03, verify_seconds=0.12),
        CostPoint(horizon=4, draft_seconds=0.05, verify_seconds=0.15),
    )
    return CostCurve(plain_seconds=0.1, context_length=128, num_repeats=9, points=points)
