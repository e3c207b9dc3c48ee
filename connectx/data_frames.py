"""Columns of pandas data frames, with the same types in pandas 2 and 3.

Undeclared, text has another type in pandas 3 and times another unit. Imports pandas when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

_NO_TIME: Final = -(2**63)
"""How NumPy writes that there is no time."""


def text_column(values: Iterable[str | None]) -> pd.Series[Any]:
    """A column of type `object`."""
    import pandas as pd

    return pd.Series(list(values), dtype=object)


def number_column(values: Iterable[int | None]) -> pd.Series[Any]:
    """A column of type `Int64`, which has missing values."""
    import pandas as pd

    return pd.Series(list(values), dtype="Int64")


def time_column(times_ms: Iterable[int | None]) -> pd.Series[Any]:
    """A column of type `datetime64[ms, UTC]`, for any number of milliseconds since 1970 that has 64 bits."""
    import numpy as np
    import pandas as pd

    numbers = np.array([_NO_TIME if time is None else time for time in times_ms], dtype=np.int64)
    return pd.Series(numbers.view("datetime64[ms]")).dt.tz_localize("UTC")
