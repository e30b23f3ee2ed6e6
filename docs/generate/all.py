"""Write the generated pages: `python docs/generate/all.py` into docs/, as they are committed.

`make docs` adds `--site FOLDER`, which writes the pictures of operators, probes and tasks, too.
"""

import argparse
import sys
from pathlib import Path

from choice_pages import make_probes_page, make_tasks_page, make_training_page
from markdown import without_pictures
from operators_page import make_operators_page
from performance_page import make_performance_page
from results_page import make_results_page
from sql_page import make_sql_page

from ablate.grid.errors import AblateError

DOCS = Path(__file__).parent.parent


def main(site: Path | None) -> None:
    """Write all pages and remove pictures that no page shows any more."""
    folder = site or DOCS
    files = {
        **make_operators_page(),
        **make_performance_page(),
        **make_probes_page(),
        **make_results_page(),
        **make_sql_page(),
        **make_tasks_page(),
        **make_training_page(),
    }
    if site is None:
        files = {
            name: without_pictures(text)
            for name, text in files.items()
            if not name.startswith(("operators/", "probes/", "tasks/"))
        }
    pages = "".join(text for name, text in files.items() if name.endswith(".md"))
    for name in {name.partition("/")[0] for name in files if "/" in name}:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (folder / name).iterdir():
            if f"]({name}/{path.name})" not in pages:
                path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(files)} files below {folder}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, metavar="FOLDER")
    try:
        main(parser.parse_args().site)
    except AblateError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
