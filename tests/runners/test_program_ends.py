"""Programs as trials: how they end, what is left of them, and that they go on; as real processes."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from program_scripts import Script, alive, trained
from waiting import wait_until

from ablate import Command
from ablate.grid import SpecError
from ablate.runners.processes.failure import failure_of
from ablate.runners.processes.training_context import Failed, ProgramFailed, UnfitCheckpoint
from ablate.runners.provenance.code import Codes

# Ends:


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("import sys; print('first'); sys.exit(3)", "error", "train.py ended with code 3: first"),
        ("raise KeyError('x 12')", "error", "code 1: KeyError: 'x 12'"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("import os; os.abort()", "killed", "SIGABRT"),
        ("raise MemoryError", "out_of_memory", "code 1"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "out_of_memory", "code 1"),
    ],
)
def test_a_fault_has_its_code_or_signal_and_the_end_of_the_output(
    text: str, reason: str, words: str, script: Script, memory: Any, tmp_path: Path
) -> None:
    with pytest.raises(ProgramFailed) as caught:
        trained(script(text), memory(), tmp_path)
    failure = failure_of(caught.value)
    assert failure.reason == reason
    assert words in failure.message
    assert failure.traceback is None or failure.message.endswith(failure.traceback.splitlines()[-1])


def test_faults_of_one_kind_are_one_group(script: Script, memory: Any, tmp_path: Path) -> None:
    def kind(code: int, said: str) -> str:
        with pytest.raises(ProgramFailed) as caught:
            trained(script(f"import sys; print({said!r}); sys.exit({code})"), memory(), tmp_path)
        return failure_of(caught.value).fingerprint

    assert kind(3, "at step 12") == kind(3, "at step 40")
    assert len({kind(3, "at step 12"), kind(4, "at step 12"), kind(3, "no such file")}) == 3


@pytest.mark.parametrize("argv", [["no-such-program"], ["./no-such.sh"], ["python", "nope.py"]])
def test_a_program_that_does_not_exist_is_refused_by_a_plan_and_fails_in_a_worker(
    argv: list[str], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(argv=argv)
    with pytest.raises(SpecError, match="there is no"):
        _ = Codes().sources(command), command.check_inputs()
    with pytest.raises(Failed):
        trained(command, memory(), tmp_path)


CHILD = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
APART = CHILD.replace("])", "], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)")


@pytest.mark.parametrize("child", [CHILD, APART])
def test_processes_that_a_program_leaves_are_ended_and_its_result_counts(
    child: str, script: Script, memory: Any, tmp_path: Path, capsys: Any
) -> None:
    context = memory()
    result = trained(script(child + "print('loss', child.pid)", metrics=r"loss (?P<loss>\S+)"), context, tmp_path)
    assert not result.stopped
    wait_until(lambda: not alive(int(context.logged[0]["loss"])))  # a killed process needs time to end
    assert "1 process" in capsys.readouterr().err


STOPPED = """
import os, signal, sys, time
def end(*_):
    print("loss 2", flush=True)
    open(os.environ["ABLATE_DIRECTORY"] + "/saved.pt", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, {handler})
print("step 1 loss 1", flush=True)
while True:
    time.sleep(0.01)
