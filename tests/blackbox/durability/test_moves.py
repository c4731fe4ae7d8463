"""Moves of a state folder: backup under load, restore elsewhere, upgrade and refused downgrade, check and repair of damage."""
import os
import re
import shutil
import threading

import pytest

import gateway as g
from test_faults import Talk, folder_of, last_segment
from test_journal_commands import content, run, segments
from test_streaming import new

TITLE = b"rollgate-journal 1 0.1.0\n"
LATER = b"rollgate-journal 2 0.2.0\n"


def move(start, state, **settings):
    """A gateway with that state folder, such as on another machine."""
    return start(engine="builtin:echo", state_dir=str(state), **settings)


def answers_of(gateway, talk):
    state = gateway.get(f"{talk.path}?records=1")
    assert state.status == 200, state.text
    return [r["answers"][0]["message"]["content"] for r in state.json()["records"]]


def test_backup_under_load_has_every_turn_answered_before_it_began(start, tmp_path):
    """Small segments and sessions that end: rotations and compactions go on during each backup."""
    gateway = start(engine="builtin:echo", workers=2, journal_segment_bytes=16384, tombstone_ttl="0", export_retention="0")
    talks = [Talk(gateway) for _ in range(3)]
    done, failed = threading.Event(), []

    def load(talk):
        try:
            while not done.is_set():
                assert talk.turn() == 200
                gone = new(gateway)
                gateway.chat(gone, "z" * 2000)
                gateway.request("DELETE", f"/sessions/{gone['session_id']}")
        except Exception as e:  # pylint: disable=broad-except
            failed.append(e)
    threads = [threading.Thread(target=load, args=(t,)) for t in talks]
    for t in threads:
        t.start()
    copies = []
    try:
        for i in range(6):
            g.wait_until(lambda i=i: failed or all(len(t.answered) > 5 * (i + 1) for t in talks), what="turns are answered")
            before = [list(t.answered) for t in talks]
            said = run("backup", f"{gateway.folder}/state", str(tmp_path / f"copy-{i}"))
            assert said.returncode == 0 and re.match(r"\d+ journals, \d+ files, \d+ bytes\n$", said.stdout), said
            copies.append((tmp_path / f"copy-{i}", before))
    finally:
        done.set()
        for t in threads:
            t.join()
    assert not failed, failed
    for copy, before in copies:
        checked = run("journal", "check", str(copy))
        assert checked.returncode == 0, checked
    for copy, before in (copies[0], copies[-1]):
        restored = move(start, copy, workers=2)
        for talk, turns in zip(talks, before):
            assert answers_of(restored, talk)[:len(turns)] == turns
        restored.stop()


def test_backup_has_images_secrets_and_engines(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(tmp_path / "keys")) if (tmp_path / "keys").write_text("k" * 40 + "\n") else None
    state = g.Path(gateway.settings["state-dir"])
    (state / "media").mkdir(exist_ok=True)
    (state / "media/picture").write_bytes(b"p" * 100)
    (state / "media/link").symlink_to("/etc/passwd")
    said = run("backup", str(state), str(tmp_path / "copy"))
    assert said.returncode == 0 and said.stderr == f"{state}/media/link is a link: not copied\n", said
    copy = tmp_path / "copy"
    assert (copy / "key-secret").read_text() == (state / "key-secret").read_text()
    assert (copy / "media/picture").read_bytes() == b"p" * 100
    assert not (copy / "media/link").exists() and not (copy / "run").exists()
    assert all(p.stat().st_mode & 0o077 == 0 for p in copy.rglob("*")), "for its owner alone"


@pytest.mark.parametrize("words, error", [
    (["{state}"], "usage"), (["{state}", "--force"], "usage"), (["{state}", "{tmp}"], "exists; name a new folder"),
    (["{tmp}", "{tmp}/copy"], "name a folder outside"), (["{tmp}/none", "{tmp}-copy"], "No such file"), (["{state}", "{state}/copy"], "name a folder outside"),
    (["{tmp}/empty", "{tmp}/copy"], "is no state folder"), (["{state}", "{tmp}/none/copy"], "No such file")])
def test_backup_refuses(start, tmp_path, words, error):
    gateway = start(engine="builtin:echo", workers=1)
    (tmp_path / "empty").mkdir()
    state = gateway.settings["state-dir"]
    said = run("backup", *(w.format(state=state, tmp=tmp_path) for w in words))
    assert said.returncode == (2 if error == "usage" else 1) and error in said.stderr, said
    assert sorted(os.listdir(tmp_path)) == ["empty"]


