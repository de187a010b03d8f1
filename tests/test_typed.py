"""``autobatch.function`` keeps signatures and types, of methods too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_decorated_functions_keep_their_types() -> None:
    """As the package is checked, whose results mypy has kept where it ran before."""
    command = [sys.executable, "-m", "mypy", str(HERE / "typed.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
