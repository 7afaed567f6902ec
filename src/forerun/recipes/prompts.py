"""Which prompts a check decodes: some of the shipped ones, or a user's own."""

from __future__ import annotations

from itertools import chain, zip_longest
from pathlib import Path

from forerun.errors import ForerunError
from forerun.evaluation import DemoPrompt
from forerun.recipes.demo import demo_prompts
from forerun.training.jsonl import numbered_jsonl


def shipped_prompts(count: int) -> list[DemoPrompt]:
    """The first ``count`` shipped prompts, task by task in turn.

    Raises:
        ForerunError: fewer are shipped.
    """
    prompts = demo_prompts()
    if not 1 <= count <= len(prompts):
        raise ForerunError(f"prompts is {count}; {len(prompts)} are shipped, so ask for 1 to {len(prompts)}")
    by_task = [
        [prompt for prompt in prompts if prompt.task == task] for task in {prompt.task: None for prompt in prompts}
    ]
    return [prompt for prompt in chain.from_iterable(zip_longest(*by_task)) if prompt is not None][:count]


def prompts_from_file(path: Path) -> list[DemoPrompt]:
    """Prompts of a JSON-lines file: ``prompt`` is the user's message; ``id`` and ``domain`` are optional.

    Raises:
        ForerunError: no such file, no prompt in it, a line without one, or an id that stands twice.
    """
    prompts: dict[str, DemoPrompt] = {}
    for number, row in numbered_jsonl(path):
        text = row.get("prompt")
        if not isinstance(text, str) or not text.strip():
            raise ForerunError(f'{path}, line {number}: no prompt; write lines such as {{"prompt": "Why?"}}')
        name = str(row.get("id", f"line {number}"))
        if name in prompts:
            raise ForerunError(f"{path}, line {number}: id {name!r} stands in an earlier line already")
        prompts[name] = DemoPrompt(id=name, task=str(row.get("domain", "")), text=text)
    if not prompts:
        raise ForerunError(f"{path} holds no prompts; write one JSON object a line")
    return list(prompts.values())
