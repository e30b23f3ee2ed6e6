"""Attention weights themselves, of a few sequences: what a viewer shows and no table holds."""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from runners.probes.probe import Found, Probe, ProbeArray, ProbeInput, RowInfo
from variants.model.transformer import LayerTrace


class AttentionMaps(Probe):
    """A file `attention-<layer>` for each layer, in float16, and `attention-inputs` with what the model was given.

    `weights` [B, H, T, T], and where the operator has them `extra` and `ground` [B, H, T]: the weights of a learned key
    and of a ground state or sink. Sink tokens of the model come first. What float16 cannot hold is its largest number.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("attention-LAYER.npz", "arrays weights, extra, ground", "file"),
        RowInfo("attention-inputs.npz", "array inputs", "file"),
    )
    cost: ClassVar[str] = "a file per layer and evaluation"

    kind: Literal["attention_maps"] = "attention_maps"
    sequences: PositiveInt = 2
    """Of how many of the probed sequences, at most."""

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        attended = layer.worked.attended
        found = {"weights": attended.weights}
        if attended.extra is not None:
            found["extra"] = attended.extra[..., 0]
        if attended.ground is not None:
            found["ground"] = attended.ground[..., 0]
        arrays = {name: _half(each[: self.sequences]).numpy() for name, each in found.items()}
        yield ProbeArray(f"attention-{layer.layer:02d}", arrays)

    def of_model(self, seen: ProbeInput) -> Found:
        yield ProbeArray("attention-inputs", {"inputs": seen.batch.inputs[: self.sequences].cpu().numpy()})


def _half(x: Tensor) -> Tensor:
    largest = torch.finfo(torch.float16).max
    return x.clamp(-largest, largest).to("cpu", torch.float16)
