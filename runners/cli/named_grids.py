"""Grids that packages offer by name: entry points of `ablate.grids`, each a module that is loaded as a spec file."""

import re
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.paper import PaperGrids, PaperScale
from ablate.grid.plugins import plugins, use_plugin
from ablate.grid.suggestions import suggest_name
from ablate.runners.cli.options import SpecFlags
from ablate.runners.cli.resolve import CAMPAIGNS
from ablate.runners.output import tell


def locate_spec(spec: Path, of: SpecFlags) -> tuple[Path, SpecFlags]:
    """Return the file that a command means by `spec`, and its flags.

    `spec` is a path; or NAME, for grids that a package offers; or NAME:ITEM, for one of them. Their campaign is
    campaigns/NAME by default.

    Raises:
        SpecError: --scale without an item of a paper, or --grid with an item.
        NotFoundError: no package offers grids of that name, or the paper has no such item or scale.
        EnvironmentProblem: the module of the grids is not there.
    """
    name, colon, item = str(spec).partition(":")
    is_name = (
        not spec.is_file()
        and re.fullmatch(r"[\w.-]+", name)
        and (colon or name in entry_points(group="ablate.grids").names)
    )
    if of.scale is not None and not (is_name and colon):
        raise SpecError(
            f"--scale has no effect on {spec}, which is no item of a paper, such as ssa:table1; leave it out"
        )
    if not is_name:
        return spec, of
    if colon and of.grid is not None:
        raise SpecError(f"--grid {of.grid} has no effect on {spec}, which is one grid already; leave it out")
    file = grids_file(name)
    grid = _name_grid(file, item, of.scale) if colon else of.grid
    return file, replace(of, grid=grid, scale=None, campaign=of.campaign or CAMPAIGNS / name)


def grids_file(name: str) -> Path:
    """Find the file of the grids `name`.

    Raises NotFoundError if no package offers them, and EnvironmentProblem if their module is not there.
    """
    entries = plugins("ablate.grids", tell, name)
    if name not in entries:
        near = suggest_name(name, list(entries))
        raise NotFoundError(f"no package offers grids named {name!r}; there are {', '.join(sorted(entries))}{near}")
    return use_plugin(entries[name], _module_file)


def paper_in(file: Path) -> PaperGrids | None:
    """Return the `PaperGrids` that a file assigns, or None. Raise SpecError if there are several."""
    from ablate.runners.provenance.specfile import import_spec_file

    papers = [each for each in vars(import_spec_file(file)).values() if isinstance(each, PaperGrids)]
    if len(papers) > 1:
        raise SpecError(f"{file} has {len(papers)} PaperGrids, and a file of grids assigns at most one; leave one")
    return papers[0] if papers else None


def _module_file(entry: EntryPoint) -> Path:
    """Find the file of the module of an entry point, without its import: it is loaded as a spec file."""
    module = None if entry.attr else find_spec(entry.module)
    if module is None or not (module.origin or "").endswith(".py"):
        raise SpecError(f"{entry.value!r} is no Python module, as an entry point of ablate.grids names one; correct it")
    return Path(str(module.origin)).resolve()


def _name_grid(file: Path, item: str, scale: PaperScale | None) -> str:
    paper = paper_in(file)
    if paper is not None:
        return paper.grid_name(item, scale or "cpu")
    if scale is not None:
        raise SpecError(f"--scale has no effect on {file}, which has no item of a paper; leave it out")
    return item
