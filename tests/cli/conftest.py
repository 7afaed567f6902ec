"""Small targets and drafters on disk, made once."""

import json
import shutil
from pathlib import Path

import pytest

from forerun.drafters import save_drafter
from forerun.models import TransformersTarget, load_target
from forerun.recipes import dspark_for, eagle3_for
from tests.support.families import FAMILIES, write_model
from tests.support.networks import provenance, random_network, whole


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds ``target`` and the drafters ``drafter`` and ``eagle``.

    Models: ``small`` (same tokenizer), ``renamed`` (two ids swapped), ``short`` (16 positions), ``fewer`` (tokens).
    """
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "target", FAMILIES["llama"](), seed=0)
    write_model(folder / "small", FAMILIES["llama-tied"](), seed=1)
    shutil.copytree(folder / "target", folder / "renamed")
    swap_ids(folder / "renamed" / "tokenizer.json", 270, 271)
    short = FAMILIES["llama-tied"]()
    short.max_position_embeddings = 16
    write_model(folder / "short", short, seed=1)
    fewer = FAMILIES["llama"]()
    fewer.vocab_size = 299
    write_model(folder / "fewer", fewer)
    target = load_target(folder / "target", optimize=False)
    config = dspark_for(target, num_layers=1, block_size=3, markov_rank=4)
    save_drafter(folder / "drafter", random_network(config), whole(target), target, provenance(target))
    eagle = eagle3_for(target, block_size=4, draft_vocab_size=target.vocab_size)
    save_drafter(folder / "eagle", random_network(eagle), whole(target), target, provenance(target))
    return folder


def swap_ids(path: Path, first: int, second: int) -> None:
    """Let two tokens of a saved tokenizer change places."""
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    names = {number: token for token, number in vocabulary.items()}
    vocabulary[names[first]], vocabulary[names[second]] = second, first
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="session")
def target_folder(made: Path) -> Path:
    """A random three-layer Llama with 300 byte-level tokens and a context of 128."""
    return made / "target"


@pytest.fixture(scope="session")
def target(target_folder: Path) -> TransformersTarget:
    """The same, loaded the way the command line loads it."""
    return load_target(target_folder)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
