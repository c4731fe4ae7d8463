"""rollgate journal and rollgate export on the folder of a stopped gateway; compaction."""
import json
import os
import subprocess
import threading

import pytest

from gateway import BINARY, pause, wait_until
from test_streaming import new, user


def run(*arguments):
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, timeout=60)


def test_verify_dump_and_export(start):
    gateway = start(engine="builtin:echo", workers=1)
    s, t = new(gateway), new(gateway)
    gateway.chat(s, "hello")
    gateway.chat(t, "other")
    live = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()
    assert gateway.stop() == 0
    folder = f"{gateway.folder}/state/worker-0"
    checked = run("journal", "check", folder)
    assert checked.returncode == 0 and "0 damaged" in checked.stdout, checked
    lines = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
    mine = [l["kind"] for l in lines if l["session_id"] == s["session_id"]]
    assert mine == ["create", "commit"]
    out = run("export", folder, "--session", s["session_id"])
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout)["trajectories"][0]["response_ids"] == \
        live["trajectories"][0]["response_ids"]
    everybody = [json.loads(l) for l in run("export", folder).stdout.splitlines()]
    assert len(everybody) == 2
    assert run("export", folder, "--session", "w0-nobody").returncode == 1
    with open(f"{folder}/seg-00000001", "r+b") as f:
        f.truncate(os.path.getsize(f.name) - 3)
    torn = run("journal", "check", folder)
    assert torn.returncode == 1 and "torn tail" in torn.stderr


def test_compaction_keeps_what_lives(start):
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=16384,
                    tombstone_ttl="0", export_retention="0")
    keep = new(gateway)
    messages = user("keep 0 " + "k" * 500)
    for turn in range(6):
        a = gateway.chat(keep, messages)
        messages += [a.json()["choices"][0]["message"], *user(f"keep {turn}")]
        s = new(gateway)
        gateway.chat(s, "x" * 3000)
        gateway.request("DELETE", f"/sessions/{s['session_id']}")
    before = gateway.get(f"/sessions/{keep['session_id']}?records=1").json()
    pause(1.5, "deliveries are noted, and old segments dropped, once a second")
    written = gateway.metrics()["rollgate_journal_written_bytes_total"]
    assert gateway.stop() == 0
    folder = f"{gateway.folder}/state/worker-0"
    size = sum(os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder))
    done = run("journal", "compact", folder, "--tombstone-ttl", "0", "--export-retention", "0")
    assert done.returncode == 0, done.stderr
    assert sum(os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder)) < min(size, written / 2)
    assert run("journal", "check", folder).returncode == 0
    gateway.start()
    assert gateway.get(f"/sessions/{keep['session_id']}?records=1").json() == before
    assert gateway.chat(keep, messages).status == 200


def test_who_is_forgotten_does_not_come_back(start):
    """Sessions that were deleted or finalized, and are past their time, begin in a segment that stays
    and end in one that leaves: the next start makes nothing of what is left."""
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=65536,
                    tombstone_ttl="0", export_retention="0")
    keep, deleted, finalized, last = (new(gateway) for _ in range(4))
    gateway.chat(keep, "k" * 4000)
    gateway.chat(deleted, "hello")
    gateway.chat(finalized, "hello")
    for _ in range(2):
        filler = new(gateway)
        gateway.chat(filler, "x" * 3000)
        gateway.request("DELETE", f"/sessions/{filler['session_id']}")
    assert gateway.request("DELETE", f"/sessions/{deleted['session_id']}").status == 204
    assert gateway.post(f"/sessions/{finalized['session_id']}/finalize", {}).status == 200
    gateway.chat(last, "y" * 4000)
    folder = f"{gateway.folder}/state/worker-0"

    def kinds(s):
        lines = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
        return [l["kind"] for l in lines if l["session_id"] == s["session_id"]]
    assert kinds(filler)
    wait_until(lambda: not kinds(filler), 20, "nothing is left of a deleted session")
    assert gateway.stop() == 0
    assert "create" in kinds(deleted) and "create" in kinds(finalized), "their beginnings stay"
    gateway.start()
    for s in (deleted, finalized):
        assert gateway.get(f"/sessions/{s['session_id']}").status in (404, 410)
        assert gateway.chat(s, "hello").status in (404, 410)
    assert gateway.get(f"/sessions/{keep['session_id']}").status == 200


