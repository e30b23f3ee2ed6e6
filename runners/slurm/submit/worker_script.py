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

_LONGEST_PAUSE = 30
"""Between questions to a controller that is away, in first pauses: five minutes."""

_PATIENCE = 360
"""How long it is asked, in first pauses: an hour."""

_END = r"""
# The worker is this task. TERM and USR2 are for Python: bash waits for it, and then decides below. KILL may be near
# then, so pauses are short again.
trap 'ablate_pause=$ablate_first_pause' TERM USR2
ablate_pause=$ablate_first_pause
ablate_rested=0
ablate_task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}}
ablate_task=${ablate_task:-$SLURM_JOB_ID}
ablate_deaths=$ablate_logs/$ablate_task.deaths
ablate_began=
ablate_say() { printf '%s ablate: %s\n' "$(date '+%F %T')" "$*" >&2; }

# A pause before SLURM is asked again; 1 after an hour of them, in all. Each may be twice as long as the last and is
# spread over its second half: a controller that comes back is not asked by all workers at once. A signal ends `wait`.
ablate_rest() {
  local ms=$((ablate_pause / 2 + (RANDOM * 32768 + RANDOM) % (ablate_pause / 2 + 1))) seconds
  ablate_rested=$((ablate_rested + ms))
  if [ "$ablate_rested" -gt "$ablate_patience" ]; then
    ablate_say "not queued again: the controller has not answered for an hour"
    return 1
  fi
  ablate_pause=$((2 * ablate_pause < ablate_longest_pause ? 2 * ablate_pause : ablate_longest_pause))
  printf -v seconds '%d.%03d' "$((ms / 1000))" "$((ms % 1000))"
  sleep "$seconds" &
  wait "$!" || kill "$!" 2>/dev/null
  return 0
}

# 0: the task is running, or SLURM ended it at its time limit; 1: it was cancelled, or SLURM queues it again by itself.
# Asks again while the controller is away.
ablate_mine() {
  local found
  while true; do
    if found=$(squeue --noheader --array --jobs="$ablate_task" --format='%T %r' 2>&1); then
      case $found in *RUNNING*|*TIMEOUT*|*COMPLETING*TimeLimit*) return 0 ;; esac
      break
    fi
    case $found in *'Invalid job id'*) break ;; esac
    [ "$ablate_rested" -gt 0 ] || ablate_say "the controller does not answer; asking again: $found"
    ablate_rest || return 1
  done
  ablate_say "not queued again: it was cancelled, or SLURM has queued it itself"
  return 1
}

ablate_requeue() {
  if [ "$restarts" -ge "$ablate_most_restarts" ]; then
    ablate_say "not queued again: that was restart $restarts"
    return 1
  fi
  while ablate_mine; do
    ablate_say "queued again: $1"
    scontrol requeue "$ablate_task" && return 0
    ablate_rest || return 1
  done
  return 1
}

# Again after a death or a refusal, unless those were too many; where they cannot be noted, all restarts count as such.
ablate_retry() {
  local noted=() deaths=$((restarts + 1))
  ablate_mine || return 1
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
    ablate_say "not queued again: no node of partition $ablate_partitions is left that has not refused it"
    return 1
  fi
  ablate_retry "node $SLURMD_NODENAME refuses the worker, which is kept away from it" || return 1
  for ((attempt = 1; attempt <= 20; attempt++)); do
    scontrol update JobId="$ablate_task" ExcNodeList="${nodes:+$nodes,}$SLURMD_NODENAME" && return 0
    sleep 0.2
  done
  ablate_say "node $SLURMD_NODENAME could not be excluded"
}

# Whether the partitions that were asked for have a node beside those of the list; so where that is not known.
ablate_left() {
  local nodes
  nodes=$(sinfo --noheader --Node --partition="$ablate_partitions" --format=%N 2>/dev/null)
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
    88) ablate_say "not queued again: its time limit leaves no time to begin anything in" ;;
    89) ablate_requeue "the campaign's disk is full" ;;
    87) ablate_elsewhere ;;
    *) ablate_retry "the worker died with status $status" ;;
  esac
  exit "$status"
}
trap 'ablate_end $?' EXIT"""

_TELL = """trap 'ablate_say "a line of set-up ended with $? on $SLURMD_NODENAME: $BASH_COMMAND"' ERR"""
"""It is for the user to say, by `set -e`, that such a line ends the job."""


def setup_lines(
    user: Sequence[str],
    tree: Sequence[str],
    *,
    logs: Path,
    partition: str | None,
    exclude: str | None,
    pause_s: float = 10.0,
) -> list[str]:
    """What runs before the worker: the end is arranged first, then the user's lines, then those that lay out the tree.

    `logs` is where a task notes its deaths, in `<job>.deaths`; `partition` are those that were asked for (None: the
    cluster's own) and `exclude` the nodes that the user keeps the worker away from; `pause_s` is the longest that the
    first pause may be between questions to a controller that is away.
    """
    pause_ms = round(1000 * pause_s)
    constants = {
        "ablate_first_pause": str(pause_ms),
        "ablate_longest_pause": str(_LONGEST_PAUSE * pause_ms),
        "ablate_patience": str(_PATIENCE * pause_ms),
        "ablate_logs": str(logs),
        "ablate_most_deaths": str(MOST_DEATHS),
        "ablate_most_restarts": str(_MOST_RESTARTS),
        "ablate_refusals": str(MOST_REFUSALS),
        "ablate_excluded": exclude or "",
    }
    first = [f"{name}={shlex.quote(value)}" for name, value in constants.items()]
    first.append(f"ablate_partitions={shlex.quote(partition) if partition else '$SLURM_JOB_PARTITION'}")
    return [*first, *_END.strip().splitlines(), "", _TELL, *user, "trap - ERR", *tree, "ablate_began=yes"]


def teardown_lines() -> list[str]:
    """What runs after the worker; the comment and the empty line before keep its status."""
    return ["exit $?"]
