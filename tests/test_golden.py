"""Keys that must never change: a refactor or a new default must not rename anybody's trials.

A change of `tests/golden/trials.json` needs a line under "Numbers that changed" in the changelog.
"""

import json
from pathlib import Path

import pytest

from runners import AdamW, Cosine, Curriculum, LinearFunctions, ShiftGrid, Text, Training, Trial
from runners.specfile import load_spec_file
from variants import Placement, gpt2, granularities, integral, llama2, principled, softmax, ssa

ROOT = Path(__file__).parent.parent
GOLDEN = json.loads((Path(__file__).parent / "golden" / "trials.json").read_text(encoding="utf-8"))


def found() -> dict[str, str]:
    operators = {
        "softmax": softmax(),
        "ssa": ssa(),
        "integral": integral(),
        **{f"principled {per}": principled(per) for per in granularities},
    }
    backbones = {
        "gpt2": gpt2(layers=12, heads=8, width=256),
        "llama2": llama2(layers=20, heads=8, width=768, feedforward_width=1155),
    }
    tasks = {
        "linear functions": LinearFunctions(),
        "linear functions with a curriculum": LinearFunctions(curriculum=Curriculum(), evaluation=ShiftGrid()),
        "text": Text(content_hash="0" * 32, source="/nowhere/text.txt"),
    }
    training = Training(steps=10, optimiser=AdamW(lr=1e-4), schedule=Cosine(warmup=2), clip=1.0, evaluate_every=5)
    whole = Trial(
        task=tasks["linear functions"],
        model=backbones["gpt2"],
        operator=operators["ssa"],
        placement=Placement(share=0.5),
        training=training,
        seed=3,
    )
    specs = {**operators, **backbones, **tasks, "training": training, "trial": whole}
    grids = {
        **load_spec_file(ROOT / "specs" / "quickstart.py"),
        **load_spec_file(ROOT / "specs" / "principled.py"),
    }
    first = {f"first trial of {name}": next(grid.cells()).key for name, grid in grids.items()}
    return {**{name: spec.key for name, spec in specs.items()}, **first}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_key_is_what_it_was(name: str) -> None:
    assert found()[name] == GOLDEN[name]


def test_every_golden_key_is_checked_and_none_is_shared() -> None:
    assert found().keys() == GOLDEN.keys()
    assert len(set(GOLDEN.values())) == len(GOLDEN)
