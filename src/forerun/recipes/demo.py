"""What the demonstration decodes, and how much of it."""

from __future__ import annotations

import json
from importlib import resources

from forerun.evaluation import DemoConfig, DemoPrompt


def demo_prompts() -> list[DemoPrompt]:
    """The prompts written for this project and shipped with it."""
    text = (resources.files("forerun.recipes") / "assets" / "demo_prompts.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line]
    return [DemoPrompt(id=row["id"], task=row["domain"], text=row["prompt"]) for row in rows]


def demo_config(*, quick: bool, full: bool) -> DemoConfig:
    """Three sizes: a look, a table, and the table that the README prints.

    Args:
        quick: two prompts of each task, short answers.
        full: every prompt that the pilot leaves.
    """
    if quick:
        return DemoConfig(prompts_per_task=2, max_new_tokens=24, pilot_tokens=32, quick=True)
    if full:
        return DemoConfig(prompts_per_task=7, max_new_tokens=64, pilot_tokens=64)
    return DemoConfig(prompts_per_task=3, max_new_tokens=48, pilot_tokens=48)
