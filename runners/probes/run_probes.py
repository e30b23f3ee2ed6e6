"""Run the probes of a trial on their sequences."""

from collections.abc import Iterable, Iterator

from grid.errors import SpecError
from runners.probes.probe import Found, Probe, ProbeArray, Probed, ProbeInput, Probing
from runners.tasks.task import Batch, Data
from variants import Backbone


def probe_model(data: Data, probing: Probing) -> Batch:
    """Return the sequences that probes see, on the CPU."""
    batch = data.examples(probing.sequences)
    visible = batch.visible
    if visible is not None:
        visible = visible[:, : probing.length, : probing.length]
    return Batch(batch.inputs[:, : probing.length], batch.targets, visible)


def require_long_enough(data: Data, probing: Probing, model: Backbone) -> None:
    """Refuse probes of positions that the task's examples do not have, before training.

    Raises:
        SpecError: a probe needs more tokens.
    """
    needed = {probe.label: probe.tokens(model) for probe in probing.probes}
    if max(needed.values(), default=1) == 1:
        return  # draw no examples
    tokens = min(data.examples(1).inputs.shape[1], probing.length)
    for label, most in needed.items():
        if most > tokens:
            raise SpecError(
                f"{label} needs sequences of {most} tokens or more; the probed sequences of the task have {tokens}; "
                "choose earlier positions, or make the task's sequences longer"
            )


def look(probing: Probing, seen: ProbeInput) -> Found:
    """Yield the records of all probes. Layers are computed once for all probes, if any probe needs them.

    Raises:
        SpecError: two records have the same place, or two files the same name.
    """
    yield from _require_unique(_all_records(probing, seen))


def look_at_divergence(probing: Probing, seen: ProbeInput) -> Found:
    """Yield the records of probes with `at_divergence`, for a model whose training has just diverged.

    Raises:
        SpecError: as `look`.
    """
    probes = [probe for probe in probing.probes if probe.at_divergence]
    yield from _require_unique((probe, record) for probe in probes for record in probe.of_model(seen))


def _all_records(probing: Probing, seen: ProbeInput) -> Iterator[tuple[Probe, Probed | ProbeArray]]:
    at_layers = [probe for probe in probing.probes if type(probe).of_layer is not Probe.of_layer]
    if at_layers:
        for layer in seen.model.trace_layers(seen.batch.inputs, seen.batch.visible):
            for probe in at_layers:
                yield from ((probe, record) for record in probe.of_layer(layer, seen))
    for probe in probing.probes:
        yield from ((probe, record) for record in probe.of_model(seen))


def _require_unique(records: Iterable[tuple[Probe, Probed | ProbeArray]]) -> Found:
    taken: dict[tuple[object, ...], Probe] = {}
    for probe, record in records:
        place = _place(record)
        if place in taken:
            both = taken[place] is not probe
            who = f"{taken[place].label} and {probe.label} both recorded" if both else f"{probe.label} recorded twice"
            field = "name" if isinstance(record, ProbeArray) else "name, layer, head or point"
            raise SpecError(f"{who} {_record_words(record)}; give each record another {field}")
        taken[place] = probe
        yield record


def _place(record: Probed | ProbeArray) -> tuple[object, ...]:
    """Return what identifies a record."""
    if isinstance(record, ProbeArray):
        return (record.name,)
    return record.name, record.layer, record.head, *sorted(record.point.items())


def _record_words(record: Probed | ProbeArray) -> str:
    if isinstance(record, ProbeArray):
        return f"a file {record.name!r}"
    point = ", ".join(f"{axis}={value:g}" for axis, value in record.point.items())
    owner = ", ".join(f"{kind} {n}" for kind, n in (("layer", record.layer), ("head", record.head)) if n is not None)
    return record.name + (f" of {owner}" if owner else "") + (f" at {point}" if point else "")
