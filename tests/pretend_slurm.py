"""SLURM's commands as shell scripts on PATH that keep a queue in a directory and refuse on demand; nothing runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
ClusterName             = pretend
MaxArraySize            = {max_array}
SchedulerParameters     = (null)
"""
PARTITIONS = """\
PartitionName=debug AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A MaxTime=UNLIMITED TotalNodes=2 State=UP
PartitionName=short AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxTime=00:05:00 TotalNodes=2 State=UP
PartitionName=gpu AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxTime=2-00:00:00 TotalNodes=4 State=UP
"""
NODES = """\
debug|8
short|8
gpu|32
gpu|64
"""
_COMMANDS = {
    "sbatch": """
text=$(cat)
case " $* " in
  *" --test-only "*)
    if [ -e "$here/test_says" ]; then cat "$here/test_says" >&2; exit 1; fi
    case "$*" in *--array=0-*) last=${*##*--array=0-} ;; *) last=0 ;; esac
    queued=$(ls "$here/jobs" | wc -l)
    [ $((queued + last)) -lt "$(cat "$here/room")" ] || { echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1; }
    echo "sbatch: Job 1 to start" >&2; exit 0 ;;
esac
[ ! -e "$here/full" ] || { cat "$here/full" >&2; exec sleep 60; }
n=$(( $(cat "$here/last") + 1 ))
if [ -e "$here/refuse_$n" ]; then cat "$here/refuse_$n" >&2; rm "$here/refuse_$n"; exit 1; fi
echo "$n" > "$here/last"
printf '%s\\n' "$text" > "$here/jobs/$n"
env > "$here/env"
[ ! -e "$here/banner" ] || cat "$here/banner"
echo "Submitted batch job $n"
""",
    "scancel": """
[ ! -e "$here/scancel_says" ] || { cat "$here/scancel_says" >&2; exit 1; }
for word in "$@"; do
  case $word in --name=*) grep -l -- "--job-name=${word#--name=}\\$" "$here"/jobs/* 2>/dev/null | xargs -r rm ;; esac
done
exit 0
""",
    "squeue": """
[ ! -e "$here/squeue_says" ] || { cat "$here/squeue_says" >&2; exit 1; }
jobs= name=
for word in "$@"; do
  case $before in -j) jobs=",$word," ;; --name) name=$word ;; esac
  before=$word
done
for path in "$here"/jobs/*; do
  [ -e "$path" ] || continue
  job=${path##*/}
  [ -z "$jobs" ] || case $jobs in *",$job,"*) ;; *) continue ;; esac
  called=$(sed -n 's/^#SBATCH --job-name=//p' "$path")
  [ -z "$name" ] || [ "$name" = "$called" ] || continue
  reason=Priority; [ ! -e "$here/held/$job" ] || reason=$(cat "$here/held/$job"); reason=${reason:-JobHeldUser}
  last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$path")
  for task in $([ -n "$last" ] && seq 0 "$last" || echo N/A); do
    echo "$job|$task|PENDING|$reason||N/A|1:00:00|$called|"
  done
done
""",
    "scontrol": """
[ ! -e "$here/scontrol_says" ] || { cat "$here/scontrol_says" >&2; exit 1; }
case "$*" in
  "show config") cat "$here/config" ;;
  *"show partition") cat "$here/partitions" ;;
  "show hostnames "*) echo "$3" | tr , '\n' ;;
esac
""",
    "sinfo": 'case " $* " in *" --Node "*) printf "n1\\nn2\\n" ;; *) cat "$here/nodes" ;; esac',
    "sacct": "",
    "srun": "",
}


Fake = Callable[[str, str], Path]
"""Puts a shell script with that name and body on PATH; returns the file of its calls."""


class PretendSlurm:
    """A queue in the directory `place`; the scripts read it anew at every call."""

    def __init__(self, place: Path, *, max_array: int = 1001, room: int = 10_000) -> None:
        """It takes arrays while jobs and tasks of the next are at most `room`."""
        self.place = place
        (place / "jobs").mkdir(parents=True)
        (place / "bin").mkdir()
        (place / "held").mkdir()
        (place / "last").write_text("0\n")
        (place / "room").write_text(str(room))
        (place / "config").write_text(CONFIG.format(max_array=max_array))
        (place / "partitions").write_text(PARTITIONS)
        (place / "nodes").write_text(NODES)
        for name, body in _COMMANDS.items():
            path = place / "bin" / name
            path.write_text(f'#!/bin/sh\nhere={place}\necho "{name} $*" >> "$here/calls"\n{body}')
            path.chmod(0o755)

    @property
    def path(self) -> str:
        """PATH with its commands first."""
        return f"{self.place / 'bin'}:{os.environ['PATH']}"

    def says(self, command: str, text: str) -> None:
        """Make a command fail with `text`: `test`, `scancel`, `squeue`, `scontrol`; or `refuse_<job>`."""
        (self.place / (command if command.startswith("refuse") else f"{command}_says")).write_text(text)

    def works(self, command: str) -> None:
        """Make it work again."""
        (self.place / f"{command}_says").unlink()

    def jobs(self) -> dict[int, str]:
        """Scripts in the queue by job."""
        return {int(path.name): path.read_text() for path in sorted((self.place / "jobs").iterdir())}

    def hold(self, job: int, reason: str) -> None:
        """A job is held, as `reason` says."""
        (self.place / "held" / str(job)).write_text(reason)

    def held_jobs(self) -> list[int]:
        """Return the held jobs."""
        return sorted(int(path.name) for path in (self.place / "held").iterdir())

    def forget(self) -> None:
        """All jobs have ended."""
        for path in (self.place / "jobs").iterdir():
            path.unlink()

    def calls(self, command: str) -> list[str]:
        """Arguments of the calls of a command, in order."""
        path = self.place / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{command} ") for line in lines if line.startswith(f"{command} ")]


def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> PretendSlurm:
    """A cluster in `tmp_path` that commands of this process are on, and nothing of a real one."""
    made = PretendSlurm(tmp_path / "slurm", **limits)
    monkeypatch.setenv("PATH", made.path)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    return made
