"""Workers import what they need: on a network file system, each module costs path operations on every node."""

import json
import subprocess
import sys
from pathlib import Path

from real_spec import real_spec

from ablate.runners.attempts.run_request import OF_TRIALS
from ablate.runners.provenance.environment import NOT_IN_TRIALS

LISTING = """
import json
import sys
from pathlib import Path


def on_step(run, step, values):
    Path({folder!r}, str(run.seed)).write_text(json.dumps(sorted(sys.modules)))
"""

HEAVY = {"pandas", "sympy", "polars", "plotly", "duckdb", "scipy", "networkx", "torch"}


def imported(code: str) -> set[str]:
    """Names of modules that a fresh interpreter has imported after `code`."""
    command = [sys.executable, "-P", "-c", f"{code}; import sys, json; print(json.dumps(list(sys.modules)))"]
    return set(json.loads(subprocess.check_output(command, text=True)))


def test_a_worker_that_trains_imports_no_pandas_and_sympy_for_torch_alone(tmp_path: Path) -> None:
    """The second trial starts in a process that has trained and written the first one."""
    spec = tmp_path / "spec.py"
    after = LISTING.format(folder=str(tmp_path))
    spec.write_text(real_spec("small", training="steps=1", operators="softmax()", seeds=2, after=after))
    words = ["run", spec, "--campaign", tmp_path / "c", "--workers", "1"]
    subprocess.run([sys.executable, "-P", "-m", "ablate", *map(str, words)], check=True, stderr=subprocess.DEVNULL)
    second = set(json.loads((tmp_path / "1").read_text()))
    assert {"torch", "pyarrow.parquet", "pydantic"} <= second
    assert not NOT_IN_TRIALS & second
    optimiser = imported("import torch; torch.optim.AdamW([torch.zeros(1, requires_grad=True)])")
    assert HEAVY & second <= HEAVY & optimiser | {"torch"}
    assert "pandas" not in optimiser
    assert set(OF_TRIALS) - {"pyarrow.parquet", "ablate.training.loop.train"} <= optimiser


def test_a_process_that_trains_nothing_imports_little() -> None:
    """The supervisor of a worker task waits, and the fork server imports what it is told to."""
    code = (
        "from ablate.runners.backends.slurm.worker import supervisor; from ablate.runners.execution import fork_server"
    )
    code += "; from ablate.runners.provenance import environment; environment.record()"
    assert not HEAVY & imported(code)
