"""The generated pages of docs/ are what the code says now."""

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ablate.training.catalogue.explain_choice import is_ours, kinds
from ablate.training.evaluations import Evaluation
from ablate.training.probes import Probe
from ablate.training.tasks import Task
from ablate.variants.papers.catalogue import catalogue

ROOT = Path(__file__).parent.parent
PAGES = ("operators", "performance", "probes", "results", "sql", "tasks", "training")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "tasks").mkdir()
    (folder / "tasks" / "removed_task.svg").touch()
    subprocess.run([sys.executable, ROOT / "docs/generate/all.py", "--site", folder], check=True, capture_output=True)
    return folder


def test_pages_and_pictures_are_up_to_date(generated: Path) -> None:
    committed = {f"{page}.md" for page in PAGES}
    committed |= {f"{page}/{path.name}" for page in PAGES for path in (ROOT / "docs" / page).glob("*.svg")}
    drawn = {path.relative_to(generated).as_posix() for path in generated.rglob("*.*")}
    remedy = "run `python docs/generate/all.py` and commit docs/"
    assert {name for name in drawn if not name.startswith(("operators/", "probes/", "tasks/"))} == committed, remedy
    page = runpy.run_path(str(ROOT / "docs/generate/markdown.py"))["without_pictures"]
    differ = {
        n for n in committed if page((generated / n).read_text("utf-8")) != (ROOT / "docs" / n).read_text("utf-8")
    }
    assert not differ, remedy


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_headings_or_files_and_tables_have_even_rows(page: str, generated: Path) -> None:
    text = (generated / f"{page}.md").read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert "/tmp" not in text


def test_every_picture_is_on_a_page_and_every_page_has_its_pictures(generated: Path) -> None:
    text = "".join((generated / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)
    pictures = {path.relative_to(generated).as_posix() for path in generated.rglob("*.svg")}
    assert set(re.findall(r"\]\((\w+/[\w-]+\.svg)\)", text)) == pictures


def test_every_kind_of_the_package_has_a_section_with_its_fields(generated: Path) -> None:
    text = "".join((generated / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)
    for family in (Task, Evaluation, Probe):
        for kind, member in family.members().items():
            if is_ours(member):
                section = text.partition(f"\n### {kind}\n")[2].partition("\n### ")[0]
                assert [
                    name for name in member.model_fields if name != "kind" and f"\n| `{name}` | " not in section
                ] == []
    assert {row.name for row in kinds("task")} >= {"needle", "text"}
    assert [name for name in catalogue() if f"\n### {name}\n" not in text] == []


def test_the_readme_counts_the_operators_of_every_paper_and_leads_to_the_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    counts = {paper: int(n) for paper, n in re.findall(r"^\| (\d{3}|baseline|beyond)[^|]*\| (\d+) \|", readme, re.M)}
    assert counts == Counter(known.paper for known in catalogue().values())
    assert set(re.findall(r"`(\w+)\(\)`", readme)) <= set(catalogue())
    assert {"(docs/tasks.md)", "(docs/probes.md)"} <= set(re.findall(r"\(docs/\w+\.md\)", readme))
