"""Faults of disk and clock (faults.c): a failing fsync, a full or failing disk within a record, answers that wait for
the disk, clocks that jump, journals cut at every byte."""
import contextlib
import errno
import itertools
import os
import re
import random
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from gateway import BUILD, BINARY, Gateway, pause, stays, wait_until
from test_streaming import new, user

SHIM = BUILD / "tests/blackbox/libfaults.so"


def sanitizer():
    """The library of a sanitizer that the binary is linked to, if any: it insists on being first."""
    linked = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    return next((line.split()[2] for line in linked.split("\n") if re.search("lib[at]san", line)), "")


@pytest.fixture
def faulty(start, tmp_path):
    """faulty(**settings) -> (gateway, inject); inject(name, text) begins a fault, text None ends it."""
    if not SHIM.exists():
        pytest.skip(f"{SHIM} is not built")
    folder = tmp_path / "faults"
    folder.mkdir()

    def inject(name, text):
        if text is None:
            (folder / name).unlink(missing_ok=True)
            return
        (folder / "new").write_text(str(text))
        (folder / "new").rename(folder / name)

    def make(**settings):
        env = {"LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(folder)}
        # in the sandbox a worker may not read the folder
        return start(env={**env, **settings.pop("env", {})}, workers=1, sandbox=False,
                     **{"engine": "builtin:echo", **settings}), inject
    yield make
    for name in ("fdatasync", "hold", "writev", "clock", "steps", "where", "stick", "pictures", "slow", "keep", "print", "foldersync", "rename", "flock", "entries"):
        inject(name, None)


class Talk:
    """A session whose answered turns are remembered."""

    def __init__(self, gateway, **options):
        self.gateway, self.session = gateway, new(gateway, **options)
        self.path = f"/sessions/{self.session['session_id']}"
        self.messages, self.answered = user("begin"), []

    def turn(self, tries=1):
        """The status of the last try; an answer is taken over."""
        status = None
        for _ in range(tries):
            try:
                a = self.gateway.chat(self.session, self.messages)
            except OSError:
                status = 0
            else:
                status = a.status
                if status == 200:
                    m = a.json()["choices"][0]["message"]
                    self.answered.append(m["content"])
                    self.messages += [m, *user(f"turn {len(self.answered)} " + "x" * 40)]
                    return status
                assert status in (502, 503), a.text
                assert a.headers["x-should-retry"] == "true"
            pause(0.1, "an agent that tries again")
        return status

    def check(self):
        """Every answered turn is there exactly once, and nothing else."""
        state = self.gateway.get(f"{self.path}?records=1").json()
        texts = [r["answers"][0]["message"]["content"] for r in state["records"]]
        assert texts == self.answered
        ids = self.gateway.get(f"{self.path}/trajectories").json()["trajectories"]
        assert len(ids) == 1
        assert sum(m.get("generated", False) for m in ids[0]["messages"]) == len(self.answered)


def test_a_failing_fsync_loses_nothing_answered(faulty):
    gateway, inject = faulty(durability="power", max_restarts=1000)
    gateway.allow("fsync failed", "process died", "restarts")
    talk = Talk(gateway)
    for _ in range(3):
        assert talk.turn() == 200
    for _ in range(2):
        worker = gateway.child("worker-0")
        inject("fdatasync", errno.EIO)
        assert talk.turn() != 200           # answered it would not be durable
        inject("fdatasync", None)
        wait_until(lambda: gateway.child("worker-0") != worker, 20, "the worker was replaced")
        assert talk.turn(tries=100) == 200
        talk.check()
    gateway.stop()
    gateway.start()
    talk.check()
    assert talk.turn() == 200


def test_a_folder_that_cannot_be_synced_loses_nothing(faulty):
    """durability power: each start writes the last segment anew under a new name. Where that name may not be on the disk the
    start fails, again and again, and the next one has all that was there."""
    gateway, inject = faulty(durability="power", max_restarts=1000)
    gateway.allow("fsync failed", "cannot be synced", "start failed", "process died", "restarts", "did not start", "worker connection")
    talk = Talk(gateway)
    for _ in range(3):
        assert talk.turn() == 200
    assert gateway.request("PUT", "/groups/kept", {"runner": "r", "input": "t"}).status == 201
    for name in ("worker-0", "dispatcher"):
        pid = gateway.child(name)
        inject("where", f"state/{name}")
        inject("foldersync", errno.EIO)
        deaths = gateway.log().count(f"process died process={name}")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: gateway.log().count(f"process died process={name}") > deaths + 3, 60, "it failed to start three times")
        inject("foldersync", None)
        wait_until(lambda: gateway.child(name) != pid, 60, "it starts again")
    assert talk.turn(tries=100) == 200
    talk.check()
    assert gateway.get("/groups/kept").json()["members"][0]["state"] == "waiting"


