"""The test cluster as a command.

python tests/cluster up DIR [--nodes 2] [--gpus 2] [--cpus 2] [--max-array 1001] [--no-accounting]
python tests/cluster fail|heal DIR NODE
python tests/cluster restart|down DIR
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from cluster.cluster import PACKAGES, Cluster, ClusterBroken, Shape, missing  # noqa: E402


def hold(cluster: Cluster) -> None:
    """Keep a cluster running and do what the socket run/control in its directory is told, until it is told `stop`."""
    verbs = {"fail": cluster.fail, "heal": cluster.heal, "restart": cluster.restart_controller, "down": cluster.stop}
    place = cluster.root / "run" / "control"
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))
        door.listen()
        while place.exists():
            client, _ = door.accept()
            with client, client.makefile("rw", encoding="utf-8") as talk:
                verb, *nodes = json.loads(talk.readline())
                try:
                    verbs[verb](*nodes)
                    talk.write("done\n")
                except ClusterBroken as error:
                    talk.write(f"{error}\n")
                except KeyError:
                    talk.write(f"there is no node {' '.join(nodes)}; there are {', '.join(cluster.nodes)}\n")
                if verb == "down":
                    place.unlink()


def tell(root: Path, *words: str) -> str:
    """Have the holder of the cluster in `root` do something; returns `done` or what is wrong."""
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(str(root.resolve() / "run" / "control"))
        except OSError:
            return f"no cluster runs in {root}; start one with: up {root}"
        with door.makefile("rw", encoding="utf-8") as talk:
            talk.write(json.dumps(words) + "\n")
            talk.flush()
            return talk.readline().strip()


def up(root: Path, shape: Shape) -> str:
    """Start a cluster that lives until `down`; returns `done` or what is wrong."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        try:
            with Cluster(shape, root) as cluster:
                os.write(writing, b"done")
                os.close(writing)
                hold(cluster)
        except ClusterBroken as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as said:
        return said.read()


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("up", "down", "fail", "heal", "restart"))
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("node", nargs="?")
    for name in ("nodes", "gpus", "cpus", "max_array"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Shape, name))
    parser.add_argument("--no-accounting", dest="accounting", action="store_false")
    asked = vars(parser.parse_args(arguments))
    verb, root, node = asked.pop("verb"), asked.pop("root"), asked.pop("node")
    if (verb in {"fail", "heal"}) != (node is not None):
        parser.error("fail and heal name a node, and nothing else does")
    if verb == "up" and (lacks := missing(accounting=asked["accounting"])):
        parser.error(f"{', '.join(lacks)} is not installed: apt-get install {PACKAGES}")
    answer = up(root, Shape(**asked)) if verb == "up" else tell(root, verb, *([node] if node else []))
    if answer != "done":
        sys.stderr.write(f"{answer}\n")
        return 1
    if verb == "up":
        sys.stdout.write(f"export SLURM_CONF={root.resolve()}/slurm.conf\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
