"""Files of arrays that an attempt leaves."""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.store.files.atomic import write_atomic
from ablate.store.files.layout import Layout

if TYPE_CHECKING:
    import numpy as np


def write_artefact(
    layout: Layout, trial: str, attempt: int, step: int, name: str, arrays: Mapping[str, "np.ndarray"]
) -> str:
    """Write arrays to one compressed file; return its path relative to the attempt.

    Raises SpecError for a name that no file can have; EnvironmentProblem if the campaign cannot be written.
    """
    import numpy as np  # here: most attempts leave none

    sink = io.BytesIO()
    np.savez_compressed(sink, allow_pickle=False, **dict(arrays))
    path = layout.artefact(trial, attempt, step, name)
    write_atomic(path, sink.getvalue())
    return f"artefacts/{path.name}"
