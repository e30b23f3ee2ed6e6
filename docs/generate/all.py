"""Write the generated pages and their pictures: `python docs/generate/all.py [FOLDER]`, by default into docs/."""

import argparse
import sys
from pathlib import Path

from choice_pages import make_probes_page, make_tasks_page
from operators_page import make_operators_page
from performance_page import make_performance_page
from results_page import make_results_page
from sql_page import make_sql_page

from ablate.grid.errors import AblateError


def main(folder: Path) -> None:
    """Write all pages and remove pictures that no page shows any more."""
    files = {
        **make_operators_page(),
        **make_performance_page(),
        **make_probes_page(),
        **make_results_page(),
        **make_sql_page(),
        **make_tasks_page(),
    }
    pages = "".join(text for name, text in files.items() if name.endswith(".md"))
    for name in ("operators", "performance", "probes", "results", "tasks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (folder / name).iterdir():
            if f"]({name}/{path.name})" not in pages:
                path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(files)} files below {folder}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent.parent)
    try:
        main(parser.parse_args().folder)
    except AblateError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
