"""Teachers and students small enough to train in a test."""

import json
from pathlib import Path

from ablate.runners.checkpoint import save_checkpoint
from ablate.store.files.atomic import write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.training.optimisers import AdamW, Training
from ablate.training.probes import Probing
from ablate.training.tasks import Distillation, FinishedTrial, Text
from ablate.training.trial import Execution, Trial, build_model
from ablate.variants import gpt2, softmax, ssa

LINES = [f"Line {number} says that {number * number} is a square.\n" for number in range(400)]


def prose(folder: Path) -> Text:
    """Short documents, so that windows hold parts of two."""
    path = folder / "prose.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    return Text.model_validate({"source": str(path), "context": 8, "batch": 6, "validation_windows": 9})


def teaching_trial(task: Text, **fields: object) -> Trial:
    """An SSA model in two layers."""
    return Trial.model_validate(
        {
            "task": task,
            "model": gpt2(layers=2, heads=2, width=8, max_positions=12),
            "operator": ssa(),
            "training": Training(steps=8, optimiser=AdamW(lr=0.01)),
            "probing": Probing(probes=()),
            "execution": Execution(keep_weights=True, device="cpu"),
            **fields,
        }
    )


def learning_trial(task: Distillation, **fields: object) -> Trial:
    """A softmax model in one layer."""
    return Trial.model_validate(
        {
            "task": task,
            "model": gpt2(layers=1, heads=2, width=8, max_positions=12),
            "operator": softmax(),
            "training": Training(steps=6, optimiser=AdamW(lr=0.01), evaluate_every=4),
            "probing": Probing(probes=()),
            "execution": Execution(device="cpu"),
            "seed": 2,
            **fields,
        }
    )


def write_finished(
    root: Path, trial: Trial, attempt: int = 1, *, status: str = "ok", weights: dict | None = None
) -> Path:
    """An attempt of `trial` in a campaign as a worker leaves it, with untrained weights; the file of these."""
    layout = Layout(root)
    start = {
        "schema": FILE_SCHEMA,
        "trial": trial.key,
        "attempt": attempt,
        "host": "elsewhere",
        "pid": 1,
        "started": 0.0,
    }
    write_json(layout.start(trial.key, attempt), start)
    write_json(
        layout.end(trial.key, attempt),
        {"schema": FILE_SCHEMA, "trial": trial.key, "attempt": attempt, "status": status},
    )
    model = build_model(trial).state_dict() if weights is None else weights
    state = {"model": model, "spec": trial.data(), "data": trial.task.open().record}
    return save_checkpoint(layout.weights(trial.key, attempt), trial.key, 8, state)


def teacher(root: Path, trial: Trial) -> FinishedTrial:
    return FinishedTrial(campaign=str(root), trial=trial.key)
