"""``autobatch.function`` keeps signatures and types, of methods too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_decorated_functions_keep_their_types() -> None:
    checked = ("--config-file=", "--strict", "--follow-imports=silent", str(HERE / "typed.py"))
    command = [sys.executable, "-m", "mypy", *checked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
