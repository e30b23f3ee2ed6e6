"""Laws of a spec file's own tasks, evaluations, probes, mixers, models and experiments, tried one by one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch

from ablate.grid import Experiment, Grid
from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice
from ablate.runners.processes.process_state import reset_random
from ablate.runners.provenance.specfile import import_spec_file
from ablate.training.catalogue.prove_experiments import EXPERIMENT_LAWS, TriedExperiment
from ablate.training.evaluations.evaluation import Evaluation
from ablate.training.loop.batch_parts import parts
from ablate.training.planning.module_laws import require_module_laws
from ablate.training.planning.task_laws import TASK_LAWS, require_evaluation_laws
from ablate.training.planning.tried_task import TriedTask, is_own, one_sentence, own_tasks
from ablate.training.probes.probe import Probe, Probed, ProbeInput, Probing, probe_model, run_probes
from ablate.training.tasks import Task
from ablate.training.trial import Trial, build_model
from ablate.variants import ForeignBackbone, Mixer

_WITHIN = 1e-3
"""Relative rounding of a loss that is computed in parts."""

OTHER_LAWS = {
    **{f"task, {law.name}": law.sentence for law in TASK_LAWS},
    "task, parts": "the losses of the parts of a batch make up that of the whole",
    "task, fresh process": "batches and evaluation are the same in another process",
    "evaluation": "it is equal at every call, no longer than it says, and yields what it declares",
    "mixer, model": "one shape, all weights listed and trained, sequences apart, and no later token in a causal model",
    "probe": "it records what it declares, the same at every call, and changes no model",
    **{f"experiment, {name}": sentence for name, (sentence, _) in EXPERIMENT_LAWS.items()},
}
"""Sentences of the laws of all but operators."""


class Proven(NamedTuple):
    """A part of a spec file that is proved, with its laws: each raises SpecError if it is broken."""

    title: str
    laws: dict[str, Callable[[], None]]


def own_subjects(module: ModuleType, spec: Path, *, full: bool = False) -> list[Proven]:
    """Find the tasks, evaluations, probes, mixers, models and experiments of a user's own in a spec file.

    They are those in its grids, tasks and experiments also beside them. The first one of a class is proved; with `full`
    all different ones.
    """
    subjects: dict[tuple[object, ...], Proven] = {}
    for choice, trial in (*_in_grids(module), *((each, None) for each in _without_grid(module))):
        if is_own(choice):
            key = (type(choice), choice.key) if full else (type(choice),)
            subjects.setdefault(key, _subject(choice, trial, spec)) if key not in subjects else None
    return list(subjects.values())


def _in_grids(module: ModuleType) -> Iterator[tuple[Choice, Trial | None]]:
    grids = [value for name, value in vars(module).items() if isinstance(value, Grid) and not name.startswith("_")]
    for trial in (planned.trial for grid in grids for planned in grid.cells()):
        if isinstance(trial, Trial):
            yield from ((each, trial) for each in (*own_tasks(trial.task), *trial.evaluations, *trial.probing.probes))
            modules = (each for each in (trial.model, *trial.operators()) if isinstance(each, ForeignBackbone | Mixer))
            yield from ((each, trial) for each in modules)
        elif isinstance(trial, Experiment) and not trial.own_processes:
            yield trial, None


def _without_grid(module: ModuleType) -> Iterator[Choice]:
    """Yield the tasks and experiments of the file that need no field."""
    members = (*Task.members().values(), *Experiment.members().values())
    for member in members:
        if member.__module__ == module.__name__ and not issubclass(member, Trial) and not _needs_fields(member):
            yield member()


def _needs_fields(member: type[Choice]) -> bool:
    return any(field.is_required() for field in member.model_fields.values())


def _subject(choice: Choice, trial: Trial | None, spec: Path) -> Proven:
    if isinstance(choice, Task):
        tried = TriedTask(choice)
        laws: dict[str, Callable[[], None]] = {law.name: partial(law.check, tried) for law in TASK_LAWS}
        return Proven(
            tried.where,
            {**laws, "parts": partial(_parts, tried), "fresh process": partial(_fresh_process, tried, spec)},
        )
    if isinstance(choice, Experiment):
        training = TriedExperiment(choice)
        return Proven(training.where, {name: partial(law, training) for name, (_, law) in EXPERIMENT_LAWS.items()})
    assert trial is not None  # evaluations and probes are those of a trial
    if isinstance(choice, Evaluation):
        check = partial(require_evaluation_laws, choice, trial.task)
        return Proven(f"evaluation {choice.label!r}", {"evaluation": check})
    if isinstance(choice, ForeignBackbone | Mixer):
        name = "mixer" if isinstance(choice, Mixer) else "model"
        return Proven(f"{name} {choice.label!r}", {name: partial(require_module_laws, trial)})
    assert isinstance(choice, Probe)
    return Proven(f"probe {choice.label!r}", {"probe": partial(_probe, choice, trial)})


def _parts(tried: TriedTask) -> None:
    batch, predicted = tried.few
    if len(batch.inputs) < 2:
        return
    with one_sentence(f"{tried.where}: terms()"):
        pieces = zip(parts(tried.data, batch, 2, range(2)), predicted.detach().tensor_split(2), strict=True)
        total = sum(float(tried.data.loss(rows, part.batch.targets)) * part.terms for part, rows in pieces)
    whole = float(tried.loss(predicted.detach()))
    if abs(total - whole) > _WITHIN * abs(whole):
        raise SpecError(
            f"{tried.where}: the losses of two parts of a batch make up {total:.6g} and the loss of the whole is "
            f"{whole:.6g}; a loss is a mean over terms, which terms() counts; correct one of them"
        )


def _fresh_process(tried: TriedTask, spec: Path) -> None:
    """Compare with a process that has another seed of `hash`."""
    command = [sys.executable, "-c", f"from {__name__} import tell_digest; tell_digest()", str(spec), tried.task.label]
    variables = {**os.environ, "PYTHONHASHSEED": "4242"}
    text = json.dumps(tried.task.data())
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=variables, check=False)
    *_, said = done.stdout.splitlines() or [""]
    if done.returncode:
        *_, last = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        raise SpecError(f"{tried.where}: in another process: {last}; workers open the task there; correct it")
    if said != digest(tried.task):
        raise SpecError(
            f"{tried.where}: batches or evaluation data are others in another process; they follow from seed, step and "
            "spec alone; leave out hash(), id() and the order of sets"
        )


def digest(task: Task) -> str:
    """Hash the first batches, and what the evaluation shows to a model."""
    tried, hashed = TriedTask(task), blake2b(digest_size=16)
    for seed, step in ((0, 1), (1, 2)):
        for tensor in tried.draw(seed, step, noise=0):
            hashed.update(b"" if tensor is None else tensor.contiguous().numpy().tobytes())
    for shown in tried.evaluated[0].digests:
        hashed.update(shown)
    return hashed.hexdigest()


def tell_digest() -> None:
    """Write the digest of a task: the spec file and the kind are arguments, the task is read from stdin."""
    _, spec, kind = sys.argv
    import_spec_file(spec)
    sys.stdout.write(f"\n{digest(Task.members()[kind].model_validate(json.load(sys.stdin)))}\n")


def _probe(probe: Probe, trial: Trial) -> None:
    where, data = f"probe {probe.label!r}", trial.task.open()
    model = build_model(trial).eval()
    numbers = [*model.parameters(), *model.buffers()]
    before = [each.clone() for each in numbers]
    seen = ProbeInput(model, trial.task, probe_model(data, trial.probing), 0, [1.0, 2.0])
    calls = []
    for noise in range(2):
        with one_sentence(where), reset_random(noise), torch.inference_mode():
            every = list(run_probes(Probing(probes=(probe,)), seen))
            calls.append([each for each in every if isinstance(each, Probed)])
    if list(map(repr, calls[0])) != list(map(repr, calls[1])):
        raise SpecError(f"{where} records other values at a second call; it sees the same model; leave out chance")
    if not all(map(torch.equal, before, numbers)) or model.training:
        raise SpecError(f"{where} changes the model; a probe changes no number of the training; copy what it changes")
    known = [info.name for info in probe.rows]
    for name in dict.fromkeys(each.name for each in calls[0]):
        if not any(name == each or _varies(name, each) for each in known):
            raise SpecError(
                f"{where} records {name!r}, which its rows do not describe, only {', '.join(known) or 'nothing'}; "
                "every row has a RowInfo with its unit; add one, or correct the name"
            )


def _varies(name: str, pattern: str) -> bool:
    """Return True if a name is one of a `RowInfo` with capital words, which stand for parts that vary."""
    fixed = [part for part in pattern.split(".") if not part.isupper()]
    return len(fixed) < len(pattern.split(".")) and name.split(".")[: len(fixed)] == fixed
