"""What the parts of a config are made of: strict dataclasses, and numbers with bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, with_config

strict = with_config(ConfigDict(extra="forbid", strict=True))

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Fraction = Annotated[float, Field(ge=0, le=1)]
