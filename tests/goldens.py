"""Golden files: what a test prints is held to a file in ``tests/golden``.

With the environment variable ``UPDATE_GOLDENS`` set, the files are written instead.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """``text`` is what ``tests/golden/<name>.txt`` holds."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