def test_a_full_disk_refuses_and_harms_nothing(start, small_disk):
    """A journal on a small tmpfs: turns that do not fit fail whole, what was answered stays."""
    disk = small_disk("300k")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="10k")
    gateway.allow("journal")
    s = new(gateway)
    messages, answered, failed = user("a" * 2000), 0, None
    for turn in range(200):
        a = gateway.chat(s, messages)
        if a.status != 200:
            failed = a
            break
        answered += 1
        messages += [a.json()["choices"][0]["message"], *user("b" * 2000)]
    assert failed is not None and failed.status == 503, failed and failed.text
    assert failed.json()["error"]["code"] == "storage_full"
    wait_until(lambda: gateway.post("/sessions", {}).status == 503, 5, "new sessions are refused")
    state = gateway.get(f"/sessions/{s['session_id']}?records=1").json()
    assert len(state["records"]) == answered
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    wait_until(lambda: gateway.chat(s, messages).status == 200, 5, "the session goes on")
    wait_until(lambda: gateway.post("/sessions", {}).status == 200, 5, "new sessions are taken")
    assert gateway.stop() == 0
    gateway.start()
    assert len(gateway.get(f"/sessions/{s['session_id']}?records=1").json()["records"]) == answered + 1
    assert gateway.stop() == 0


def test_compaction_under_load_keeps_the_disk_bounded(start):
    """Sessions come and go while others live: the journal stays near what is needed, and says so;
    those that live are what they were, also after a restart."""
    segment = 65536
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=segment,
                    tombstone_ttl="0", export_retention="0", max_worker_memory="1m")
    stop, kept = threading.Event(), []

    def churn():
        """Every tenth session stays."""
        n = 0
        while not stop.is_set():
            s, messages = new(gateway), user(f"{n} " + "c" * 1500)
            for _ in range(3):
                a = gateway.chat(s, messages)
                assert a.status == 200, a.text
                messages += [a.json()["choices"][0]["message"], *user("more " + "d" * 1500)]
            if n % 10 == 0:
                kept.append((s, messages))
            else:
                gateway.request("DELETE", f"/sessions/{s['session_id']}")
            n += 1
    threads = [threading.Thread(target=churn) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(60):
        pause(0.1, "the clients write")
        m = gateway.metrics()
        if m["rollgate_journal_written_bytes_total"] > 60 * segment:
            break
    stop.set()
    for t in threads:
        t.join()
    m = gateway.metrics()
    assert m["rollgate_journal_written_bytes_total"] > 10 * segment

    written = m["rollgate_journal_written_bytes_total"]

    def bounded():      # once the gauges tell of the sessions that went: nine of ten did
        m = gateway.metrics()
        live = m["rollgate_journal_live_bytes"]
        return live < written / 3 and m["rollgate_journal_bytes"] <= 2 * live + 2 * segment
    wait_until(bounded, 90, "the journal has shrunk to what is needed")
    folder = f"{gateway.folder}/state/worker-0"

    def small():
        try:
            size = sum(os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder) if n.startswith("seg-"))
        except FileNotFoundError:       # a segment has just been rewritten
            return False
        return size <= 2 * gateway.metrics()["rollgate_journal_live_bytes"] + 2 * segment + 4096
    wait_until(small, 30, "the files are what the gauges tell")
    assert kept
    before = [gateway.get(f"/sessions/{s['session_id']}?records=1").json() for s, _ in kept]
    assert all(len(b["records"]) == 3 for b in before)
    assert gateway.stop() == 0
    assert run("journal", "check", folder).returncode == 0
    gateway.start()
    assert [gateway.get(f"/sessions/{s['session_id']}?records=1").json() for s, _ in kept] == before
    for s, messages in kept[:5]:
        assert gateway.chat(s, messages).status == 200