def answer_waits_for_the_disk(inject, ask):
    """No answer while fdatasync is held. An answer that did not wait would come within a few ms: 0.3 s are many."""
    got = []
    inject("hold", 1)
    thread = threading.Thread(target=lambda: got.append(ask()))
    thread.start()
    pause(0.3, "an answer that did not wait would come within a few ms")
    early = list(got)
    inject("hold", None)
    thread.join(20)
    assert not early, (early[0].status, early[0].text)
    assert got and got[0].status in (200, 201, 204), got


def test_nothing_is_answered_before_it_is_on_the_disk(faulty):
    """durability power: create, call, reward, complete, finalize and DELETE wait for their fsync."""
    gateway, inject = faulty(durability="power")
    first, second = Talk(gateway), Talk(gateway)
    assert first.turn() == 200 and second.turn() == 200
    asked = [
        lambda: gateway.post("/sessions"),
        lambda: gateway.chat(first.session, first.messages),
        lambda: gateway.post(f"{first.path}/reward_info", {"reward_info": {"score": 1}}),
        lambda: gateway.post(f"{first.path}/complete", {"reward_info": {"score": 2}}),
        lambda: gateway.post(f"{first.path}/finalize"),
        lambda: gateway.request("DELETE", second.path),
    ]
    for ask in asked:
        answer_waits_for_the_disk(inject, ask)


@pytest.mark.parametrize("first, second", [("finalize", "finalize"), ("abort", "abort"), ("finalize", "deliver")])
def test_what_another_waits_for_is_not_affirmed_before_it_is_on_the_disk(faulty, first, second):
    """durability power: the session has ended in memory when the second one asks."""
    gateway, inject = faulty(durability="power")
    talk = Talk(gateway)
    assert talk.turn() == 200
    inject("hold", 1)
    got, threads = [], []

    def has_ended():
        a = gateway.get(talk.path)
        return a.status == 410 or a.json()["phase"] == "finalized"
    for path in (first, second):
        threads.append(threading.Thread(target=lambda p=path: got.append((p, gateway.post(f"{talk.path}/{p}").status))))
        threads[-1].start()
        wait_until(has_ended, what="it has ended, though not on the disk")
    stays(lambda: not got, 0.3, "an answer that did not wait would come within a few ms")
    inject("hold", None)
    for thread in threads:
        thread.join(20)
    want = 204 if first == "abort" else 200
    assert sorted(got) == sorted([(first, want), (second, want)])


def test_a_promise_to_the_sinks_is_on_the_disk(faulty, tmp_path):
    gateway, inject = faulty(durability="power", sink=f"file:{tmp_path}/out")
    talk = Talk(gateway, sink=False)
    assert talk.turn() == 200 and gateway.post(f"{talk.path}/finalize").status == 200
    answer_waits_for_the_disk(inject, lambda: gateway.post(f"{talk.path}/deliver"))


def test_no_change_of_a_group_is_answered_before_it_is_on_the_disk(faulty):
    """The same of the dispatcher: submit, take, return, acknowledge, and both cancellations."""
    gateway, inject = faulty(durability="power")
    for name in ("a", "b", "c"):
        assert gateway.request("PUT", f"/groups/{name}", {"runner": "r", "input": "t"}).status == 201
    assert gateway.post("/groups/a/cancel", {"deliver": True}).status == 200
    asked = [
        lambda: gateway.request("PUT", "/groups/d", {"runner": "r", "input": "t"}),
        lambda: gateway.get("/queues/train/next?wait_s=5"),
        lambda: gateway.post("/queues/train/return", {"groups": ["a"]}),
        lambda: gateway.post("/queues/train/ack", {"groups": ["a"]}),
        lambda: gateway.post("/groups/b/cancel"),
        lambda: gateway.post("/queues/train/cancel", {}),
    ]
    for ask in asked:
        answer_waits_for_the_disk(inject, ask)


