"""Looking into a model: its probes, on the sequences that are for them."""

from collections.abc import Iterator

from grid.errors import SpecError
from runners.probes.probe import Artefact, Probe, Probed, Probing, Seen
from runners.tasks.task import Batch, Data
from variants import Backbone


def looked_at(data: Data, probing: Probing) -> Batch:
    """The sequences that probes see, on the CPU."""
    batch = data.examples(probing.sequences)
    visible = batch.visible
    if visible is not None:
        visible = visible[:, : probing.length, : probing.length]
    return Batch(batch.inputs[:, : probing.length], batch.targets, visible)


def require_long_enough(data: Data, probing: Probing, model: Backbone) -> None:
    """Refuse probes that look at positions which the task's examples do not have, before anything is trained.

    Raises:
        SpecError: a probe needs more tokens.
    """
    needed = {probe.label: probe.tokens(model) for probe in probing.probes}
    if max(needed.values(), default=1) == 1:
        return  # nothing is drawn for it
    tokens = min(data.examples(1).inputs.shape[1], probing.length)
    for label, most in needed.items():
        if most > tokens:
            raise SpecError(
                f"{label} looks into sequences of {most} tokens or more; those of the task that are looked at have "
                f"{tokens}; have it look at earlier positions, or make the task's sequences longer"
            )


def look(probing: Probing, seen: Seen) -> Iterator[Probed | Artefact]:
    """What the probes find; the layers are computed once for all, and not at all where no probe looks at them."""
    at_layers = [probe for probe in probing.probes if type(probe).of_layer is not Probe.of_layer]
    if at_layers:
        for layer in seen.model.watched(seen.batch.inputs, seen.batch.visible):
            for probe in at_layers:
                yield from probe.of_layer(layer, seen)
    for probe in probing.probes:
        yield from probe.of_model(seen)
