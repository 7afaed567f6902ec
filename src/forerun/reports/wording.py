"""What a result says in words and figures, the same on a terminal and on a page."""

from forerun.reports.schema import PLAIN, ArmResult, DemoResult, PairedRatio, Verdict

ABSENT = "–"
"""Shown where a result has no value."""


def figure(value: float | None, digits: int) -> str:
    """A number with a fixed count of decimals, or the sign for an absent one."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def interval(ratio: PairedRatio) -> str:
    """The ends of the 95 % interval, for example "1.22–1.40"."""
    return f"{ratio.low:.2f}–{ratio.high:.2f}"


def ratio_figure(ratio: PairedRatio | None) -> str:
    """The ratio with its interval, for example "1.31× (1.22–1.40)"."""
    return ABSENT if ratio is None else f"{ratio.estimate:.2f}× ({interval(ratio)})"


def temperature_name(temperature: float) -> str:
    """For example "Temperature 1" or "Temperature 0 (greedy)"."""
    return f"Temperature {temperature:g}" + (" (greedy)" if temperature == 0 else "")


def verdict_mark(verdict: Verdict | None) -> str:
    """A verdict with a sign that can be told without colour."""
    signs: dict[Verdict | None, str] = {"faster": "▲ ", "slower": "▼ ", "no clear difference": "≈ "}
    return ABSENT if verdict is None else signs[verdict] + verdict


def headline(result: DemoResult) -> str:
    """One sentence that says faster or slower, over all prompts at every temperature.

    A comparison is one arm at one temperature against plain decoding; its verdict is what its interval allows.
    """
    verdicts = [run.verdict for run in _compared(result)]
    if not verdicts:
        return "Nothing was compared with plain decoding."
    if len(set(verdicts)) == 1:
        if verdicts[0] == "no clear difference":
            return "No clear difference between speculative and plain decoding on this machine."
        return f"Speculative decoding is {verdicts[0]} than plain decoding on this machine."
    counts = {verdict: verdicts.count(verdict) for verdict in ("faster", "slower", "no clear difference")}
    parts = [f"{name} in {count}" for name, count in counts.items() if count]
    listed = ", ".join(parts[:-1]) + " and " + parts[-1]
    return f"Against plain decoding on this machine: {listed} of {len(verdicts)} comparisons."


def sentences(result: DemoResult) -> tuple[str, ...]:
    """One sentence for each comparison behind the headline."""
    return tuple(_sentence(run) for run in _compared(result))


def warnings(result: DemoResult) -> tuple[str, ...]:
    """What a reader must know before quoting a number."""
    lossy = tuple(dict.fromkeys(run.arm for run in result.runs if not run.exact))
    lines = []
    if lossy:
        lines.append(f"Not exact: {', '.join(lossy)} may change what the target would have written.")
    if result.quick:
        lines.append("Quick run: few prompts and short answers, so intervals are wide.")
    if any(run.arm != PLAIN and run.ratio_to_plain is None for run in result.runs):
        lines.append("Arms with fewer than two prompts paired with plain decoding have no ratio and no verdict.")
    lines += [beyond_drafter(run) for run in result.runs if run.rounds_beyond_drafter]
    return tuple(lines)


def beyond_drafter(run: ArmResult) -> str:
    """How many rounds went without drafts because the drafter's positions had ended."""
    where = f"{temperature_name(run.temperature)}, {run.task}: {run.arm}"
    return (
        f"{where}: {run.rounds_beyond_drafter} of {run.rounds} rounds ran without drafts beyond the drafter's last "
        "position."
    )


def pairs(result: DemoResult) -> str:
    """How many prompts stand behind the ratios, for example "8 to 24 for each ratio"."""
    counts = sorted({run.ratio_to_plain.num_pairs for run in result.runs if run.ratio_to_plain})
    if not counts:
        return "none"
    return (str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}") + " for each ratio"


def _compared(result: DemoResult) -> list[ArmResult]:
    """Runs over all prompts that have a ratio."""
    return [run for temperature in result.temperatures for run in result.overall_at(temperature) if run.ratio_to_plain]


def _sentence(run: ArmResult) -> str:
    where = temperature_name(run.temperature)
    return f"{where}: {run.arm}: {run.verdict}, {ratio_figure(run.ratio_to_plain)} the speed of plain decoding."
