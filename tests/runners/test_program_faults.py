"""Programs as trials: what cannot start is refused, and what a program does to its files and processes."""

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from own_processes import leaving_grid
from program_scripts import Script, alive, trained
from warm import warm_server

from ablate import Command
from ablate.grid import SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Local
from ablate.runners.execution.progress import GridMember, Tally, progress_line
from ablate.runners.execution.run import run_campaign
from ablate.runners.planning.duration import measure_seconds
from ablate.runners.processes.training_context import Failed
from ablate.runners.provenance import snapshot_contents
from ablate.store.files.attempts import Heartbeat
from ablate.store.files.layout import Layout
from ablate.store.files.records import Progress
from ablate.store.files.trial_state import trial_state

LOSS = r"loss (?P<loss>\S+)"


# Specs:


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": [""]}, "argv"),
        ({"argv": ["{p}"], "fields": {"p": " "}}, "argv"),
        ({"argv": ["python", "{a}"], "fields": {"a": "x\0"}}, "NUL"),
        ({"argv": ["python"], "environment": {"A": "\0"}}, "NUL"),
        ({"argv": ["python"], "cwd": "a\0"}, "NUL"),
        ({"argv": ["python"], "environment": {"A=B": "1"}}, "'A=B'"),
        ({"argv": ["python"], "environment": {"": "1"}}, "''"),
        ({"argv": ["python"], "environment": {"ABLATE_SEED": "1"}}, "ABLATE_SEED"),
        ({"argv": ["python", "{config}"], "config": "a.toml"}, "'a.toml'"),
        ({"argv": ["python", "{config}"], "config": "{seed}.json"}, "plain"),
        ({"argv": ["python"], "checkpoint": "{directory}/ckpt.pt"}, "directory"),
        ({"argv": ["python"], "checkpoint": "/elsewhere/*.pt"}, "directory"),
        ({"argv": ["python"], "checkpoint": "../*.pt"}, "directory"),
        ({"argv": ["python"], "steps": 0}, "0 is no whole number"),
        ({"argv": ["python"], "steps": True}, "True is no whole number"),
        ({"argv": ["python"], "steps": 1.5}, "1.5 is no whole number"),
        ({"argv": ["python", "{n}"], "fields": {"n": 0}, "steps": "n"}, "0 is no whole number"),
        ({"argv": ["python", "{n}"], "fields": {"n": "12"}, "steps": "n"}, "'n'"),
        ({"argv": ["python", "{x}"], "fields": {"x": object()}}, "object"),
        ({"argv": ["python", "{x}"], "fields": {"x": {1: 2}}}, "'1'"),
        ({"argv": ["python", "{x:.2f}"], "fields": {"x": "a"}}, "x:.2f"),
    ],
)
def test_a_field_that_no_program_could_use_is_refused_when_it_is_declared(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Command(**fields)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which specs are made."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


@pytest.mark.parametrize(
    ("argv", "more", "words"),
    [
        (["./plain.sh"], {}, "chmod"),
        (["./bare.sh"], {}, "#!"),
        (["./odd.sh"], {}, "/no/such/sh"),
        (["good.sh"], {}, "./good.sh"),
        (["./good.sh"], {"cwd": "empty"}, "empty"),
        (["sh", "-c", "true"], {"cwd": "nowhere"}, "nowhere"),
        (["sh", "-c", "true"], {"environment": {"PATH": "/nowhere"}}, "PATH"),
    ],
)
def test_what_cannot_start_is_refused_by_a_plan_and_does_not_start(
    argv: list[str], more: dict[str, Any], words: str, place: Path, memory: Any
) -> None:
    for name, mode in (("plain", 0o644), ("good", 0o755), ("odd", 0o755)):
        write(place / f"{name}.sh", f"#!{'/no/such/sh' if name == 'odd' else '/bin/sh'}\n", mode)
    write(place / "bare.sh", "true\n", 0o755)
    (place / "empty").mkdir()
    command = Command(argv=argv, **more)
    with pytest.raises(SpecError, match=words):
        command.check_inputs()
    with pytest.raises(Failed):
        trained(command, memory(), place)


def test_a_script_finds_the_modules_beside_it_in_the_worker_of_a_snapshot(
    script: Script, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    command = script("import beside; print('loss', beside.loss)", evaluations=LOSS)
    write(tmp_path / "code" / "beside.py", "loss = 1.5")
    context = memory()
    trained(command, context, tmp_path)
    assert context.evaluations[0, "loss"][0] == 1.5


@pytest.mark.parametrize(
    ("argv", "cwd"),
    [
        (["sub/run.sh"], "sub"),
        (["/bin/sh", "sub/run.sh"], "sub"),
        (["./tools/sh", "sub/run.sh"], "sub"),
        (["/bin/sh", "sub/run"], "sub"),
        (["sub/run"], "sub"),
        (["sh", "-c", "sub/run.sh"], "sub"),
        (["sh", "-c", "./sub/run.sh; true"], "."),
        (["python", "-m", "sub.report", "data/a.json"], "."),
    ],
)
def test_a_program_starts_in_the_folder_of_its_script(argv: list[str], cwd: str, place: Path, memory: Any) -> None:
    for name in ("run.sh", "run"):
        write(place / "sub" / name, "#!/bin/sh\necho loss 1\n", 0o755)
    write(place / "sub" / "report.py", "print('loss 1')")
    write(place / "data" / "a.json", "{}")
    (place / "tools").mkdir()
    (place / "tools" / "sh").symlink_to("/bin/sh")
    command = Command(argv=argv, metrics=LOSS)
    assert Path(command.cwd) == (place / cwd).resolve()
    command.check_inputs()
    context = memory()
    trained(command, context, place)
    assert context.logged == {0: {"loss": 1.0}}


# Code:


RUN = """#!/bin/sh
. ./settings
python -m tool.part --config conf/a.json
"$(dirname "$0")/more.sh" --out out.json 2> errors.sh
sh made.sh | tee -a made2.sh > results.json
echo "loss 1"
echo x > out.json; echo x > results.json; echo x > log.json; echo x > made2.sh
"""


@pytest.mark.parametrize("argv", [["sh", "run.sh"], ["./run.sh"], ["/bin/sh", "run.sh"]])
def test_the_code_of_a_shell_script_is_what_it_uses_and_nothing_that_it_writes(
    argv: list[str], place: Path, memory: Any
) -> None:
    write(place / "run.sh", RUN, 0o755)
    write(place / "more.sh", "#!/bin/sh\n", 0o755)
    write(place / "made.sh", "true\n")
    write(place / "settings", "a=1")
    write(place / "conf" / "a.json", "{}")
    write(place / "tool" / "part.py", "")
    command = Command(argv=[*argv, "--log=log.json", "--log", "errors.sh"], metrics=LOSS)
    before = command.other_code()
    used = ("run.sh", "more.sh", "made.sh", "settings", "conf/a.json", "tool/part.py")
    assert set(before) == {f"file {name}" for name in used}
    trained(command, memory(), place)
    assert {each.name for each in place.glob("*.json")} == {"out.json", "results.json", "log.json"}
    assert command.other_code() == before
    for name in used:
        kept = (place / name).read_text(encoding="utf-8")
        (place / name).write_text(f"{kept}\nb=2\n", encoding="utf-8")
        after = command.other_code()
        assert {each for each in after if after[each] != before[each]} == {f"file {name}"}
        (place / name).write_text(kept, encoding="utf-8")


def test_git_is_recorded_and_no_part_of_the_code(place: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_contents, "GIT_KNOWN_S", 1e-9)

    def git(*words: str) -> str:
        told = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()

    def recorded() -> Any:
        context = memory()
        trained(command, context, place / "files")
        return context.began[2]

    write(place / "run.sh", "echo loss 1\n")
    command = Command(argv=["sh", "run.sh"], metrics=LOSS)
    code = command.other_code()
    assert recorded() is None
    git("init", "-q")
    assert recorded() is None
    git("add", "run.sh")
    git("commit", "-qm", "first")
    first = git("rev-parse", "HEAD")
    assert recorded() == {"git": {"commit": first, "dirty": False}}
    git("commit", "-qm", "second", "--allow-empty")
    assert recorded()["git"]["commit"] == git("rev-parse", "HEAD") != first
    assert command.other_code() == code
    write(place / "run.sh", "echo loss 2\n")
    assert recorded()["git"]["dirty"]


# Reports:


HISTORY = """
import json, os, time
lines = []
for step in range(1, 6):
    lines.append(json.dumps({"step": step, "loss": step / 2}))
    with open(os.environ["ABLATE_METRICS"], "w") as file:
        file.write("\\n".join(lines[START:]) + "\\n")
    time.sleep(0.3)
"""


def test_a_file_of_values_that_is_written_anew_must_hold_what_it_held(
    script: Script, memory: Any, tmp_path: Path
) -> None:
    context = memory()
    trained(script(HISTORY.replace("START", "0")), context, tmp_path)
    assert context.logged == {step: {"loss": step / 2} for step in range(1, 6)}
    with pytest.raises(Failed, match="written anew"):
        trained(script(HISTORY.replace("START", "-1")), memory(), tmp_path)


STOPPING = """
import os, signal, sys, time
def end(*_):
    with open(os.environ["ABLATE_METRICS"], "a") as file:
        file.write('{"step": 2, "lo')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("step 1 loss 1", flush=True)
time.sleep(600)
"""


def test_half_a_line_at_a_stop_is_no_fault(script: Script, memory: Any, tmp_path: Path) -> None:
    context = memory(stop_at={1})
    assert trained(script(STOPPING, metrics=rf"step (?P<step>\d+) {LOSS}"), context, tmp_path).stopped
    assert context.logged == {1: {"loss": 1.0}}


LAST = """
import os, subprocess, sys
print("step 3 loss 1", flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
os._exit(0)
"""


@pytest.mark.parametrize(("steps", "stopped"), [(None, False), (3, False), (4, True)])
def test_a_stop_after_the_end_discards_no_finished_run(
    steps: int | None, stopped: bool, script: Script, memory: Any, tmp_path: Path
) -> None:
    """A scheduler signals the program, too: of one that has `steps` left, an end with 0 is no finished run."""

    class Late(memory):  # type: ignore[misc]
        asked = 0

        def stop_requested(self) -> bool:
            self.asked += self.step == 3
            return self.asked > 3  # while what the program left has its second

    result = trained(script(LAST, metrics=rf"step (?P<step>\d+) {LOSS}", steps=steps), Late(), tmp_path)
    assert result.stopped == stopped


# Progress:


def test_without_steps_there_is_no_share_of_them(script: Script, memory: Any, tmp_path: Path) -> None:
    text = "print('step 1 loss 1\\nstep 2 loss 1\\nstep 200 loss 1')"
    command = script(text, metrics=rf"step (?P<step>\d+) {LOSS}")
    assert measure_seconds(command, lambda each, context: trained(each, context, tmp_path)) is None
    told: list[tuple[int, int | None]] = []

    class Telling(memory):  # type: ignore[misc]
        def progress(self, step: int, steps: int | None, loss: float) -> None:
            del loss
            told.append((step, steps))

    trained(command, Telling(), tmp_path)
    assert told == [(1, None), (2, None), (200, None)]
    tally = Tally(Counter({("g", "cell"): 1}), [GridMember(("g", "cell"), 0)])
    tally.begin(0, 0)
    tally.advance(0, 2, None, 0.5)
    assert "step 2 loss 0.5" in progress_line(tally)
    assert "%" not in progress_line(tally)
    layout = Layout(tmp_path)
    layout.heartbeat("0" * 32, 1).parent.mkdir(parents=True)
    beat = Heartbeat(layout.heartbeat("0" * 32, 1))
    beat.tell(2, None, 0.5)
    layout.heartbeat("0" * 32, 1).touch()
    beat.beat()
    read = Progress.of(layout, "0" * 32, 1)
    assert read is not None
    assert (read.step, read.steps, read.loss) == (2, None, 0.5)


def test_a_plan_does_not_show_what_a_measured_program_prints(place: Path, ablate: Any) -> None:
    lines = "\n".join(f"echo step {step} loss 1; sleep 0.1" for step in range(1, 9))
    write(place / "run.sh", lines)
    write(
        place / "spec.py",
        f"""
from ablate import Command, Grid
base = Command(argv=["sh", "run.sh"], metrics=r"step (?P<step>\\d+) {LOSS}", steps=80)
grid = Grid(name="told", base=base, seeds=range(2))
""",
    )
    told = ablate("plan", "spec.py", "--calibrate")
    assert "1 model" in told.out
    assert "step 1 loss" not in told.out + told.err


def test_the_worker_of_a_program_loads_no_torch(place: Path) -> None:
    write(place / "run.sh", "echo loss 1\n")
    text = f"""
    import sys
    from pathlib import Path
    from ablate import Command
    from ablate.runners.attempts.experiments import train_experiment
    from ablate.runners.processes.training_context import TrainingContext
    command = Command(argv=["sh", "run.sh"], metrics={LOSS!r})
    train_experiment(command, TrainingContext(), Path("files"))
    print("torch" in sys.modules)
    """
    done = [sys.executable, "-c", textwrap.dedent(text)]
    assert subprocess.run(done, capture_output=True, text=True, check=True).stdout == "loss 1\nFalse\n"


# Processes that a `train` leaves:


def test_processes_that_a_train_leaves_are_ended_and_told(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    grid = leaving_grid(str(pids))
    request = RunRequest(tmp_path / "campaign", land_every_s=None, progress=False)
    result = run_campaign(request.root, [grid], Local(1, start=warm_server), request)
    assert (result.done, result.failed) == (2, 0)
    left = [int(each) for each in pids.read_text().split()]
    assert len(left) == 4
    assert not any(map(alive, left))
    layout = Layout(request.root)
    ends = [trial_state(layout, key).attempts[-1].end for key in layout.trial_keys()]
    assert all("2 processes" in end["changes"][0] for end in ends if end)
