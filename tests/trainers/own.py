"""Puts a trainer's own sources on the path, or skips the file's tests where they could not be reached."""
import os
import sys
from pathlib import Path

import pytest

import stand_ins
from sources import TRAINERS

LAID = Path(os.environ.get("RG_TRAINERS") or Path(__file__).resolve().parents[2] / "build/trainers")


def use(*names, without=()):
    """names: of TRAINERS. without: packages that Debian does not have, which are stood in for (stand_ins.py)."""
    for name in names:
        if not (LAID / name / ".commit").is_file():
            pytest.skip(f"the sources of {name} could not be reached", allow_module_level=True)
        sys.path[:0] = [str(LAID / name / folder) for folder in TRAINERS[name][2]]
    stand_ins.install(without)
    print(f"-- {', '.join(f'{n} {TRAINERS[n][1]}' for n in names)}; not of Debian, stood in for: {', '.join(without) or 'nothing'}")
