"""Training code of a user's own: its keys, its loops, its stops, and what it records."""

import contextlib
import itertools
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import own_experiment
import own_loader
import pytest
import torch
from own_experiment import Line, line_grid
from warm import warm_server

from ablate.grid import EnvironmentProblem, Experiment, Grid, Run, SpecError
from ablate.grid.experiment import reference_of
from ablate.runners.attempts import loop_state
from ablate.runners.attempts.experiments import experiment_class, train_experiment
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.trial_run import TrialRun
from ablate.runners.execution import Inline, Local
from ablate.runners.execution.run import RunResult, run_campaign
from ablate.runners.processes.training_context import Failed, TrainingResult, TrainingStopped, UnfitCheckpoint
from ablate.store.files.layout import Layout

FILE = Path(own_experiment.__file__)


def trained(experiment: Experiment, context: Any, place: Path) -> TrainingResult:
    """Train as a worker does, with random numbers of the seed."""
    from ablate.runners.processes.process_state import ProcessState

    with ProcessState().isolate(experiment.seed):
        return train_experiment(experiment, context, place)


def to_the_end(experiment: Experiment, context: Any, place: Path) -> list[int]:
    """Train until no stop is left; the steps of the results, which are the costs of all attempts."""
    steps, cost = list[int](), 0.0
    while True:
        result = trained(experiment, context, place)
        steps.append(result.step)
        cost += result.cost["steps"]
        if not result.stopped:
            assert cost == result.step
            return steps
        context.stop_at -= {result.step}


def of(train: Callable[[Any, Any], None], **fields: Any) -> Experiment:
    """An experiment with this `train`."""
    kind = f"tests_{next(_numbers)}"
    annotations = {"kind": Literal[kind], **{name: type(value) for name, value in fields.items()}}
    body = {"__annotations__": annotations, "kind": kind, "train": train, "__module__": __name__, **fields}
    made: Experiment = type(kind, (Experiment,), body)()
    return made


def nothing(_self: Any, _run: TrialRun) -> None:
    """Train nothing."""


_numbers = itertools.count()


def run(root: Path, grid: Grid, machine: Inline | Local | None = None, **options: Any) -> RunResult:
    request = RunRequest(land_every_s=None, progress=False, **{"files": (FILE,), **options})
    return run_campaign(root, [grid], machine or Inline(), request)


# Keys and classes:


def test_the_key_of_an_experiment_has_its_kind_and_not_its_place() -> None:
    first, second = of(nothing, lr=0.1), of(nothing, lr=0.1)
    assert first.key != second.key
    assert first.changed(execution={"threads": 4}).key == first.key
    assert f'"kind":"{first.label}"' in first.canonical
    assert type(first).model_validate(first.data()) == first


def test_an_experiment_has_a_kind_of_its_own_and_a_train(memory: Any) -> None:
    class Nameless(Experiment):
        lr: float = 0.1

    with pytest.raises(ValueError, match="add kind: Literal"):
        Nameless()
    with pytest.raises(SpecError, match="'tests_line' is already"):

        class Other(Experiment):
            kind: Literal["tests_line"] = "tests_line"

    with pytest.raises(NotImplementedError, match="has no train"):
        trained(of(Experiment.train), memory(), Path())


def test_a_base_of_other_classes_trains_nothing_and_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    class Base(Experiment):
        kind: Literal["tests_base"] = "tests_base"
        lr: float = 0.1

    class Own(Base):
        kind: Literal["tests_own"] = "tests_own"  # type: ignore[assignment]

        def train(self, run: Run) -> None:
            run.log(0, loss=self.lr)

    assert run(tmp_path, Grid(name="g", base=Own(), seeds=[0]), files=()).done == 1
    with pytest.raises(SpecError, match="Base has no train"):
        run(tmp_path, Grid(name="h", base=Base(), seeds=[0]), files=())
    assert not Layout(tmp_path).grid_header("h").exists()


