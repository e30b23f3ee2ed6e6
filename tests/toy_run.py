"""A campaign of toys, run as a program: `python toy_run.py REQUEST`, ending with the exit status of the command.

The request is JSON: {"root": path, "grid": arguments of toy_grid, "workers": n or 0 for inline, "land": seconds or
null}. With "ray", the workers are on Ray. With "train", a function of toy_faults trains, and progress is shown.
"""

import json
import sys
from typing import Any

from toy_campaign import QUIET, toy_grid

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Inline, Local, Machine
from ablate.runners.execution.ray_machine import Ray
from ablate.runners.execution.run import run_campaign


def run(request: dict[str, Any]) -> int:
    """One run; its exit status."""
    options = {**vars(QUIET), "land_every_s": request["land"]}
    workers, fields = request["workers"], request["grid"]
    if "train" in request:
        fields, options["progress"] = {**fields, "trained_by": f"toy_faults:{request['train']}"}, True
    machine: Machine = Ray(workers) if request.get("ray") else Local(workers) if workers else Inline()
    result = run_campaign(request["root"], [toy_grid(**fields)], machine, RunRequest(**options))
    return 130 if result.interrupted else 4 if result.failed else 0


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1])))
