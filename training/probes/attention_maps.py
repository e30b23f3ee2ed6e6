"""Attention weights of a few sequences, as files for a viewer."""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt

from ablate.training.probes.probe import Found, Probe, ProbeArray, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace


class AttentionMaps(Probe):
    """A file `attention-<layer>` for each layer, in float16, and `attention-inputs` with the inputs of the model.

    `weights` are [B, H, T, T]. `extra`, the weights of a learned key, and `ground`, those of a ground state or sink,
    are [B, H, T]. Sink tokens of the model come first. Values beyond float16 become its largest number.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("attention-LAYER.npz", "arrays weights, extra, ground", "file"),
        RowInfo("attention-inputs.npz", "array inputs", "file"),
    )
    cost: ClassVar[str] = "a file per layer and evaluation"

    kind: Literal["attention_maps"] = "attention_maps"
    sequences: PositiveInt = 2
    """Most sequences, of those that probes see."""

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        attended = layer.worked.attended
        arrays = {"weights": attended.weights}
        if attended.extra is not None:
            arrays["extra"] = attended.extra[..., 0]
        if attended.ground is not None:
            arrays["ground"] = attended.ground[..., 0]
        most = torch.finfo(torch.float16).max
        for name, each in arrays.items():
            arrays[name] = each[: self.sequences].clamp(-most, most).to("cpu", torch.float16)
        yield ProbeArray(f"attention-{layer.layer:02d}", {name: each.numpy() for name, each in arrays.items()})

    def of_model(self, seen: ProbeInput) -> Found:
        yield ProbeArray("attention-inputs", {"inputs": seen.batch.inputs[: self.sequences].cpu().numpy()})
