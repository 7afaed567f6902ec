"""The prompts and sizes of the demonstration."""

from collections import Counter

from forerun.evaluation import split_prompts
from forerun.recipes import demo_config, demo_prompts


def test_eight_prompts_of_each_task() -> None:
    prompts = demo_prompts()
    assert Counter(prompt.task for prompt in prompts) == {"math": 8, "code": 8, "chat": 8}
    assert len({prompt.id for prompt in prompts}) == len({prompt.text for prompt in prompts}) == 24
    assert all(prompt.text.strip() == prompt.text != "" for prompt in prompts)


def test_pilot_and_measurement_share_no_prompt() -> None:
    """Catches costs and hazards learned on the very prompts that are measured."""
    for config in (
        demo_config(quick=True, full=False),
        demo_config(quick=False, full=False),
        demo_config(quick=False, full=True),
    ):
        pilot, measured = split_prompts(demo_prompts(), config.prompts_per_task)
        assert not {prompt.id for prompt in pilot} & {prompt.id for prompt in measured}
        assert Counter(prompt.task for prompt in pilot) == {"math": 1, "code": 1, "chat": 1}
        assert set(Counter(prompt.task for prompt in measured).values()) == {config.prompts_per_task}


def test_sizes_grow() -> None:
    """Catches a full run that leaves prompts out, and a quick one that is no quicker or does not say that it is."""
    quick, usual, full = (
        demo_config(quick=True, full=False), demo_config(quick=False, full=False), demo_config(quick=False, full=True),
    )  # fmt: skip
    assert quick.quick and not usual.quick and not full.quick
    sizes = [config.num_answers * config.max_new_tokens for config in (quick, usual, full)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    assert full.prompts_per_task == 7
    assert quick.temperatures == usual.temperatures == full.temperatures == (0.0, 1.0)
