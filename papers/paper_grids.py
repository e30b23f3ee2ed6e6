"""The grids of the five papers by name."""

from ablate.grid.errors import SpecError
from ablate.grid.paper import PaperGrids
from ablate.papers.results.result_files import PAPERS
from ablate.runners.cli.named_grids import grids_file, paper_in


def paper_names() -> list[str]:
    """List the papers, such as "ssa"."""
    return sorted(PAPERS.values())


def load_paper(name: str) -> PaperGrids:
    """Load the grids of a paper. Raise NotFoundError if no grids are called so, SpecError if they are of no paper."""
    paper = paper_in(grids_file(name))
    if paper is None:
        raise SpecError(f"the grids {name!r} are of no paper; `ablate plan {name}` shows them")
    return paper
