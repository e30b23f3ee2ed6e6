"""The shell around a worker: what runs before it on the node, and what becomes of the task when it has left.

`ABLATE_END` decides by the exit status of the worker (the codes are those of `runners.slurm.node`), whatever line the
script ends at. It is plain bash and needs scontrol, squeue and sinfo only. No loop depends on another program: SLURM
sends TERM to whatever runs, so that `$(seq 20)` may be empty.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

MOST_DEATHS = 10
"""Of a worker, refusals among them, since it last left in good order; what SLURM queues again by itself is none."""

MOST_REFUSALS = 3
"""Nodes that may refuse a worker, each of which is kept away from it."""

_MOST_RESTARTS = 999
"""For whatever reason: the numbers of a task's processes leave room for no more."""

_END = r"""
# The worker is this task. TERM and USR2 are for Python: bash waits for it, and then decides below.
trap : TERM USR2
ablate_task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}}
ablate_task=${ablate_task:-$SLURM_JOB_ID}
ablate_deaths=$ablate_logs/$ablate_task.deaths
ablate_began=
ablate_say() { printf '%s ablate: %s\n' "$(date '+%F %T')" "$*" >&2; }

# 0: the task is running, or SLURM ended it at its time limit; 1: it was cancelled, or SLURM queues it again by itself.
# Asks again while the controller is away, for an hour at most.
ablate_mine() {
  local found attempt
  for ((attempt = 1; attempt <= 360; attempt++)); do
    if found=$(squeue --noheader --array --jobs="$ablate_task" --format='%T %r' 2>&1); then
      case $found in
        *RUNNING*|*TIMEOUT*|*COMPLETING*TimeLimit*) return 0 ;;
        *) return 1 ;;
      esac
    fi
    case $found in *'Invalid job id'*) return 1 ;; esac
    [ "$attempt" -gt 1 ] || ablate_say "the controller does not answer; asking again: $found"
    sleep "$ablate_pause"
  done
  return 1
}

ablate_requeue() {
  local attempt
  if [ "$restarts" -ge "$ablate_most_restarts" ]; then
    ablate_say "not queued again: that was restart $restarts"
    return 1
  fi
  for ((attempt = 1; attempt <= 360; attempt++)); do
    ablate_mine || { ablate_say "not queued again: it was cancelled, or SLURM has queued it itself"; return 1; }
    ablate_say "queued again: $1"
    scontrol requeue "$ablate_task" && return 0
    sleep "$ablate_pause"
  done
  return 1
}

# Again after a death or a refusal, unless those were too many; where they cannot be noted, all restarts count as such.
ablate_retry() {
  local noted=() deaths=$((restarts + 1))
  ablate_mine || { ablate_say "not queued again: it was cancelled, or SLURM has queued it itself"; return 1; }
  if { printf '%s: %s\n' "$SLURMD_NODENAME" "$1" >> "$ablate_deaths" && mapfile -t noted < "$ablate_deaths"; } \
    2>/dev/null; then deaths=${#noted[@]}; fi
  if [ "$deaths" -ge "$ablate_most_deaths" ]; then
    ablate_say "not queued again: $1, and that was death $deaths since it last left in good order"
    return 1
  fi
  ablate_requeue "$1"
}

# Without the last node a task would wait for ever.
# SLURM excludes nodes only of a task that waits, so first it is queued again; TERM follows, and KILL seconds later.
ablate_elsewhere() {
  local nodes attempt
  nodes=$(scontrol --oneliner show job "$ablate_task" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p')
  [ "$nodes" != '(null)' ] || nodes=
  if [ "$(( $(ablate_count "$nodes") - $(ablate_count "$ablate_excluded") ))" -ge "$ablate_refusals" ]; then
    ablate_say "not queued again: $ablate_refusals other nodes have refused it before"
    return 1
  fi
  if ! ablate_left "${nodes:+$nodes,}$SLURMD_NODENAME"; then
    ablate_say "not queued again: no node of partition $SLURM_JOB_PARTITION is left that has not refused it"
    return 1
  fi
  ablate_retry "node $SLURMD_NODENAME refuses the worker, which is kept away from it" || return 1
  for ((attempt = 1; attempt <= 20; attempt++)); do
    scontrol update JobId="$ablate_task" ExcNodeList="${nodes:+$nodes,}$SLURMD_NODENAME" && return 0
    sleep 0.2
  done
  ablate_say "node $SLURMD_NODENAME could not be excluded"
}

# Whether the partition has a node beside those of the list; so where that is not known.
ablate_left() {
  local nodes
  nodes=$(sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --format=%N 2>/dev/null)
  [ -z "$nodes" ] || grep -qvxF "$(scontrol show hostnames "$1")" <<<"$nodes"
}

ablate_count() { [ -z "$1" ] && echo 0 || scontrol show hostnames "$1" | wc -l; }

ablate_end() {
  trap - EXIT ERR
  set +eu  # the user's lines may have set them
  local status=$1 restarts=${SLURM_RESTART_COUNT:-0}
  if [ -z "$ablate_began" ] && [ "$status" -ne 0 ]; then
    ablate_say "the lines before the worker ended with $status on $SLURMD_NODENAME"
    status=87
  fi
  case $status in
    0|86) ;;
    85)
      [ ! -s "$ablate_deaths" ] || : > "$ablate_deaths"
      ablate_requeue "it has saved, and rows are left" ;;
    87) ablate_elsewhere ;;
    *) ablate_retry "the worker died with status $status" ;;
  esac
  exit "$status"
}
trap 'ablate_end $?' EXIT"""

_TELL = """trap 'ablate_say "a line of set-up ended with $? on $SLURMD_NODENAME: $BASH_COMMAND"' ERR"""
"""It is for the user to say, by `set -e`, that such a line ends the job."""


def setup_lines(
    user: Sequence[str], tree: Sequence[str], *, logs: Path, exclude: str | None, pause_s: float = 10.0
) -> list[str]:
    """What runs before the worker: the end is arranged first, then the user's lines, then those that lay out the tree.

    `logs` is where a task notes its deaths, in `<job>.deaths`; `exclude` are the nodes that the user keeps the worker
    away from; `pause_s` is between questions to a controller that is away.
    """
    constants = {
        "ablate_pause": f"{pause_s:g}",
        "ablate_logs": str(logs),
        "ablate_most_deaths": str(MOST_DEATHS),
        "ablate_most_restarts": str(_MOST_RESTARTS),
        "ablate_refusals": str(MOST_REFUSALS),
        "ablate_excluded": exclude or "",
    }
    first = [f"{name}={shlex.quote(value)}" for name, value in constants.items()]
    return [*first, *_END.strip().splitlines(), "", _TELL, *user, "trap - ERR", *tree, "ablate_began=yes"]


def teardown_lines() -> list[str]:
    """What runs after the worker; the comment and the empty line before keep its status."""
    return ["exit $?"]
