"""A program in any language as an experiment: its command line, what fills it, and what it reports."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat, PositiveInt, model_validator

from ablate.grid.durations import read_duration
from ablate.grid.experiment import Experiment
from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.spec import OutsideKey
from ablate.grid.suggestions import suggest_name
from ablate.runners.programs.filling import RESERVED, file_of, fill_all, names_in
from ablate.runners.programs.program_code import code_of, script_in
from ablate.runners.programs.report import patterns_of
from ablate.runners.provenance.loading import spec_directory


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenDict({name: _frozen(each) for name, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class Command(Experiment):
    """A program, run once per trial: `argv` is its command line, in which {names} stand for `fields` and the seed.

    Names are those of `fields`, {seed}, {directory}, which is the trial's own, and {config}, a file with all fields.
    Every field reaches the program by one of them, and an axis varies it: `over("fields.lr", [1e-3, 3e-4])`. Without
    {seed} in any text, random numbers of a Python program begin from the seed. Later calls of seed functions of Python,
    numpy and torch are combined with it.
    """

    own_processes: ClassVar[bool] = True

    kind: Literal["command"] = "command"
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    """The program and its arguments; "python" is the interpreter of `ablate`. An argument that is empty once filled is
    left out."""
    fields: Annotated[dict[str, Any], FROZEN, AfterValidator(_frozen)] = FrozenDict()
    """Numbers, texts, lists and mappings by name, which fill the command line."""
    environment: Annotated[dict[str, str], FROZEN] = FrozenDict()
    """Environment variables, with {names}, beside those of the worker."""
    config: str = ""
    """Name of a JSON or YAML file with all fields, such as "config.json"; {config} is its path."""
    metrics: Texts = ()
    """Regular expressions over lines of output, with groups named like metrics, and "step"."""
    evaluations: Texts = ()
    """The same for evaluations."""
    steps: PositiveInt | str | None = None
    """Steps of a run, or the field that holds them, for progress and estimates."""
    cwd: Annotated[str, OutsideKey()] = ""
    """Where it runs; by default the folder of its script. Then `argv` names the script from the spec file's folder."""
    checkpoint: Annotated[str, OutsideKey()] = ""
    """Pattern of its checkpoint files in {directory}, such as "ckpt*.pt". Without it, a stopped trial begins anew."""
    resume: Annotated[Texts, OutsideKey()] = ()
    """Arguments that are added where a stopped trial goes on from a checkpoint."""
    grace: Annotated[NonNegativeFloat, BeforeValidator(read_duration), OutsideKey()] = 30.0
    """Time that it has to end after SIGTERM, such as "2m"; then it is killed."""

    @model_validator(mode="before")
    @classmethod
    def _place(cls, data: Any) -> Any:
        """Write down where it runs, so that workers run it there."""
        if not isinstance(data, dict) or not isinstance(data.get("argv"), list | tuple):
            return data
        argv, cwd, here = list(data["argv"]), data.get("cwd") or "", spec_directory()
        if not isinstance(cwd, str | Path) or not all(isinstance(each, str) for each in argv):
            return data
        if not cwd and (at := script_in(argv, here)) is not None:
            script = here / argv[at]
            argv[at], here = f"./{script.name}" if at == 0 else script.name, script.parent
        return {**data, "argv": argv, "cwd": str((here / cwd).resolve())}

    @model_validator(mode="after")
    def _check(self) -> Self:
        used = self._names(*self.argv, *self.environment.values())
        known = [*self.fields, *RESERVED[:2], *([RESERVED[2]] if self.config else [])]
        for name in sorted(used | self._names(*self.resume)):
            if name not in known:
                raise ValueError(f"{{{name}}} is no name here; there are {', '.join(known)}{suggest_name(name, known)}")
        for name in self.fields:
            if not name.isidentifier() or (name in RESERVED and self.fields[name] != f"{{{name}}}"):
                raise ValueError(f"a field is a name other than {', '.join(RESERVED)}; got {name!r}")
            if not self.config and name not in used:
                raise ValueError(f"the field {name!r} reaches no argument or variable, so it would do nothing: "
                                 f"write {{{name}}} into argv or environment, or give a config file")  # fmt: skip
        if self.config and ("config" not in used or Path(self.config).name != self.config):
            raise ValueError(f"config names a file, whose path {{config}} gives to the program; got {self.config!r}, "
                             "write {config} into argv or environment")  # fmt: skip
        if self.resume and not self.checkpoint:
            raise ValueError('resume takes effect if there is a checkpoint; say which files are one: checkpoint="*.pt"')
        if isinstance(self.steps, str) and not isinstance(self.fields.get(self.steps), int):
            raise ValueError(f"steps is a number, or a field that is one; {self.steps!r} is not")  # noqa: TRY004
        patterns_of([*self.metrics, *self.evaluations])
        self._fill([*self.argv, *self.environment.values(), *self.resume])
        file_of(self.fields, dict.fromkeys(RESERVED, ""))
        return self

    @staticmethod
    def _names(*texts: str) -> set[str]:
        return set().union(*map(names_in, texts))

    def _fill(self, texts: Iterable[str]) -> list[str]:
        return fill_all(texts, {**dict.fromkeys(RESERVED, ""), "seed": self.seed, **self.fields})

    @property
    def program(self) -> str:
        """Name of the script, or of the program."""
        argv = self._fill(self.argv)
        at = script_in(argv, Path(self.cwd))
        return Path(argv[0 if at is None else at]).name

    @property
    def takes_seed(self) -> bool:
        """True if {seed} is among the names that it is given."""
        texts = (*self.argv, *self.environment.values())
        return "seed" in self._names(*texts) or "{seed}" in self.fields.values()

    def total(self, step: int) -> int:
        """Return the steps of a run, of which `step` is one."""
        steps = self.fields[self.steps] if isinstance(self.steps, str) else self.steps
        return max(step, steps or 0)

    def other_code(self) -> dict[str, str]:
        """Hash the script and the local files that it imports or names."""
        return code_of(tuple(self._fill(self.argv)), Path(self.cwd))

    def train(self, run: Any) -> None:
        """Run the program."""
        resolve_name("ablate.runners.programs.training:train_program")(self, run)
