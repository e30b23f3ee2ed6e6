"""Shell lines around a worker: `worker.sh`, the user's set-up lines and the lines that extract the code."""

import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

MOST_DEATHS = 10
"""Deaths and refusals since the worker last left in good order; restarts by SLURM itself do not count."""

MOST_REFUSALS = 3
"""Nodes that may refuse a worker; each is excluded."""


def setup_lines(
    user: Sequence[str], tree: Sequence[str], *, logs: Path, partition: str | None, exclude: str | None
) -> list[str]:
    """Return the lines before the worker; `tree` extracts the code and `logs` holds the file of deaths.

    `partition` is the request (None: the cluster's default). `exclude` lists the nodes that the user excludes.
    """
    values = {
        "ablate_logs": str(logs),
        "ablate_most_deaths": str(MOST_DEATHS),
        "ablate_most_refusals": str(MOST_REFUSALS),
        "ablate_excluded": exclude or "",
    }
    first = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    first.append(f"ablate_partitions={shlex.quote(partition) if partition else '$SLURM_JOB_PARTITION'}")
    shell = (files(__package__) / "worker.sh").read_text(encoding="utf-8").splitlines()
    return [*first, *shell, *user, "trap - ERR", *tree, "ablate_began=yes"]


def teardown_lines() -> list[str]:
    """Return the lines after the worker; submitit's comment before them keeps the worker's status."""
    return ["exit $?"]
