"""`python -m pipeline.decode.compile FILE`: compile the decoder into an object file, for `machine` to load."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipeline.decode.kernels import build


def main(file: Path) -> None:
    """Write the object under its name once it is whole; readable and writable by this user alone."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        # The one way to numba's object code; there is no public one.
        out.write(build()._library._get_compiled_object())
    part.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
