"""The page's charts, each a function from results to inline SVG."""

from collections.abc import Mapping

from markupsafe import Markup

from forerun.reports.schema import ArmResult, DemoResult, Trace
from forerun.reports.svg import (
    WIDTH,
    Scale,
    bottom_axis,
    dot,
    drawing,
    left_axis,
    line,
    polyline,
    rectangle,
    square,
    text,
    titled,
)
from forerun.reports.wording import ratio_figure, temperature_name

LEFT, RIGHT = 46, WIDTH - 14

LONGEST_LABEL = 20
"""Letters of an arm's name that are shown beside a chart."""

Kinds = Mapping[str, str]
"""The style class of each arm."""


def ratio_chart(result: DemoResult, temperature: float, kinds: Kinds) -> Markup | None:
    """Speed against plain decoding with its 95 % interval, a line for each arm on each task; None without a ratio."""
    compared = [(task, [run for run in runs if run.ratio_to_plain]) for task, runs in result.by_task_at(temperature)]
    groups = [(task, runs) for task, runs in compared if runs]
    ratios = [run.ratio_to_plain for _, runs in groups for run in runs if run.ratio_to_plain]
    if not ratios:
        return None
    step, top, label_width = 22, 10, _label_width(result, task_letters=8)
    low = min(0.9, *(ratio.low for ratio in ratios))
    high = max(1.1, *(ratio.high for ratio in ratios))
    margin = 0.04 * (high - low)
    scale = Scale(low=low - margin, high=high + margin, start=label_width, end=RIGHT)
    bottom = top + step * len(ratios)
    ticks = scale.ticks(5)
    parts = [line(scale(tick), top, scale(tick), bottom, "grid") for tick in ticks]
    parts.append(line(scale(1.0), top, scale(1.0), bottom, "reference"))
    parts += bottom_axis(scale, ticks, [f"{tick:g}×" for tick in ticks], bottom)
    parts.append(text((label_width + RIGHT) / 2, bottom + 35, "speed against plain decoding", kind="axis"))
    y = top + step / 2
    for task, runs in groups:
        parts.append(text(0, y + 4, task, anchor="start", kind="label strong"))
        parts.append(line(0, y - step / 2, RIGHT, y - step / 2, "grid"))
        for run in runs:
            parts.append(text(label_width - 8, y + 4, shortened(run.arm), anchor="end"))
            parts += _ratio_mark(run, scale, y, kinds[run.arm])
            y += step
    return drawing(bottom + 42, f"Speed against plain decoding, {temperature_name(temperature)}", parts)


def survival_chart(result: DemoResult, temperature: float, kinds: Kinds) -> Markup | None:
    """Share of the tokens drafted at each position that were accepted, over all prompts; None without a draft."""
    runs = [run for run in result.overall_at(temperature) if any(run.drafted_by_position)]
    if not runs:
        return None
    top, bottom = 12, 192
    last = max(len(run.drafted_by_position) for run in runs)
    x_scale = Scale(low=0.5, high=last + 0.5, start=LEFT, end=RIGHT)
    y_scale = Scale(low=0.0, high=1.0, start=bottom, end=top)
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    parts = left_axis(y_scale, shares, [f"{share:.0%}" for share in shares], LEFT, RIGHT)
    positions = range(1, last + 1)
    parts += bottom_axis(x_scale, positions, [str(position) for position in positions], bottom)
    parts.append(text((LEFT + RIGHT) / 2, bottom + 35, "position in the draft", kind="axis"))
    for run in runs:
        points = [(position, share) for position, share in enumerate(run.survival_by_position, 1) if share is not None]
        parts.append(polyline([(x_scale(position), y_scale(share)) for position, share in points], kinds[run.arm]))
        for position, share in points:
            counts = f"{run.accepted_by_position[position - 1]} of {run.drafted_by_position[position - 1]}"
            title = f"{run.arm}, position {position}: {share:.0%} ({counts})"
            parts.append(dot(x_scale(position), y_scale(share), kinds[run.arm], title))
    return drawing(bottom + 42, f"Accepted share by draft position, {temperature_name(temperature)}", parts)


