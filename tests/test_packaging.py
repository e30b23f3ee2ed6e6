"""The wheel and the editable install: one importable name, beside modules of a user with any name."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from contextlib import chdir
from pathlib import Path
from pkgutil import iter_modules

import pytest
from hatchling.build import build_editable, build_sdist, build_wheel
from real_spec import real_spec

from ablate import ROOMS
from ablate.dashboards.app.pages import ORDER
from ablate.papers.results.result_files import PAPERS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this work tree that git does not ignore."""
    place = tmp_path_factory.mktemp("packaging") / "clone"
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and not name.startswith(("results/", "tests/")) and (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


def unpack_wheel(wheel: Path, place: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)


@pytest.fixture(scope="module", params=["wheel", "editable"])
def interpreter(clone: Path, request: pytest.FixtureRequest) -> Path:
    """A Python whose packages are those of this one, with `ablate` from a wheel of the sdist, or from the clone."""
    place = clone.with_name(request.param)
    with chdir(clone):
        if request.param == "editable":
            wheel = place / build_editable(str(place))
        else:
            with tarfile.open(place / build_sdist(str(place))) as sdist:
                sdist.extractall(place, filter="data")
            (unpacked,) = (path for path in place.iterdir() if path.is_dir())
            with chdir(unpacked):
                wheel = place / build_wheel(str(place))
    venv.create(place / "venv", symlinks=True)
    (site,) = (place / "venv").glob("lib/python*/site-packages")
    unpack_wheel(wheel, site)
    others = [entry for entry in sys.path if "site-packages" in Path(entry).parts]
    (site / "others.pth").write_text("\n".join(others))
    return place / "venv" / "bin" / "python"


def output_of(interpreter: Path, *words: str, cwd: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(interpreter), *words], cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ablate_is_the_only_name_that_is_installed(interpreter: Path, tmp_path: Path) -> None:
    (site,) = interpreter.parents[1].glob("lib/python*/site-packages")
    places = {str(site), *(line for path in site.glob("_*.pth") for line in path.read_text().splitlines())}
    assert {module.name for module in iter_modules(places)} == {"ablate"}
    program = (
        "import sys; from importlib.util import find_spec; print([name for name in sys.argv[1:] if find_spec(name)])"
    )
    assert output_of(interpreter, "-c", program, *ROOMS, cwd=tmp_path) == "[]\n"
    program = f"import ablate; print(*(getattr(ablate, room).__name__ for room in {ROOMS!r}), ablate.Trial.__module__)"
    names = output_of(interpreter, "-c", program, cwd=tmp_path).split()
    assert names == [*(f"ablate.{room}" for room in ROOMS), "ablate.training.trial"]


def test_slurm_is_found_by_its_entry_point(interpreter: Path, tmp_path: Path) -> None:
    program = (
        "from importlib.metadata import entry_points; (found,) = entry_points(group='ablate.backends'); "
        "print(found.name, found.load().__module__)"
    )
    found = output_of(interpreter, "-c", program, cwd=tmp_path).split()
    assert found == ["slurm", "ablate.runners.backends.slurm.backend"]


def test_papers_are_found_by_their_entry_points(interpreter: Path, tmp_path: Path) -> None:
    rows = json.loads(output_of(interpreter, "-m", "ablate", "papers", "--json", cwd=tmp_path))["data"]
    assert {row["paper"] for row in rows} == set(PAPERS.values())
    program = "from ablate.dashboards.app.pages import app_pages; print(*(page.name for page in app_pages()))"
    assert output_of(interpreter, "-c", program, cwd=tmp_path).split() == [*ORDER]


def contents(package: Path) -> dict[str, bytes]:
    """The files of the package, without what Python made of them."""
    rooms = [(room, (package / room).resolve()) for room in ROOMS]
    found = {f"{room}/{path.relative_to(place)}": path for room, place in rooms for path in place.rglob("*")}
    found |= {path.name: path for path in package.iterdir()}
    return {name: path.read_bytes() for name, path in found.items() if path.is_file() and path.suffix != ".pyc"}


def test_every_file_of_the_rooms_is_installed(interpreter: Path, clone: Path, tmp_path: Path) -> None:
    place = Path(output_of(interpreter, "-c", "import ablate; print(ablate.__file__)", cwd=tmp_path).strip()).parent
    assert contents(place) == contents(clone / "src" / "ablate")
    assert {"py.typed", "store/database/schema.sql", "runners/backends/slurm/submit/worker.sh"} <= contents(
        place
    ).keys()


def test_a_spec_imports_its_own_modules_whatever_their_names(interpreter: Path, tmp_path: Path) -> None:
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text(f"def steps():\n    return {len(room)}\n")
    imports = "".join(f"from {room} import steps as {room}_steps\n" for room in ROOMS)
    steps = "+".join(f"{room}_steps()" for room in ROOMS)
    (tmp_path / "spec.py").write_text(real_spec("own", training=f"steps={steps}", seeds=1, before=imports))
    output_of(interpreter, "-m", "ablate", "run", "spec.py", "--campaign", "c", "--workers", "1", cwd=tmp_path)
    query = "SELECT max(step) AS steps FROM metric WHERE name = 'loss'"
    found = output_of(interpreter, "-m", "ablate", "sql", query, "--campaign", "c", "--csv", cwd=tmp_path)
    assert found.split() == ["steps", str(len("".join(ROOMS)))]
    assert "report.html" in output_of(interpreter, "-m", "ablate", "report", "--campaign", "c", cwd=tmp_path)
