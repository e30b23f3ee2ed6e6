"""Queries the GPUs of this machine with nvidia-smi."""

import shutil
import subprocess

_PATIENCE_S = 20.0


def ask_gpus(*fields: str) -> list[list[str]] | None:
    """Query one row of `--query-gpu` fields per GPU; None if nvidia-smi is missing or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    return [[word.strip() for word in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
