"""Looking into a model: its probes, on the sequences that are for them."""

from collections.abc import Iterable, Iterator

from grid.errors import SpecError
from runners.probes.probe import Found, Probe, ProbeArray, Probed, ProbeInput, Probing
from runners.tasks.task import Batch, Data
from variants import Backbone


def probe_model(data: Data, probing: Probing) -> Batch:
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


def look(probing: Probing, seen: ProbeInput) -> Found:
    """What the probes find; the layers are computed once for all, and not at all where no probe looks at them.

    Raises:
        SpecError: probes found two values for one place, or two files of one name.
    """
    yield from _told_apart(_everything(probing, seen))


def look_at_divergence(probing: Probing, seen: ProbeInput) -> Found:
    """What the probes with `at_divergence` find in a model whose training has just diverged.

    Raises:
        SpecError: as `look`.
    """
    asked = [probe for probe in probing.probes if probe.at_divergence]
    yield from _told_apart((probe, found) for probe in asked for found in probe.of_model(seen))


def _everything(probing: Probing, seen: ProbeInput) -> Iterator[tuple[Probe, Probed | ProbeArray]]:
    at_layers = [probe for probe in probing.probes if type(probe).of_layer is not Probe.of_layer]
    if at_layers:
        for layer in seen.model.trace_layers(seen.batch.inputs, seen.batch.visible):
            for probe in at_layers:
                yield from ((probe, found) for found in probe.of_layer(layer, seen))
    for probe in probing.probes:
        yield from ((probe, found) for found in probe.of_model(seen))


def _told_apart(every: Iterable[tuple[Probe, Probed | ProbeArray]]) -> Found:
    taken: dict[tuple[object, ...], Probe] = {}
    for probe, found in every:
        place = _place(found)
        if place in taken:
            first = taken[place].label
            by = f"{first} and {probe.label} both recorded" if taken[place] is not probe else f"{first} recorded twice"
            own = "a name" if isinstance(found, ProbeArray) else "a name, a layer, a head or a point"
            raise SpecError(f"what probes find has one place each; {by} {_said(found)}; give each {own} of its own")
        taken[place] = probe
        yield found


def _place(found: Probed | ProbeArray) -> tuple[object, ...]:
    """What two of one look never have in common."""
    if isinstance(found, ProbeArray):
        return (found.name,)
    return found.name, found.layer, found.head, *sorted(found.point.items())


def _said(found: Probed | ProbeArray) -> str:
    if isinstance(found, ProbeArray):
        return f"a file {found.name!r}"
    point = ", ".join(f"{coordinate}={value:g}" for coordinate, value in found.point.items())
    of = ", ".join(f"{what} {at}" for what, at in (("layer", found.layer), ("head", found.head)) if at is not None)
    return found.name + (f" of {of}" if of else "") + (f" at {point}" if point else "")
