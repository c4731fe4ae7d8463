#!/usr/bin/env python3
"""The session layer against the golden scenarios and a quick sample of random sessions
(tests/model has the long runs)."""
import glob
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAYER = ROOT / os.environ.get("RG_BUILD", "build/dev") / "tests/model/session_player"
GOLDEN = sorted(glob.glob(str(ROOT / "tests/data/golden/*.jsonl.xz")))
RUN = [sys.executable, str(ROOT / "tests/model/run_model.py"), "--player", str(PLAYER)]
# (how many, seed) of samples that failed before: a rolled back chain without room, its tokenizer with merges.
FAILED_BEFORE = [(244, 213690)]

status = 0
status |= subprocess.run(RUN + ["golden", *GOLDEN]).returncode
seed = random.randrange(10**6)
print(f"random sessions, seed {seed}", flush=True)
for n, each in ((500, seed), *FAILED_BEFORE):
    status |= subprocess.run(RUN + ["random", "--n", str(n), "--seed", str(each)]).returncode
sys.exit(1 if status else 0)
