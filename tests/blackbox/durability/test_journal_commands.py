"""rollgate journal check|dump|compact and rollgate export on folders that are in use, damaged, foreign, or of a
different version: no change that was not requested, and always a plain text."""
import json
import os
import shutil
import subprocess
import threading

import pytest

from gateway import BINARY, wait_until
from test_faults import Talk, folder_of, last_segment
from test_streaming import new


def run(*arguments):
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, timeout=60)


def content(folder):
    return {n: open(f"{folder}/{n}", "rb").read() for n in sorted(os.listdir(folder))}


def test_a_live_folder_is_read_and_not_compacted(start):
    """While calls are committed and segments rotate and are compacted, readers see whole records."""
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=16384,
                    tombstone_ttl="0", export_retention="0")
    talks = [Talk(gateway) for _ in range(2)]
    stop = threading.Event()

    def load(talk):
        while not stop.is_set():
            assert talk.turn() == 200
            gone = new(gateway)
            gateway.chat(gone, "z" * 2000)
            gateway.request("DELETE", f"/sessions/{gone['session_id']}")
    threads = [threading.Thread(target=load, args=(t,)) for t in talks]
    for t in threads:
        t.start()
    folder = folder_of(gateway)
    try:
        for _ in range(15):
            said = run("journal", "check", folder)
            assert said.returncode == 0 and " 0 torn, 0 damaged" in said.stdout, said
            dumped = run("journal", "dump", folder)
            assert dumped.returncode == 0, dumped
            lines = [json.loads(line) for line in dumped.stdout.splitlines()]
            assert len({(l["segment"], l["offset"]) for l in lines}) == len(lines)
            refused = run("journal", "compact", folder)
            assert refused.returncode == 1 and "in use by another process" in refused.stderr, refused
            answered = list(talks[0].answered)
            out = run("export", folder, "--session", talks[0].session["session_id"])
            assert out.returncode == 0, out
            told = [m["content"] for m in json.loads(out.stdout)["trajectories"][0]["messages"]
                    if m.get("generated")]
            assert told[:len(answered)] == answered
    finally:
        stop.set()
        for t in threads:
            t.join()
    for talk in talks:
        talk.check()


@pytest.fixture
def folder(start, tmp_path):
    """A journal of two sessions, its gateway gone."""
    gateway = start(engine="builtin:echo", workers=1)
    for _ in range(2):
        talk = Talk(gateway)
        for _ in range(3):
            assert talk.turn() == 200
    assert gateway.stop() == 0
    copy = tmp_path / "worker-0"
    shutil.copytree(folder_of(gateway), copy)
    return str(copy)


COMMANDS = (["journal", "check"], ["journal", "dump"], ["journal", "compact"], ["export"])


def test_what_is_no_journal(tmp_path, folder):
    before = content(folder)
    (tmp_path / "empty").mkdir()
    for command in COMMANDS:
        said = run(*command, str(tmp_path / "nowhere"))
        assert said.returncode == 1 and "No such file" in said.stderr, said
        said = run(*command, str(tmp_path / "empty"))
        assert said.returncode == 1 and "no journal" in said.stderr, said
        said = run(*command)
        assert said.returncode == 2 and "usage" in said.stderr, said
    assert content(folder) == before
    assert sorted(os.listdir(tmp_path)) == ["empty", "worker-0"], "a command made something"


def test_foreign_files_do_not_matter(folder):
    want = run("export", folder).stdout
    for name in ("notes.txt", "seg-foreign", "MANIFEST.old", ".hidden"):
        with open(f"{folder}/{name}", "w") as f:
            f.write("not yours")
    os.mkdir(f"{folder}/seg-dir")
    said = run("journal", "check", folder)
    assert said.returncode == 0, said
    assert run("export", folder).stdout == want
    assert run("journal", "compact", folder).returncode == 0
    assert run("export", folder).stdout == want
    assert open(f"{folder}/notes.txt").read() == "not yours"


def change_first_record(folder, at, new_bytes):
    """Changes bytes of its payload, and makes its sum right again."""
    data = bytearray(open(last_segment(folder), "rb").read())
    size = int.from_bytes(data[8:12], "little")
    at += 8 + 9 + data[16]      # the segment's head, the record's head and the session's id
    data[at:at + len(new_bytes)] = new_bytes
    data[12:16] = crc32c(bytes(data[8:12]) + bytes(data[16:16 + size])).to_bytes(4, "little")
    with open(last_segment(folder), "wb") as f:
        f.write(data)


