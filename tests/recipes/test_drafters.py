"""Drafters by name, and fields of a recipe changed by hand."""

import pytest

from forerun.drafters import DSparkConfig, MaskTokenConfig, MaskTokenStudent, network_of
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from forerun.recipes import DRAFTERS, drafter_config

TARGET: TransformersTarget = tiny_target(vocab_size=40)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_recipe_gives_a_network_for_any_target(name: str) -> None:
    """Catches recipes that cannot be built, and numbers taken from one target for all."""
    config = drafter_config(name, TARGET)
    assert config.target_vocab_size == 40 and config.hidden_size == TARGET.hidden_size
    assert max(config.captured_layers, default=0) < TARGET.num_layers
    if isinstance(config, MaskTokenConfig):
        assert MaskTokenStudent.of(config, TARGET).config == config
    else:
        assert network_of(config).config == config


def test_settings_change_the_fields_that_they_name() -> None:
    """Catches settings that nobody reads, above all those inside another field."""
    config = drafter_config(
        "dspark", TARGET, ["block_size=3", "layer.window=16", "markov_head=rnn", "confidence_head=false"]
    )
    assert isinstance(config, DSparkConfig)
    assert (config.block_size, config.layer.window, config.markov_head, config.confidence_head) == (3, 16, "rnn", False)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("block_size", "expected field=value"),
        ("blocksize=3", "no field 'blocksize'; there are architecture"),
        ("layers.window=3", "no field 'layers' with fields inside"),
        ("num_layers.window=3", "no field 'num_layers' with fields inside"),
        ("block_size=0", "--set block_size: Input should be greater than 0"),
        ("markov_head=lstm", "--set markov_head: Input should be 'vanilla', 'gated' or 'rnn'"),
        ("draft_vocab_size=41", "draft_vocab_size 41 exceeds target_vocab_size 40"),
    ],
)
def test_wrong_settings_are_named(setting: str, complaint: str) -> None:
    with pytest.raises(ForerunError, match=complaint) as error:
        drafter_config("dspark", TARGET, [setting])
    assert "\n" not in str(error.value)


def test_an_unknown_drafter_lists_its_neighbours() -> None:
    with pytest.raises(ForerunError, match="unknown drafter 'dsparc'; did you mean dspark"):
        drafter_config("dsparc", TARGET)
