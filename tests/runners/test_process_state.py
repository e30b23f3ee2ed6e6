"""A trial that changes its process changes no other trial: it is named in its record, and its process is replaced."""

import gc
import inspect
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from real_spec import real_spec
from slurm_node import end_of, send
from torch.nn import functional
from toy_campaign import toy_grid
from warm import real_server

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Outcome
from ablate.runners.backends.slurm.worker.assignment import Arguments, Assignment
from ablate.runners.backends.slurm.worker.record_file import WorkerRecordFile
from ablate.runners.backends.slurm.worker.signals import SignalState
from ablate.runners.backends.slurm.worker.supervisor import _Supervisor
from ablate.runners.backends.slurm.worker.task_environment import here
from ablate.runners.execution import Local
from ablate.runners.execution.run import run_campaign
from ablate.runners.processes.core_functions import CoreFunctions
from ablate.runners.processes.process_state import ProcessState
from ablate.runners.processes.training_context import NullContext
from ablate.runners.provenance.code import spec_module_name
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.ingest import ingest
from ablate.store.store import Store
from ablate.training.loop.train import train
from ablate.training.optimisers.muon import _OrthogonalMomentum

ACTING = '''
import os, signal, sys
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.training.optimisers import Training
from ablate.variants.stages.families import LogScore

whole = F.linear


def torn(*arguments):
    return whole(*arguments) * 1.5


ACTS = {
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "grad": lambda: torch.set_grad_enabled(False),
    "linear": lambda: setattr(F, "linear", torn),
    "einsum": lambda: setattr(torch.Tensor, "softmax", torn),
    "builtin": lambda: setattr(torch.nn.functional, "len", torn),
    "denormals": lambda: torch.set_flush_denormal(True),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "kernels": lambda: torch.backends.cuda.enable_math_sdp(False),
    "folder": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o027),
    "schedule": lambda: setattr(Training, "lr", lambda self, step: 1e-5),
    "environment": lambda: os.environ.update(LEFT_BEHIND="1"),
    "handler": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "hook": lambda: torch.nn.modules.module.register_module_forward_hook(lambda *_: None),
}


class Acting(LogScore):
    """The exponential, after an act."""

    source: ClassVar[str] = "none"
    kind: Literal["acting"] = "acting"
    act: str

    def log_score(self, a: Tensor) -> Tensor:
        ACTS[self.act]()
        return a

    def oracle(self, a: float) -> float:
        import math

        return math.exp(a)


from ablate.variants import Operator


def acting(act):
    return Operator(name=act, score=Acting(act=act))
'''

CHANGES = {
    "autocast": "autocast on cpu",
    "dtype": "default dtype",
    "grad": "grad mode",
    "linear": "torch.nn.functional.linear",
    "einsum": "torch.Tensor.softmax",
    "builtin": "torch.nn.functional.len",
    "denormals": "denormal numbers",
    "precision": "float32 matmul precision",
    "deterministic": "deterministic algorithms",
    "kernels": "math attention",
    "folder": "working directory",
    "umask": "umask",
    "schedule": "ablate.training.optimisers.training_config.Training.lr",
    "environment": "environment variable LEFT_BEHIND",
    "handler": "signal handler SIGUSR1",
    "hook": "global hooks",
}
"""The name in the record for each act."""


def acting_spec(folder: Path, acts: list[str], *, seeds: int, before: str = ACTING) -> Path:
    path = folder / "spec.py"
    before = before.replace('"acting"', f'"acting_{folder.name}"')  # one class for each file
    operators = ", ".join(["softmax()", *(f"acting({act!r})" for act in acts)])
    path.write_text(real_spec("acts", training="steps=3", operators=operators, seeds=seeds, before=before))
    return path


def losses(root: Path) -> dict[int, list[float]]:
    """All losses of softmax by seed."""
    ingest(root, threads=1)
    with Store.open(root, refresh=False) as store:
        rows = store.sql(
            "SELECT seed, value FROM v_metric JOIN grid_trial USING (trial) WHERE label LIKE '%softmax%' "
            "AND name = 'loss' ORDER BY seed, step"
        ).rows()
    found: dict[int, list[float]] = {}
    for seed, value in rows:
        found.setdefault(seed, []).append(value)
    return found