@pytest.mark.parametrize("head", [b"\x63", b"\xff" * 11], ids=["a newer type", "an unreadable head"])
def test_a_record_without_a_known_kind_is_no_groups(folder, head):
    first = json.loads(run("journal", "dump", folder).stdout.splitlines()[0])
    change_first_record(folder, 0, head)
    line = json.loads(run("journal", "dump", folder).stdout.splitlines()[0])
    assert (line["session_id"], line["kind"]) == (first["session_id"], "?")
    said = run("journal", "check", folder).stdout
    assert " sessions, " in said and " groups, " not in said
    os.unlink(f"{folder}/MANIFEST")
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and "groups have records" not in said.stdout, said
    assert f"session {first['session_id']}: lost whole" in said.stdout, said


@pytest.mark.parametrize("where", ["manifest", "segment", "record"])
def test_another_version_is_left_alone(folder, where, start):
    said_version = {"manifest": "format 2", "segment": "version 2", "record": "version 99"}[where]
    if where == "manifest":
        with open(f"{folder}/MANIFEST") as f:
            text = f.read()
        with open(f"{folder}/MANIFEST", "w") as f:
            f.write(text.replace("rollgate-journal 1", "rollgate-journal 2"))
    elif where == "segment":
        with open(last_segment(folder), "r+b") as f:
            f.write(b"RGJ2")
    else:
        change_first_record(folder, 1, b"\x63")    # the record's own version, behind its type
    before = content(folder)
    for command in (COMMANDS if where != "record" else COMMANDS[2:]):
        said = run(*command, folder)
        assert said.returncode == 1 and said_version in said.stderr, (command, said)
        assert content(folder) == before
    gateway = start(engine="builtin:echo", workers=1)
    gateway.stop()
    shutil.rmtree(folder_of(gateway))
    shutil.copytree(folder, folder_of(gateway))
    gateway.allow(said_version, "start failed", "died")
    with pytest.raises(AssertionError):
        gateway.start()
    assert said_version in gateway.log()
    assert content(folder_of(gateway)) == before
    gateway.process = None


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def test_damage_is_named_and_read_over(folder):
    lines = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
    commits = [l for l in lines if l["kind"] == "commit"]
    victim = commits[2]                         # the first session's last turn, the second behind it
    assert len(commits) == 6 and len({l["session_id"] for l in commits[:3]}) == 1
    with open(last_segment(folder), "r+b") as f:
        f.seek(victim["offset"] + 20)
        byte = f.read(1)
        f.seek(victim["offset"] + 20)
        f.write(bytes([byte[0] ^ 0x10]))
    said = run("journal", "check", folder)
    assert said.returncode == 1 and f"offset {victim['offset']}" in said.stderr, said
    left = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
    assert [l["offset"] for l in lines if l != victim] == [l["offset"] for l in left]
    out = run("export", folder)
    assert out.returncode == 0 and len(out.stdout.splitlines()) == 2
    # A damaged head costs nothing at all.
    with open(last_segment(folder), "r+b") as f:
        f.write(b"xxxx")
    assert len(run("journal", "dump", folder).stdout.splitlines()) == len(left)
    assert len(run("export", folder).stdout.splitlines()) == 2


@pytest.mark.parametrize("lost", ["commit", "bulk"])
def test_records_after_a_lost_one_do_not_apply(start, lost):
    """Later records name answers by number. One that follows a lost record would name others: it is skipped, and named."""
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)

    def say(history, text):
        messages = history + [{"role": "user", "content": text}]
        a = gateway.chat(s, messages)
        assert a.status == 200
        return messages + [a.json()["choices"][0]["message"]]
    root = say([], "root")
    left = say(root, "left " * (60_000 if lost == "bulk" else 1))
    right = say(root, "right")
    say(left, "goes on left")
    say(right, "goes on right")
    assert gateway.stop() == 0
    folder = folder_of(gateway)
    lines = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
    victim = [l for l in lines if l["kind"] == lost][1 if lost == "commit" else 0]
    with open(last_segment(folder), "r+b") as f:
        f.seek(victim["offset"] + 20)
        byte = f.read(1)
        f.seek(victim["offset"] + 20)
        f.write(bytes([byte[0] ^ 0x10]))
    out = run("export", folder)
    assert out.returncode == 0, out
    contents = [[m["content"] for m in t["messages"]] for t in json.loads(out.stdout)["trajectories"]]
    assert contents == [["root", "root"]], "only what was before the lost record"
    missed = f"lost {3 if lost == 'commit' else 4} or more records of its journal"
    assert any(missed in w for w in json.loads(out.stdout)["summary"]["warnings"]), out
    gateway.allow("damaged segment", "does not apply", "records skipped")
    gateway.start()
    again = say(root, "again")
    assert "one is lost" in gateway.log() or lost == "bulk"
    live = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]
    assert [[m["content"] for m in t["messages"]] for t in live] == [[m["content"] for m in again]]
    path = f"/sessions/{s['session_id']}"
    for refused in (gateway.post(f"{path}/fork", {}), gateway.get(f"{path}/snapshot")):
        assert refused.status == 422 and refused.json()["error"]["code"] == "unassemblable", refused.text
        assert missed in refused.json()["error"]["message"] and "not copied" in refused.json()["error"]["message"]
    assert any(missed in w for w in gateway.get(path).json()["warnings"])
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"] == live


