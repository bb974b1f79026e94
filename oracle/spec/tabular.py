"""Answers that are rows: as a data frame, and as a table in a notebook."""

from __future__ import annotations

from typing import Any


class Tabular:
    """An answer that is rows: as a frame, and as a table in a notebook."""

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each plan, point, fit or factor."""
        raise NotImplementedError

    def table(self) -> Any:
        """A pandas DataFrame of the rows."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_frame(self) -> Any:
        """The same by the name that data frames use."""
        return self.table()

    def _repr_html_(self) -> str:
        return str(self.table().to_html())
