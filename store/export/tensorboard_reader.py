"""Runs read from TensorBoard event files, also from directories that PyTorch's writer makes inside that of a run."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from ablate.grid.errors import AblateError, SpecError, StoreError
from ablate.grid.optional_packages import require_package
from ablate.store.export.tensorboard import MARK
from ablate.store.export.tracker_runs import FoundRun, LeftOut, Reading, Values, in_order

Curve = dict[int, tuple[float, float]]
"""Value and time by step."""


def read_tensorboard(folders: Mapping[Path, tuple[str, Sequence[Path]]]) -> list[Reading]:
    """Read the runs of directories, a name and event files each, in the order of the files' names.

    A directory that `SummaryWriter.add_scalars` made is curves of the run above it; one of `add_hparams` is its config
    and results, unless several have different configs. Where a later file has a scalar at the same step or an earlier
    one, as after a restart, the later file counts. In place of a run there is SpecError: a file is no event file.
    Raises EnvironmentProblem: the package tensorboard is not installed.
    """
    require_package("tensorboard", by="an event file", extra="tensorboard")
    read, parts = list[Reading](), dict[Path, _Folder]()
    for folder, (_, files) in sorted(folders.items()):
        try:
            parts[folder] = _Folder(files)
        except AblateError as error:
            read.append(error)
    _join_curves(parts)
    _join_settings(parts)
    inner = {above for folder in folders for above in folder.parents}
    for folder, part in parts.items():
        if (
            part.curves or part.others or part.damage or folder not in inner
        ):  # a writer makes a file also if it is unused
            read += [part.run(folders[folder][0], folder), *part.list_left_out(folder)]
    return read


def _join_curves(parts: "dict[Path, _Folder]") -> None:
    """Make what `add_scalars` wrote into directories of its own, `loss_train`, curves of the run: `loss/train`."""
    for folder in list(parts):
        if len({tag for tag, _ in parts[folder].curves}) != 1 or parts[folder].config is not None:
            continue
        ((tag, evaluated),) = parts[folder].curves
        start = tag.replace("/", "_") + "_"
        for above in folder.parents:
            if above in parts and (place := folder.relative_to(above).as_posix()).startswith(start):
                part = parts.pop(folder)
                part.curves = {(f"{tag}/{place.removeprefix(start)}", evaluated): part.curves[tag, evaluated]}
                parts[above].join(part)
                break


def _join_settings(parts: "dict[Path, _Folder]") -> None:
    """Make what `add_hparams` wrote into directories of its own part of the run, if that has one config."""
    inside = defaultdict[Path, list[Path]](list)
    for folder, part in parts.items():
        above = next((each for each in folder.parents if each in parts), None)
        if above is not None and part.config is not None and part.curves.keys() <= part.results:
            inside[above].append(folder)
    for above, folders in inside.items():
        configs = [
            part.config for part in (parts[above], *(parts[each] for each in folders)) if part.config is not None
        ]
        if all(config == configs[0] for config in configs):
            for folder in folders:
                parts[above].join(parts.pop(folder))


@final
class _Folder:
    """The contents of the event files of one directory."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.curves: dict[tuple[str, bool], Curve] = {}
        """By tag, and whether it is an evaluation."""
        self.config: dict[str, Any] | None = None
        self.results: set[tuple[str, bool]] = set()
        """Curves of one value that `add_hparams` wrote, where step 0 stands for none."""
        self.others = Counter[str]()
        self.label: str | None = None
        self.damage: str | None = None
        self._failure: str | None = None
        self._replaced = 0
        for file in sorted(files, key=_order):
            self._read(file)

    def _read(self, file: Path) -> None:
        from tensorboard.plugins.hparams import metadata

        curves, declared = defaultdict[tuple[str, bool], Curve](dict), set[str]()
        try:
            for at, step, value in _values(file):
                plugin = value.metadata.plugin_data
                if plugin.plugin_name in ("scalars", "") and (number := _number(value)) is not None:
                    key = value.tag, value.metadata.summary_description == MARK
                    self._replaced += step in curves[key] and _differ((number, at), curves[key][step])
                    curves[key][step] = number, at
                elif plugin.plugin_name != metadata.PLUGIN_NAME:
                    self.others[plugin.plugin_name or "tensors"] += 1
                elif value.tag == metadata.SESSION_START_INFO_TAG:
                    self._take_config(metadata.parse_session_start_info_plugin_data(plugin.content))
                elif value.tag == metadata.SESSION_END_INFO_TAG:
                    status = metadata.parse_session_end_info_plugin_data(plugin.content).status
                    self._failure = {2: "its event file says that it failed", 3: "it had not ended"}.get(status)
                elif value.tag == metadata.EXPERIMENT_TAG:
                    declared |= {
                        each.name.tag for each in metadata.parse_experiment_plugin_data(plugin.content).metric_infos
                    }
        except StoreError as error:
            self.damage = str(error)
        for tag in declared:
            if len(curves.get((tag, False), ())) == 1:
                self.results.add((tag, True))
                curves[tag, True] = curves.pop((tag, False))
        self._append(curves)

    def _append(self, curves: Mapping[tuple[str, bool], Curve]) -> None:
        """Add the curves of a later file; where they begin, those before end."""
        for key, new in curves.items():
            old, begin = self.curves.get(key, {}), next(iter(new))
            self._replaced += sum(step >= begin and _differ(new.get(step), each) for step, each in old.items())
            self.curves[key] = {step: each for step, each in old.items() if step < begin} | new

    def _take_config(self, started: Any) -> None:
        """Add what TensorBoard's page HParams shows. It has no whole numbers, lists and mappings."""
        self.label = started.group_name or None
        values = {name: (value, value.WhichOneof("kind")) for name, value in sorted(started.hparams.items())}
        read = {name: _plain(getattr(value, kind)) if kind else None for name, (value, kind) in values.items()}
        self.config = {**(self.config or {}), **read}

    def join(self, part: "_Folder") -> None:
        """Take all that a directory inside this one holds."""
        self._append(part.curves)
        self.config = part.config if self.config is None else self.config
        self.label, self.damage = self.label or part.label, self.damage or part.damage
        self._failure = part._failure or self._failure
        self._replaced += part._replaced
        self.results |= part.results
        self.others += part.others

    def run(self, name: str, place: Path) -> FoundRun:
        """Return the run; results without a step count at its last one."""
        last = max((step for curve in self.curves.values() for step in curve), default=0)
        values: Values = {}
        for (tag, evaluated), curve in self.curves.items():
            for step, each in curve.items():
                values[last if (tag, evaluated) in self.results and step == 0 else step, tag, evaluated] = each
        return FoundRun(name, place, self.label, self.config or {}, in_order(values), self._failure, self.damage)

    def list_left_out(self, place: Path) -> Iterator[LeftOut]:
        """Yield what is left out."""
        if self.others:
            yield LeftOut(place, "values that are no scalars are left out", self.others)
        if self._replaced:
            yield LeftOut(place, "values are left out, as later ones have their steps", {"scalars": self._replaced})


