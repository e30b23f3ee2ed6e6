"""Flags that several commands have."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="")]
Csv = Annotated[bool, Parameter(name="--csv", negative="")]
