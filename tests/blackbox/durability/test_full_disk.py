"""The ends of sessions and groups on a full disk: a refusal says why and changes nothing, and everything continues
when there is space again. Data that must not fit is longer than the free part of a segment's last page."""
import contextlib
import os

from gateway import wait_until
from rollouts_kit import chat

PAGES = "x" * 16_000        # more than a page, within every limit of a text
ENDS = 80                   # their records are more than a page


@contextlib.contextmanager
def no_room(disk):
    """The disk is full to its last page inside the block."""
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as f:
        while f.write(bytes(4096)):
            pass
    assert os.statvfs(disk).f_bavail == 0
    yield
    os.unlink(disk / "filler")


def is_full(answer):
    if answer.status == 200:
        return False
    assert answer.status == 503 and answer.json()["error"]["code"] == "storage_full", answer.text
    assert "space" in answer.text or "full" in answer.text
    return True


def state(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}?records=1").json()


def finalize(gateway, session):
    return gateway.post(f"/sessions/{session['session_id']}/finalize")


def test_sessions_are_finalized_when_there_is_room_again(start, small_disk):
    disk = small_disk("4m")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="0").allow("journal")
    sessions = [gateway.post("/sessions").json() for _ in range(ENDS)]
    assert all(gateway.chat(s, f"task {i}").status == 200 for i, s in enumerate(sessions))
    before = [state(gateway, s) for s in sessions]
    with no_room(disk):
        a = gateway.post(f"/sessions/{sessions[0]['session_id']}/complete", {"reward_info": {"reward": 1, "note": PAGES}})
        assert is_full(a)
        first = [finalize(gateway, s) for s in sessions]
        refused = [i for i, a in enumerate(first) if is_full(a)]
        assert refused
        for i in refused:
            now = state(gateway, sessions[i])
            assert now["phase"] == before[i]["phase"] and now["records"] == before[i]["records"]
    wait_until(lambda: not is_full(finalize(gateway, sessions[refused[0]])), 60, "there is room again")
    bodies = [finalize(gateway, s).json()["trajectories"] for s in sessions]
    assert all(first[i].json()["trajectories"] == bodies[i] for i in range(ENDS) if i not in refused)
    assert gateway.stop() == 0
    gateway.start()
    assert [finalize(gateway, s).json()["trajectories"] for s in sessions] == bodies
    assert gateway.stop() == 0


def test_what_is_past_its_time_makes_room_on_a_full_disk(start, small_disk):
    """Finalized sessions that are all in each of several segments: what says for good that they have ended is longer than a page,
    and goes into the reserve."""
    disk = small_disk("4m")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="0", journal_segment_bytes=65536,
                    export_retention="20s", tombstone_ttl="0").allow("journal")
    sessions = [gateway.post("/sessions").json() for _ in range(ENDS)]
    for turn in range(3):
        assert all(gateway.chat(s, f"task {turn}").status == 200 for s in sessions)
    assert len([n for n in os.listdir(disk / "worker-0") if n.startswith("seg-")]) >= 3
    wait_until((disk / "worker-0" / "reserve").exists, 60, "the reserve is kept")
    assert all(finalize(gateway, s).status == 200 for s in sessions)
    with no_room(disk):
        wait_until(lambda: os.statvfs(disk).f_bavail > 16, 90, "their segments leave the disk")
    assert gateway.stop() == 0


def claim(gateway, n):
    """So many attempts of the groups g0, g1, ..."""
    for i in range(n):
        assert gateway.request("PUT", f"/groups/g{i}", {"runner": "r", "input": i}).status == 201
    got = []

    def all_of_them():
        answer = gateway.post("/attempts/claim", {"executor": "e", "slots": {"r": n - len(got)}, "wait_s": 1})
        got.extend(answer.json()["attempts"])
        return len(got) == n
    wait_until(all_of_them, 60, "all are claimed")
    return sorted(got, key=lambda attempt: attempt["group"])


def end(gateway, attempt, **more):
    return gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"executor": "e", **more}, timeout=60)


def test_groups_settle_when_there_is_room_again(start, small_disk):
    """One whose session takes no reward, and one whose end the dispatcher cannot record."""
    disk = small_disk("4m")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="0", attempt_lease="1h")
    gateway.allow("journal")
    good, bad = claim(gateway, 2)
    ends = {good["attempt_id"]: {"outcome": "ok", "reward_info": {"reward": 0.5, "note": PAGES}},
            bad["attempt_id"]: {"outcome": "ok", "reward_info": {"reward": 0.25}, "log_tail": PAGES}}
    assert all(chat(gateway, a, f"task {a['input']}").status == 200 for a in (good, bad))
    with no_room(disk):
        assert is_full(gateway.request("PUT", "/groups/g2", {"runner": "r", "input": PAGES}))
        for a in (good, bad):
            assert is_full(end(gateway, a, **ends[a["attempt_id"]]))
            assert gateway.get(f"/groups/{a['group']}").json()["state"] == "running"
        assert gateway.get("/groups/g2").status == 404
        assert {a["attempt_id"] for a in gateway.get("/attempts").json()["attempts"]} == set(ends)
    for a in (good, bad):
        wait_until(lambda a=a: not is_full(end(gateway, a, **ends[a["attempt_id"]])), 60, "its end is taken")
        assert end(gateway, a, **ends[a["attempt_id"]]).json() == {"rollout": "succeeded"}
    assert gateway.request("PUT", "/groups/g2", {"runner": "r", "input": PAGES}).status == 201

    def settled():
        answer = gateway.get("/queues/train/next?max=4&wait_s=10")
        assert answer.status == 200, answer.text
        return {x["id"]: x["members"][0] for x in answer.json()["groups"]}
    members = settled()
    assert {k: (m["attempts"], m["reward"]) for k, m in members.items()} == {"g0": (1, 0.5), "g1": (1, 0.25)}
    tokens = [finalize(gateway, m).json()["trajectories"] for m in members.values()]
    assert all(len(t) == 1 for t in tokens)
    assert gateway.post("/queues/train/return", {"groups": list(members)}).json() == {"returned": 2}
    assert gateway.stop() == 0
    gateway.start()
    again = settled()
    assert sorted(again) == sorted(members)
    assert [finalize(gateway, again[k]).json()["trajectories"] for k in members] == tokens
    assert gateway.post("/queues/train/ack", {"groups": list(members)}).json() == {"acked": 2}
    assert gateway.stop() == 0
