"""Run notebooks in place, so that what they show is what the code says today.

python -m notebooks.refresh [NAME ...]
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDEST = 900  # pixels of a picture
SLOWEST = 120  # seconds a cell may take on a busy machine


def books() -> list[Path]:
    """The notebooks, in order."""
    return sorted(HERE.glob("*.ipynb"))


def lighter(picture: str) -> str:
    """The same picture at most 900 pixels wide, in 96 colours: a third of the bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    if image.width > WIDEST:
        size = WIDEST, round(image.height * WIDEST / image.width)
        image = image.resize(size, Image.Resampling.LANCZOS)
    into = io.BytesIO()
    image.quantize(96, kmeans=2, dither=Image.Dither.NONE).save(into, "PNG", optimize=True)
    return base64.b64encode(into.getvalue()).decode()


def executed(path: Path) -> Any:
    """A notebook with fresh outputs and nothing that changes from run to run."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    where = {"metadata": {"path": str(HERE)}}
    NotebookClient(book, timeout=SLOWEST, kernel_name="python3", resources=where).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = lighter(output.data["image/png"])
            if len(output.get("data", {})) > 1:  # what is shown already needs no words beside it
                output.data.pop("text/plain", None)
    book.metadata["language_info"] = {"name": "python"}
    return book


def main(names: list[str]) -> int:
    import nbformat

    for path in books():
        if names and not any(name in path.name for name in names):
            continue
        begin = time.monotonic()
        nbformat.write(executed(path), path)
        size = path.stat().st_size
        print(f"{path.name}: {time.monotonic() - begin:.0f} s, {size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