def _order(file: Path) -> list[str | int]:
    """Return the parts of a name, so that file 9 of a process comes before its file 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", file.name)]


def _differ(new: tuple[float, float] | None, old: tuple[float, float]) -> bool:
    return new is None or repr(new[0]) != repr(old[0])


def _plain(value: Any) -> Any:
    """Return an entry of HParams as it was before: exports write lists, mappings and large whole numbers as texts."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (value[:1] in ("[", "{") or (value.lstrip("-").isdecimal() and len(value) > 15)):
        with suppress(ValueError):
            return json.loads(value)
    return value


def _number(value: Any) -> float | None:
    """Return the number of a summary; None if it holds something else."""
    from tensorboard.util import tensor_util

    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    array = tensor_util.make_ndarray(value.tensor)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "biuf" else None


def _values(file: Path) -> Iterator[tuple[float, int, Any]]:
    """Yield the time, the step and the value of each summary of a file. Raises StoreError where it is damaged."""
    from tensorboard import data_compat, dataclass_compat
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub import errors
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader, seen, count = PyRecordReader_New(str(file)), dict[str, Any](), 0
    while True:
        try:
            reader.GetNext()
            event = Event.FromString(reader.record())
        except errors.OutOfRangeError:
            return
        except Exception as error:  # TensorBoard's reader raises many kinds
            if not count:
                raise SpecError(f"{file} is no event file of TensorBoard, whose records have checksums") from error
            raise StoreError(f"{file.name} is damaged or cut off in record {count + 1}") from error
        count += 1
        if all(value.WhichOneof("value") == "simple_value" for value in event.summary.value):
            yield from ((event.wall_time, event.step, value) for value in event.summary.value)
            continue
        for each in dataclass_compat.migrate_event(data_compat.migrate_event(event), seen):
            for value in each.summary.value:
                if value.tag in seen:
                    value.metadata.CopyFrom(seen[value.tag])
                yield each.wall_time, each.step, value
