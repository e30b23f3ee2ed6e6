"""Evaluate finished trials with evaluations and knock-outs that their specs do not have."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from ablate.grid.errors import AblateError, EnvironmentProblem, NotFoundError, SpecError, StoreError
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.provenance.code import Codes, spec_module_name
from ablate.runners.provenance.specfile import import_spec_file
from ablate.store.files.error_texts import message_of
from ablate.store.files.layout import Layout
from ablate.store.store import Store
from ablate.training.evaluations import Evaluation
from ablate.training.evaluations.knockout import Knockout, row_name
from ablate.training.posthoc import evaluation_records as records
from ablate.training.posthoc.evaluation_records import Coordinates, Coverage, coordinates, coverage
from ablate.training.posthoc.trained_model import (
    Device,
    Kept,
    TrainedModel,
    compare_with_training,
    find_changed_code,
    rebuild_model,
)
from ablate.training.tasks.task import Items, Measurements, row_words

Outcome = Literal["made", "there", "own", "failed"]
_SHOWN = 5


class Wanted(NamedTuple):
    """The evaluations of every trial, with options."""

    evaluations: Sequence[Evaluation]
    again: bool = False
    """True to repeat evaluations that exist, and to replace others with the same names."""
    device: Device | None = None
    """None: the device that the trial asks for."""
    other_code: bool = False
    """True to evaluate a model that the present code computes differently."""
    files: Sequence[Path] = ()
    """The spec files that were loaded for the trials and the evaluations."""
    knockouts: Mapping[str, Sequence[Knockout]] = {}
    """The knock-outs of each trial, by key."""


class Result(NamedTuple):
    """The result of one evaluation of one trial.

    `outcome` is "made" now, "there" from before, "own" if the trial's training made it, or "failed".
    """

    trial: str
    kind: str | None
    """None if no evaluation was begun."""
    evaluation: str | None
    outcome: Outcome
    measured: Sequence[Measurements] = ()
    message: str | None = None
    problem: Exception | None = None


def evaluations_of(path: Path) -> tuple[Evaluation, ...]:
    """Load `evaluations` from a Python file.

    Raises NotFoundError if the file is missing, SpecError if it raises or defines none.
    """
    if path.exists() and (path.is_dir() or path.suffix != ".py"):
        raise SpecError(f"{path} is no Python file; give one, NAME.py, with evaluations = (...) at its top")
    value = vars(import_spec_file(path)).get("evaluations")
    evaluations = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not evaluations or not all(isinstance(each, Evaluation) for each in evaluations):
        actual = "none" if value is None else repr(value)[:60]
        raise SpecError(f"{path} has {actual} as evaluations; write evaluations = (...) at its top, one or more")
    return evaluations


def submitted_files(layout: Layout, kept: Iterable[Kept], known: Iterable[Path]) -> list[Path]:
    """List the spec files of the submissions that trained the trials, but `known` ones."""
    files: dict[Path, None] = {}
    for submission in sorted({str(each.attempt.start["submission"]) for each in kept}):
        try:
            job = read_submission_record(layout, submission).job
        except (NotFoundError, StoreError):
            continue
        files |= dict.fromkeys(map(Path, job.get("specs") or job.get("files") or ()))
    loaded = {spec_module_name(file) for file in known}
    return [file for file in files if file.is_absolute() and spec_module_name(file) not in loaded]


def evaluate(store: Store, trials: Sequence[Kept], wanted: Wanted, tell: Callable[[str], None]) -> Iterator[Result]:
    """Evaluate trials one after another; a failure is a result, except an EnvironmentProblem, which is raised."""
    codes = Codes(files=wanted.files)
    for number, kept in enumerate(trials, start=1):
        where = f"{number} of {len(trials)}: trial {kept.key[:8]}"

        def tell_trial(text: str, where: str = where) -> None:
            tell(f"{where}: {text}")

        try:
            yield from _evaluate_trial(store, kept, wanted, codes, tell_trial)
        except EnvironmentProblem:
            raise
        except Exception as error:  # noqa: BLE001  # a result: no trial stops the others
            yield _describe_failure(kept.key, None, None, error)


def _describe_failure(key: str, label: str | None, evaluation: str | None, error: Exception) -> Result:
    message = message_of(error, named=not isinstance(error, AblateError))
    return Result(key, label, evaluation, "failed", message=message, problem=error)


def _evaluate_trial(
    store: Store, kept: Kept, wanted: Wanted, codes: Codes, tell: Callable[[str], None]
) -> Iterator[Result]:
    missing = list[Evaluation | Knockout]()
    asked: list[Evaluation | Knockout] = [*wanted.evaluations, *wanted.knockouts.get(kept.key, ())]
    for spec in asked:
        record = records.read_record(store.layout, (kept.key, kept.number, spec.key))
        if record is not None and not wanted.again:
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.ended))
            words = f"made on {day}, on {record.device}; --again repeats it"
            yield Result(kept.key, spec.label, spec.key, "there", message=words)
        else:
            missing.append(spec)
    if not missing:
        return
    trained = rebuild_model(kept, wanted.device, codes)
    changed = _find_changes(trained, store, wanted, tell)
    own = {each.key for each in trained.trial.evaluations}
    for spec in missing:
        if spec.key in own or (isinstance(spec, Knockout) and not spec.refit and _is_recorded(store, kept.key, spec)):
            words = "it is part of the trial and was made by its training"
            yield Result(kept.key, spec.label, spec.key, "own", message=words)
            continue
        tell(f"{spec.label} on {trained.device.type}")
        try:
            yield _evaluate_spec(store, trained, spec, wanted, changed, codes)
        except EnvironmentProblem:
            raise
        except Exception as error:  # noqa: BLE001  # a result: the other evaluations go on
            yield _describe_failure(kept.key, spec.label, spec.key, error)


def _evaluate_spec(
    store: Store, trained: TrainedModel, spec: Evaluation | Knockout, wanted: Wanted, changed: list[str], codes: Codes
) -> Result:
    key, number = trained.kept.key, trained.kept.number
    place = (key, number, spec.key)
    with ExitStack() as stack:
        try:
            stack.enter_context(records.lock_attempt(store.layout, key, number))
        except EnvironmentProblem as error:  # concerns this attempt's folder only
            return _describe_failure(key, spec.label, spec.key, error)
        began = time.perf_counter()
        if isinstance(spec, Knockout):
            measured, data = _knock_out(trained, spec), None
        else:
            trial = trained.trial.changed(evaluations=(spec,))  # refuses unsuitable evaluations
            trained = replace(trained, trial=trial, sources=codes.sources(trial))
            evaluator = spec.open(trial.task)
            planned = {**(spec.measures() or {}), **{f"{name}.": [point] for name, point in evaluator.subjects.items()}}
            rows = frozenset((name, coordinates(point)) for name, points in planned.items() for point in points)
            _require_new(store, place, rows, again=wanted.again)
            measured, data = trained.evaluate(evaluator)
        result = records.EvaluationRecord(
            [each for each in measured if isinstance(each, Measurements)],
            [each for each in measured if isinstance(each, Items)],
            time.perf_counter() - began,
            data,
        )
        covered = _require_new(store, place, coverage(result.measured), again=wanted.again)
        records.write_evaluation(store.layout, trained, spec, result, changed)
        for other in covered:
            records.forget(store.layout, (key, number, other))
    return Result(key, spec.label, spec.key, "made", result.measured)


def _knock_out(trained: TrainedModel, asked: Knockout) -> list[Measurements | Items]:
    measured = trained.knock_out(asked)
    if not measured:
        raise SpecError(
            f"trial {trained.kept.key[:8]} itself neither evaluates nor logs {row_words(asked.name, asked.point)}; "
            "name a measure of its task or its evaluations with --measure"
        )
    return measured


def _is_recorded(store: Store, trial: str, asked: Knockout) -> bool:
    """Return True if the training of a trial has measured these knock-outs."""
    query = "SELECT point FROM v_evaluation WHERE trial = $trial AND name = $name AND later IS NULL"
    points = store.sql(query, {"trial": trial, "name": row_name(["uniform"], asked.name)})["point"].to_list()
    return any(asked.point.items() <= dict(point).items() for point in points)


def _find_changes(trained: TrainedModel, store: Store, wanted: Wanted, tell: Callable[[str], None]) -> list[str]:
    """List definitions changed since the training; SpecError if they make another function, unless allowed."""
    changed = find_changed_code(trained)
    if not changed:
        return changed
    if changed == ["everything"]:
        tell("the attempt did not record its code, so it may have changed")
    else:
        names = ", ".join(changed[:_SHOWN]) + (" and others" if len(changed) > _SHOWN else "")
        tell(f"the code is not what the trial ran: {names} changed since")
    differ = compare_with_training(trained, store)
    if not differ:
        tell("its task measures the same bits as at the end of its training, so the model is the same")
    elif not wanted.other_code:
        first = differ[0]
        raise SpecError(
            f"the present code computes another function: {first.where} is {first.again!r} and was {first.recorded!r}; "
            "use the code of its training, or --allow-code-change if only the device differs"
        )
    else:
        tell(f"{len(differ)} values of its task differ, most of all {differ[0].where}, by {differ[0].size:g}")
    return changed


def _require_new(store: Store, place: tuple[str, int, str], new: Coverage, *, again: bool) -> list[str]:
    """Return the keys of evaluations that are replaced; SpecError if something else measures the same.

    `new` holds names of rows. A name that ends in a full stop stands for all names with this beginning.
    """
    recorded = store.sql(
        "SELECT DISTINCT name, CAST(to_json(point) AS VARCHAR) AS point FROM v_evaluation "
        "WHERE trial = $trial AND later IS NULL",
        {"trial": place[0]},
    )
    rows = _overlap(new, ((name, coordinates(json.loads(point))) for name, point in recorded.rows()))
    if rows:
        names = ", ".join(sorted({name for name, _ in rows})[:_SHOWN])
        raise SpecError(f"the training of trial {place[0][:8]} has recorded {names}; put it into a new trial")
    before = {key: theirs for key, theirs in records.read_others(store.layout, place).items() if _overlap(new, theirs)}
    if before and not again:
        name = min(name for theirs in before.values() for name, _ in _overlap(new, theirs))
        raise SpecError(f"evaluation {min(before)[:8]} has recorded {name} of trial {place[0][:8]}; use --again")
    return sorted(key for key, theirs in before.items() if theirs <= new)


def _overlap(new: Coverage, rows: Iterable[tuple[str, Coordinates]]) -> Coverage:

    def is_named(name: str, at: Coordinates) -> bool:
        beginnings = (name[: place + 1] for place, letter in enumerate(name) if letter == ".")
        return any((each, at) in new for each in (name, *beginnings))

    return frozenset(row for row in rows if is_named(*row))