def test_a_plan_names_the_class_by_module_or_by_kind(tmp_path: Path) -> None:
    assert reference_of(Line) == "own_experiment:tests_line"
    assert experiment_class("own_experiment:tests_line") is Line
    here = of(nothing)
    assert experiment_class(here.label) is type(here)
    for nobody in ("nobody", "own_experiment:nobody", "no_module:nobody"):
        with pytest.raises(SpecError, match="defines an experiment of kind 'nobody'"):
            experiment_class(nobody)


def test_a_subclass_of_trial_has_its_fields_and_the_training_of_trials(tiny: Any, tmp_path: Path, memory: Any) -> None:
    from ablate.training.trial import Trial

    class Noted(Trial):
        kind: Literal["tests_noted"] = "tests_noted"
        remark: str = ""

    fields = {name: getattr(tiny, name) for name in Trial.model_fields}
    noted = Noted(**fields, remark="x")
    assert noted.key not in (tiny.key, noted.changed(remark="y").key)
    contexts = memory(), memory()
    for trial, context in zip((tiny, noted), contexts, strict=True):
        trained(trial, context, tmp_path)
    assert contexts[0].losses() == contexts[1].losses() != []


def test_a_train_that_hands_over_begins_once_and_records_more_unless_it_stopped(
    tiny: Any, tmp_path: Path, memory: Any
) -> None:
    from ablate.training.trial import Trial

    class Followed(Trial):
        kind: Literal["tests_followed"] = "tests_followed"

        def train(self, run: Any) -> None:
            super().train(run)
            run.log(99, after=1.0)
            run.evaluate("after", 2.0)
            run.cost(after_s=3.0, parameters=10)

    fields = {name: getattr(tiny, name) for name in Trial.model_fields}
    context, begun = memory(stop_at={3}), []
    context.begins = lambda *record: begun.append(record)
    first = trained(Followed(**fields), context, tmp_path)
    assert (first.stopped, first.step, 99 in context.logged, len(begun)) == (True, 3, False, 1)
    assert "after" not in {name for _, name in context.evaluations}
    context.stop_at.clear()
    last = trained(Followed(**fields), context, tmp_path)
    assert (last.stopped, context.logged[99]["after"], len(begun)) == (False, 1.0, 2)
    assert (context.evaluations[last.step, "after"][0], last.cost["after_s"], last.parameters) == (2.0, 3.0, 10)


def failing(experiment: Experiment, _: Any) -> TrainingResult:
    """Training that another function does, and cannot."""
    raise experiment.error  # type: ignore[attr-defined]


def lenient(self: Any, run: Any) -> None:
    """Go on whatever happens."""
    with contextlib.suppress(Exception):
        run.hand_over(f"{__name__}:failing")


@pytest.mark.parametrize("error", [SpecError("no file"), UnfitCheckpoint("other"), ValueError("x")], ids=repr)
def test_an_error_of_what_was_handed_over_stays_what_it_is(error: Exception, tmp_path: Path, memory: Any) -> None:
    experiment = of(lenient)
    experiment.__dict__["error"] = error
    with pytest.raises(type(error)) as caught:
        trained(experiment, memory(stop_at={0}), tmp_path)
    assert caught.value is error


# Loops:


@pytest.mark.parametrize("stops", [{1}, {4}, {3, 4, 9}, {11, 12}])
def test_a_run_that_stopped_and_went_on_equals_one_that_did_not(stops: set[int], tmp_path: Path, memory: Any) -> None:
    straight, broken = memory(), memory(stop_at=set(stops))
    for context in (straight, broken):
        keep_states(context)
    assert to_the_end(Line(seed=3), straight, tmp_path / "a") == [12]
    assert to_the_end(Line(seed=3), broken, tmp_path / "b") == [*sorted(stops), 12]
    assert broken.logged == straight.logged
    assert broken.evaluations == straight.evaluations
    assert broken.probes == straight.probes
    assert len(straight.logged) == 12