@pytest.mark.parametrize("how", ["28", "28 half", "5 half", "30"])
def test_a_disk_that_takes_no_record(faulty, how):
    """Fails at once or in the middle of a record, again and again, under several sessions."""
    gateway, inject = faulty()
    gateway.allow("journal", "cannot")
    talks = [Talk(gateway) for _ in range(4)]
    for round_ in range(6):
        for talk in talks:
            assert talk.turn() == 200
        inject("writev", how)
        for talk in talks:
            assert talk.turn() != 200
        refused = gateway.post("/sessions")
        assert refused.status in (500, 503) and "journal" in refused.text, refused.text
        if how.startswith("28"):
            assert refused.status == 503 and refused.json()["error"]["code"] == "storage_full"
        inject("writev", None)
    for talk in talks:
        assert talk.turn() == 200
        talk.check()
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    for talk in talks:
        assert talk.turn(tries=100) == 200
        talk.check()
    assert "torn tail" not in gateway.log()
    gateway.allow("process died")


def claim(gateway, wait_s=5):
    answer = gateway.post("/attempts/claim", {"executor": "x", "slots": {"r": 1}, "wait_s": wait_s})
    return answer.json()["attempts"] if answer.status == 200 else []


def test_a_dispatcher_whose_disk_takes_no_record(faulty):
    """A lease that runs out and a group that is asked for: told, and done once the disk takes records again."""
    gateway, inject = faulty(attempt_lease="1s")
    gateway.allow("journal", "cannot")
    for name in ("settled", "running"):
        assert gateway.request("PUT", f"/groups/{name}", {"runner": name[0], "input": 1}).status == 201
    assert gateway.post("/groups/settled/cancel", {"deliver": True}).status == 200
    (attempt,) = claim(gateway)
    inject("where", "dispatcher/seg-")
    inject("writev", errno.ENOSPC)
    wait_until(lambda: "an attempt's end cannot be recorded" in gateway.log(), 20, "the lease runs out")
    refused = gateway.get("/queues/train/next")
    assert refused.status == 503 and refused.json()["error"]["code"] == "storage_full", refused.text
    assert gateway.get("/groups/running").json()["members"][0]["state"] == "running"
    inject("writev", None)
    assert [x["id"] for x in gateway.get("/queues/train/next").json()["groups"]] == ["settled"]
    wait_until(lambda: gateway.get("/groups/running").json()["members"][0]["outcome"] == "infra", 20, "the lease is lost")
    assert gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"outcome": "ok"}).status == 410


def segments_of_the_dispatcher(gateway):
    return {name for name in os.listdir(f"{gateway.folder}/state/dispatcher") if name.startswith("seg-")}


def bytes_of_the_dispatcher(gateway):
    total = 0
    for f in Path(gateway.folder, "state/dispatcher").glob("seg-*"):
        with contextlib.suppress(FileNotFoundError):    # it is rewritten meanwhile
            total += f.stat().st_size
    return total


def replace_dispatcher(gateway, begin_fault):
    """By one with that fault that has something to compact: each segment but the last has as much that nobody needs as it has of what is
    needed, and more. The segments that there were."""
    for i in range(40):
        for name in (f"gone-{i}", f"kept-{i}", f"gone-too-{i}"):
            assert gateway.request("PUT", f"/groups/{name}", {"runner": "r", "input": "t" * 3000}).status == 201
    for i in range(40):
        for name in (f"gone-{i}", f"gone-too-{i}"):
            assert gateway.post(f"/groups/{name}/cancel").status == 200
    gateway.allow("process died")
    begin_fault()
    before = segments_of_the_dispatcher(gateway)
    os.kill(gateway.child("dispatcher"), signal.SIGKILL)
    return before


def all_kept(gateway):
    return all(gateway.get(f"/groups/kept-{i}").status == 200 for i in range(40))


def test_a_dispatcher_answers_while_it_compacts(faulty):
    """One step in a turn of its loop: what is asked meanwhile is answered when most of it is still to be done."""
    gateway, inject = faulty(journal_segment_bytes=8192)
    pid = gateway.child("dispatcher")
    before = replace_dispatcher(gateway, lambda: inject("slow", 200))     # each step that writes; there are some 80
    wait_until(lambda: gateway.child("dispatcher") != pid, 60, "it starts again")
    wait_until(lambda: gateway.get("/groups/kept-0").status == 200, 60, "it answers")
    assert len(before & segments_of_the_dispatcher(gateway)) > len(before) / 4, "the compaction came first"
    inject("slow", None)
    # Two groups of three go; bytes, for of the segments that there were some may have nothing else: the first dispatcher looks every 30 s, too.
    wait_until(lambda: bytes_of_the_dispatcher(gateway) < 1.5 * 40 * 3000, 60, "what nobody needs is gone")
    assert all_kept(gateway)


