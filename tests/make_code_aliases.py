"""Write `store/files/code_aliases.json`: `python tests/make_code_aliases.py OLD_TREE MOVES_JSON`.

OLD_TREE is a checkout of the earlier release, MOVES_JSON maps its module names to those of this tree. Run it only when
both trees train every operator to the same bits.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = """
import json, pkgutil, importlib, sys
import variants
from runners.provenance.code import Codes, _file, _of_file
from pathlib import Path
hashes = {"core": Codes().core}
for room in ("variants", "runners"):
    for info in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        file = Path(importlib.util.find_spec(info.name).origin)
        if file.name != "__init__.py":
            hashes[info.name] = _of_file(file)
print(json.dumps(hashes))
"""


def source_hashes(tree: Path) -> dict[str, str]:
    """The hash of every source in `tree`, by module name, and of the core."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    before, now = source_hashes(Path(sys.argv[1]).resolve()), source_hashes(ROOT)
    moves = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    rows = []
    for old, new in ((old, moves.get(old, old)) for old in sorted(before)):
        if new in now and (old, before[old]) != (new, now[new]):
            rows.append([old, before[old], new, now[new]])
    text = ",\n".join(json.dumps(row) for row in rows)
    (ROOT / "store/files/code_aliases.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
