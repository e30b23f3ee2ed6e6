"""The shell script around a worker, run with pretended SLURM commands."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest
from waiting import wait_until

from ablate.runners.backends.slurm.submit.job_arrays import MOST_DEATHS, MOST_REFUSALS, TEARDOWN, setup_lines
from ablate.runners.backends.slurm.worker.exit_codes import ExitCode

COMMAND = """#!/bin/bash
printf '%s\\n' "{name} $*" >> {log}
here={here}
name={name}
{body}
"""

SQUEUE = """
n=$(cat "$here/asked" 2>/dev/null || echo 0); echo $((n + 1)) > "$here/asked"
if [ "$n" -lt "$(cat "$here/away" 2>/dev/null || echo 0)" ]; then
  echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1
fi
state=$(cat "$here/state" 2>/dev/null || echo 'RUNNING None')
[ "$state" != gone ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
echo "$state"
"""

SCONTROL = """
case $1 in
  requeue) [ ! -e "$here/refuses" ] || { rm "$here/refuses"; exit 1; }; echo 'COMPLETING None' > "$here/state" ;;
  --oneliner) echo "JobId=1 ExcNodeList=$(cat "$here/excluded" 2>/dev/null || echo '(null)') Features=(null)" ;;
  show) for node in ${3//,/ }; do echo "$node"; done ;;
esac
"""


class Ended(NamedTuple):
    status: int
    said: str
    commands: list[str]


class Script:
    """A batch script whose worker is a line of shell."""

    def __init__(self, place: Path, exclude: str | None = None, partition: str | None = None) -> None:
        self.place = place
        self.exclude = exclude
        self.partition = partition
        self.pause_s = 0.01
        for name, body in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
            self.pretend(name, body)
        self.environment = {
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "124",
            "SLURM_ARRAY_JOB_ID": "123",
            "SLURM_ARRAY_TASK_ID": "4",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURMD_NODENAME": "n1",
        }

    def pretend(self, name: str, body: str) -> None:
        path = self.place / "bin" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(COMMAND.format(name=name, log=self.place / "log", here=self.place, body=body))
        path.chmod(0o755)

    def text(self, worker: str, *user: str) -> str:
        setup = setup_lines(
            user, ["export TREE=there"], logs=self.place, partition=self.partition, exclude=self.exclude
        )
        setup.insert(0, f"ablate_first_pause={round(1000 * self.pause_s)}")
        return "\n".join(["#!/bin/bash", *setup, "", "# command", worker, "", "# teardown", *TEARDOWN])

    def run(self, worker: str, *user: str, **environment: str) -> Ended:
        done = subprocess.run(
            ["bash", "-c", self.text(worker, *user)],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(done.returncode, done.stdout + done.stderr, self.commands())

    def commands(self) -> list[str]:
        log = self.place / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def requeues(ended: Ended) -> int:
    return sum(line.startswith("scontrol requeue 123_4") for line in ended.commands)


def test_a_worker_is_queued_again_once_if_it_left_rows_behind(tmp_path: Path) -> None:
    for status in (0, 86, 88, 85, 1, 127, 139):
        script, again = Script(tmp_path / str(status)), status not in (0, 86, 88)
        ended = script.run(f"(exit {status})")
        assert (ended.status, requeues(ended), bool(ended.commands)) == (status, again, again)
        assert (": queued again" in ended.said) == again
        assert ("its time limit leaves no time to begin" in ended.said) == (status == 88)


def test_the_script_and_the_page_know_every_exit_code_of_a_worker() -> None:
    script = files("ablate.runners.backends.slurm.submit").joinpath("worker.sh").read_text(encoding="utf-8")
    cases = {int(code) for codes in re.findall(r"^ {4}([\d|]+)\)", script, re.MULTILINE) for code in codes.split("|")}
    assert cases == set(ExitCode) - {ExitCode.UNEXPECTED}  # that is a death, as any other code
    page = (
        (Path(__file__).parents[2] / "docs" / "administrators.md")
        .read_text(encoding="utf-8")
        .partition("## Queued again")[2]
        .partition("\n## ")[0]
    )
    told = {int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in codes.split(", ")}
    assert told == cases


def test_each_job_and_task_is_queued_again_by_its_number_and_counts_its_own_deaths(script: Script) -> None:
    assert all(life(script, 137, 0) for _ in range(MOST_DEATHS - 1))
    script.environment["SLURM_ARRAY_TASK_ID"] = "5"
    script.run("(exit 137)")
    assert "scontrol requeue 123_5" in script.commands()
    (script.place / "state").unlink()
    del script.environment["SLURM_ARRAY_JOB_ID"], script.environment["SLURM_ARRAY_TASK_ID"]
    assert "scontrol requeue 124" in script.run("(exit 85)").commands


def test_a_cancelled_job_stays_cancelled_and_a_worker_that_was_busy_at_the_time_limit_goes_on(tmp_path: Path) -> None:
    cancelled = {"COMPLETING None": 85, "CANCELLED None": 87, "PENDING BeginTime": 137, "gone": 85}
    for state, status in {**cancelled, "COMPLETING TimeLimit": 143, "TIMEOUT TimeLimit": 143}.items():
        script = Script(tmp_path / state.replace(" ", "_"))
        (script.place / "state").write_text(state)
        ended = script.run(f"(exit {status})")
        assert (ended.status, requeues(ended)) == (status, state not in cancelled)
        assert ("not queued again: it was cancelled" in ended.said) == (state in cancelled)


def life(script: Script, status: int, restarts: int) -> bool:
    """Whether a task that leaves with `status` is queued again, and then runs."""
    before = requeues(Ended(0, "", script.commands()))
    ended = script.run(f"(exit {status})", SLURM_RESTART_COUNT=str(restarts))
    (script.place / "state").unlink(missing_ok=True)
    return requeues(ended) > before


@pytest.mark.parametrize("status", [1, 137, 87])
def test_a_worker_that_always_dies_is_given_up_unless_it_is_preempted(script: Script, status: int) -> None:
    """Refusals are deaths if nodes cannot be excluded."""
    for restarts in range(MOST_DEATHS + 1):
        (script.place / "state").write_text("COMPLETING Preempted")
        assert not life(script, status, restarts)
    assert [life(script, status, restarts) for restarts in range(MOST_DEATHS)] == [True] * (MOST_DEATHS - 1) + [False]
    ended = script.run(f"(exit {status})", SLURM_RESTART_COUNT=str(MOST_DEATHS))
    assert status == 87 or f"the worker died with status {status}, and that was death" in ended.said


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=123.batch. Some tasks were OOM Killed.",
        "slurmstepd: error: Step 123.0 exceeded memory limit (900 > 500), being killed",
        "slurmstepd: error: Exceeded job memory limit",
    ],
)
def test_the_words_of_slurm_for_a_lack_of_memory_are_known(script: Script, line: str) -> None:
    """An earlier life may have had too little memory; this one died of something else."""
    log, noted = script.place / "task.log", script.place / "123_4.memory"
    for worker, told in ((f"echo {shlex.quote(line)} >&2; (exit 137)", True), ("echo 'slurmstepd'; (exit 1)", False)):
        with log.open("a") as file:
            subprocess.run(
                ["bash", "-c", script.text(worker)], env=script.environment, stdout=file, stderr=file, check=False
            )
        assert noted.exists() == told
        assert log.read_text().count("the memory of the job was used up") == 1
        noted.unlink(missing_ok=True)


def test_only_deaths_in_a_row_are_counted_and_orderly_ends_and_full_disks_are_none(script: Script) -> None:
    assert life(script, 137, 500)  # it left in good order, or was pre-empted, 500 times before
    statuses = [*[137] * (MOST_DEATHS - 2), 85] * 2
    assert all(life(script, status, 501 + at) for at, status in enumerate(statuses))
    assert all(life(script, 89, restarts) for restarts in range(MOST_DEATHS))
    assert all(life(script, 137, 600) for _ in range(MOST_DEATHS - 1))
    assert not life(script, 137, 609)
    assert life(script, 85, 610)


def test_restarts_end_where_their_numbers_do_and_count_as_deaths_if_those_cannot_be_noted(script: Script) -> None:
    assert [life(script, status, restarts) for status in (85, 87) for restarts in (998, 999)] == [True, False] * 2
    (script.place / "123_4.deaths").unlink(missing_ok=True)
    (script.place / "123_4.deaths").mkdir()
    assert life(script, 137, MOST_DEATHS - 2)
    assert not life(script, 137, MOST_DEATHS - 1)


def test_the_controller_may_be_away(script: Script) -> None:
    (script.place / "away").write_text("7")
    (script.place / "refuses").touch()
    ended = script.run("(exit 85)")
    assert sum(line.startswith("squeue") for line in ended.commands) == 9
    assert requeues(ended) == 2
    assert ended.said.count("the controller does not answer") == 1


def pauses(ended: Ended) -> list[float]:
    return [float(line.split()[1]) for line in ended.commands if line.startswith("sleep")]


def test_while_the_controller_is_away_pauses_double_up_to_five_minutes_and_an_hour_in_all(script: Script) -> None:
    script.pretend("sleep", "")
    script.pause_s = 10
    (script.place / "away").write_text("1000")
    ended = script.run("(exit 85)")
    found = pauses(ended)
    longest = [min(300, 10 * 2**at) for at in range(len(found))]
    assert all(most / 2 <= pause <= most for pause, most in zip(found, longest, strict=True))
    assert 3300 < sum(found) <= 3600
    assert len(set(found[-8:])) > 1  # the longest ones are drawn, too
    assert requeues(ended) == 0
    assert "not queued again: the controller has not answered for an hour" in ended.said
    assert ended.status == 85


def test_a_signal_ends_a_pause_that_sleep_would_not_and_makes_the_next_short(script: Script) -> None:
    """At the time limit KILL follows TERM within seconds, and here `sleep` hears nothing of TERM."""
    script.pretend(
        "sleep", 'if [ ! -e "$here/slept" ]; then touch "$here/slept"; trap "" TERM; exec -a x tail -f /dev/null; fi'
    )
    script.pause_s = 200
    (script.place / "away").write_text("2")
    process = start(script, "(exit 85)")
    wait_until((script.place / "slept").exists)
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait() == 85
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
    ended = Ended(85, "", script.commands())
    assert requeues(ended) == 1
    assert len(pauses(ended)) == 2
    assert pauses(ended)[1] <= 200


def test_a_node_that_refuses_is_kept_away_after_the_task_is_queued_again(script: Script) -> None:
    (script.place / "excluded").write_text("n7")
    ended = script.run("(exit 87)")
    words = [line.split()[1] for line in ended.commands if line.startswith("scontrol")]
    assert words.index("requeue") < words.index("update")
    assert ended.commands[-1] == "scontrol update JobId=123_4 ExcNodeList=n7,n1"
    (script.place / "excluded").write_text("n7,n8,n9")
    (script.place / "state").unlink()
    script.exclude = "n7,n8,n9"  # by the user: they have not refused
    assert requeues(script.run("(exit 87)")) == requeues(ended) + 1


SINFO = """
for word in "$@"; do
  case $word in --partition=*) for each in $(tr , ' ' <<< "${word#*=}"); do cat "$here/nodes of $each"; done ;; esac