"""


def test_at_a_stop_a_program_may_save_before_it_ends(script: Script, memory: Any, tmp_path: Path) -> None:
    context = memory(stop_at={1})
    command = script(
        STOPPED.format(handler="end"), metrics=r"(step (?P<step>\d+) )?loss (?P<loss>\S+)", checkpoint="*.pt"
    ).changed(metrics=(r"step (?P<step>\d+) loss (?P<loss>\S+)",), evaluations=(r"^loss (?P<end>\S+)",))
    result = trained(command, context, tmp_path)
    assert (result.stopped, result.step) == (True, 1)
    assert context.evaluations == {(1, "end"): (2.0, 1, None)}
    assert [step for step, _ in context.checkpoints] == [1]


@pytest.mark.parametrize("child", [CHILD, APART])
def test_a_program_that_ignores_a_stop_is_killed_with_all_that_it_started(
    child: str, script: Script, memory: Any, tmp_path: Path
) -> None:
    context = memory(stop_at={1})
    text = child + STOPPED.format(handler="signal.SIG_IGN").replace('"step 1 loss 1"', 'f"step 1 loss {child.pid}"')
    command = script(text, metrics=r"step (?P<step>\d+) loss (?P<loss>\S+)", grace=0.2)
    result = trained(command, context, tmp_path)
    assert (result.stopped, context.checkpoints) == (True, [])
    wait_until(lambda: not alive(int(context.logged[1]["loss"])))


def test_what_a_shell_runs_is_told_of_a_stop(script: Script, memory: Any, tmp_path: Path) -> None:
    context = memory(stop_at={1})
    script(STOPPED.format(handler="end"))
    shell = Command(
        argv=["sh", "-c", f"{sys.executable} code/train.py; true"],
        metrics=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        checkpoint="*.pt",
    )
    assert trained(shell, context, tmp_path).stopped
    assert (tmp_path / "files" / "saved.pt").exists()


@pytest.mark.parametrize("child", [CHILD, APART])
def test_a_program_dies_with_its_worker(child: str, script: Script, tmp_path: Path) -> None:
    script(child + "print('loss', child.pid, flush=True)\nimport time; time.sleep(600)")
    worker = """
    import sys
    from pathlib import Path
    from ablate import Command
    from ablate.runners.attempts.experiments import train_experiment
    from ablate.runners.processes.training_context import TrainingContext
    class Tell(TrainingContext):
        def metrics(self, step, values):
            print(int(values["child"]), file=sys.stderr, flush=True)
    train_experiment(Command(argv=["python", "code/train.py"], metrics=r"loss (?P<child>\\S+)"), Tell(), Path("files"))
    """
    command = [sys.executable, "-c", textwrap.dedent(worker)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        assert running.stderr is not None
        started = int(running.stderr.readline())
        assert alive(started)
        running.send_signal(signal.SIGKILL)
        wait_until(lambda: not alive(started))


# Stops and resumed runs:


RESUMING = """
import os, random, sys, time
place = os.environ["ABLATE_DIRECTORY"] + "/state.txt"
step, value = 0, 0.0
if "--resume" in sys.argv:
    with open(place) as file:
        step, value = int(file.readline()), float(file.readline())
    print("resumed at", step)
while step < 12:
    step += 1
    value += random.Random(step).random()
    print(f"step {step} loss {value!r}", flush=True)
    if step % 3 == 0:
        with open(place + ".new", "w") as file:
            file.write(f"{step}\\n{value!r}")
        os.replace(place + ".new", place)
    if step in STOPS:
        time.sleep(600)
print(f"final {value!r}")
"""
PATTERNS: dict[str, Any] = {
    "metrics": r"step (?P<step>\d+) loss (?P<loss>\S+)",
    "evaluations": r"final (?P<final>\S+)",
    "checkpoint": "state.txt",
    "resume": ["--resume"],
}


def test_a_stopped_program_goes_on_from_its_checkpoint_as_if_undisturbed(
    script: Script, memory: Any, tmp_path: Path
) -> None:
    straight, broken = memory(), memory(stop_at={4, 8})
    trained(script(RESUMING.replace("STOPS", "()"), **PATTERNS), straight, tmp_path / "straight")
    steps = []
    for stops in ("(4,)", "(8,)", "()"):
        result = trained(script(RESUMING.replace("STOPS", stops), **PATTERNS), broken, tmp_path / "broken")
        broken.stop_at -= {result.step}
        steps.append((result.step, result.stopped))
    assert [stopped for _, stopped in steps] == [True, True, False]
    assert broken.logged == straight.logged
    assert len(straight.logged) == 12
    assert broken.evaluations == straight.evaluations != {}


def test_a_run_that_begins_anew_does_not_take_files_of_an_earlier_one(
    script: Script, memory: Any, tmp_path: Path
) -> None:
    place = tmp_path / "files"
    place.mkdir()
    (place / "state.txt").write_text("11\n0.5")
    context = memory()
    trained(script(RESUMING.replace("STOPS", "()"), **PATTERNS), context, tmp_path)
    assert len(context.logged) == 12
    assert (tmp_path / "files-1" / "state.txt").read_text() == "11\n0.5"


def test_a_checkpoint_whose_file_is_gone_does_not_fit(script: Script, memory: Any, tmp_path: Path) -> None:
    context = memory(stop_at={4})
    trained(script(RESUMING.replace("STOPS", "(4,)"), **PATTERNS), context, tmp_path)
    (tmp_path / "files" / "state.txt").unlink()
    context.stop_at = set()
    with pytest.raises(UnfitCheckpoint):
        trained(script(RESUMING.replace("STOPS", "()"), **PATTERNS), context, tmp_path)


def test_a_checkpoint_that_goes_while_it_is_looked_at_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs replace their checkpoints at any moment."""
    from ablate.runners.programs.training import _Checkpoints

    for name in ("ckpt-1.pt", "ckpt-2.pt"):
        (tmp_path / name).write_text("x")
    plain = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        if path.name == "ckpt-1.pt":
            path.unlink(missing_ok=True)
        return plain(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    files = _Checkpoints("ckpt-*.pt", tmp_path)
    assert [Path(name).name for name, *_ in files._seen] == ["ckpt-2.pt"]
