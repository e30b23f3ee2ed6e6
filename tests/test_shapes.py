"""The shapes in annotations are those of the tensors. A typo in one would teach a reader a wrong shape."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "checked_shapes.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, WORKER, *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["operators", "decoding", "trials"])
def test_annotations_have_the_shapes_of_tensors(job: str) -> None:
    ended = run(job)
    assert ended.returncode == 0, ended.stderr[-3000:]


WRONG = {
    "argument": ("decoding", "variants/attend.py", 'x: Float[Tensor, "*heads tokens channels"]', '"heads tokens"'),
    "result": (
        "decoding",
        "variants/model/head_attention.py",
        '-> Float[Tensor, "batch heads tokens channels"]:\n    """Give',
        '"batch tokens"',
    ),
    "field": (
        "decoding",
        "variants/attend.py",
        'v: Float[Tensor, "batch key_heads keys values"]',
        '"batch keys values"',
    ),
    "rank": ("decoding", "variants/axes.py", 'Ids = Int[Tensor, "batch tokens"]', '"batch 1 tokens"'),
    "training": (
        "trials prefix",
        "training/tasks/task.py",
        'outputs: Float[Tensor, "batch tokens vocabulary"]',
        '"batch"',
    ),
}
"""Job, file, right annotation and a wrong shape in its place."""


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_annotation_is_noticed(wrong: tuple[str, str, str, str]) -> None:
    job, file, right, shape = wrong
    ended = run(job, file, right, re.sub(r'(?<=Tensor, )"[^"]*"', shape, right))
    assert ended.returncode == 1
    assert "TypeCheckError" in ended.stderr