def test_one_journal_has_one_owner(start):
    """Two gateways with one state folder and run folders of their own: the second does not start."""
    first = start(engine="builtin:echo", workers=1)
    talk = Talk(first)
    assert talk.turn() == 200
    from gateway import Gateway
    second = Gateway(engine="builtin:echo", workers=1, state_dir=f"{first.folder}/state",
                     run_dir=f"{first.folder}/run2")
    second.allow("in use", "start failed", "died")
    with pytest.raises(AssertionError):
        second.start()
    assert "in use by another process" in second.log()
    second.process.wait(10)
    second.process = None
    assert talk.turn() == 200
    talk.check()


def test_what_no_command_takes_is_a_usage_error(tmp_path):
    (tmp_path / "a").mkdir()
    for words in (["check", "--json", tmp_path / "a"], ["dump", tmp_path / "a", "-v"], ["compact", tmp_path / "a", tmp_path],
                  ["compact", tmp_path / "a", "--keep", "1h"], ["compact", tmp_path / "a", "--tombstone-ttl", "long"],
                  ["check"], ["mend", tmp_path / "a"]):
        done = run("journal", *words)
        assert done.returncode == 2 and done.stderr.startswith("usage:") and not done.stdout, (words, done)
    two = run("export", tmp_path / "a", tmp_path / "b", "--to", "jsonl")   # `STATE_DIR/worker-*`: neither is left out silently
    assert two.returncode == 2 and f"one DIR is exported at a time, not {tmp_path}/a and {tmp_path}/b" in two.stderr, two


@pytest.fixture
def damaged(start):
    """A gateway that has stopped, its folder of many small segments, and talks that each began after the one before ended."""
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=4096)
    talks = []
    for _ in range(4):
        talks.append(Talk(gateway))
        for _ in range(6):
            assert talks[-1].turn() == 200
    assert gateway.stop() == 0
    return gateway, folder_of(gateway), talks


def segments(folder):
    with open(f"{folder}/MANIFEST") as f:
        return [int(line) for line in f.read().split("\n")[1:] if line]


def refuses_to_start(gateway):
    gateway.allow("journal repair", "start failed", "died", "No such file")
    with pytest.raises(AssertionError):
        gateway.start()
    gateway.kill()
    assert "rollgate journal repair" in gateway.log()


def sessions_of(gateway, talks):
    """By talk: how many of its answers are still there."""
    left = []
    for talk in talks:
        state = gateway.get(f"{talk.path}?records=1")
        left.append(len(state.json()["records"]) if state.status == 200 else None)
        if left[-1]:
            texts = [r["answers"][0]["message"]["content"] for r in state.json()["records"]]
            assert texts == talk.answered[:left[-1]], "what is left is the beginning, unchanged"
    return left


