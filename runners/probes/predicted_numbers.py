"""What a number is that varies by query or token: `predicted.<stage>.<field>`, where `learned_numbers` knows its start.

The mean over the tokens of the sequences, of a vector over its channels, too, and the standard deviation of the same:
the alpha of "Affine-Scaled Attention", lambda per query, the opening of output gates, thresholds and strengths per
query.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from runners.probes.attention_rows import AttentionRows, mean
from runners.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from runners.tasks.task import Task
from variants import Backbone, Operator
from variants.model.transformer import LayerTrace


class PredictedNumbers(Probe):
    """`predicted.<number>` and `predicted_sd.<number>` by head, of every number per query or per token."""

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("predicted.STAGE.FIELD", "the number's own"),
        RowInfo("predicted_sd.STAGE.FIELD", "the number's own"),
    )

    kind: Literal["predicted_numbers"] = "predicted_numbers"

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if not any(_predicted(operator) for operator in operators):
            raise ValueError(
                "predicted_numbers looks at numbers per query or per token and the operators of the trial have none; "
                "use learned_numbers"
            )

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        real = AttentionRows(layer).real
        for name in _predicted(layer.operator):
            heads = layer.operator.heads_of(name, real.shape[1])
            values, counted = layer.worked.numbers[name].float(), real[:, heads, :, None]
            middle, there = mean(values, counted, (0, 2, 3))
            variance, _ = mean((values - middle[:, None, None]).square(), counted, (0, 2, 3))
            for what, found in (("predicted", middle), ("predicted_sd", variance.sqrt())):
                for at, (value, is_there) in enumerate(zip(found.tolist(), there.tolist(), strict=True), heads.start):
                    if is_there:
                        yield Probed(f"{what}.{name}", value, layer.layer, at)


def _predicted(operator: Operator) -> list[str]:
    return [name for name, number in operator.numbers().items() if {"query", "token"} & set(number.per)]
