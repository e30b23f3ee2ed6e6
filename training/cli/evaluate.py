"""The command that evaluates finished trials by more than their specs say."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.runners.cli.options import Campaign, Flag, Json, Trials, Trust, flag_group
from ablate.runners.cli.resolve import find_several, open_campaign, require_trust
from ablate.runners.output import format_count, slow_notice, tell, write_json, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ablate.store.store import Store
    from ablate.training.evaluations import Evaluation
    from ablate.training.evaluations.knockout import Knockout
    from ablate.training.posthoc.evaluate import Outcome, Result
    from ablate.training.posthoc.trained_model import Kept

_MOST_SHOWN = 40


@flag_group
class EvaluationFlags:
    """Which evaluations are made, and how.

    Parameters
    ----------
    by
        A Python file with evaluations = (LengthExtrapolation(...), ...) at its top.
    lm_eval
        Tasks of lm-evaluation-harness, by name.
    include
        The folder with the YAML files of these tasks and their data; default lm-evaluation-harness's own tasks, as far
        as their data are on this machine.
    knockout
        Measure once more without parts of the operators, as the end of a training does (docs/evaluating.md).
    refit_each
        With --knockout: fit a temperature and an output size also after each component is left out alone.
    measure
        The measure of --knockout: loss, or mse@sigma_f=5; default that of the trial's grid.
    again
        Make evaluations once more that were made before; what they find replaces what was found.
    other_code
        Also where the code has changed since and the model is no longer the same function.
    device
        Default where the trial asks to be trained.
    """

    by: Annotated[Path | None, Parameter(name="--with")] = None
    lm_eval: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
    include: Path | None = None
    knockout: Flag = False
    refit_each: Flag = False
    measure: str | None = None
    again: Flag = False
    other_code: Annotated[bool, Parameter(name=("--allow-code-change", "--other-code"), negative="")] = False
    device: Literal["auto", "cpu", "cuda"] | None = None


def evaluate(
    *query: Trials,
    by: EvaluationFlags = EvaluationFlags(),
    spec: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    campaign: Campaign = None,
    trust: Trust = False,
    as_json: Json = False,
) -> int:
    """Evaluate finished trials that kept their weights by further tasks.

    The rows are kept beside those of the training. Each evaluation of a trial is made once. The exit code is 4 if some
    of several failed.

    Parameters
    ----------
    spec
        A spec file that defines classes of the trials; default those that were submitted.
    """
    from ablate.runners.provenance.specfile import import_spec_file
    from ablate.training.posthoc.evaluate import Wanted, evaluate as evaluate_trials, submitted_files

    if not query:
        raise SpecError("no trial is named; name one by its KEY, or several by a query: operator=SSA, grid=quickstart")
    with ExitStack() as stack:
        with slow_notice("reading the campaign"):
            store = stack.enter_context(open_campaign(campaign))
            trials = find_several(store, query)
        for file in spec:
            import_spec_file(file)
        evaluations = _load_evaluations(by)
        models, results = _find_weights(store, trials)
        named = [*spec, *([by.by] if by.by else [])]
        code = submitted_files(store.layout, models, named)
        require_trust(store.layout, code, trust=trust)
        for file in code:
            if file.is_file():
                import_spec_file(file)
            else:
                tell(f"the submitted file {file} is missing; if a trial has classes from it, name it with --spec")
        knockouts = _find_knockouts(store, models, by, results)
        wanted = Wanted(evaluations, by.again, by.device, by.other_code, [*named, *code], knockouts)
        try:
            results += evaluate_trials(store, models, wanted, tell)
        finally:
            _ingest(store)
        rows = store.sql("SELECT trial, any_value(label), any_value(seed) FROM grid_trial GROUP BY trial").rows()
        labels = {str(trial): (str(label), int(seed)) for trial, label, seed in rows}
    return _report(results, labels, len(trials), as_json=as_json)


def _load_evaluations(flags: EvaluationFlags) -> "tuple[Evaluation, ...]":
    """Load the evaluations that the options name. Raise SpecError if they name none, or an invalid one."""
    from pydantic import ValidationError

    from ablate.grid import spec_error
    from ablate.training.evaluations import LmEval
    from ablate.training.evaluations.lm_eval_files import require_tasks
    from ablate.training.posthoc.evaluate import evaluations_of

    if flags.include is not None and not flags.lm_eval:
        raise SpecError("--include has no effect without --lm-eval, whose tasks lie in it; name them, or leave it out")
    if flags.measure is not None and not flags.knockout:
        raise SpecError("--measure has no effect without --knockout; add it, or leave --measure out")
    if flags.refit_each and not flags.knockout:
        raise SpecError("--refit-each has no effect without --knockout; add it, or leave --refit-each out")
    if flags.by is None and not flags.lm_eval and not flags.knockout:
        raise SpecError(
            "nothing says what to evaluate by; name a file of evaluations with --with FILE.py, or --lm-eval TASK..., "
            "or --knockout"
        )
    evaluations = () if flags.by is None else evaluations_of(flags.by)
    if flags.lm_eval:
        try:
            harness = LmEval(tasks=flags.lm_eval, include=None if flags.include is None else str(flags.include))
        except ValidationError as error:
            raise spec_error(error, "LmEval") from error
        if flags.include is not None:  # reading the harness's own takes seconds, and waits for the first trial
            require_tasks(flags.lm_eval, flags.include)
        evaluations = (*evaluations, harness)
    return tuple({each.key: each for each in evaluations}.values())


def _find_weights(store: "Store", trials: "Sequence[str]") -> "tuple[list[Kept], list[Result]]":
    """Return the trials whose weights were kept, and why the others cannot be evaluated."""
    from ablate.training.posthoc.evaluate import Result
    from ablate.training.posthoc.trained_model import find_kept, no_trial

    kept, without = [], []
    kinds_query = "SELECT trial, spec->>'$.kind' AS kind FROM trial WHERE list_contains($trials, trial)"
    kinds = dict(store.sql(kinds_query, {"trials": list(trials)}).rows())
    for key in trials:
        try:
            kept.append(find_kept(store.layout, key))
        except NotFoundError as missing:
            error = no_trial(key, str(kinds[key])) if kinds.get(key) else missing
            without.append(Result(key, None, None, "failed", message=str(error), problem=error))
    return kept, without


def _find_knockouts(
    store: "Store", models: "Sequence[Kept]", flags: EvaluationFlags, results: "list[Result]"
) -> "Mapping[str, Sequence[Knockout]]":
    """Return the knock-outs of each trial, and add to `results` why others have none."""
    if not flags.knockout:
        return {}
    from ablate.training.posthoc.evaluate import Result
    from ablate.training.posthoc.planned_knockouts import find_knockouts

    knockouts = find_knockouts(store, [each.key for each in models], flags.measure, refit_each=flags.refit_each)
    results += [
        Result(trial, "knockout", None, "failed", message=str(error), problem=error)
        for trial, error in knockouts.problems.items()
    ]
    return knockouts.planned


def _ingest(store: "Store") -> None:
    """Ingest the new records. If that fails, the next reader ingests them."""
    from ablate.store.analysis.judge import conclude
    from ablate.store.ingest.ingest import ingest

    try:
        ingest(store.layout.root, wait=True, threads=1, thorough=True, conclude=conclude)
    except AblateError as error:
        tell(f"results are on disk but not in the store yet: {error}")


def _report(results: "Sequence[Result]", labels: dict[str, tuple[str, int]], trials: int, *, as_json: bool) -> int:
    """Show the results and return the exit code. With a single trial, raise its error."""
    failed = [each for each in results if each.outcome == "failed"]
    if trials == 1 and len(results) == 1 and failed and failed[0].problem is not None:
        raise failed[0].problem
    if as_json:
        names = ("trial", "kind", "evaluation", "outcome", "message")
        data = [
            {**{name: getattr(each, name) for name in names}, "measured": [row._asdict() for row in each.measured]}
            for each in results
        ]
        write_json("evaluate", data)
    else:
        _show(results, labels)
    for each in results:
        if each.message is not None:
            tell(f"trial {each.trial[:8]}: {f'{each.kind}: ' if each.kind else ''}{each.message}")
    counts = Counter(each.outcome for each in results)
    words: dict[Outcome, str] = {"made": "made", "there": "made before", "own": "part of the trial", "failed": "failed"}
    told = ", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome])
    tell(f"{format_count(len(results), 'evaluation')} of {format_count(trials, 'trial')}: {told}")
    return 4 if failed else 0


def _show(results: "Sequence[Result]", labels: dict[str, tuple[str, int]]) -> None:
    rows = []
    for result in results:
        label, seed = labels.get(result.trial, ("-", None))
        for each in result.measured:
            point = ", ".join(f"{axis}={value:g}" for axis, value in each.point.items())
            rows.append((result.trial[:8], label, seed, each.name, point, each.value, each.se_items, each.items))
    if rows:
        headings = ["trial", "cell", "seed", "name", "evaluation conditions", "value", "se over items", "items"]
        write_table(headings, rows[:_MOST_SHOWN])
    if len(rows) > _MOST_SHOWN:
        tell(f"{_MOST_SHOWN} of {len(rows)} values are shown; the table evaluation has all")