def test_moved_state_continues_with_its_keys(start, tmp_path):
    (tmp_path / "keys").write_text("k" * 40 + "\n")
    gateway = start(engine="builtin:echo", workers=2, admin_key_file=str(tmp_path / "keys"))
    admin = {"authorization": "Bearer " + "k" * 40}
    session = gateway.post("/sessions", {}, headers=admin).json()
    ask = {"model": "m", "messages": [{"role": "user", "content": "one"}]}
    own = {"authorization": f"Bearer {session['api_key']}"}
    path = f"/sessions/{session['session_id']}/v1/chat/completions"
    first = gateway.post(path, ask, headers=own)
    assert first.status == 200, first.text
    assert gateway.stop() == 0
    assert run("backup", gateway.settings["state-dir"], str(tmp_path / "copy")).returncode == 0
    moved = move(start, tmp_path / "copy", workers=2, admin_key_file=str(tmp_path / "keys"))
    ask["messages"] += [first.json()["choices"][0]["message"], {"role": "user", "content": "two"}]
    second = moved.post(path, ask, headers=own)
    assert second.status == 200 and "Rollgate-Reseeded" not in second.headers


def later_binary(folder):
    """rollgate as a later version with another format of records would be: the format's number and its first version differ."""
    data = g.BINARY.read_bytes()
    assert data.count(TITLE) == 1
    path = folder / "rollgate-later"
    path.write_bytes(data.replace(TITLE, LATER))
    path.chmod(0o755)
    return path


def test_upgrade_keeps_sessions_and_downgrade_names_the_version(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1)
    talk = Talk(gateway)
    assert talk.turn() == 200
    assert gateway.post("/groups", {"id": "g", "runner": "r"}).status == 201
    assert gateway.stop() == 0
    folder, old = folder_of(gateway), gateway.binary
    gateway.binary = str(later_binary(tmp_path))
    gateway.start()
    assert talk.turn() == 200
    talk.check()
    assert gateway.stop() == 0
    for place in (folder, f"{gateway.folder}/state/dispatcher"):
        assert open(f"{place}/MANIFEST", "rb").read().startswith(LATER), place
    before = content(folder)
    gateway.binary = old
    gateway.allow("format 2", "start failed", "died")
    with pytest.raises(AssertionError):
        gateway.start()
    gateway.kill()
    want = "the journal has format 2; the first version that reads it is 0.2.0; this is rollgate 0.1.0, which reads format 1"
    assert want in gateway.log()
    for command in (["journal", "check"], ["journal", "compact"], ["journal", "repair"], ["export"]):
        said = run(*command, folder)
        assert said.returncode == 1 and want in said.stderr, (command, said)
    said = run("backup", f"{gateway.folder}/state", str(tmp_path / "copy"))
    assert said.returncode == 1 and want in said.stderr
    assert content(folder) == before
    gateway.binary = str(tmp_path / "rollgate-later")
    gateway.start()
    assert talk.turn() == 200
    talk.check()


@pytest.mark.parametrize("line", ["rollgate-journal 1", "rollgate-journal 0 0.0.9"])
def test_older_manifests_are_read_and_written_anew(start, line):
    gateway = start(engine="builtin:echo", workers=1)
    talk = Talk(gateway)
    assert talk.turn() == 200
    assert gateway.stop() == 0
    manifest = f"{folder_of(gateway)}/MANIFEST"
    text = open(manifest).read()
    with open(manifest, "w") as f:
        f.write(text.replace(TITLE.decode().strip(), line))
    gateway.start()
    assert open(manifest, "rb").read().startswith(TITLE)
    assert talk.turn() == 200
    talk.check()


@pytest.mark.parametrize("line, error", [
    ("rollgate-journal 2", "a later one"), ("rollgate-journal 2 ", "a later one"), ("rollgate-journal 2 \x1b[31m", "a later one"),
    ("rollgate-journal x 0.1.0", "not one of ours"), ("rollgate-journal ", "not one of ours"), ("rollgate-journal 1 0.1.0 " + "9" * 300, "not one of ours"),
    ("rollgate-journal 99999999999 1.0.0", "not one of ours")])
def test_odd_manifests_are_errors(start, line, error):
    gateway = start(engine="builtin:echo", workers=1)
    assert Talk(gateway).turn() == 200
    assert gateway.stop() == 0
    manifest = f"{folder_of(gateway)}/MANIFEST"
    text = open(manifest).read()
    with open(manifest, "w") as f:
        f.write(text.replace(TITLE.decode().strip(), line))
    said = run("journal", "check", folder_of(gateway))
    assert said.returncode == 1 and error in said.stderr and "\x1b" not in said.stderr, said


