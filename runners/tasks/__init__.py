"""What a model learns, and what it is judged by: one task, one file, named like its `kind`."""

from runners.tasks.linear_functions import Curriculum, LinearFunctions, ShiftGrid
from runners.tasks.quantifiers import LengthGrid, Quantifiers
from runners.tasks.task import Batch, Data, Measured, Predict, Task
from runners.tasks.text import Text

__all__ = [
    "Batch",
    "Curriculum",
    "Data",
    "LengthGrid",
    "LinearFunctions",
    "Measured",
    "Predict",
    "Quantifiers",
    "ShiftGrid",
    "Task",
    "Text",
]
