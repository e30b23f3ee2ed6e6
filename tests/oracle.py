"""One head of any operator in plain floats: no tensors, every term from the stage's own oracle."""

from functools import partial

from variants import Operator

Rows = list[list[float]]


def attend_in_floats(
    operator: Operator, q: Rows, k: Rows, v: Rows, visible: list[list[bool]], numbers: dict[str, float | list[float]]
) -> Rows:
    """Output rows [T][D] for one head; `numbers` by "stage.field"."""
    by_stage: dict[str, dict[str, object]] = {}
    for name, value in numbers.items():
        stage, field = name.split(".")
        by_stage.setdefault(stage, {})[field] = value
    return [
        _row(operator, q[i], [k[j] for j in seen], [v[j] for j in seen], by_stage)
        for i, seen in enumerate([[j for j, sees in enumerate(row) if sees] for row in visible])
    ]


def _row(operator: Operator, q: list[float], keys: Rows, values: Rows, numbers: dict) -> list[float]:
    score, gate = numbers.get("score", {}), operator.gate
    semantic = len(q) - gate.channels
    gamma = operator.normaliser.relevance_oracle(**numbers.get("normaliser", {}))
    c = operator.margin.oracle(len(keys), **numbers.get("margin", {}))
    f = []
    for key in keys:
        z = operator.signals.oracle(q[:semantic], key[:semantic])
        b = gate.oracle(q[semantic:], key[semantic:], **numbers.get("gate", {}))
        f.append(operator.score.oracle(gamma + c * (z - gamma) - b, **score))
    rescore = partial(operator.score.oracle, **score)
    weights, ground = operator.normaliser.oracle(f, rescore, **numbers.get("normaliser", {}))
    return operator.readout.oracle(weights, ground, values, **numbers.get("readout", {}))
