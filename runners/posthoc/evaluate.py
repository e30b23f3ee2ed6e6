"""Finished trials judged by evaluations that their specs do not have: one trial after another, each evaluation once."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from grid.errors import AblateError, EnvironmentProblem, NotFoundError, SpecError, StoreError
from runners.attempts.submission_record import read_submission_record
from runners.attempts.worker import WorkerEntry
from runners.evaluations import Evaluation
from runners.posthoc.evaluation_records import (
    Coordinates,
    EvaluationRecord,
    Said,
    coordinates,
    forget,
    held,
    others,
    recorded,
    said,
    write_evaluation,
)
from runners.posthoc.trained_model import Device, Kept, TrainedModel, changed_code, rebuilt, unlike_before
from runners.provenance.code import Codes
from runners.provenance.specfile import import_spec_file, spec_module_name
from runners.tasks.task import Items, Measurements
from store.files.layout import Layout

if TYPE_CHECKING:
    from store.store import Store

Status = Literal["done", "there", "own", "failed"]
_SHOWN = 5


@final
@dataclass(frozen=True)
class Wanted:
    """What is asked of every trial."""

    evaluations: Sequence[Evaluation]
    again: bool = False
    """Whether those that were made before are made once more, and replace what others have said of the same name."""
    device: Device | None = None
    """None: where the trial asks to be trained."""
    other_code: bool = False
    """Whether to judge a model that is no longer computed as in its training."""


@final
class Result(NamedTuple):
    """What came of one evaluation of one trial.

    `status`: "done" now; "there": made before; "own": part of the trial's spec, whose training made it; "failed".
    """

    trial: str
    kind: str
    evaluation: str
    status: Status
    measured: Sequence[Measurements] = ()
    message: str | None = None
    problem: Exception | None = None


def evaluations_of(path: Path) -> tuple[Evaluation, ...]:
    """What the file defines as `evaluations`.

    Raises:
        SpecError: there is no such file, it raises, or it defines none.
    """
    if not path.is_file() or path.suffix != ".py":
        what = (
            "there is no file"
            if not path.exists()
            else f"a {'folder' if path.is_dir() else 'file of something else'} is"
        )
        raise SpecError(f"{what} {path}; give a Python file, NAME.py, with evaluations = (...) at its top")
    found = vars(import_spec_file(path)).get("evaluations")
    wanted = (found,) if isinstance(found, Evaluation) else found
    if not isinstance(wanted, tuple | list) or not wanted or not all(isinstance(each, Evaluation) for each in wanted):
        what = "none" if found is None else repr(found)[:60]
        raise SpecError(
            f"a file of evaluations has evaluations = (...) at its top, one or more; {path} has {what}; name what to "
            "judge by, such as evaluations = (MultipleChoice(source='items.jsonl'),)"
        )
    return tuple(wanted)


def load_classes(layout: Layout, kept: Iterable[Kept], known: Sequence[Path], told: Callable[[str], None]) -> None:
    """Load the spec files that were submitted with the trials and may define classes of theirs; not those `known`.

    Raises:
        SpecError: one cannot be loaded, or the trials are of another kind than models that can be judged.
    """
    loaded = {spec_module_name(file) for file in known}
    for submission in sorted({str(each.attempt.start["submission"]) for each in kept}):
        for file in _submitted(layout, submission):
            if spec_module_name(file) in loaded:
                continue
            loaded.add(spec_module_name(file))
            if file.is_file():
                import_spec_file(file)
            else:
                told(f"{file}, which was submitted, is gone; if a trial has classes from it, name it with --spec")


def _submitted(layout: Layout, submission: str) -> list[Path]:
    try:
        job = read_submission_record(layout, submission).job
    except (NotFoundError, StoreError):
        return []
    trial = (job.get("entry") or {}).get("trial", WorkerEntry().trial)
    if trial != WorkerEntry().trial:
        raise SpecError(f"models of {WorkerEntry().trial} are judged; those of {submission} are of {trial}")
    return [Path(file) for file in job.get("specs") or job.get("files") or () if Path(file).is_absolute()]


def evaluate(store: "Store", trials: Sequence[Kept], wanted: Wanted, told: Callable[[str], None]) -> Iterator[Result]:
    """Judge `trials` one after another; a failure of one is a result of it, and the others go on.

    Raises:
        EnvironmentProblem: something is lacking that every trial needs.
    """
    codes = Codes()
    for number, kept in enumerate(trials, start=1):
        where = f"{number} of {len(trials)}: trial {kept.key[:8]}"
        try:
            yield from _of_trial(store, kept, wanted, codes, _at(where, told))
        except EnvironmentProblem:
            raise
        except Exception as error:  # noqa: BLE001  # a result: no trial stops the others
            yield Result(kept.key, "-", "-", "failed", message=_words(error), problem=error)


def _at(where: str, told: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: told(f"{where}: {text}")


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, AblateError) else f"{type(error).__name__}: {error}"


def _of_trial(
    store: "Store", kept: Kept, wanted: Wanted, codes: Codes, told: Callable[[str], None]
) -> Iterator[Result]:
    layout, missing = store.layout, []
    for spec in wanted.evaluations:
        found = recorded(layout, (kept.key, kept.number, spec.key))
        if found is not None and not wanted.again:
            yield Result(kept.key, _kind(spec), spec.key, "there", message=_when(found))
        else:
            missing.append(spec)
    if not missing:
        return
    trained = rebuilt(kept, wanted.device, codes)
    changed = _checked_code(trained, store, wanted, told)
    own = {each.key for each in trained.trial.evaluations}
    for spec in missing:
        if spec.key in own:
            words = "it is part of the trial, whose training has made it"
            yield Result(kept.key, _kind(spec), spec.key, "own", message=words)
            continue
        told(f"{spec.label} on {trained.device.type}")
        try:
            yield _judge(store, trained, spec, wanted, changed, codes)
        except EnvironmentProblem:
            raise
        except Exception as error:  # noqa: BLE001  # a result: the other evaluations go on
            yield Result(kept.key, _kind(spec), spec.key, "failed", message=_words(error), problem=error)


def _judge(
    store: "Store", trained: TrainedModel, spec: Evaluation, wanted: Wanted, changed: list[str], codes: Codes
) -> Result:
    key, number = trained.kept.key, trained.kept.number
    place = (key, number, spec.key)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(store.layout, key, number))
        except EnvironmentProblem as error:  # of this attempt's folder; what comes later every trial needs
            return Result(key, _kind(spec), spec.key, "failed", message=str(error), problem=error)
        trial = trained.trial.changed(evaluations=(spec,))  # refuses what it cannot judge
        trained = trained.of(trial, codes.sources(trial))
        declared = frozenset((n, coordinates(at)) for n, points in (spec.measures() or {}).items() for at in points)
        _require_new(store, place, declared, again=wanted.again)
        began = time.perf_counter()
        judge = spec.open(trial.task)
        about = frozenset((f"{name}.", coordinates(point)) for name, point in judge.subjects.items())
        _require_new(store, place, about, again=wanted.again)
        rows, data = trained.measured(judge)
        judged = EvaluationRecord(
            [each for each in rows if isinstance(each, Measurements)],
            [each for each in rows if isinstance(each, Items)],
            time.perf_counter() - began,
            data,
        )
        covered = _require_new(store, place, said(judged.measured), again=wanted.again)
        write_evaluation(store.layout, trained, spec, judged, changed)
        for other in covered:
            forget(store.layout, (key, number, other))
    return Result(key, _kind(spec), spec.key, "done", judged.measured)


def _checked_code(trained: TrainedModel, store: "Store", wanted: Wanted, told: Callable[[str], None]) -> list[str]:
    """Definitions that have changed since the training, after making sure that the model still is the same function.

    Raises:
        SpecError: it is not, and that was not asked for.
    """
    changed = changed_code(trained)
    if not changed:
        return changed
    names = ", ".join(changed[:_SHOWN]) + (" and others" if len(changed) > _SHOWN else "")
    told(f"the code is not what the trial ran: {names} changed since" if changed != ["everything"] else _UNKNOWN)
    differ = unlike_before(trained, store)
    if not differ:
        told("what its task measures is the same bits as at the end of its training, so the model is the same")
    elif not wanted.other_code:
        first = differ[0]
        raise SpecError(
            f"a trial is judged by the function that it learned, and with the code that is here {first.where} is "
            f"{first.again!r} and was {first.recorded!r}; use the code it was trained with, or on another device than "
            "that of its training, where bits may differ, --other-code"
        )
    else:
        told(f"{len(differ)} values of its task differ, {differ[0].where} most: by {differ[0].size:g}")
    return changed


_UNKNOWN = "the attempt did not record its code, so nothing says whether it is the same"


def _require_new(store: "Store", place: tuple[str, int, str], new: Said, *, again: bool) -> list[str]:
    """Refuse what would be said twice of a trial; keys of other evaluations that are replaced as a whole.

    `new` are names of rows; one that ends in a full stop, all that begin so.

    Raises:
        SpecError: the training, or another evaluation, has said it.
    """
    found = store.sql(
        "SELECT DISTINCT name, CAST(to_json(point) AS VARCHAR) AS point FROM v_evaluation "
        "WHERE trial = $trial AND later IS NULL",
        {"trial": place[0]},
    )
    rows = {name for name, _ in _of(new, {(name, coordinates(json.loads(point))) for name, point in found.rows()})}
    if rows:
        raise SpecError(
            f"rows of one name are compared with one another, and the training of trial {place[0][:8]} has recorded "
            f"{', '.join(sorted(rows)[:_SHOWN])}; an evaluation that says it anew belongs into the spec of a new trial"
        )
    before = {key: theirs for key, theirs in others(store.layout, place).items() if _of(new, theirs)}
    if before and not again:
        name = min(name for theirs in before.values() for name, _ in _of(new, theirs))
        raise SpecError(
            f"rows of one name are compared with one another, and evaluation {min(before)[:8]} has recorded {name} of "
            f"trial {place[0][:8]}; make one evaluation of both, of files of items by one folder that has "
            "both, or replace what it said with --again"
        )
    return sorted(key for key, theirs in before.items() if theirs <= new)


def _of(new: Said, rows: Iterable[tuple[str, Coordinates]]) -> Said:
    """Those of `rows` that `new` names."""
    return frozenset((name, at) for name, at in rows if any((each, at) in new for each in (name, *_beginnings(name))))


def _beginnings(name: str) -> list[str]:
    return [name[: place + 1] for place, letter in enumerate(name) if letter == "."]


def _kind(spec: Evaluation) -> str:
    return str(spec.data()["kind"])


def _when(record: dict[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["ended"]))
    return f"made on {day}, on {record['device']}; --again makes it once more"
