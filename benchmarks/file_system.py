"""Files, path operations and fsyncs that a trial costs, counted by strace (Debian package `strace`).

    python benchmarks/file_system.py [--trials 10000] [--campaign DIRECTORY]

Runs `ablate run` with one worker twice: with `trials` short trials, and with one. The difference over the difference of
the trials is what a trial costs. The run of one trial includes the command itself; docs/administrators.md has what the
start of a worker alone costs.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from measurement import machine, read_options, tell

EXTRAPOLATED = 100_000
SPEC = """
from ablate import Grid, LinearFunctions, Measure, ShiftGrid, Training, Trial, gpt2, softmax

shifts = ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=5, sequences=2, points=11)
base = Trial(
    task=LinearFunctions(points=11, batch=8, evaluation=shifts),
    model=gpt2(layers=1, heads=2, width=8, max_positions=32),
    operator=softmax(),
    training=Training(steps=5),
)
grid = Grid(name="files", base=base, seeds=range({trials}), measure=Measure(name="mse"))
"""
_CALL = re.compile(r"^\d+\s+(\w+)\(.*")


def count(folder: Path, trials: int) -> Counter[str]:
    """Run `trials` trials; count files, directories, calls with a path, fsyncs in all and of trials' own files."""
    spec, trace, campaign = folder / f"files{trials}.py", folder / "trace", folder / f"campaign{trials}"
    spec.write_text(SPEC.format(trials=trials))
    ablate = [str(Path(sys.executable).with_name("ablate")), "run", str(spec), "--workers", "1"]
    watched = ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-e", "trace=%file,fsync,fdatasync", "-o", str(trace)]
    subprocess.run([*watched, *ablate, "--campaign", str(campaign)], check=True, stderr=subprocess.DEVNULL)
    counts: Counter[str] = Counter()
    with trace.open(errors="replace") as lines:
        for line in lines:
            call = _CALL.match(line)
            if call is None:
                continue
            sync = call[1] in ("fsync", "fdatasync")
            counts["fsyncs" if sync else "path_operations"] += 1
            counts["worker_fsyncs"] += sync and ("/trials/" in line or "/spool/" in line)
    counts["files"] = sum(path.is_file() for path in campaign.rglob("*"))
    counts["directories"] = sum(path.is_dir() for path in campaign.rglob("*"))
    return counts


def main() -> None:
    options = read_options(__doc__, trials=10_000)
    tell({**machine(), "trials": options.trials})
    with tempfile.TemporaryDirectory(dir=options.campaign) as folder:
        one, many = count(Path(folder), 1), count(Path(folder), options.trials)
    tell({"name": "one_trial", **one})
    tell({"name": f"{options.trials}_trials", **many})
    each = {name: (many[name] - one[name]) / (options.trials - 1) for name in many}
    tell({"name": "each_trial", **{name: round(value, 2) for name, value in each.items()}})
    whole = {name: round(value * EXTRAPOLATED) for name, value in each.items()}
    tell({"name": f"extrapolated_to_{EXTRAPOLATED}", **whole})


if __name__ == "__main__":
    main()
