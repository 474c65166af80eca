"""The tools of this folder, for tests that are not imported from anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests are imported by path (importlib mode): their folder is on nobody's path but ours.
sys.path.append(str(Path(__file__).parent))
