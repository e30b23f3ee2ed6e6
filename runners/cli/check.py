"""The command `check`: the files of a campaign, its database made again, this machine."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.cli.options import Campaign, Flag, Json
from ablate.runners.cli.resolve import CAMPAIGNS, find_campaign
from ablate.runners.output import format_count, tell, write, write_json, write_table

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NEEDED_BYTES = 1 << 30


class Finding(NamedTuple):
    """One thing checked; `needed` says whether nothing works without it."""

    what: str
    answer: str
    ok: bool = True
    needed: bool = True


def examine(campaign: Path | None = None) -> list[Finding]:
    """Every check, in the order a newcomer would ask."""
    return [
        Finding("Python", platform.python_version()),
        *_packages(),
        _devices(),
        Finding("cores", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        _disk(campaign or CAMPAIGNS),
        _program("browser for image export", "chromium", "google-chrome", "chromium-browser"),
        _program("SLURM", "sbatch"),
    ]


def _packages() -> list[Finding]:
    """Check the packages that ablate requires on this machine."""
    try:
        from packaging.requirements import Requirement

        declared = [Requirement(text) for text in requires("ablate") or ()]
    except PackageNotFoundError:
        return [Finding("ablate", "not installed, so nothing says which packages it needs; pip install it", ok=False)]
    except ImportError:
        return [Finding("packaging", "missing; pip install packaging", ok=False)]
    return [_package(each) for each in declared if each.marker is None or each.marker.evaluate({"extra": ""})]


def _package(wanted: "Requirement") -> Finding:
    needs = f"pip install '{wanted.name}{wanted.specifier}'"
    try:
        installed = version(wanted.name)
    except PackageNotFoundError:
        return Finding(wanted.name, f"missing; {needs}", ok=False)
    if not wanted.specifier.contains(installed, prereleases=True):
        return Finding(wanted.name, f"{installed}, but ablate needs {wanted.specifier}; {needs}", ok=False)
    return Finding(wanted.name, installed)


def _devices() -> Finding:
    try:
        import torch
    except Exception as error:  # noqa: BLE001  # a broken installation raises anything; the table says what
        said = str(error).partition("\n")[0]
        return Finding("import torch", f"fails with {type(error).__name__}: {said}; reinstall torch", ok=False)
    if not torch.cuda.is_available():
        return Finding("accelerator", "none; trials run on the CPU", ok=False, needed=False)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("accelerator", ", ".join(names), needed=False)


def _disk(directory: Path) -> Finding:
    places = (directory.resolve(), *directory.resolve().parents)
    existing = next(path for path in places if os.access(path, os.F_OK))  # never raises, as `exists` does
    if not existing.is_dir():
        return Finding("campaign directory", f"{existing} is a file; choose a directory with --campaign", ok=False)
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK):
        return Finding("campaign directory", f"{existing} is not writable; choose another with --campaign", ok=False)
    enough = free >= NEEDED_BYTES
    return Finding("campaign directory", f"{existing}: writable, {free / (1 << 30):.1f} GiB free", ok=enough)


def _program(what: str, *names: str) -> Finding:
    program = next((path for name in names if (path := shutil.which(name))), None)
    return Finding(what, program or f"no {' or '.join(names)} on the path", ok=program is not None, needed=False)


def check(*, rebuild: Flag = False, machine: Flag = False, campaign: Campaign = None, as_json: Json = False) -> int:
    """Verify every file of a campaign; list what is damaged or missing and its repair.

    Warns of files of the installed package that were edited: results name the versions of the package and not its
    files. The exit code is 0 if all is sound, and 6 if something is wrong.

    Parameters
    ----------
    rebuild
        Make the database again from the campaign's files instead.
    machine
        Check what this machine offers instead: packages, devices, cores, disk, scheduler. --campaign is a directory
        that must be writable; default campaigns/. The exit code is 5 if something that is needed is missing.
    """
    if rebuild and machine:
        raise SpecError("--rebuild and --machine do not go together; leave one out")
    if machine:
        return _check_machine(campaign, as_json=as_json)
    root = find_campaign(campaign)
    return _rebuild(root, as_json=as_json) if rebuild else _check_files(root, as_json=as_json)


def _check_machine(campaign: Path | None, *, as_json: bool) -> int:
    findings = examine(campaign)
    if as_json:
        write_json(
            "doctor",
            [{"what": each.what, "found": each.answer, "ok": each.ok, "needed": each.needed} for each in findings],
        )
    else:
        write_table(["", "what", "found"], [("ok" if each.ok else "!!", each.what, each.answer) for each in findings])
    return 0 if all(each.ok or not each.needed for each in findings) else EnvironmentProblem.exit_code


def _rebuild(root: Path, *, as_json: bool) -> int:
    from ablate.store.analysis.judge import conclude
    from ablate.store.ingest.rebuild import rebuild
    from ablate.store.store import Store

    rebuilt = rebuild(root, conclude)
    with Store.open(root, refresh=False) as store:
        content = store.content_hash()
        bad = [*store.bad_shards().rows(named=True), *store.bad_records().rows(named=True)]
    not_served = [f"not served: {row['file']}: {row['reason']}" for row in bad]
    if as_json:
        counts = {name: getattr(rebuilt, name) for name in ("rows", "shards", "attempts")}
        write_json("rebuild", {"content": content, **counts}, not_served)
    else:
        write(f"{content}  {rebuilt.rows} rows from {rebuilt.shards} shards, {rebuilt.attempts} attempts")
        tell(*not_served)
    return 0


def _check_files(root: Path, *, as_json: bool) -> int:
    from ablate.runners.monitoring.integrity import check_campaign
    from ablate.runners.provenance.origin import edited_files

    faults = check_campaign(root)
    warnings = [
        f"{path} was edited after the package was installed, which results do not show; install ablate again, or work "
        "in a clone and raise the `version` of what the edit changes"
        for path in edited_files()
    ]
    if as_json:
        write_json("check", [damage._asdict() for damage in faults], warnings)
    else:
        tell(*warnings)
        for damage in faults:
            write(": ".join(filter(None, (damage.file, damage.problem))))
            write(f"    {damage.remedy}")
        counts = len([*root.glob("trials/*/*")]), sum(path.is_file() for path in root.rglob("*"))
        words = ", ".join(map(format_count, counts, ("trial", "file")))
        write(format_count(len(faults), "problem") if faults else f"all is sound: {words}")
    return 6 if faults else 0