def keep_states(context: Any) -> None:
    """Let `keep` and `load_kept` work in memory."""
    states: dict[str, Any] = {}
    context.keep = lambda _step, state, name="": states.update({name: torch.utils._pytree.tree_map(_clone, state)})  # type: ignore[method-assign]
    context.load_kept = states.get  # type: ignore[method-assign]


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def test_after_a_stop_every_door_is_shut_and_a_train_that_returns_has_stopped(tmp_path: Path, memory: Any) -> None:
    raised: list[BaseException] = []

    def train(_self: Any, run: TrialRun) -> None:
        try:
            for step in run.steps(9, state={}):
                run.log(loss=step)
        except TrainingStopped:
            for call in (lambda: run.log(loss=1), lambda: run.evaluate("late", 1), lambda: run.save(9, {})):
                with pytest.raises(TrainingStopped) as caught:
                    call()
                raised.append(caught.value)

    context = memory(stop_at={4})
    result = trained(of(train), context, tmp_path)
    assert (result.stopped, result.step, len(raised)) == (True, 4, 3)
    assert context.evaluations == {}
    assert [step for step, _ in context.checkpoints] == [4]


def test_an_error_that_a_requested_stop_causes_is_a_stop(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        for step in run.steps(9, state={}):
            run.log(loss=step)
            if step == 5:
                context.stop_at = {4}  # the signal arrives while a step is at work
                raise RuntimeError("DataLoader worker is killed by signal: Terminated")

    context = memory()
    assert trained(of(train), context, tmp_path).stopped
    context = memory(stop_at={99})
    context.stop_requested = lambda: False  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="DataLoader"):
        trained(of(train), context, tmp_path)


def test_a_break_needs_finish(tmp_path: Path, memory: Any) -> None:
    def leave(_self: Any, run: TrialRun) -> None:
        for step in run.steps(9, state={}):
            run.log(loss=step)
            if step == 5:
                break

    def finish(_self: Any, run: TrialRun) -> None:
        for step in run.steps(9, state={}):
            run.log(loss=step)
            if step == 5:
                run.finish(step)
                break
        run.evaluate("val_loss", 1.0)

    with pytest.raises(Failed, match=r"at step 5 of 9.*run.finish"):
        trained(of(leave), memory(), tmp_path)
    context = memory()
    result = trained(of(finish), context, tmp_path)
    assert (result.step, result.stopped, [*context.evaluations]) == (5, False, [(5, "val_loss")])


def test_loops_go_on_in_the_one_that_was_at_work_and_what_is_between_sees_the_first(
    tmp_path: Path, memory: Any
) -> None:
    """A teacher is copied after the first loop, so the first loop's own weights must be back by then."""

    def train(_self: Any, run: TrialRun) -> None:
        weight, student = torch.zeros(()), torch.zeros(())
        for _ in run.steps(3, state={"weight": weight}, name="teacher"):
            weight += 1
            run.log(loss=weight)
        teacher = weight.clone()
        run.evaluate("teacher", teacher)
        for _ in run.steps(3, state={"weight": weight, "student": student}, name="student"):
            weight += 10
            student += teacher
            run.log(loss=student)
        run.evaluate("student", student)

    context = memory(stop_at={2, 5})
    assert to_the_end(of(train), context, tmp_path) == [2, 5, 6]
    assert context.evaluations == {(3, "teacher"): (3.0, 1, None), (6, "student"): (9.0, 1, None)}
    assert context.losses() == [1, 2, 3, 3, 6, 9]