def records(root: Path) -> list[tuple[str, int, list[str]]]:
    """Operator, process and changes of each attempt that ended."""
    layout, found = Layout(root), []
    with Store.open(root, refresh=False) as store:
        labels = dict(store.sql("SELECT trial, operator FROM grid_trial").rows())
        columns = dict(store.sql("SELECT trial, changes FROM attempt").rows())
    for key in layout.trial_keys():
        for attempt in trial_state(layout, key).attempts:
            assert attempt.end is not None
            assert columns[key] == attempt.end["changes"]
            found.append((labels[key], attempt.start["pid"], attempt.end["changes"]))
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[float]]:
    """The losses of softmax without neighbours."""
    folder = tmp_path_factory.mktemp("alone")
    grids = load_spec_file(acting_spec(folder, [], seeds=2, before="")).values()
    options = RunRequest(progress=False, land_every_s=None, files=(folder / "spec.py",))
    assert run_campaign(folder / "campaign", grids, Local(1, start=real_server), options).done == 2
    return losses(folder / "campaign")


def assert_named_and_kept_apart(root: Path, acts: list[str]) -> None:
    found = records(root)
    assert {operator for operator, _, _ in found} == {"softmax", *acts}
    for operator, pid, changes in found:
        if operator == "softmax":
            assert changes == []
        else:
            assert CHANGES[operator] in changes
            assert [other for other, its, named in found if its == pid and named] == [operator]


def test_a_trial_that_changes_its_process_changes_no_other(
    tmp_path: Path, alone: dict[int, list[float]], capfd: pytest.CaptureFixture[str]
) -> None:
    path = acting_spec(tmp_path, [*CHANGES], seeds=2)
    options = RunRequest(progress=False, land_every_s=None, files=(path,))
    run_campaign(tmp_path / "campaign", load_spec_file(path).values(), Local(1, start=real_server), options)
    assert losses(tmp_path / "campaign") == alone
    assert_named_and_kept_apart(tmp_path / "campaign", [*CHANGES])
    said = capfd.readouterr().err
    assert all(change in said for change in CHANGES.values())


def test_on_a_cluster_node_too(tmp_path: Path, alone: dict[int, list[float]]) -> None:
    acts = ["autocast", "linear"]
    path = acting_spec(tmp_path, acts, seeds=2)
    (grid,) = load_spec_file(path).values()
    sent = send(tmp_path / "campaign", grid, job={"files": [str(path)]})
    status, _, _ = end_of(sent.start())
    assert status == 0
    assert losses(tmp_path / "campaign") == alone
    assert_named_and_kept_apart(tmp_path / "campaign", acts)


def test_a_worker_number_is_never_used_twice_however_many_processes_were_replaced(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=[0]))
    assignment = Assignment(Arguments(str(tmp_path), sent.submission, 0, 0), here())
    overseer = _Supervisor(assignment, WorkerRecordFile(assignment), SignalState())
    numbers = set()
    for row in range(2_500):
        numbers.add(overseer.worker_number())
        overseer.row_started(row % 2, 1, 0)
        overseer.row_ended(Outcome(row % 2, "failed", 1, spent=True, changes=("default dtype",)))
    assert len(numbers) == 2_500
    overseer._replaced -= 1_000  # so many died or left
    with pytest.raises(EnvironmentProblem):
        overseer.worker_number()


PACKAGE = """
import os, signal
from torch.nn import functional

os.environ["SET_AT_IMPORT"] = "1"
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
functional.linear = print
"""


@pytest.fixture
def state() -> ProcessState:
    import_module("torch._dynamo")  # it wraps a function of torch when it is loaded
    found = ProcessState()
    found.retake()
    return found


