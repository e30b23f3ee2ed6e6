"""Looking into a model: its probes, on the sequences that are for them."""

from collections.abc import Iterator

from runners.probes.probe import Artefact, Probe, Probed, Probing, Seen
from runners.tasks.task import Batch, Data


def looked_at(data: Data, probing: Probing) -> Batch:
    """The sequences that probes see, on the CPU."""
    batch = data.examples(probing.sequences)
    visible = batch.visible
    if visible is not None:
        visible = visible[:, : probing.length, : probing.length]
    return Batch(batch.inputs[:, : probing.length], batch.targets, visible)


def look(probing: Probing, seen: Seen) -> Iterator[Probed | Artefact]:
    """What the probes find; the layers are computed once for all, and not at all where no probe looks at them."""
    at_layers = [probe for probe in probing.probes if type(probe).of_layer is not Probe.of_layer]
    if at_layers:
        for layer in seen.model.watched(seen.batch.inputs, seen.batch.visible):
            for probe in at_layers:
                yield from probe.of_layer(layer, seen)
    for probe in probing.probes:
        yield from probe.of_model(seen)
