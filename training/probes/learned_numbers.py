"""Learned numbers of the operators, `number.<stage>.<field>`, by layer and head, or by layer if heads share it.

Their values during training need evaluations during training: `training.evaluate_every`.
"""

from typing import ClassVar, Literal

from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo


class LearnedNumbers(Probe):
    """The value of every learned number: the norm of a vector, the value at a zero query of a per-query number."""

    at_divergence: ClassVar[bool] = True
    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("number.STAGE.FIELD", "the number's own"),
        RowInfo("number.STAGE.FIELD", "the number's own", "layer"),
    )
    cost: ClassVar[str] = "reads the parameters"

    kind: Literal["learned_numbers"] = "learned_numbers"

    def of_model(self, seen: ProbeInput) -> Found:
        for layer, head, name, value in seen.model.numbers():
            yield Probed(f"number.{name}", value, layer, head)