def cost_chart(result: DemoResult, kinds: Kinds) -> Markup | None:
    """Tokens a round must emit to break even at each horizon, and what the arms emitted; None without a curve."""
    curve = result.cost_curve
    if curve is None:
        return None
    runs = [(run, run.tau, run.mean_horizon) for t in result.temperatures for run in result.overall_at(t)]
    marks = [(run, tau, horizon) for run, tau, horizon in runs if tau is not None and horizon]
    costs = [(point.horizon, curve.break_even_tau(point)) for point in curve.points]
    last = max(1.0, *(horizon for horizon, _ in costs), *(horizon for _, _, horizon in marks))
    top, bottom = 12, 222
    x_scale = Scale(low=-0.3, high=last + 0.3, start=LEFT, end=RIGHT)
    most = max(2.0, *(cost for _, cost in costs), *(tau for _, tau, _ in marks))
    y_scale = Scale(low=0.0, high=1.08 * most, start=bottom, end=top)
    ticks = y_scale.ticks(5)
    parts = left_axis(y_scale, ticks, [f"{tick:g}" for tick in ticks], LEFT, RIGHT)
    horizons = [tick for tick in x_scale.ticks(8) if tick == round(tick)]
    parts += bottom_axis(x_scale, horizons, [f"{tick:g}" for tick in horizons], bottom)
    parts.append(text((LEFT + RIGHT) / 2, bottom + 35, "tokens drafted a round (mean, for the arms)", kind="axis"))
    parts.append(text(x_scale(0), top + 2, "tau", anchor="start", kind="axis"))
    parts.append(polyline([(x_scale(horizon), y_scale(cost)) for horizon, cost in costs], "threshold"))
    for horizon, cost in costs:
        parts.append(
            dot(x_scale(horizon), y_scale(cost), "threshold", f"break-even tau at horizon {horizon}: {cost:.2f}")
        )
    for run, tau, mean_horizon in marks:
        title = f"{run.arm}, temperature {run.temperature:g}: tau {tau:.2f} at mean horizon {mean_horizon:.2f}"
        mark = square if run.temperature > 0 else dot
        parts.append(mark(x_scale(mean_horizon), y_scale(tau), kinds[run.arm], title))
    return drawing(bottom + 42, "Break-even tau by horizon, and measured tau", parts)


def time_chart(result: DemoResult, kinds: Kinds) -> Markup | None:
    """What one round takes on average and on what, over all prompts; None when no time was measured."""
    runs = [run for t in result.temperatures for run in result.overall_at(t) if run.rounds and run.seconds.total]
    if not runs:
        return None
    step, top, label_width = 24, 10, _label_width(result, task_letters=8)
    bottom = top + step * len(runs)
    longest = max(1e3 * run.seconds.total / run.rounds for run in runs)
    scale = Scale(low=0, high=1.04 * longest, start=label_width, end=RIGHT)
    ticks = scale.ticks(4)
    parts = [line(scale(tick), top, scale(tick), bottom, "grid") for tick in ticks]
    parts += bottom_axis(scale, ticks, [f"{tick:g}" for tick in ticks], bottom)
    parts.append(text((label_width + RIGHT) / 2, bottom + 35, "milliseconds a round", kind="axis"))
    for index, run in enumerate(runs):
        y = top + step * index
        parts.append(
            text(label_width - 8, y + step / 2 + 4, f"{shortened(run.arm)}, T={run.temperature:g}", anchor="end")
        )
        spent = 0.0
        for phase, seconds in run.seconds.by_phase():
            start, spent = spent, spent + 1e3 * seconds / run.rounds
            width = scale(spent) - scale(start)
            title = f"{run.arm}, {phase}: {spent - start:.2f} ms a round"
            bar = rectangle(scale(start), y + 4, width, step - 8, f"{phase} {kinds[run.arm]}")
            parts.append(titled(title, bar))
    return drawing(bottom + 42, "Milliseconds a round by phase", parts)


def horizon_chart(trace: Trace, kind: str) -> Markup | None:
    """Tokens drafted in each round of one answer, the accepted part filled; None when nothing was drafted."""
    longest = max((each.horizon for each in trace.rounds), default=0)
    if longest == 0:
        return None
    top, bottom = 10, 90
    x_scale = Scale(low=0, high=max(len(trace.rounds), 24), start=LEFT, end=RIGHT)
    y_scale = Scale(low=0, high=longest, start=bottom, end=top)
    ticks = [tick for tick in y_scale.ticks(4) if tick == round(tick)]
    parts = left_axis(y_scale, ticks, [f"{tick:g}" for tick in ticks], LEFT, RIGHT)
    width = x_scale(0.8) - x_scale(0)
    for index, each in enumerate(trace.rounds):
        x, drafted, accepted = x_scale(index + 0.1), y_scale(each.horizon), y_scale(each.accepted)
        bars = rectangle(x, drafted, width, bottom - drafted, f"drafted {kind}")
        bars += rectangle(x, accepted, width, bottom - accepted, f"accepted {kind}")
        parts.append(titled(f"round {index + 1}: {each.horizon} drafted, {each.accepted} accepted", bars))
    parts.append(text((LEFT + RIGHT) / 2, bottom + 18, "rounds of this answer, in order", kind="axis"))
    return drawing(bottom + 25, f"Tokens drafted and accepted in each round, {trace.arm}", parts)


def shortened(arm: str) -> str:
    """An arm's name that fits beside a chart."""
    return arm if len(arm) <= LONGEST_LABEL else arm[: LONGEST_LABEL - 1] + "…"


def _label_width(result: DemoResult, *, task_letters: int) -> float:
    """Room left of a chart for the longest arm name and a few letters more."""
    return 8.0 * (task_letters + max(len(shortened(arm)) for arm in result.arms))


def _ratio_mark(run: ArmResult, scale: Scale, y: float, kind: str) -> list[Markup]:
    """An interval and its estimate."""
    ratio = run.ratio_to_plain
    if ratio is None:
        return []
    title = f"{run.arm}, {run.task}: {ratio_figure(ratio)}"
    return [
        line(scale(ratio.low), y, scale(ratio.high), y, f"whisker {kind}"),
        dot(scale(ratio.estimate), y, kind, title),
    ]