def test_a_dispatcher_whose_compaction_fails_says_so(faulty):
    gateway, inject = faulty(journal_segment_bytes=8192)
    pid = gateway.child("dispatcher")
    replace_dispatcher(gateway, lambda: inject("writev", errno.EIO))
    wait_until(lambda: gateway.child("dispatcher") != pid, 60, "it starts again")
    gateway.wait_line("journal: compaction failed")
    inject("writev", None)
    assert all_kept(gateway)


def test_a_session_whose_making_was_not_answered_is_ended(faulty):
    """The worker dies between its record and its answer: the attempt gets another session, the first one goes."""
    gateway, inject = faulty(durability="power")
    gateway.allow("process died", "worker connection")
    assert gateway.request("PUT", "/groups/g", {"runner": "r", "input": 1}).status == 201
    pid, got = gateway.child("worker-0"), []
    inject("where", "worker-0/seg-")
    inject("hold", 1)
    thread = threading.Thread(target=lambda: got.extend(claim(gateway, wait_s=20)))
    thread.start()
    journal = Path(gateway.folder) / "state/worker-0"
    wait_until(lambda: any(b"dispatched" in f.read_bytes() for f in journal.glob("seg-*")), 20, "its record is written")
    os.kill(pid, signal.SIGKILL)
    inject("hold", None)
    wait_until(lambda: gateway.child("worker-0") not in (None, pid), 20, "the worker is replaced")
    while not got:
        thread.join(30)
        got.extend(claim(gateway))
    session = got[0]["session"]["session_id"]
    wait_until(lambda: [row["session_id"] for row in gateway.get("/sessions?phase=open").json()["sessions"]] == [session], 20,
               "the session of nobody has ended")


def test_a_clock_that_jumps_expires_nothing(faulty):
    gateway, inject = faulty(session_ttl="60s", tombstone_ttl="1h", export_retention="1h")
    talk, ended, deleted = Talk(gateway), Talk(gateway), Talk(gateway)
    for t in (talk, ended, deleted):
        assert t.turn() == 200
    want = gateway.post(f"{ended.path}/finalize").json()["trajectories"]
    gateway.request("DELETE", deleted.path)
    for step in (86400 * 3, -86400 * 300, None):
        lines = gateway.log().count("the clock was set")
        inject("clock", step)
        wait_until(lambda: gateway.log().count("the clock was set") > lines, 10, "the step is seen")
        pause(1.2, "the sweep comes every second: what it would drop by the wrong clock would be gone")
        assert talk.turn() == 200
        assert gateway.post(f"{ended.path}/finalize").json()["trajectories"] == want
        assert gateway.chat(ended.session, "x").status == 410
        assert gateway.chat(deleted.session, "x").status == 410
        assert gateway.get(talk.path).json()["phase"] == "open"
    assert gateway.metrics()["rollgate_sessions_expired_total"] == 0
    talk.check()


def folder_of(gateway):
    return f"{gateway.folder}/state/worker-0"


def last_segment(folder):
    return f"{folder}/{max(n for n in os.listdir(folder) if n.startswith('seg-'))}"


def verify(folder):
    return subprocess.run([str(BINARY), "journal", "check", folder], capture_output=True, text=True)