def test_epochs_count_passes_and_restore_the_order(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        loader = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        for epoch, step, batch in run.epochs(3, loader, state={}):
            run.log({"val/first": batch[0], "epoch": epoch, "size": len(batch)})
            assert step <= 9

    straight, broken = memory(), memory(stop_at={2, 4})
    for context in (straight, broken):
        to_the_end(of(train), context, tmp_path)
    assert straight.logged == broken.logged
    assert [values["epoch"] for values in straight.logged.values()] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [values["size"] for values in straight.logged.values()] == [4, 4, 2] * 3


def test_by_hand_a_training_saves_and_restores_and_a_seen_stop_is_a_stop(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        step, state = run.restore() or (0, {"value": 0.0})
        value = state["value"]
        while step < 6:
            step, value = step + 1, value + float(torch.rand(()))
            run.log(step, loss=value)
            run.save(step, {"value": value})
            if run.stop_requested:
                return
        run.evaluate(step, "val_loss", value)

    straight, broken = memory(), memory(stop_at={2, 5})
    for context in (straight, broken):
        to_the_end(of(train, seed=7), context, tmp_path)
    assert straight.logged == broken.logged
    assert straight.evaluations == broken.evaluations != {}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lambda _: {"best": 1.0}, "give a function"),
        (lambda run: lambda: {"elsewhere": run.threads}, "no variable of train"),
        (lambda _: {"model": object()}, "a checkpoint cannot hold"),
        (lambda _: {"models": {"a": torch.nn.Linear(1, 1)}}, "a name of its own"),
        (lambda _: {"models": [torch.nn.Linear(1, 1)]}, "a name of its own"),
        (lambda _: {"model": torch.nn.Linear(1, 1).state_dict()}, "not model.state_dict"),
        (lambda _: {"optimiser": torch.optim.SGD([torch.zeros(1)]).state_dict()}, "not model.state_dict"),
        (lambda _: lambda: {"seen": [1, 2]}, "made anew"),
        (lambda _: lambda: {"mean": torch.zeros(2)}, "made anew"),
        (lambda _: lambda: {"mean": np.zeros(2)}, "made anew"),
        (lambda _: lambda: {"draws": torch.Generator()}, "made anew"),
        (lambda _: [1], r"\[1\], and no mapping"),
    ],
)
def test_a_state_that_a_resumed_run_could_not_put_back_is_refused_at_once(
    state: Callable[[Any], Any], words: str, tmp_path: Path, memory: Any
) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        for step in run.steps(3, state=state(run)):
            run.log(loss=step)

    context = memory()
    with pytest.raises(Failed, match=words):
        trained(of(train), context, tmp_path)
    assert context.logged == {}


def test_views_and_attributes_of_what_stays_are_put_back(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        model, array, holder = torch.nn.Linear(1, 1), np.zeros(4), SimpleNamespace(history=torch.zeros(0))
        state = lambda: {"weight": model.weight.data, "half": array[:2], "history": holder.history}  # noqa: E731
        for step in run.steps(5, state=state):
            with torch.no_grad():
                model.weight += step
            array[:2] += step
            holder.history = torch.cat([holder.history, model.weight.detach()[0]])
            run.log(loss=model.weight.sum() + array.sum() + holder.history.sum())

    straight, broken = memory(), memory(stop_at={2, 3})
    for context in (straight, broken):
        to_the_end(of(train), context, tmp_path)
    assert straight.losses() == broken.losses() != []


def test_several_loops_have_names_and_a_single_one_needs_no_copy_of_its_state(tmp_path: Path, memory: Any) -> None:
    def two(names: tuple[str, str]) -> Callable[[Any, TrialRun], None]:
        def train(_self: Any, run: TrialRun) -> None:
            for name in names:
                for step in run.steps(2, state={}, name=name):
                    run.log({f"loss{name}": step})

        return train

    assert trained(of(two(("a", "b"))), memory(), tmp_path).step == 4
    for names in (("", ""), ("", "b"), ("a", "")):
        with pytest.raises(Failed, match="give each one name="):
            trained(of(two(names)), memory(), tmp_path)

    copied: list[Any] = []

    def train(_self: Any, run: TrialRun) -> None:
        weight = torch.zeros(())
        for _ in run.steps(3, state={"weight": weight}, name=name):
            weight += 1
            run.log(loss=weight)
        context.stop_at.add(3)  # the request comes after the loop
        run.evaluate("weight", weight)

    for name, steps in (("named", [3, 3]), ("", [3, 3])):
        context = memory(save_at={2})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop_state, "copy_to_cpu", lambda contents: copied.append(contents) or contents)
            first = trained(of(train), context, tmp_path)
        assert first.stopped
        assert [step for step, _ in context.checkpoints] == ([2, 3] if name else [2])
        context.stop_at.clear()
        context.stop_requested = lambda: False
        assert [first.step, trained(of(train), context, tmp_path).step] == steps
        assert context.evaluations == {(3, "weight"): (3.0, 1, None)}
    assert len(copied) == 1


