"""The table of drafters says what the code says."""

import re
from pathlib import Path

from forerun.drafters import MaskTokenConfig, network_of
from forerun.models import tiny_target
from forerun.recipes import DRAFTERS, drafter_config

PAGE = (Path(__file__).parents[2] / "docs" / "drafters.md").read_text(encoding="utf-8")
NEEDS = ["features", "embedding", "final norm", "head", "forward"]


def test_the_table_agrees_with_the_networks() -> None:
    """Catches a drafter left out of the guide, and a property changed in one place only."""
    chapter = PAGE.split("\n## Trained networks\n")[1].split("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("|")][2:]
    found = {name: rest for name, *rest in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)}
    target = tiny_target(vocab_size=40)
    expected = {}
    for name in DRAFTERS:
        config = drafter_config(name, target)
        if isinstance(config, MaskTokenConfig):
            continue  # the target itself drafts; the chapter on mask tokens has it
        network = network_of(config)
        words = {need.name.lower().replace("_", " ") for need in network.needs}
        expected[name] = [
            network.dependence.value,
            "same laws" if network.prefix_consistent else "other laws",
            network.saving.value,
            ", ".join(word for word in NEEDS if word in words),
        ]
    assert {name: row[:4] for name, row in found.items()} == expected
    assert all(row[4] for row in found.values())


def test_every_architecture_is_explained() -> None:
    """A row of the table without a sentence in plain words would help nobody."""
    explained = re.findall(r"^- \*\*([a-z0-9-]+)\*\*:", PAGE, re.MULTILINE)
    networks = [drafter_config(name, tiny_target(vocab_size=40)) for name in DRAFTERS]
    architectures = {config.architecture.replace("_", "-") for config in networks} - {"mask-token"}
    assert set(explained) >= architectures
    assert "](mask-token.md)" in PAGE
