"""Keys that must never change: a refactor or a new default must not rename anybody's trials.

A change of `tests/golden/trials.json` needs a line under "Numbers that changed" in the changelog. New entries are added
by `PYTHONPATH=. python tests/test_golden.py`, which changes no key that is there.
"""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from runners import (
    AdamW,
    AssociativeRecall,
    Cosine,
    Curriculum,
    Distillation,
    FinishedTrial,
    Grammar,
    HuggingFaceModel,
    Induction,
    Linear,
    LinearFunctions,
    MaskedText,
    MinimalPairs,
    Muon,
    Needle,
    SelectiveCopy,
    ShiftGrid,
    Text,
    Training,
    Trial,
    UncorrectedAdamW,
)
from runners.catalogue.explain import presets
from runners.provenance.specfile import load_spec_file
from variants import (
    Operator,
    Placement,
    affine_gated,
    catalogue,
    fox,
    gated_elements,
    gated_heads,
    gpt2,
    granularities,
    mlp_kernel,
    mlp_kernel_unnormalised,
    principled,
    value_bias,
)
from variants.laws.examples import family
from variants.model.named_backbones import tiny
from variants.operator import KINDS

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "golden" / "trials.json"


def found() -> dict[str, str]:
    operators = {name: each.make() for name, each in catalogue().items()}
    operators |= {f"principled {per}": principled(per) for per in granularities}
    operators |= {f"{name} of 0.1.0": make() for name, make in BEFORE.items()}
    backbones = {name: make() for name, make in presets().items()}
    before = {"initialisation": "gpt2", "token_types": 0}
    backbones |= {f"{name} of 0.1.0": spec.changed(**before) for name, spec in backbones.items() if name in ADAPTED}
    backbones |= {
        "gpt2": gpt2(layers=12, heads=8, width=256),
        "tiny pythia": tiny("pythia").changed(initialisation="gpt2"),
    }
    tasks = {
        "linear functions": LinearFunctions(),
        "linear functions with a curriculum": LinearFunctions(curriculum=Curriculum(), evaluation=ShiftGrid()),
        "text": Text(content_hash="0" * 32, source="/nowhere/text.txt"),
        "associative recall": AssociativeRecall(),
        "induction": Induction(),
        "selective copy": SelectiveCopy(),
        "needle": Needle(),
        "grammar": Grammar(),
        "masked text": MaskedText(content_hash="0" * 32, source="/nowhere/text.txt"),
    }
    teachers = {
        "a finished trial": FinishedTrial(
            campaign="/nowhere",
            trial="0" * 32,
            content_hash="0" * 32,
            architecture={"model": backbones["gpt2"], "operator": operators["ssa"], "placement": {}, "vocabulary": 256},
        ),
        "a directory": HuggingFaceModel(directory="/nowhere", content_hash="0" * 32, vocabulary=256),
    }
    tasks |= {f"taught by {name}": Distillation(task=tasks["text"], teacher=each) for name, each in teachers.items()}
    pairs = MinimalPairs(content_hash="0" * 32, source="/nowhere/zorro", paradigms=("case",))
    training = Training(steps=10, optimiser=AdamW(lr=1e-4), schedule=Cosine(warmup=2), clip=1.0, evaluate_every=5)
    whole = Trial(
        task=tasks["linear functions"],
        model=backbones["gpt2"],
        operator=operators["ssa"],
        placement=Placement(share=0.5),
        training=training,
        seed=3,
    )
    specs = {**operators, **backbones, **tasks, "training": training, "trial": whole, "minimal pairs": pairs}
    specs |= {"muon": Muon(), "uncorrected adamw": UncorrectedAdamW(), "linear": Linear(warmup=2)}
    grids = {
        **load_spec_file(ROOT / "specs" / "quickstart.py"),
        **load_spec_file(ROOT / "specs" / "principled_granularity.py"),
    }
    first = {f"first trial of {name}": next(grid.cells()).key for name, grid in grids.items()}
    return {**{name: spec.key for name, spec in specs.items()}, **first, **choices()}


def choices() -> dict[str, str]:
    """By stage and kind, of the example of each: choices of two stages may well be the same text."""
    return {
        f"{CHOICE}{stage} {kind}": member.example().key
        for stage in KINDS
        for kind, member in family(stage).members().items()
        if member.__module__.startswith("variants.")
    }


def golden() -> dict[str, str]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def test_a_key_is_what_it_was() -> None:
    now = found()
    assert {name: key for name, key in golden().items() if now.get(name) != key} == {}


def test_every_golden_key_is_checked_and_none_is_shared() -> None:
    assert found().keys() == golden().keys()
    whole = {name: key for name, key in golden().items() if not name.startswith(CHOICE)}
    shared = Counter(whole.values()) - Counter(set(whole.values()))
    assert {name for name, key in whole.items() if key in shared} == SAME


CHOICE = "choice of "
ADAPTED = (
    "icl",
    "babyberta_8m",
    "llama2_125m",
    "llama2_1b2",
    "pythia_125m",
    "qwen2_125m",
    "qwen1_5_0b5",
    "llama3_1b",
    "llama3_3b",
)
"""Presets whose start follows the released code since 0.2.0; as they were, they have the keys of 0.1.0."""
BEFORE: dict[str, Callable[[], Operator]] = {
    "affine_gated": partial(affine_gated, projection_std=0.0),
    "gated_heads": partial(gated_heads, projection_std=0.0),
    "gated_elements": partial(gated_elements, projection_std=0.0),
    "value_bias": partial(value_bias, spread=0.0),
    "mlp_kernel_unnormalised": partial(mlp_kernel_unnormalised, gain=1.0),
    "mlp_kernel": partial(mlp_kernel, gain=1.0),
    "fox": partial(fox, projection_std=0.0),
}
"""Named operators whose start follows the released code since 0.2.0; with these arguments they have their old keys."""
SAME = {"principled", "principled constant", "icl of 0.1.0", "gpt2"}
"""Two names of one spec."""

if __name__ == "__main__":
    FILE.write_text(json.dumps({**found(), **golden()}, indent=2) + "\n", encoding="utf-8")
