"""A program in any language as an experiment: its command line, what fills it, and what it reports."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat, PositiveInt, model_validator

from ablate.grid.durations import read_duration
from ablate.grid.experiment import Experiment
from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.spec import OutsideKey
from ablate.grid.suggestions import suggest_name
from ablate.runners.programs.filling import RESERVED, file_of, fill_all, names_in
from ablate.runners.programs.program_code import code_of, require_startable, script_in
from ablate.runners.programs.report import patterns_of
from ablate.runners.programs.script_run import METRICS
from ablate.runners.provenance.loading import spec_directory


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        if strange := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"the field {strange[0]!r} is named by no text, as in JSON; write {str(strange[0])!r}")
        return FrozenDict({name: _frozen(each) for name, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _whole(steps: object) -> object:
    if isinstance(steps, bool | float) or (isinstance(steps, int) and steps < 1):
        raise ValueError(f"{steps!r} is no whole number from 1 on, nor a field that holds one; give one")
    return steps


_CONFIGS: Final = (".json", ".yaml", ".yml")
_OWN: Final = frozenset({METRICS, "ABLATE_SEED", "ABLATE_DIRECTORY"})
"""Variables that every program gets."""

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
    steps: Annotated[PositiveInt | str | None, BeforeValidator(_whole)] = None
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
        if not isinstance(cwd, str | Path) or "\0" in str(cwd) or not all(isinstance(each, str) for each in argv):
            return data
        if not cwd and (at := script_in(argv, here)) is not None:
            script, program = here / argv[at], here / argv[0]
            argv[at] = f"./{script.name}" if at == 0 or argv[at - 1] == "-c" else script.name
            if at and "/" in argv[0] and not Path(argv[0]).is_absolute() and here != script.parent:
                argv[0] = f"./{os.path.relpath(program, script.parent)}"
            here = script.parent
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
                raise ValueError(f"the field {name!r} cannot have this name; give one other than {', '.join(RESERVED)}")
            if not self.config and name not in used:
                raise ValueError(f"the field {name!r} reaches no argument or variable, so it would do nothing: "
                                 f"write {{{name}}} into argv or environment, or give a config file")  # fmt: skip
        if self.config and ("config" not in used or Path(self.config).name != self.config):
            raise ValueError(
                f"config={self.config!r} does not reach the program; write {{config}}, its path, into argv or "
                "environment"
            )
        if self.config and (Path(self.config).suffix not in _CONFIGS or "{" in self.config):
            raise ValueError(
                f"config={self.config!r} is no plain name of a file of JSON, which YAML reads, too; end it with one of "
                f"{', '.join(_CONFIGS)}"
            )
        if self.resume and not self.checkpoint:
            raise ValueError('resume has no effect without a checkpoint; say which files are one: checkpoint="*.pt"')
        if re.search(r"[{}\0]|^/|(^|/)\.\.(/|$)", self.checkpoint):
            raise ValueError(
                f'checkpoint={self.checkpoint!r} is no pattern of names in {{directory}}; write it as "ckpt*.pt"'
            )
        patterns_of([*self.metrics, *self.evaluations])
        self._check_values()
        return self

    def _check_values(self) -> None:
        for name in self.environment:
            if name in _OWN or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                why = "is set for every program" if name in _OWN else "has other characters than letters, digits and _"
                raise ValueError(f"the environment variable {name!r} {why}; give it another name")
        if isinstance(self.steps, str) and not isinstance(_whole(self.fields.get(self.steps)), int):
            raise ValueError(  # noqa: TRY004
                f"steps={self.steps!r} is no field that holds a whole number from 1 on; name one, or give the number"
            )
        try:
            file_of(self.fields, dict.fromkeys(RESERVED, ""))
        except TypeError as error:
            raise ValueError(f"a field is no number, text, list or mapping ({error}); convert it") from error
        if not "".join(program := self._fill(self.argv[:1])).strip():
            raise ValueError(f"argv begins with {self.argv[0]!r}, which is no program; give its name or path")
        for text in [*program, *self._fill([*self.argv[1:], *self.environment.values(), *self.resume]), self.cwd]:
            if "\0" in text:
                raise ValueError(
                    f"{text!r} has the character NUL, which no argument, variable or folder holds; leave it out"
                )

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

    @property
    def total(self) -> int | None:
        """The steps of a run; None: nobody has said."""
        return self.fields[self.steps] if isinstance(self.steps, str) else self.steps

    def other_code(self) -> dict[str, str]:
        """Hash the script and the local files that it imports or names."""
        return code_of(tuple(self._fill(self.argv)), Path(self.cwd))

    def check_inputs(self) -> None:
        """Refuse a program that cannot be started here."""
        argv, path = self._fill(self.argv), self.environment.get("PATH")
        require_startable(argv, Path(self.cwd), None if path is None else self._fill([path])[0])

    def train(self, run: Any) -> None:
        """Run the program."""
        resolve_name("ablate.runners.programs.training:train_program")(self, run)
