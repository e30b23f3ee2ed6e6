"""A member of a group at work: `python group_member.py UID GID ROOT SPEC SEEDS`, which root starts.

It gives up every right but to read, since Python may lie in a directory of root. Then it uses each command that writes
into the campaign ROOT: it trains toys, ingests, notes, tags, saves, removes and submits.
"""

import ctypes
import os
import sys
from dataclasses import replace
from pathlib import Path


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become(uid: int, gid: int) -> None:
    """Become the user `uid`, who may read all files and write those of the group `gid`."""
    keep_capabilities, dumpable, read_and_search = 8, 4, 1 << 2
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(keep_capabilities, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    sets = (_Sets * 2)(_Sets(read_and_search, read_and_search, 0))
    libc.capset(ctypes.byref(_Header(0x20080522, 0)), sets)  # if it is refused, Python must be readable
    libc.prctl(dumpable, 1, 0, 0, 0)  # as a process that a user starts is
    os.umask(0o002)


def work(root: Path, spec: str, seeds: list[int]) -> None:
    """Use every command that writes into the campaign."""
    from toy_campaign import QUIET, toy_grid

    from ablate.grid import Measure
    from ablate.runners.attempts.run_request import RunRequest
    from ablate.runners.cli.app import execute
    from ablate.runners.execution.run import run_campaign

    grid = replace(
        toy_grid(seeds=seeds, fates=("ok", "raises")), measure=Measure(name="mse"), baseline={"operator": "falling"}
    )
    result = run_campaign(root, [grid], request=RunRequest(**{**vars(QUIET), "land_every_s": 0.1}))
    assert (result.done, result.failed >= 2, result.problems) == (2, True, ()), result  # and what the other one removed
    mine = f"seed={seeds[-1]}"
    for command in (
        ["status"],
        ["table", "--grid", "toy"],
        ["check", "--rebuild"],
        ["note", "it looks fine", "--grid", "toy"],
        ["tag", mine, f"+by-{os.getuid()}"],
        ["sql", "--save", f"by-{os.getuid()}", "SELECT 1"],
        ["rm", mine, "fate=raises"],
        ["run", spec, "--on", "slurm"],
        ["cancel"],
        ["check"],
    ):
        code = execute([*command, "--campaign", str(root)])
        assert code == 0, (command, code)


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]))
    work(Path(sys.argv[3]), sys.argv[4], [int(seed) for seed in sys.argv[5].split(",")])
