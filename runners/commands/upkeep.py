"""Commands that look after a campaign and the machine."""

from pathlib import Path

from runners.commands.options import Json
from runners.output import say, write, write_json, write_table


def rebuild(*, campaign: Path | None = None) -> int:
    """Make the store anew from the campaign's files.

    Parameters
    ----------
    campaign
        The campaign directory; default the only one below campaigns/.
    """
    from runners.commands.finding import find_campaign
    from store.rebuild import rebuild as rebuild_store
    from store.store import Store

    root = find_campaign(campaign)
    found = rebuild_store(root)
    with Store.open(root, refresh=False) as store:
        write(f"{store.content_hash()}  {found.rows} rows from {found.shards} shards, {found.attempts} attempts")
        for row in (*store.bad_shards().rows(named=True), *store.bad_records().rows(named=True)):
            say(f"ablate: not served: {row['file']}: {row['reason']}")
    return 0


def doctor(*, campaign: Path | None = None, as_json: Json = False) -> int:
    """Check what this machine offers: Python, torch, devices, cores, disk, browser, scheduler.

    Parameters
    ----------
    campaign
        A directory that must be writable; default campaigns/.
    as_json
        Print JSON.
    """
    from runners.doctor import examine

    found = examine(campaign)
    if as_json:
        write_json("doctor", [check._asdict() for check in found])
    else:
        write_table(["", "what", "found"], [("ok" if check.ok else "!!", check.what, check.found) for check in found])
    return 0 if all(check.ok or not check.needed for check in found) else 5
