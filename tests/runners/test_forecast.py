"""A plan shows the states that `ablate status` shows."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pretend_slurm import PretendSlurm
from real_spec import real_spec


def count_states(ablate: Callable, *words: str) -> dict[str, int]:
    """Return the counts of a command by state; `status` lists no finished trials."""
    data = json.loads(ablate(*words, "--json").out)["data"]
    if words[0] == "plan":
        return {name: count for name, count in data["counts"].items() if count and name != "to_do"}
    return dict(Counter(trial["state"] for trial in data["trials"].values()))


def test_a_plan_counts_as_status_does(tmp_path: Path, slurm: PretendSlurm, ablate: Callable) -> None:
    spec, root = tmp_path / "toys.py", tmp_path / "c"
    after = 'slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")'
    spec.write_text(real_spec("g", training="steps=2", seeds=1, after=after))
    here = ["--campaign", str(root)]
    plan, status = ["plan", str(spec), *here], ["status", *here]
    ablate("run", spec, "--on", "inline", *here)
    spec.write_text(real_spec("g", training="steps=2", seeds=3, after=after))
    assert count_states(ablate, *plan) == {"done": 2, "pending": 4}
    ablate("run", spec, "--on", "slurm", *here)
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "queued": 4}
    assert "  2 done, 4 queued, 0 pending\n" in ablate(*plan).out
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "unknown": 4}
    slurm.works("squeue")
    slurm.forget()
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "pending": 4}
