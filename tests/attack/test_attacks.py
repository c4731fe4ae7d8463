"""Every attack of attacks.py by four connections on one worker with keys, in short: another session's turns go on, none fails, no
process dies, memory stays. Figures are tests/attack/table.py's; here only maxima that a slow, busy machine holds, too."""
import pytest

import battle
from attacks import ATTACKS, ECHOED, LONG, WIDE

SECONDS = 0.4
TURN_MAX_MS = 15_000
MEMORY_MAX = 2 << 30     # max_worker_memory of battle.settings: a machine that reads slower than is sent holds a GiB of bodies alone

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("long_answers", [False, True])
def test_other_sessions_go_on_under_every_attack(start, tmp_path, long_answers):
    gateway = start(**battle.settings(tmp_path, long_answers, max_inflight=4096))
    gateway.allow("is not UTF-8")
    memory = battle.peak_allowed(MEMORY_MAX)
    for name in ATTACKS:
        if name in LONG or (name in ECHOED) != long_answers:
            continue
        m = battle.measure(gateway, name, SECONDS)
        assert m["alive"], f"{name}: the worker died"
        assert not m["failed"], f"{name}: {m['failed'][:3]}"
        assert m["turns"] > 0 and m["max"] < TURN_MAX_MS, f"{name}: {m}"
        assert m["long_turns"] > 0 and m["long_p99"] < TURN_MAX_MS, f"{name}: {m}"
        assert m["memory"] < memory, f"{name}: {m['memory'] >> 20} MiB"
        assert "500" not in m["seen"] and "hangs" not in m["seen"], f"{name}: {m['seen']}"


def test_there_are_sixty():
    assert len(set(ATTACKS) - LONG) >= 60 and ECHOED < set(ATTACKS) and WIDE < LONG < set(ATTACKS)