done
"""


def test_a_task_waits_for_a_node_of_any_partition(tmp_path: Path) -> None:
    """It runs in gpu, whose only node refuses it; that it may run in old is in its request alone."""
    for partition, again in ((None, 0), ("gpu", 0), ("gpu,old", 1), ("old,gpu", 1)):
        script = Script(tmp_path / str(partition), partition=partition)
        script.pretend("sinfo", SINFO)
        (script.place / "nodes of gpu").write_text("n1\n")
        (script.place / "nodes of old").write_text("n1\nn2\n")
        ended = script.run("(exit 87)")
        assert requeues(ended) == again
        assert ("no node of partition gpu is left" in ended.said) != again
    (script.place / "state").unlink()
    (script.place / "excluded").write_text("n2")
    assert "no node of partition old,gpu is left that has not refused it" in script.run("(exit 87)").said
    script = Script(tmp_path / "many")
    (script.place / "excluded").write_text(",".join(f"n{number}" for number in range(2, 2 + MOST_REFUSALS)))
    ended = script.run("(exit 87)")
    assert (requeues(ended), ended.status) == (0, 87)
    assert f"{MOST_REFUSALS} other nodes have refused it before" in ended.said


def test_the_users_lines_come_first_and_keep_the_node_away_if_they_end_the_script(script: Script) -> None:
    assert "2 there" in script.run('echo "$A $TREE"', "A=$((1 + 1))").said
    ended = script.run("touch never", "module_load_cuda || exit 3")
    assert "the lines before the worker ended with 3 on n1" in ended.said
    assert requeues(ended) == 1
    assert any("ExcNodeList=n1" in line for line in ended.commands)
    assert ended.status == 87


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR2])
def test_the_shell_waits_for_its_worker_through_signals_and_then_decides(script: Script, sent: signal.Signals) -> None:
    worker = f"bash -c {shlex.quote('trap : TERM USR2; touch up; while [ ! -e go ]; do sleep 0.02; done; exit 85')}"
    process = start(script, worker)
    wait_until((script.place / "up").exists)
    process.send_signal(sent)  # to the shell alone
    os.killpg(process.pid, sent)
    (script.place / "go").touch()
    assert process.wait() == 85
    assert any(line.startswith("scontrol requeue") for line in script.commands())


def start(script: Script, worker: str) -> "subprocess.Popen[bytes]":
    command = ["bash", "-c", script.text(worker)]
    return subprocess.Popen(command, env=script.environment, cwd=script.place, start_new_session=True)
