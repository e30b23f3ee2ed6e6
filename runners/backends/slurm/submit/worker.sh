# shellcheck shell=bash
# Decide by the worker's exit code whether SLURM queues the task again.
#
# job_arrays.py assigns these variables before this text. Exit codes are those of runners/backends/slurm/worker/exit_codes.py.
# The script needs bash, scontrol, squeue and sinfo only. SLURM sends TERM to every program of the task, so no loop
# depends on another program: $(seq 20) may be empty.
: "${ablate_logs:?}" "${ablate_most_deaths:?}" "${ablate_most_refusals:?}"
: "${ablate_excluded?}" "${ablate_partitions?}"

# Process numbers leave no room for more restarts.
ablate_most_restarts=999

# Milliseconds: the first pause, the longest pause (five minutes) and the sum of all pauses (an hour).
ablate_first_pause=${ablate_first_pause:-10000}
ablate_longest_pause=$((30 * ablate_first_pause))
ablate_patience=$((360 * ablate_first_pause))

ablate_pause=$ablate_first_pause
ablate_paused=0
ablate_task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}}
ablate_task=${ablate_task:-$SLURM_JOB_ID}
ablate_deaths=$ablate_logs/$ablate_task.deaths
ablate_began=

# The log of the task, and its size at the beginning of this life.
ablate_log=$(readlink "/proc/$$/fd/1")
ablate_log_size=$(stat --format=%s "$ablate_log" 2>/dev/null || echo 0)

# Python handles TERM and USR2; bash waits for it. KILL may follow soon, so pauses are short again.
trap 'ablate_pause=$ablate_first_pause' TERM USR2

ablate_say() { printf '%s ablate: %s\n' "$(date '+%F %T')" "$*" >&2; }

# Wait before the next question to SLURM. Return 1 after an hour of pauses in total.
# Each pause is up to twice as long as the last. A random part spreads the questions of many workers.
# A signal ends `wait`, but not `sleep`.
ablate_wait() {
  local ms=$((ablate_pause / 2 + (RANDOM * 32768 + RANDOM) % (ablate_pause / 2 + 1))) seconds
  ablate_paused=$((ablate_paused + ms))
  if [ "$ablate_paused" -gt "$ablate_patience" ]; then
    ablate_say "not queued again: the controller has not answered for an hour"
    return 1
  fi
  ablate_pause=$((2 * ablate_pause < ablate_longest_pause ? 2 * ablate_pause : ablate_longest_pause))
  printf -v seconds '%d.%03d' "$((ms / 1000))" "$((ms % 1000))"
  sleep "$seconds" &
  wait "$!" || kill "$!" 2>/dev/null
  return 0
}

# Return 0 if the task runs or reached its time limit; return 1 if it was cancelled or SLURM requeues it.
# Ask again if the controller does not answer.
ablate_may_requeue() {
  local answer
  while true; do
    if answer=$(squeue --noheader --array --jobs="$ablate_task" --format='%T %r' 2>&1); then
      case $answer in *RUNNING*|*TIMEOUT*|*COMPLETING*TimeLimit*) return 0 ;; esac
      break
    fi
    case $answer in *'Invalid job id'*) break ;; esac
    [ "$ablate_paused" -gt 0 ] || ablate_say "the controller does not answer; asking again: $answer"
    ablate_wait || return 1
  done
  ablate_say "not queued again: it was cancelled, or SLURM has queued it itself"
  return 1
}

ablate_requeue() {
  if [ "$restarts" -ge "$ablate_most_restarts" ]; then
    ablate_say "not queued again: that was restart $restarts"
    return 1
  fi
  while ablate_may_requeue; do
    ablate_say "queued again: $1"
    scontrol requeue "$ablate_task" && return 0
    ablate_wait || return 1
  done
  return 1
}

# Requeue after a death or a refusal, unless there were too many.
# If the deaths cannot be written down, count every restart as a death.
ablate_retry() {
  local lines=() deaths=$((restarts + 1))
  ablate_may_requeue || return 1
  if { printf '%s: %s\n' "$SLURMD_NODENAME" "$1" >> "$ablate_deaths" && mapfile -t lines < "$ablate_deaths"; } \
    2>/dev/null; then deaths=${#lines[@]}; fi
  if [ "$deaths" -ge "$ablate_most_deaths" ]; then
    ablate_say "not queued again: $1, and that was death $deaths since it last left in good order"
    return 1
  fi
  ablate_requeue "$1"
}

# Requeue the task on another node. A task that excludes every node would wait for ever.
# SLURM changes the excluded nodes only of a waiting task, so requeue first. TERM follows, and KILL seconds later.
ablate_avoid_node() {
  local nodes attempt
  nodes=$(scontrol --oneliner show job "$ablate_task" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p')
  [ "$nodes" != '(null)' ] || nodes=
  if [ "$(($(ablate_count "$nodes") - $(ablate_count "$ablate_excluded")))" -ge "$ablate_most_refusals" ]; then
    ablate_say "not queued again: $ablate_most_refusals other nodes have refused it before"
    return 1
  fi
  if ! ablate_has_other_node "${nodes:+$nodes,}$SLURMD_NODENAME"; then
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

# Return 0 if the requested partitions have a node outside the list $1, or if sinfo does not answer.
ablate_has_other_node() {
  local nodes
  nodes=$(sinfo --noheader --Node --partition="$ablate_partitions" --format=%N 2>/dev/null)
  [ -z "$nodes" ] || grep -qvxF "$(scontrol show hostnames "$1")" <<<"$nodes"
}

# Count the nodes of a list.
ablate_count() {
  if [ -z "$1" ]; then echo 0; else scontrol show hostnames "$1" | wc -l; fi
}

# Return 0 if SLURM or the system killed a program of this life because the memory of the job was used up.
ablate_out_of_memory() {
  tail --bytes="+$((ablate_log_size + 1))" "$ablate_log" 2>/dev/null |
    grep -qE 'slurmstepd.*: error: .*(xceeded (job )?memory limit|oom_kill event|oom-kill)'
}

ablate_end() {
  trap - EXIT ERR
  set +eu # the user's lines may have set them
  local status=$1 restarts=${SLURM_RESTART_COUNT:-0}
  if [ -z "$ablate_began" ] && [ "$status" -ne 0 ]; then
    ablate_say "the lines before the worker ended with $status on $SLURMD_NODENAME"
    status=87
  fi
  case $status in
    0|86) ;;
    85)
      [ ! -s "$ablate_deaths" ] || : > "$ablate_deaths"
      ablate_requeue "its time is over, and rows are left" ;;
    88) ablate_say "not queued again: its time limit leaves no time to begin anything in" ;;
    89) ablate_requeue "the campaign's disk is full" ;;
    87) ablate_avoid_node ;;
    *)
      if ablate_out_of_memory && : > "$ablate_logs/$ablate_task.memory"; then
        ablate_retry "the memory of the job was used up, and the worker died with status $status"
      else
        ablate_retry "the worker died with status $status"
      fi ;;
  esac
  exit "$status"
}
trap 'ablate_end $?' EXIT

# The user's lines follow. A failed line is reported; it ends the job only after `set -e`.
trap 'ablate_say "a line of set-up ended with $? on $SLURMD_NODENAME: $BASH_COMMAND"' ERR