def test_a_journal_torn_at_every_byte(start):
    """The last record cut at each byte, and bits of it flipped: the worker comes up with all that was
    whole before it, says what it cut off, and the session goes on from there."""
    gateway = start(engine="builtin:echo", workers=1)
    gateway.allow("journal", "process died")
    talk = Talk(gateway)
    for _ in range(3):
        assert talk.turn() == 200
    gateway.stop()
    folder = folder_of(gateway)
    whole = os.path.getsize(last_segment(folder))
    gateway.start()
    assert talk.turn() == 200
    gateway.stop()
    kept = folder + ".kept"
    shutil.copytree(folder, kept)
    full = os.path.getsize(last_segment(folder))
    data = open(last_segment(kept), "rb").read()
    # A delivery note may follow the last commit; cuts behind it keep the turn.
    rng = random.Random(3)
    cuts = sorted(set(rng.sample(range(whole + 1, full), 25)) | {whole + 1, whole + 8, whole + 9, full - 1})
    cases = [data[:cut] for cut in cuts]
    for _ in range(12):
        at = rng.randrange(whole + 4, whole + (full - whole) // 2)
        cases.append(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:])
    for bytes_ in cases:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        with open(last_segment(folder), "wb") as f:
            f.write(bytes_)
        gateway.start()
        state = gateway.get(f"{talk.path}?records=1").json()
        texts = [r["answers"][0]["message"]["content"] for r in state["records"]]
        assert texts in (talk.answered, talk.answered[:-1]), texts
        a = gateway.chat(talk.session, talk.messages[:-2] if len(texts) < 4 else talk.messages)
        assert a.status == 200, a.text
        assert gateway.stop() == 0
    assert "torn tail cut off" in gateway.log()


def test_every_byte_of_the_last_record_by_the_journal_alone(start, tmp_path):
    """The same without a gateway: verify names the tear, export gives what is whole before it."""
    gateway = start(engine="builtin:echo", workers=1)
    talk = Talk(gateway)
    for _ in range(2):
        assert talk.turn() == 200
    gateway.kill()
    folder = folder_of(gateway)
    data = open(last_segment(folder), "rb").read()
    lines = subprocess.run([str(BINARY), "journal", "dump", folder], capture_output=True,
                           text=True).stdout.splitlines()
    import json
    last = json.loads([l for l in lines if '"commit"' in l][-1])["offset"]
    broken = tmp_path / "worker-0"
    step = max((len(data) - last) // 120, 1)
    for cut in itertools.chain(range(last + 1, last + 30), range(last + 30, len(data), step)):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(folder, broken)
        with open(last_segment(str(broken)), "wb") as f:
            f.write(data[:cut])
        said = verify(str(broken))
        ends = [json.loads(l)["offset"] for l in lines] + [len(data)]
        assert said.returncode == (0 if cut in ends else 1), (cut, said)
        if said.returncode:
            assert f"torn tail at offset" in said.stderr


@pytest.fixture
def elsewhere(tmp_path):
    """A folder on another file system than the state's: what goes there is copied, not renamed."""
    other = f"/dev/shm/rollgate-faults-{os.getpid()}"
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    os.mkdir(other)
    yield other
    shutil.rmtree(other)


def delivered(folder, talk):
    return os.listdir(folder) == [f"{talk.session['session_id']}.msgpack"]


def test_a_sink_on_a_slow_or_failing_disk_holds_up_nobody(faulty, elsewhere):
    gateway, inject = faulty(durability="power", sink=f"file:{elsewhere}")
    first, second = Talk(gateway), Talk(gateway)
    assert first.turn() == 200 and second.turn() == 200
    inject("where", f"{elsewhere}/.")
    inject("hold", 1)
    assert gateway.post(f"{first.path}/finalize").status == 200
    wait_until(lambda: os.listdir(elsewhere), 20, "the copy is begun")
    assert second.turn() == 200
    assert not delivered(elsewhere, first)
    inject("fdatasync", errno.EIO)
    inject("hold", None)
    gateway.wait_line("a sink takes nothing.*cannot sync")
    inject("fdatasync", None)
    wait_until(lambda: delivered(elsewhere, first), 20, "it is tried again")


def test_what_is_spooled_is_noted_when_the_journal_takes_it(faulty, tmp_path):
    gateway, inject = faulty(durability="power", sink=f"file:{tmp_path}/out")
    talk = Talk(gateway)
    assert talk.turn() == 200
    inject("where", "/spool/")
    inject("hold", 1)
    assert gateway.post(f"{talk.path}/finalize").status == 200
    inject("where", "/seg-")
    inject("writev", errno.ENOSPC)
    inject("hold", None)
    wait_until(lambda: delivered(tmp_path / "out", talk), 20, "it is delivered without the note")
    gateway.wait_line("not noted yet")
    inject("writev", None)
    gateway.wait_line("noted now")
    shutil.rmtree(tmp_path / "out")
    worker = gateway.child("worker-0")
    gateway.allow("process died", "restarts")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: gateway.child("worker-0") not in (None, worker), 20, "the worker was replaced")
    other = Talk(gateway)
    assert other.turn(tries=100) == 200
    assert gateway.post(f"{other.path}/finalize").status == 200
    wait_until(lambda: os.path.exists(tmp_path / "out") and delivered(tmp_path / "out", other), 20,
               "only what is new is delivered")