def test_a_checkpoint_of_other_code_does_not_fit(tmp_path: Path, memory: Any) -> None:
    def first(_self: Any, run: TrialRun) -> None:
        weight = torch.zeros(3)
        for _ in run.steps(4, state={"weight": weight}):
            run.log(loss=1)

    def second(_self: Any, run: TrialRun) -> None:
        other = torch.zeros(3)
        with pytest.raises(UnfitCheckpoint):
            next(iter(run.steps(4, state={"other": other})))

    context = memory(stop_at={2})
    trained(of(first), context, tmp_path)
    with pytest.raises(UnfitCheckpoint):  # also if training code goes on without it
        trained(of(second), context, tmp_path)


@pytest.mark.parametrize("misuse", ["nothing", "nested", "twice", "iterator", "unfit", "no_batches"])
def test_misuse_is_a_failure_of_the_trial(misuse: str, tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        if misuse == "nothing":
            return
        for step in run.steps(3, iter([1]) if misuse == "no_batches" else None, state={}):
            run.log(loss="high" if misuse == "unfit" else step)
            if misuse == "nested":
                [*run.steps(2, state={}, name="inner")]
        if misuse == "twice":
            [*run.steps(3, state={})]
        [*run.steps(3, run.batches(iter([1])), state={}, name="iterator")]

    with pytest.raises(Failed):
        trained(of(train), memory(), tmp_path)


def test_a_failure_that_training_tells_has_its_reason(tmp_path: Path, memory: Any) -> None:
    from ablate.runners.processes.failure import failure_of

    def train(_self: Any, run: TrialRun) -> None:
        try:
            run.fail("the loss was 4e9", "diverged")
        except Failed:
            run.log(loss=1)

    context = memory()
    with pytest.raises(Failed) as caught:
        trained(of(train), context, tmp_path)
    assert failure_of(caught.value)[:2] == ("diverged", "the loss was 4e9")
    assert context.logged == {}


def test_a_training_that_does_not_record_what_the_grid_compares_has_failed(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        run.log(0, loss=1.0)
        run.evaluate("valid_loss", 1.0)

    with pytest.raises(Failed, match=r"no 'val_loss'.* loss, valid_loss; did you mean 'valid_loss'"):
        train_experiment(of(train), memory(), tmp_path, lambda: "val_loss")
    assert train_experiment(of(train), memory(), tmp_path, lambda: "loss").step == 0


def test_a_device_that_is_not_here_is_no_fault_of_the_trial(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        with contextlib.suppress(EnvironmentProblem):
            assert run.device
        run.log(0, loss=1.0)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentProblem, match="no CUDA device"):
        trained(of(train).changed(execution={"device": "cuda"}), memory(), tmp_path)
    trained(of(train), memory(), tmp_path)


def test_device_threads_and_directory_are_those_of_every_run(tmp_path: Path) -> None:
    from ablate import Campaign

    for _ in range(2):
        with Campaign(tmp_path).start("g", label="a", seed=0) as logged:
            assert logged.threads == torch.get_num_threads()
            assert logged.device == ("cuda" if torch.cuda.is_available() else "cpu")
            logged.directory.joinpath("note").touch()
    assert logged.attempt == 2
    assert [each.name for each in logged.directory.iterdir()] == ["note"]


# Whole campaigns, in real processes:


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    root = tmp_path_factory.mktemp("straight") / "campaign"
    assert run(root, line_grid(execution={"checkpoint_s": 0})).done == 4
    return results(root)


def results(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All values of a campaign, by cell; the file of deaths is part of a spec."""
    from ablate.store.store import Store

    with Store.open(root) as store:
        every = {
            "metric": "SELECT label, seed, step, name, value FROM v_metric JOIN grid_trial USING (trial) "
            "WHERE NOT starts_with(name, 'system.') ORDER BY ALL",
            "final": "SELECT label, seed, name, CAST(point AS VARCHAR), value FROM v_final "
            "WHERE NOT starts_with(name, 'system.') ORDER BY ALL",
        }
        return {name: store.sql(query).rows() for name, query in every.items()}


def test_killed_and_interrupted_workers_leave_the_results_of_undisturbed_ones(
    straight: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("3 SIGKILL\n7 SIGTERM\n", encoding="utf-8")
    grid = line_grid(deaths=str(deaths), execution={"checkpoint_s": 0})
    machine = Local(2, start=warm_server)
    while (result := run(tmp_path / "campaign", grid, machine)).stopped:
        assert result.failed == 0
    assert results(tmp_path / "campaign") == straight
    assert deaths.read_text(encoding="utf-8") == ""
    layout = Layout(tmp_path / "campaign")
    assert sum(len(layout.attempts(key)) for key in layout.trial_keys()) > 4


# Found by a reviewer:


def test_what_a_loop_saves_and_what_training_saves_by_hand_do_not_mix(tmp_path: Path, memory: Any) -> None:
    def inside(_self: Any, run: TrialRun) -> None:
        for step in run.steps(3, state={}):
            run.save(step, {})

    def before(_self: Any, run: TrialRun) -> None:
        run.save(1, {})
        [*run.steps(3, state={})]

    for train in (inside, before):
        with pytest.raises(Failed, match=r"run.save came .* saves its own state"):
            trained(of(train), memory(), tmp_path)


def test_nothing_is_recorded_after_the_end(tmp_path: Path, memory: Any) -> None:
    kept: list[TrialRun] = []

    def train(_self: Any, run: TrialRun) -> None:
        run.log(1, loss=1.0)
        kept.append(run)

    context = memory()
    trained(of(train), context, tmp_path)
    for call in (lambda: kept[0].log(2, loss=1.0), lambda: kept[0].evaluate(2, "late", 1.0)):
        with pytest.raises(SpecError, match="this one has ended"):
            call()
    assert list(context.logged) == [1]
    assert context.evaluations == {}


def test_an_early_end_of_a_loop_leads_to_the_next_one_also_after_a_stop(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        weight = torch.zeros(())
        for step in run.steps(9, state={"weight": weight}, name="first"):
            weight += 1
            run.log(loss=weight)
            if step == 3:
                run.finish(step)
                break
        for _ in run.steps(2, state={"weight": weight}, name="second"):
            weight += 10
            run.log(loss=weight)
        run.evaluate("weight", weight)

    for stops in (set(), {2}, {4}):
        context = memory(stop_at=stops)
        assert to_the_end(of(train), context, tmp_path) == [*stops, 5]
        assert context.losses() == [1, 2, 3, 13, 23]
        assert context.evaluations == {(5, "weight"): (23.0, 1, None)}


@pytest.mark.parametrize("last", [2, 999])
def test_finish_takes_the_step_at_work_and_ends_the_loop(last: int, tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        for step in run.steps(9, state={}):
            run.log(loss=step)
            if step == min(last, 5):
                run.finish(last)

    with pytest.raises(Failed, match=r"went on after run.finish\(2\)|got step 999"):
        trained(of(train), memory(), tmp_path)


class _Cancelled(BaseException):
    pass


@pytest.mark.parametrize(("error", "fails"), [(SystemExit(3), True), (SystemExit(0), False), (_Cancelled(), True)])
def test_an_exit_ends_the_trial_and_not_the_worker(
    error: BaseException, fails: bool, tmp_path: Path, memory: Any
) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        run.log(1, loss=1.0)
        raise error

    if fails:
        with pytest.raises(Failed):
            trained(of(train), memory(), tmp_path)
    else:
        assert not trained(of(train), memory(), tmp_path).stopped


def test_an_exit_because_of_a_stop_is_a_stop(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        try:
            for step in run.steps(9, state={}):
                run.log(loss=step)
        finally:
            raise SystemExit(1)

    assert trained(of(train), memory(stop_at={4}), tmp_path).stopped


def test_a_tensor_that_grows_and_generators_of_every_library_are_put_back(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: TrialRun) -> None:
        history, own, other = torch.zeros(0), random.Random(1), np.random.default_rng(1)
        for _ in run.steps(5, state=lambda: {"history": history, "own": own, "other": other}):  # noqa: B023
            history = torch.cat([history, torch.tensor([own.random() + other.random()])])
            run.log(loss=history.sum())

    straight, broken = memory(), memory(stop_at={2, 3})
    for context in (straight, broken):
        to_the_end(of(train), context, tmp_path)
    assert straight.losses() == broken.losses()


@pytest.mark.parametrize("name", ["../../x", "", "a b", ".x"])
def test_a_kept_state_stays_in_its_folder(name: str, tmp_path: Path, memory: Any) -> None:
    with pytest.raises(Failed, match="write letters"):
        trained(of(lambda _self, run: run.keep(name, {"x": 1})), memory(), tmp_path)


def test_loaders_that_a_resumed_run_cannot_repeat_are_refused(tmp_path: Path, memory: Any) -> None:
    class Half(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

        def __len__(self) -> int:
            return 4

    DataLoader = torch.utils.data.DataLoader
    persistent = DataLoader(range(4), num_workers=1, persistent_workers=True)
    empty = DataLoader(range(3), batch_size=4, drop_last=True)

    def batches(_self: Any, run: TrialRun) -> None:
        [*run.steps(3, run.batches(persistent), state={})]

    def nothing_left(_self: Any, run: TrialRun) -> None:
        [*run.epochs(3, empty, state={})]

    def half(_self: Any, run: TrialRun) -> None:
        [*run.epochs(2, DataLoader(Half()), state={})]

    for train, words in (
        (batches, "persistent"),
        (nothing_left, "no batch"),
        (half, "has the length . and began epoch 2"),
    ):
        with pytest.raises(Failed, match=words):
            trained(of(train), memory(), tmp_path)


def test_a_train_of_another_form_is_refused_where_its_class_is_made() -> None:
    async def late(_self: Any, _run: Any) -> None: ...

    for train in (late, lambda _self: None):
        with pytest.raises(SpecError, match="train"):
            of(train)  # type: ignore[arg-type]


class _Far(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def test_metrics_on_a_device_are_read_a_call_later_and_none_is_lost(tmp_path: Path, memory: Any) -> None:
    seen: list[list[int]] = []

    def train(_self: Any, run: TrialRun) -> None:
        for step in run.steps(3, state={}):
            run.log(loss=torch.tensor(step / 2).as_subclass(_Far), rate=0.1 * step)
            seen.append(sorted(context.logged))

    context = memory()
    trained(of(train), context, tmp_path)
    assert seen == [[], [1], [1, 2]]
    assert context.logged == {step: {"loss": step / 2, "rate": 0.1 * step} for step in (1, 2, 3)}


def test_a_checkpoint_that_is_not_used_is_told_where_the_run_was_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("6 SIGINT\n", encoding="utf-8")
    grid = line_grid(seeds=range(1), deaths=str(deaths), execution={"checkpoint_s": 0})
    root = tmp_path / "campaign"
    assert run(root, grid).stopped == 2
    *_, newest = sorted(root.glob("trials/*/*/*/checkpoint/*.pt"))
    newest.write_bytes(newest.read_bytes()[:-1])
    capsys.readouterr()
    assert run(root, grid, Local(1, start=warm_server)).done == 2
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "torn or altered" in line]
    assert newest.name in told


def test_a_state_that_does_not_fit_is_told_and_the_one_before_is_used(tmp_path: Path) -> None:
    said: list[str] = []

    def train(_self: Any, run: TrialRun) -> None:
        weight = torch.zeros(3 if said else 2)
        for step in run.steps(3, state={"weight": weight}):
            run.log(loss=step)
            if not said:
                said.append("stop")
                signal.raise_signal(signal.SIGINT)

    grid = Grid(name="g", base=of(train), axes=[], seeds=[0])
    assert run(tmp_path, grid, files=()).stopped == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.runners.execution.progress.ProgressDisplay.note", lambda _, text: said.append(text))
        assert run(tmp_path, grid, files=()).done == 1
    (line,) = [each for each in said if "set aside" in each]
    assert "step 1" in line


def test_a_loader_that_outlives_its_training_ends_with_it_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Local(1, start=warm_server)
    assert run(tmp_path / "campaign", own_loader.grid, machine, files=(Path(own_loader.__file__),)).done == 4
    told = [line for line in capsys.readouterr().err.splitlines() if "left running" in line]
    assert len(told) == 2
    assert all("pt_data_worker" in line and "keeps=true" in line for line in told)
