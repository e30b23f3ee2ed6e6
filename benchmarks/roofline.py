"""How far the roofline prior is from the pace of real training steps, as JSON lines.

OMP_NUM_THREADS=1 python benchmarks/roofline.py [--watched 1.5]

The last line is what `runners.planning.roofline.CALIBRATION` should be, in multiples of what it is, and the standard
deviation of the log of the ratio.
"""

import argparse
import json
import math
import statistics

from runners import LinearFunctions, ShiftGrid, Task, Text, Training, Trial
from runners.planning.roofline import Place, device_at, place_of, prior
from runners.planning.step_timing import seconds_of
from runners.training.loop import train
from variants import Backbone, differential, gpt2, integral, llama2, llama3, principled, softmax, ssa

STEPS = 10_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watched", type=float, default=1.5, help="seconds of training steps per trial")
    watched_s = parser.parse_args().watched
    first = Trial(task=_models()[0][1], model=_models()[0][0], operator=softmax(), training=Training(steps=STEPS))
    place: Place = place_of(first, cluster_gpus=None)
    device = device_at(place, None)
    print(json.dumps(device._asdict()))
    logs: list[float] = []
    for model, task in _models():
        for operator in (softmax(), ssa(), integral(signals=4), principled(), differential()):
            trial = Trial(task=task, model=model, operator=operator, training=Training(steps=STEPS, clip=1.0))
            expected, measured = prior(trial, device), seconds_of(trial, train, watched_s=watched_s)
            if expected is None or measured is None:
                raise RuntimeError(f"{operator.label} in {model.label} cannot be timed; raise --watched")
            logs.append(math.log(measured / expected.training_s))
            said = {"model": model.label, "operator": operator.label, "step_ms": round(1e3 * measured / STEPS, 2)}
            print(json.dumps({**said, "prior_ms": round(1e3 * expected.training_s / STEPS, 2)}), flush=True)
    print(json.dumps({"ratio": math.exp(statistics.mean(logs)), "sd_of_log": statistics.stdev(logs)}))


def _models() -> list[tuple[Backbone, Task]]:
    judged = ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0,), functions=2, sequences=2, points=11)
    return [
        (gpt2(layers=2, heads=2, width=32), LinearFunctions(points=11, batch=32, evaluation=judged)),
        (gpt2(layers=3, heads=4, width=128), LinearFunctions(points=40, batch=64, evaluation=judged)),
        (llama2(layers=4, heads=4, width=128, feedforward_width=352), Text(batch=16, context=128)),
        (llama3(layers=2, heads=8, kv_heads=2, width=256, feedforward_width=688), Text(batch=8, context=256)),
    ]


if __name__ == "__main__":
    main()