@pytest.mark.parametrize("where,named", [("/lock", "run"), ("/worker-0", "the journal"), ("/dispatcher", "the journal")])
@pytest.mark.parametrize("refusal", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_refuses_locks_stops_the_start(tmp_path, where, named, refusal):
    """Two gateways could write one journal. The error names the flag that allows it."""
    if not SHIM.exists():
        pytest.skip(f"{SHIM} is not built")
    (tmp_path / "flock").write_text(str(refusal))
    (tmp_path / "where").write_text(where)
    s = Gateway(env={"LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(tmp_path)}, workers=1, sandbox=False, engine="builtin:echo")
    s.allow("start failed", "cannot start", "process died")
    s.start(wait=False)
    wait_until(lambda: s.process.poll() is not None or s.has_line("supervisor .*serving listen"), what="it ends or serves")
    assert s.process.poll() not in (0, None)
    assert s.has_line(f"{named}.* refuses locks.*--unlocked-state") and not s.has_line("serving listen")


def test_a_flag_allows_a_file_system_without_locks(faulty):
    """All locks are refused: of the run folder, of journals, and those that orders take."""
    gateway, inject = faulty()
    inject("flock", errno.ENOLCK)
    refused = gateway.request("POST", "/admin/weight_version", {"version": "7"})
    assert refused.status == 503 and "--unlocked-state" in refused.text
    assert gateway.request("POST", "/admin/engines", {"engines": ["b=builtin:echo"]}).status == 503
    gateway.stop()
    gateway.settings["unlocked-state"] = True
    gateway.start()
    assert gateway.has_line("a file is not locked .--unlocked-state.*file=.?the journal")
    assert gateway.request("POST", "/admin/weight_version", {"version": "7"}).status == 200
    assert gateway.request("POST", "/admin/engines", {"engines": ["b=builtin:echo"]}).status == 200
    talk = Talk(gateway)
    assert talk.turn() == 200


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(faulty, tmp_path):
    """readdir failed: a backup lacked the journals, and a start left those of former workers, with status 0."""
    gateway, inject = faulty()
    assert Talk(gateway).turn() == 200
    gateway.stop()
    state = gateway.settings["state-dir"]
    env = {**os.environ, "LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(tmp_path / "faults")}
    inject("entries", errno.EIO)
    for where, command in (("/state", ["backup", state, tmp_path / "copy"]), ("/worker-0", ["journal", "repair", f"{state}/worker-0"])):
        inject("where", where)
        (Path(state) / "worker-0/MANIFEST").rename(tmp_path / "MANIFEST") if "repair" in command else None
        said = subprocess.run([BINARY, *command], env=env, capture_output=True, text=True)
        assert said.returncode == 1 and "cannot read" in said.stderr and "Input/output error" in said.stderr, said
    assert not (tmp_path / "copy").exists()
    (tmp_path / "MANIFEST").rename(Path(state) / "worker-0/MANIFEST")
    inject("where", "/state")
    gateway.allow("cannot read")
    gateway.start(wait=False)
    assert gateway.wait() != 0 and gateway.has_line(f"cannot read {state}.*Input/output error")
    inject("where", "/worker-0")
    bundle = [BINARY, "support", tmp_path / "bundle", f"--state-dir={state}", f"--log={gateway.log_path}"]
    assert subprocess.run(bundle, env=env, capture_output=True).returncode == 0
    assert f"journals.txt: {state}/worker-0: Input/output error" in (tmp_path / "bundle/left-out.txt").read_text()
    (Path(state) / "worker-0/spool").mkdir()
    inject("where", "/spool")
    gateway.start()
    assert gateway.has_line("a folder was not read to its end.*/spool.*Input/output error")


def test_a_lock_that_another_gateway_has_is_no_refusal(faulty):
    gateway, _ = faulty(unlocked_state=True)
    second = Gateway(state_dir=gateway.settings["state-dir"], engine="builtin:echo", unlocked_state=True)
    second.allow("cannot start")
    second.start(wait=False)
    assert second.wait() != 0 and second.has_line("another rollgate uses")
