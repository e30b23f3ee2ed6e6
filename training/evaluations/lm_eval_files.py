"""Load tasks of lm-evaluation-harness from files of this machine.

Everything that tasks of a user's folder read is part of the key. So it must lie in that folder, and no part of its path
may begin with a dot.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.grid.suggestions import suggest_name
from ablate.training.evaluations.lm_eval_adapter import error_words, harness, offline, quiet

_LEFT_OUT = ("__pycache__", ".ipynb_checkpoints")


def is_hashed(path: Path) -> bool:
    """Return True if a file, with its path relative to the folder of tasks, is part of the key."""
    return not any(part.startswith(".") or part in _LEFT_OUT for part in path.parts)


def load_tasks(names: Sequence[str], include: Path | None, scratch: Path) -> dict[str, Any]:
    """Load tasks and groups by name, with their data, tables of which are in `scratch`; SpecError if that fails."""
    with offline(), quiet():
        manager = require_tasks(names, include)
        if include is not None:
            manager._factory = _factory(include, scratch)
        try:
            return manager.load(list(names))  # type: ignore[no-any-return]
        except (SpecError, EnvironmentProblem):
            raise
        except Exception as error:
            what = f"the lm-eval tasks {', '.join(names)}"
            if include is None and isinstance(error, ImportError):
                raise EnvironmentProblem(f"{what} need packages that are missing ({error_words(error)})") from error
            if include is None:
                raise EnvironmentProblem(
                    f"{what} cannot be loaded without network ({error_words(error)}); load the data once with network, "
                    "into the cache of Hugging Face datasets, or write your own task over local files"
                ) from error
            raise SpecError(f"{what} in {include} cannot be loaded ({error_words(error)}); repair them") from error


def require_tasks(names: Sequence[str], include: Path | None) -> Any:
    """Return the harness's task manager, without loading tasks; SpecError if it has no tasks of these names."""
    harness("lm_eval")
    tasks = harness("lm_eval.tasks")
    with offline(), quiet():
        manager = tasks.TaskManager(
            include_path=None if include is None else str(include), include_defaults=not include
        )
        known = list(manager.all_tasks)
    for name in names:
        if name not in known and include is None:
            raise SpecError(f"lm-eval has no task {name!r}{suggest_name(name, known)}; for your own give include")
        if name not in known:
            raise SpecError(
                f"{include} has no lm-eval task {name!r} in readable YAML; it has {', '.join(known) or 'none'}"
                f"{suggest_name(name, known)}"
            )
    return manager


def _factory(include: Path, scratch: Path) -> Any:
    factory = harness("lm_eval.tasks._factory")
    harness("lm_eval.api.metrics")  # fills the registry

    class LocalTasks(factory.TaskFactory):  # type: ignore[misc, name-defined]
        def _load_full_config(self, entry: Any, overrides: Any = None) -> dict[str, Any]:
            if entry.yaml_path is not None:
                _require_hashed(Path(entry.yaml_path), include, entry.name)
            config: dict[str, Any] = super()._load_full_config(entry, overrides)
            home = include if entry.yaml_path is None else Path(entry.yaml_path).parent
            options = dict(config.get("dataset_kwargs") or {})
            for name in ("data_files", "data_dir"):
                if options.get(name):
                    options[name] = _absolute_paths(options[name], home, include, str(config.get("task")))
            if "data_files" in options:
                options["cache_dir"] = str(scratch)
            return {**config, "dataset_kwargs": options} if options else config

    return LocalTasks(meta=None)


def _absolute_paths(value: Any, home: Path, include: Path, task: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _absolute_paths(each, home, include, task) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_absolute_paths(each, home, include, task) for each in value]
    path = (home / str(value)).resolve()
    _require_part_of_key(path, include, task)
    if not any(character in str(value) for character in "*?[") and not path.exists():
        raise SpecError(f"{task!r} names {path}, which does not exist; repair the YAML file")
    return str(path)


def _require_hashed(path: Path, include: Path, task: str) -> None:
    """Refuse a YAML file, or a file that it includes, that is no part of the key."""
    yaml = harness("yaml")
    waiting, seen = [path.resolve()], set()
    while waiting:
        here = waiting.pop()
        _require_part_of_key(here, include, task)
        if here not in seen and here.is_file():
            seen.add(here)
            top = yaml.compose(here.read_text(encoding="utf-8"))
            named = [value for name, value in getattr(top, "value", ()) if name.value == "include"]
            files = [each for value in named for each in (value.value if isinstance(value.value, list) else [value])]
            waiting += [(here.parent / each.value).resolve() for each in files]


def _require_part_of_key(path: Path, include: Path, task: str) -> None:
    root = include.resolve()
    if not path.is_relative_to(root) or not is_hashed(path.relative_to(root)):
        raise SpecError(
            f"{task!r} reads {path}, which is no part of the key: it is outside of {include}, or a part of its path "
            "begins with a dot or is __pycache__; move it"
        )
