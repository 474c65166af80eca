"""Which covey this is; a test holds it equal to pyproject.toml and to `covey.__version__`."""

from typing import Final

VERSION: Final = "0.1.0"
