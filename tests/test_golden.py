"""Keys that must never change: a refactor or a new default must not rename anybody's trials.

A change of `tests/golden/trials.json` needs a line under "Numbers that changed" in the changelog. New entries are added
by `PYTHONPATH=src python tests/test_golden.py`, which changes no key that is there.
"""

import json
from collections import Counter
from pathlib import Path

import ablate
from ablate.runners.provenance.specfile import load_spec_file
from ablate.training.catalogue.explain import presets
from ablate.variants.laws.examples import family
from ablate.variants.model.named_backbones import tiny
from ablate.variants.operator import KINDS

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "golden" / "trials.json"


def found() -> dict[str, str]:
    operators = {name: each.make() for name, each in ablate.catalogue().items()}
    operators |= {f"principled {per}": ablate.principled(per) for per in ablate.granularities}
    operators |= {f"{name} of 0.1.0": getattr(ablate, name)(**start) for name, start in BEFORE.items()}
    backbones = {name: make() for name, make in presets().items()}
    before = {"initialisation": "gpt2", "token_types": 0}
    backbones |= {f"{name} of 0.1.0": spec.changed(**before) for name, spec in backbones.items() if name in ADAPTED}
    backbones |= {
        "gpt2": ablate.gpt2(layers=12, heads=8, width=256),
        "tiny pythia": tiny("pythia").changed(initialisation="gpt2"),
    }
    text = {"content_hash": "0" * 32, "source": "/nowhere/text.txt"}
    tasks = {
        "linear functions": ablate.LinearFunctions(),
        "linear functions with a curriculum": ablate.LinearFunctions(
            curriculum=ablate.Curriculum(), evaluation=ablate.ShiftGrid()
        ),
        "text": ablate.Text(**text),
        "associative recall": ablate.AssociativeRecall(),
        "multi-query recall": ablate.MultiQueryRecall(),
        "induction": ablate.Induction(),
        "selective copy": ablate.SelectiveCopy(),
        "needle": ablate.Needle(),
        "grammar": ablate.Grammar(),
        "masked text": ablate.MaskedText(**text),
    }
    teachers = {
        "a finished trial": ablate.FinishedTrial(
            campaign="/nowhere",
            trial="0" * 32,
            content_hash="0" * 32,
            architecture={"model": backbones["gpt2"], "operator": operators["ssa"], "placement": {}, "vocabulary": 256},
        ),
        "a directory": ablate.HuggingFaceModel(directory="/nowhere", content_hash="0" * 32, vocabulary=256),
    }
    for name, each in teachers.items():
        tasks[f"taught by {name}"] = ablate.Distillation(task=tasks["text"], teacher=each)
    pairs = ablate.MinimalPairs(content_hash="0" * 32, source="/nowhere/zorro", paradigms=("case",))
    optimiser, schedule = ablate.AdamW(lr=1e-4), ablate.Cosine(warmup=2)
    training = ablate.Training(steps=10, optimiser=optimiser, schedule=schedule, clip=1.0, evaluate_every=5)
    model = {"task": tasks["linear functions"], "model": backbones["gpt2"], "operator": operators["ssa"]}
    whole = ablate.Trial(**model, placement=ablate.Placement(share=0.5), training=training, seed=3)
    specs = {**operators, **backbones, **tasks, "training": training, "trial": whole, "minimal pairs": pairs}
    specs |= {"muon": ablate.Muon(), "uncorrected adamw": ablate.UncorrectedAdamW(), "linear": ablate.Linear(warmup=2)}
    files = (ROOT / "specs" / f"{name}.py" for name in ("quickstart", "principled_granularity"))
    grids = {name: grid for file in files for name, grid in load_spec_file(file).items()}
    first = {f"first trial of {name}": next(grid.cells()).key for name, grid in grids.items()}
    return {**{name: spec.key for name, spec in specs.items()}, **first, **choices()}


def choices() -> dict[str, str]:
    """By stage and kind, of the example of each: choices of two stages may well be the same text."""
    return {
        f"{CHOICE}{stage} {kind}": member.example().key
        for stage in KINDS
        for kind, member in family(stage).members().items()
        if member.__module__.startswith("ablate.variants.")
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
ADAPTED = {"icl", "babyberta_8m", "llama2_125m", "llama2_1b2", "pythia_125m", "qwen2_125m", "qwen1_5_0b5"}
ADAPTED |= {"llama3_1b", "llama3_3b"}
"""Presets whose start follows the released code since 0.2.0; as they were, they have the keys of 0.1.0."""
BEFORE = {
    **{name: {"projection_std": 0.0} for name in ("affine_gated", "gated_heads", "gated_elements", "fox")},
    **{name: {"gain": 1.0} for name in ("mlp_kernel", "mlp_kernel_unnormalised")},
    "value_bias": {"spread": 0.0},
}
"""Named operators whose start follows the released code since 0.2.0; with these arguments they have their old keys."""
SAME = {"principled", "principled constant", "icl of 0.1.0", "gpt2"}
"""Two names of one spec."""

if __name__ == "__main__":
    FILE.write_text(json.dumps({**found(), **golden()}, indent=2) + "\n", encoding="utf-8")