def test_what_an_installed_package_sets_when_it_is_imported_is_restored_and_not_told(
    tmp_path: Path, state: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in (("site-packages", "installed_thing"), ("own", "own_thing")):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{name}.py").write_text(PACKAGE)
        monkeypatch.syspath_prepend(tmp_path / place)
    state.retake()
    whole, handler = functional.linear, signal.getsignal(signal.SIGUSR1)
    with state.isolate(0):
        import_module("installed_thing")
        assert "SET_AT_IMPORT" not in os.environ
        assert functional.linear is whole
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert state.changes() == []
    with state.isolate(0):
        import_module("own_thing")
    named = {"environment variable SET_AT_IMPORT", "signal handler SIGUSR1", "torch.nn.functional.linear"}
    assert set(state.changes()) == named
    assert state.restore() == []
    assert functional.linear is whole
    del sys.modules["own_thing"], sys.modules["installed_thing"]  # their files go, and a snapshot would miss them


DRAWING = ACTING.replace(
    "ACTS[self.act]()", "DRAWN.append((random.random(), float(np.random.rand()), float(torch.rand(()))))"
)


def test_training_outside_workers_restores_the_process_and_tells(
    tmp_path: Path, state: ProcessState, capfd: pytest.CaptureFixture[str]
) -> None:
    path = acting_spec(tmp_path, ["grad", "linear", "folder"], seeds=1)
    (grid,) = load_spec_file(path).values()
    state.retake()
    for planned in grid.trials():
        with suppress(RuntimeError):
            train(planned.trial, NullContext())
        assert state.changes() == []
        act, said = planned.trial.operator.name, capfd.readouterr().err
        assert (CHANGES[act] in said) if act in CHANGES else said == ""


FIRST = """
import sys
from ablate.runners.processes.process_state import ProcessState
state = ProcessState()
assert "torch" not in sys.modules
with state.isolate(0):
    import torch
assert state.changes() == []
torch.abs = print
assert state.changes() == ["torch.abs"]
assert state.restore() == []
"""


def test_torch_that_a_trial_imports_first_is_no_change_and_is_compared_from_then_on() -> None:
    """The compared functions are looked up while torch imports other packages, and is half there itself."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "counts"), [("no_method_of_torch", False), ("__len__", True), ("half", True), ("forward", True)]
)
def test_a_new_method_counts_if_it_hides_another(name: str, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package transformers adds `smart_apply` to modules, which no code of torch calls."""
    functions = CoreFunctions()
    monkeypatch.setattr(torch.nn.Softmax, name, len, raising=False)
    assert bool(functions.changed()) is counts


def test_modules_that_other_threads_import_meanwhile_stop_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    functions = CoreFunctions()
    before, threshold = len(sys.modules), gc.get_threshold()

    def add(*_: object) -> None:
        name = f"appearing_{len(sys.modules)}"
        sys.modules[name] = ModuleType(name)

    gc.callbacks.append(add)
    gc.set_threshold(1)
    try:
        add()
        assert functions.changed() == []
    finally:
        gc.callbacks.remove(add)
        gc.set_threshold(*threshold)
    assert len(sys.modules) > before + 1


def test_a_trial_that_loads_torch_first_changes_nothing() -> None:
    text = """
    import sys
    from ablate.runners.processes.process_state import ProcessState
    state = ProcessState()
    assert "torch" not in sys.modules
    with state.isolate(0):
        import torch
    print(state.changes())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_value_that_answers_no_question_stops_no_comparison(
    state: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `torch.classes`, which a trial may load first."""
    state.retake()
    monkeypatch.setattr(torch, "classes", torch._classes._Classes())
    assert state.changes() == []


def test_what_torch_wraps_around_an_optimiser_of_the_package_is_no_change(
    state: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch does so when the first one is made."""
    step = inspect.unwrap(_OrthogonalMomentum.step)
    assert not hasattr(step, "hooked")
    monkeypatch.setattr(_OrthogonalMomentum, "step", step)
    state.retake()
    torch.optim.Optimizer.__init__(object.__new__(_OrthogonalMomentum), [torch.nn.Parameter(torch.zeros(2, 2))], {})
    assert _OrthogonalMomentum.step is not step
    assert state.changes() == []


def test_trials_of_one_process_draw_the_same_random_numbers(tmp_path: Path) -> None:
    path = acting_spec(
        tmp_path, ["one", "another"], seeds=1, before=f"import random\nimport numpy as np\nDRAWN = []\n{DRAWING}"
    )
    (grid,) = load_spec_file(path).values()
    drawn, outside = sys.modules[spec_module_name(path)].DRAWN, random.getstate()
    found = []
    for planned in grid.trials():
        train(planned.trial, NullContext())
        found.append([*drawn])
        drawn.clear()
    assert [] in found  # softmax
    first, second = filter(None, found)
    assert first == second
    assert random.getstate() == outside