def test_check_reports_each_file_of_a_state_folder(start):
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=4096)
    for _ in range(2):
        talk = Talk(gateway)
        for _ in range(8):
            assert talk.turn() == 200
    assert gateway.stop() == 0
    folder = folder_of(gateway)
    said = run("journal", "check", f"{gateway.folder}/state")
    assert said.returncode == 0 and not said.stderr, said
    rows = {name: tuple(map(int, numbers)) for name, *numbers in
            re.findall(r"^(\S+/seg-\d{8}): (\d+) records, (\d+) sessions, (\d+) bytes$", said.stdout, re.M)}
    ours = {path: row for path, row in rows.items() if path.startswith(folder)}
    assert set(ours) == {f"{folder}/seg-{n:08}" for n in segments(folder)} and len(ours) > 2
    assert all(os.path.getsize(path) == size for path, (_, _, size) in rows.items())
    assert max(sessions for _, sessions, _ in ours.values()) <= 2
    total = re.search(rf"^{folder}: (\d+) records, \d+ bytes, 0 torn, 0 damaged$", said.stdout, re.M)
    assert int(total[1]) == sum(records for records, _, _ in ours.values())
    assert re.search(r"/dispatcher: \d+ records", said.stdout)
    damaged = f"{folder}/seg-{segments(folder)[1]:08}"
    with open(damaged, "r+b") as f:
        f.seek(200)
        f.write(b"\xff" * 8)
    with open(last_segment(folder), "ab") as f:
        f.write(b"torn")
    said = run("journal", "check", f"{gateway.folder}/state")
    assert said.returncode == 1, said
    found = re.search(rf"segment {segments(folder)[1]}: damage at offset (\d+), (\d+) bytes", said.stderr)
    assert found and int(found[1]) <= 200 < int(found[1]) + int(found[2]), said.stderr
    assert re.search(r"torn tail at offset \d+, 4 bytes", said.stderr), said.stderr


def test_repair_copies_what_is_whole_and_keeps_the_old_files(start):
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=4096)
    talks = []
    for _ in range(3):
        talks.append(Talk(gateway))
        for _ in range(5):
            assert talks[-1].turn() == 200
    assert gateway.stop() == 0
    folder = folder_of(gateway)
    numbers, lost = segments(folder), segments(folder)[2]
    damaged = f"seg-{lost:08}"
    with open(f"{folder}/{damaged}", "r+b") as f:
        f.seek(os.path.getsize(f"{folder}/{damaged}") - 40)
        f.write(b"\0" * 4)
    before = content(folder)
    said = run("journal", "repair", folder)
    assert said.returncode == 0 and re.search(rf"segment {lost}: (damage|torn tail) at offset \d+; \d+ bytes are not copied", said.stdout), said
    after = content(folder)
    assert after.pop(f"{damaged}.before-repair") == before[damaged]
    whole = after.pop(damaged)
    assert len(whole) < len(before[damaged]) and before[damaged].startswith(whole)
    assert after == {n: b for n, b in before.items() if n != damaged} and segments(folder) == numbers
    assert run("journal", "check", folder).returncode == 0
    assert "nothing to repair" in run("journal", "repair", folder).stdout
    gateway.allow("record does not apply", "journal")
    gateway.start()
    lengths = [len(answers_of(gateway, t)) if gateway.get(t.path).status == 200 else 0 for t in talks]
    assert 10 <= sum(lengths) < 15, lengths
    assert gateway.stop() == 0
    # damage again: the first old file is not overwritten
    with open(f"{folder}/{damaged}", "r+b") as f:
        f.seek(20)
        f.write(b"\0" * 4)
    before = content(folder)
    said = run("journal", "repair", folder)
    assert said.returncode == 1 and f"cannot keep {damaged} as {damaged}.before-repair" in said.stderr, said
    assert content(folder) == before
    shutil.move(f"{folder}/{damaged}.before-repair", f"{folder}/older")
    assert run("journal", "repair", folder).returncode == 0 and run("journal", "check", folder).returncode == 0


def test_repair_gives_an_empty_segment_its_head(start):
    """A power cut may leave a file of no bytes."""
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=4096)
    talk = Talk(gateway)
    for _ in range(8):
        assert talk.turn() == 200
    assert gateway.stop() == 0
    folder = folder_of(gateway)
    for number in (segments(folder)[-1], segments(folder)[1]):
        os.truncate(f"{folder}/seg-{number:08}", 0)
        assert run("journal", "check", folder).returncode == 1
        said = run("journal", "repair", folder)
        assert said.returncode == 0 and f"segment {number}: torn tail at offset 0; 0 bytes are not copied" in said.stdout, said
        assert run("journal", "check", folder).returncode == 0


def test_repair_never_overwrites_the_manifest_that_an_earlier_one_kept(start):
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=4096)
    talk = Talk(gateway)
    for _ in range(12):
        assert talk.turn() == 200
    assert gateway.stop() == 0
    folder = folder_of(gateway)
    first = content(folder)["MANIFEST"]
    os.remove(f"{folder}/seg-{segments(folder)[1]:08}")
    assert run("journal", "repair", folder).returncode == 0
    assert content(folder)["MANIFEST.before-repair"] == first
    os.remove(f"{folder}/seg-{segments(folder)[1]:08}")
    before = content(folder)
    said = run("journal", "repair", folder)
    assert said.returncode == 1 and "cannot keep MANIFEST as MANIFEST.before-repair (move an older one away first)" in said.stderr, said
    assert content(folder) == before
    shutil.move(f"{folder}/MANIFEST.before-repair", f"{folder}/older")
    assert run("journal", "repair", folder).returncode == 0 and run("journal", "check", folder).returncode == 0
