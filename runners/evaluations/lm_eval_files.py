"""The tasks of lm-evaluation-harness, read from files of this machine.

Of a folder of the user's own everything that is read is part of an evaluation's key: it lies in the folder, and no part
of its path begins with a dot.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grid.errors import EnvironmentProblem, SpecError
from grid.suggestions import suggest_name
from runners.evaluations.lm_eval_adapter import offline, quietly
from runners.evaluations.lm_eval_documents import require_metrics, said, unmade
from runners.tasks.optional_packages import require_package

_LEFT_OUT = ("__pycache__", ".ipynb_checkpoints")


def counts(path: Path) -> bool:
    """Whether a file at `path`, relative to its folder of tasks, is part of the key; hidden ones and caches are not."""
    return not any(part.startswith(".") or part in _LEFT_OUT for part in path.parts)


def load_tasks(names: Sequence[str], include: Path | None, scratch: Path) -> dict[str, Any]:
    """Tasks and groups of tasks by name, with their data, as `lm_eval.tasks.TaskManager.load` gives them.

    Paths of data in a YAML file are relative to its folder. `scratch` is where tables made from them are kept.

    Raises:
        SpecError: there is no such task, or a file of it cannot be read.
        EnvironmentProblem: the harness is not installed, or the data of one of its own tasks are not on this machine.
    """
    with offline(), quietly():
        manager = require_tasks(names, include)
        if include is not None:
            manager._factory = _factory(include, scratch)
        try:
            return manager.load(list(names))  # type: ignore[no-any-return]
        except (SpecError, EnvironmentProblem):
            raise
        except Exception as error:
            raise _unloadable(names, include, error) from error


def require_tasks(names: Sequence[str], include: Path | None) -> Any:
    """The harness's manager of tasks, which has those of these names; none of them is loaded.

    Raises:
        SpecError: there is no such task.
        EnvironmentProblem: the harness is not installed.
    """
    require_package("lm_eval", by="the evaluation lm_eval", extra="lm-eval")
    tasks = require_package("lm_eval.tasks", by="the evaluation lm_eval", extra="lm-eval")
    with offline(), quietly():
        manager = tasks.TaskManager(
            include_path=None if include is None else str(include), include_defaults=not include
        )
        for name in names:
            _require_there(name, manager.all_tasks, include)
    return manager


def _require_there(name: str, known: Sequence[str], include: Path | None) -> None:
    if name in known:
        return
    if include is None:
        raise SpecError(
            f"lm-eval has no task {name!r}{suggest_name(name, list(known))}; for one of your own name the folder of "
            "its YAML file (include, or --include DIR)"
        )
    for path in sorted(include.glob("**/*.yaml")):
        _require_sound(path)
    raise SpecError(
        f"{include} has no lm-eval task {name!r}; it has {', '.join(known) or 'none'}{suggest_name(name, list(known))}"
    )


def _require_sound(path: Path) -> None:
    yaml = require_package("yaml", by="the evaluation lm_eval", extra="lm-eval")
    try:
        yaml.compose(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise SpecError(f"{path} is not YAML that can be read: {' '.join(str(error).split())}") from error


def _unloadable(names: Sequence[str], include: Path | None, error: Exception) -> SpecError | EnvironmentProblem:
    what = f"the lm-eval {'task' if len(names) == 1 else 'tasks'} {', '.join(names)}"
    if include is None:
        return EnvironmentProblem(
            f"{what} cannot be loaded without network ({said(error)}); load the data once where there "
            "is one, into the cache of Hugging Face datasets, or write a task of your own over local files"
        )
    return SpecError(
        f"{what} in {include} cannot be loaded ({said(error)}); mend the YAML or its data, of which the first document "
        "has been tried"
    )


def _factory(include: Path, scratch: Path) -> Any:
    """Makes tasks whose data lie in the folder `include`, whose content is part of the key."""
    made = require_package("lm_eval.tasks._factory", by="the evaluation lm_eval", extra="lm-eval")
    require_package("lm_eval.api.metrics", by="the evaluation lm_eval", extra="lm-eval")  # which fills the registry
    registry = require_package("lm_eval.api.registry", by="the evaluation lm_eval", extra="lm-eval")

    class Local(made.TaskFactory):  # type: ignore[misc, name-defined]
        """Tasks with whole paths."""

        def _load_full_config(self, entry: Any, overrides: Any = None) -> dict[str, Any]:
            if entry.yaml_path is not None:
                _require_counted(Path(entry.yaml_path), include, entry.name)
            found: dict[str, Any] = super()._load_full_config(entry, overrides)
            require_metrics(found, registry)
            home = include if entry.yaml_path is None else Path(entry.yaml_path).parent
            options = _options(found, home, include, scratch)
            return {**found, "dataset_kwargs": options} if options else found

        def _build_task(self, entry: Any, overrides: Any) -> Any:
            try:
                return super()._build_task(entry, overrides)
            except SpecError:
                raise
            except Exception as error:
                config = self._load_full_config(entry, overrides)
                if "class" not in config and (why := _why_unmade(made.ConfigurableTask, config)) is not None:
                    raise why from error
                raise

        def _build_group_members(self, members: Any, group: str, overrides: Any, registry: Any) -> Any:
            for each in members:
                name = each.get("task") if isinstance(each, Mapping) and "group" not in each else each
                if isinstance(name, str) and name not in registry:
                    raise SpecError(
                        f"each task of a group has a YAML file of its own in the folder; the group {group!r} names "
                        f"{name!r}, which has none{suggest_name(name, list(registry))}"
                    )
            return super()._build_group_members(members, group, overrides, registry)

    return Local(meta=None)


def _options(config: Mapping[str, Any], home: Path, include: Path, scratch: Path) -> dict[str, Any]:
    """Where the data of a task are read, with whole paths."""
    options = dict(config.get("dataset_kwargs") or {})
    for name in ("data_files", "data_dir"):
        if options.get(name):
            options[name] = _placed(options[name], home, include, str(config.get("task")))
    if "data_files" in options:
        options["cache_dir"] = str(scratch)
    return options


def _why_unmade(kind: Any, config: Mapping[str, Any]) -> SpecError | None:
    task = kind.__new__(kind)
    try:
        task.__init__(config={name: each for name, each in config.items() if name not in ("tag", "group", "task_list")})
    except Exception as error:  # noqa: BLE001  (the harness's, of which there are many)
        return unmade(task, error)
    return None


def _placed(value: Any, home: Path, include: Path, task: str) -> Any:
    """Paths of data made whole."""
    if isinstance(value, Mapping):
        return {name: _placed(each, home, include, task) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(each, home, include, task) for each in value]
    path = (home / str(value)).resolve()
    _require_within(path, include, task)
    if not any(character in str(value) for character in "*?[") and not path.exists():
        raise SpecError(f"data of a task are there; {task!r} names {path}, which is not: mend the YAML file")
    return str(path)


def _require_within(path: Path, include: Path, task: str) -> None:
    inside = path.is_relative_to(include.resolve())
    if inside and counts(path.relative_to(include.resolve())):
        return
    if inside:
        raise SpecError(
            f"what a task reads is part of the key, and files whose path has a part that begins with a dot, or is "
            f"__pycache__, are not; {task!r} names {path}: give it another name"
        )
    raise SpecError(
        f"what a task reads lies in the folder of its YAML files, whose content is part of the key; {task!r} names "
        f"{path} and the folder is {include}: move it there and name it relative to the YAML file"
    )


def _require_counted(path: Path, include: Path, task: str) -> None:
    """Refuse a YAML file, or one that it includes, that is no part of the key."""
    waiting, seen = [path.resolve()], set()
    while waiting:
        here = waiting.pop()
        _require_within(here, include, task)
        if here not in seen and here.is_file():
            seen.add(here)
            waiting += [(here.parent / each).resolve() for each in _included(here)]


def _included(path: Path) -> list[str]:
    """What the field `include` of a YAML file names."""
    yaml = require_package("yaml", by="the evaluation lm_eval", extra="lm-eval")
    _require_sound(path)
    top = yaml.compose(path.read_text(encoding="utf-8"))
    fields = top.value if isinstance(top, yaml.MappingNode) else []
    named = [value for name, value in fields if name.value == "include"]
    return [each.value for value in named for each in (value.value if isinstance(value.value, list) else [value])]