def test_a_delivered_export_is_on_record(start):
    """Only finalize's answer that arrived whole counts; the state says when, also after a restart."""
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    path = f"/sessions/{s['session_id']}"
    gateway.chat(s, "hello")
    gateway.get(f"{path}/trajectories")
    assert "exported_at" not in gateway.get(path).json()
    assert gateway.post(f"{path}/finalize").status == 200
    state = wait_until(lambda: (lambda j: j if "exported_at" in j else None)(gateway.get(path).json()),
                       5, "the delivery is noted")
    assert gateway.stop() == 0
    kinds = [json.loads(l)["kind"] for l in run("journal", "dump", f"{gateway.folder}/state/worker-0")
             .stdout.splitlines() if s["session_id"] in l]
    assert kinds == ["create", "commit", "end", "exported"]
    gateway.start()
    assert gateway.get(path).json() == state


def journal_bytes(gateway):
    return gateway.metrics()["rollgate_journal_bytes"]


def test_what_was_deleted_leaves_the_disk(start):
    """Within seconds, not when its tombstone goes; that it has ended is known all the same, also after a restart."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000)
    kept, answered = new(gateway), []
    for _ in range(2):
        answered.append(gateway.chat(kept, user("who stays"), max_tokens=20).status)
        gone = [new(gateway) for _ in range(6)]
        for s in gone:
            assert gateway.chat(s, user("word " * 60_000), max_tokens=8).status == 200
        wait_until(lambda: journal_bytes(gateway) > 1 << 20, 20, "all is on the disk")
        for s in gone[:3]:
            assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
        for s in gone[3:]:
            assert gateway.post(f"/sessions/{s['session_id']}/abort").status == 204
        wait_until(lambda: journal_bytes(gateway) < 64 << 10, 30, "what was deleted has gone")
        assert gateway.stop() == 0
        gateway.start()
        for s in gone:
            assert gateway.chat(s, user("again?")).status == 410
    assert answered == [200, 200]
    assert len(gateway.get(f"/sessions/{kept['session_id']}?records=1").json()["records"]) == 2


def test_sessions_that_are_deleted_make_room_on_a_full_disk(start, small_disk):
    """A small tmpfs: its own journal has filled it nearly; running sessions went on until then, and go on when others go."""
    disk = small_disk("4m")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="1m",
                    context_length=100_000_000)
    running, large = new(gateway), []
    assert gateway.chat(running, user("at first")).status == 200
    while (created := gateway.post("/sessions", {})).status == 200 and len(large) < 100:
        large.append(created.json())
        assert gateway.chat(large[-1], user("word " * 4000), max_tokens=8).status == 200
        pause(0.3, "the disk is looked at once a second")
    assert created.status == 503 and created.json()["error"]["code"] == "storage_full", created.text
    assert gateway.chat(running, user("still")).status == 200, "who runs goes on"
    for s in large:
        assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
    wait_until(lambda: gateway.post("/sessions", {}).status == 200, 20, "there is room again")
    assert gateway.chat(running, user("on")).status == 200
    assert gateway.stop() == 0
    gateway.start()
    assert len(gateway.get(f"/sessions/{running['session_id']}?records=1").json()["records"]) == 3
    assert gateway.stop() == 0


def test_sessions_are_deleted_on_a_disk_without_a_free_byte(start, small_disk):
    """A small tmpfs, filled to the last page: what makes room is written into what the journal kept back for that."""
    disk = small_disk("2m")
    gateway = start(engine="builtin:echo", workers=1, state_dir=str(disk), journal_min_free="0")
    gateway.allow("journal")
    wait_until(lambda: (disk / "worker-0/reserve").exists(), 20, "room is kept back")
    running, small = new(gateway), [new(gateway) for _ in range(80)]     # their ends are more than a page
    large = [new(gateway) for _ in range(4)]
    for s in large:
        assert gateway.chat(s, user("word " * 4000), max_tokens=4000).status == 200
    with open(disk / "filler", "wb", buffering=0) as f, pytest.raises(OSError):
        while f.write(bytes(4096)):
            pass
    assert os.statvfs(disk).f_bavail == 0
    for s in large[:2] + small + large[2:]:
        a = gateway.request("DELETE", f"/sessions/{s['session_id']}")
        assert a.status == 204, a.text
    wait_until(lambda: gateway.chat(running, user("on")).status == 200, 60, "there is room again")
    wait_until(lambda: (disk / "worker-0/reserve").exists(), 60, "it is kept back again")
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.chat(running, user("and on")).status == 200
    assert all(gateway.get(f"/sessions/{s['session_id']}").status in (404, 410) for s in small + large)
    assert gateway.stop() == 0