def test_repair_continues_without_a_missing_segment_and_lists_the_loss(damaged):
    gateway, folder, talks = damaged
    numbers = segments(folder)
    holds = {}  # the first and last segment of each session
    for line in run("journal", "dump", folder).stdout.splitlines():
        row = json.loads(line)
        holds.setdefault(row["session_id"], []).append(row["segment"])
    second = talks[1].session["session_id"]
    gone = next(n for n in holds[second] if n != holds[second][0] and n != holds[second][-1])
    os.unlink(f"{folder}/seg-{gone:08}")
    refuses_to_start(gateway)
    before = content(folder)
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and not said.stderr, said
    assert f"segment {gone}: missing; its records are lost" in said.stdout
    later = len([n for n in holds[second] if numbers.index(n) > numbers.index(gone)])
    assert f"session {second}: keeps what came before the loss; {later} later records do not apply" in said.stdout, said.stdout
    for talk in talks:
        sid = talk.session["session_id"]
        assert (f"session {sid}" in said.stdout) == (gone in holds[sid] and holds[sid][-1] != gone), (sid, said.stdout)
    after = content(folder)
    assert after.pop("MANIFEST.before-repair") == before["MANIFEST"]
    assert {n: b for n, b in after.items() if n != "MANIFEST"} == {n: b for n, b in before.items() if n != "MANIFEST"}
    assert segments(folder) == [n for n in numbers if n != gone]
    assert "nothing to repair" in run("journal", "repair", folder).stdout
    gateway.allow("record does not apply", "journal")
    gateway.start()
    left = sessions_of(gateway, talks)
    assert left[0] == 6 and left[2:] == [6, 6] and 0 < left[1] < 6, left
    assert talks[3].turn() == 200


@pytest.mark.parametrize("how", ["removed", "garbled"])
def test_a_lost_manifest_is_an_error_and_repair_names_all_segments(damaged, how):
    """Without the check a start took the folder for a new one, and removed every segment."""
    gateway, folder, talks = damaged
    numbers = segments(folder)
    before = {n: b for n, b in content(folder).items() if n.startswith("seg-")}
    if how == "removed":
        os.unlink(f"{folder}/MANIFEST")
        refuses_to_start(gateway)
    else:
        with open(f"{folder}/MANIFEST", "w") as f:
            f.write("rollgate-journal 1\n1\nx\n")
    assert {n: b for n, b in content(folder).items() if n.startswith("seg-")} == before
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and "MANIFEST:" in said.stdout and "segment" in said.stdout, said
    assert segments(folder) == sorted(numbers)
    gateway.start()
    assert sessions_of(gateway, talks) == [6, 6, 6, 6]


def test_repair_does_not_touch_a_folder_in_use_or_none(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1)
    assert Talk(gateway).turn() == 200
    said = run("journal", "repair", folder_of(gateway))
    assert said.returncode == 1 and "in use by another process" in said.stderr, said
    assert run("journal", "repair", str(tmp_path)).returncode == 1
    assert run("journal", "repair", str(tmp_path / "nowhere")).returncode == 1
    assert run("journal", "repair").returncode == 2


def test_repair_judges_no_groups(start):
    """The dispatcher's records are none of sessions: nothing of them is told as lost that is there."""
    gateway = start(engine="builtin:echo", workers=1)
    assert gateway.post("/groups", {"id": "g", "runner": "r"}).status == 201
    assert gateway.stop() == 0
    folder = f"{gateway.folder}/state/dispatcher"
    os.unlink(f"{folder}/MANIFEST")
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and "lost whole" not in said.stdout and "groups have records" in said.stdout, said
    gateway.start()
    assert gateway.get("/groups/g").json()["state"] == "waiting"


def test_the_dispatchers_journal_is_not_compacted_and_not_exported(start, tmp_path):
    """None of its records is a session's: compact took them for sessions that are gone, and dropped every group."""
    gateway = start(engine="builtin:echo", workers=1)
    ids = ["g", "w0-" + "0" * 32]  # an id may have the form of a session's
    for group in ids:
        assert gateway.post("/groups", {"id": group, "runner": "r"}).status == 201
    assert gateway.stop() == 0
    folder = str(tmp_path / "any-name")
    shutil.copytree(f"{gateway.folder}/state/dispatcher", folder)
    before = content(folder)
    for command in (["journal", "compact"], ["export"]):
        said = run(*command, folder)
        assert said.returncode == 1 and not said.stdout, said
        assert said.stderr.startswith(f"{folder}: ") and '"g" is not a session\'s' in said.stderr and "worker-N" in said.stderr, said
    lines = [json.loads(l) for l in run("journal", "dump", folder).stdout.splitlines()]
    assert [(l["group"], l["kind"]) for l in lines] == [(group, "group") for group in ids]
    assert "2 records, 2 groups" in run("journal", "check", folder).stdout
    assert content(folder) == before
    os.unlink(f"{folder}/MANIFEST")
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and "lost whole" not in said.stdout and "groups have records" in said.stdout, said


def test_an_empty_segment_in_the_middle_is_reported(damaged):
    gateway, folder, talks = damaged
    with open(f"{folder}/seg-{segments(folder)[1]:08}", "w"):
        pass
    gateway.allow("empty segment", "record does not apply", "journal")
    gateway.start()
    assert gateway.has_line("journal: empty segment")
