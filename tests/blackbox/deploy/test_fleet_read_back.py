"""A node whose disk is gone owns its places again: everything that it had answered comes back from the fleet's store, for each session
when it is asked for. The same code serves a place that was another node's."""
import json
import shutil
import subprocess
import threading

import redis

import gateway as g
import vision_kit as kit
from store_kit import Server
from test_faults import SHIM, folder_of, last_segment, sanitizer
from test_fleet_copy import logs, session_of, turns
from test_fleet_join import is_whole, node, store  # noqa: F401
from test_turn_recovery import kill_worker


def started(store, **more):
    gateway = node(store, "a", **{"engine": "builtin:random:1", "fleet-hold": "20s", **more})
    gateway.allow("the store does not answer", "store answers again", "forgotten a place", "another node owns")
    return served(gateway.start())


def served(gateway):
    g.wait_until(lambda: gateway.post("/sessions", {}).status == 200, 30, "the place is served")
    return gateway


def lose_disk(gateway):
    """Kills the node, removes its folder, and starts it under its name."""
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
    gateway.kill()
    shutil.rmtree(gateway.settings["state-dir"])
    return gateway.start()


def path_of(session):
    return f"/sessions/{session['session_id']}"


def content(gateway, session):
    answer = gateway.get(f"{path_of(session)}?records=1", timeout=60)
    assert answer.status == 200, answer.text
    return {k: v for k, v in answer.json().items() if k not in ("updated_at", "records_bytes", "memory")}


def test_answered_turns_forks_and_ends_come_back_with_the_same_tokens(store):
    gateway = started(store)
    open_ones, long = [session_of(gateway) for _ in range(12)], session_of(gateway)
    for n, s in enumerate(open_ones):
        for turn in range(n % 3 + 1):
            assert gateway.chat(s, f"session {n} turn {turn}").status == 200
    assert gateway.chat(long, "many words " * 60000).status == 200  # in fragments
    fork = gateway.post(f"{path_of(open_ones[2])}/fork", {}).json()
    assert gateway.chat(fork, "on its own").status == 200
    finalized, deleted = session_of(gateway), session_of(gateway)
    for s in (finalized, deleted):
        assert gateway.chat(s, "once").status == 200
    assert gateway.request("DELETE", path_of(deleted)).status == 204
    exported = gateway.post(f"{path_of(finalized)}/finalize").json()["trajectories"]
    g.wait_until(lambda: logs(store)[deleted["session_id"]][0] > 0, 20, "its end is left")
    live = [*open_ones, long, fork]
    before, lengths = [content(gateway, s) for s in live], logs(store)

    lose_disk(gateway)
    assert content(gateway, fork) == before[-1]     # an id of the store is never unknown, from the first answer on
    assert [content(gateway, s) for s in live] == before
    g.wait_until(lambda: {s: n for s, n in logs(store).items() if s in lengths} == lengths, 30, "nothing was sent anew")
    assert gateway.post(f"{path_of(finalized)}/finalize").json()["trajectories"] == exported
    gone = gateway.chat(deleted, "again")
    assert (gone.status, gone.json()["error"]["code"]) == (410, "session_ended"), gone.text
    assert gateway.get(f"/sessions/w0-{'0' * 32}").status == 404
    assert gateway.chat(open_ones[1], "next").status == 200
    assert len(content(gateway, open_ones[1])["records"]) == 3
    kill_worker(gateway)                            # what came back is in the journal
    g.wait_until(lambda: gateway.get(path_of(fork)).status == 200, 30, "the worker is replaced")
    assert [content(gateway, s) for s in live[2:]] == before[2:]
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")


def test_a_repeated_request_gets_its_recorded_answer_unless_that_had_arrived(store):
    gateway = started(store, **{"on-disconnect": "finish"})
    s = session_of(gateway)
    first = gateway.chat(s, "one").json()
    g.wait_until(lambda: logs(store)[s["session_id"]][1] == 3, 20, "its arrival is noted")
    client = gateway.connect()                      # leaves before the answer
    client.request("POST", f"{path_of(s)}/v1/chat/completions",
                   json.dumps({"model": "m", "messages": [{"role": "user", "content": "two"}]}))
    client.close()
    g.wait_until(lambda: turns(store, s) == 2, 20, "both are recorded")
    before = content(gateway, s)
    lose_disk(gateway)
    assert gateway.chat(s, "two").status == 200
    assert content(gateway, s) == before
    assert gateway.chat(s, "one").json()["id"] != first["id"]
    assert len(content(gateway, s)["records"]) == 3


def test_a_log_with_a_hole_is_a_lost_session_by_name(store):
    gateway = started(store)
    whole, torn = session_of(gateway), session_of(gateway)
    for s in (whole, torn):
        assert gateway.chat(s, "one").status == 200
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
    gateway.kill()
    store.ask("LTRIM", f"rg:test:log:{{0}}:{torn['session_id']}", 1, -1)
    store.ask("HINCRBY", "rg:test:sessions:{0}", torn["session_id"], 1)
    shutil.rmtree(gateway.settings["state-dir"])
    gateway.allow("the session is lost")
    gateway.start()
    for answer in (gateway.get(path_of(torn), timeout=60), gateway.chat(torn, "two")):
        assert (answer.status, answer.json()["error"]["code"]) == (410, "session_lost"), answer.text
    assert gateway.chat(whole, "two").status == 200
    assert torn["session_id"] in next(line for line in gateway.log().splitlines() if "the session is lost" in line)


def test_an_export_that_a_lost_spool_had_goes_to_its_sink(store, tmp_path):
    target = Server(tmp_path / "sink")              # is down
    gateway = started(store, sink=f"redis://127.0.0.1:{target.port}")
    gateway.allow("a sink")
    ids = []
    for n in range(3):
        s = session_of(gateway)
        assert gateway.chat(s, f"session {n}").status == 200
        assert gateway.post(f"{path_of(s)}/finalize").status == 200
        ids.append(s["session_id"])
    g.wait_until(lambda: gateway.has_line("a sink takes nothing"), 20, "the first file is in the spool")
    lose_disk(gateway)
    with target, redis.Redis(port=target.port) as client:
        g.wait_until(lambda: len(client.xrange("rollgate:trajectories")) >= 3, 60, "all are delivered")
        assert sorted(fields[b"session_id"].decode() for _, fields in client.xrange("rollgate:trajectories")) == sorted(ids)
        gateway.stop()


def damage_records(gateway, session, numbers):
    """Flips a bit of these records of the session in the journal."""
    dumped = subprocess.run([str(g.BINARY), "journal", "dump", folder_of(gateway)], capture_output=True, text=True, timeout=60)
    lines = [one for one in map(json.loads, dumped.stdout.splitlines()) if one.get("session_id") == session["session_id"]]
    with open(last_segment(folder_of(gateway)), "r+b") as f:
        for n in numbers:
            f.seek(lines[n]["offset"] + 20)
            byte = f.read(1)
            f.seek(lines[n]["offset"] + 20)
            f.write(bytes([byte[0] ^ 0x10]))


def test_a_damaged_journal_is_repaired_from_the_store(store):
    gateway = started(store)
    sessions = [session_of(gateway) for _ in range(3)]
    for s in sessions:
        for turn in range(3):
            assert gateway.chat(s, f"turn {turn}").status == 200
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
    before, lengths = [content(gateway, s) for s in sessions], logs(store)
    gateway.kill()
    for s, numbers in zip(sessions, ([0], [1], [0, 2])):    # the first record is the session's beginning
        damage_records(gateway, s, numbers)
    gateway.allow("damaged segment", "does not apply", "records skipped", "the journal differs",
                  "only the fleet's store had")
    gateway.start()
    for _ in range(2):                              # a restart replays the damaged records and the good ones
        assert [content(gateway, s) for s in sessions] == before
        g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
        assert {s: n for s, n in logs(store).items() if s in lengths} == lengths
        kill_worker(gateway)
        g.wait_until(lambda: gateway.get(path_of(sessions[0])).status == 200, 30, "the worker is replaced")
    for s in sessions:
        assert gateway.chat(s, "next").status == 200
        assert len(content(gateway, s)["records"]) == 4


def pictures(store):
    """The logs of images in the store, as SESSION~NAME: number of pieces."""
    return {key: n[1] for key, n in logs(store).items() if "~" in key}


def test_pictures_come_back_before_their_sessions(store, tmp_path):
    small, large = kit.png(64, 64), kit.big(2500)
    asked = [kit.user(kit.text("look"), kit.image(small), kit.image(large))]
    with kit.VisionStub("sglang") as engine:
        gateway = started(store, engine=engine.setting, model=kit.model_folder(tmp_path / "m"))
        sid, other = kit.session(gateway), kit.session(gateway)
        answer = kit.chat(gateway, sid, asked)
        assert answer.status == 200, answer.body
        assert kit.chat(gateway, other, [kit.user(kit.image(small))]).status == 200
        assert pictures(store) == {f"{sid}~{kit.sha(small)}": 1, f"{sid}~{kit.sha(large)}": 3, f"{other}~{kit.sha(small)}": 1}
        lose_disk(gateway)
        got = g.wait_until(lambda: gateway.get(f"/sessions/{sid}/media/{kit.sha(large)}", timeout=60), 30, "it is read back")
        assert (got.status, got.body) == (200, large)
        assert gateway.get(f"/sessions/{sid}/snapshot").status == 200
        more = [*asked, answer.json()["choices"][0]["message"], kit.user(kit.text("and now"))]
        assert kit.chat(gateway, sid, more).status == 200
        assert [kit.of_data_url(u) for u in engine.requests[-1]["body"]["image_data"]] == [small, large]
        # a worker that is replaced, and a store that is emptied, lose none
        kill_worker(gateway)
        g.wait_until(lambda: gateway.get(f"/sessions/{sid}/media/{kit.sha(small)}").status == 200, 30, "the worker is replaced")
        before = pictures(store)
        store.ask("FLUSHALL")
        g.wait_until(lambda: pictures(store) == before, 30, "the images are sent again")
        lose_disk(gateway)
        got = g.wait_until(lambda: gateway.get(f"/sessions/{other}/media/{kit.sha(small)}", timeout=60), 30, "it is read back")
        assert (got.status, got.body) == (200, small)
        # images of sessions that are gone leave the store
        for one in (sid, other):
            assert gateway.request("DELETE", f"/sessions/{one}").status == 204
        g.wait_until(lambda: not pictures(store), 60, "their images are deleted")


def test_a_disk_that_is_slow_for_a_picture_holds_no_other_session(store, tmp_path):
    small, answers = kit.png(64, 64), []
    (tmp_path / "faults").mkdir()
    with kit.VisionStub("sglang") as engine:
        gateway = started(store, engine=engine.setting, model=kit.model_folder(tmp_path / "m"), durability="power", sandbox=False,
                          env={"LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(tmp_path / "faults")})
        sid = kit.session(gateway)
        assert kit.chat(gateway, sid, [kit.user(kit.image(small))]).status == 200
        (tmp_path / "faults/pictures").write_text("hold")
        lose_disk(gateway)
        reading = threading.Thread(target=lambda: answers.append(gateway.get(f"/sessions/{sid}/media/{kit.sha(small)}", timeout=60)))
        reading.start()
        g.wait_until(lambda: [p for p in kit.media(gateway).rglob("*.part") if p.stat().st_size == len(small)], 30, "the picture is written")
        assert gateway.post("/sessions", {}, timeout=20).status == 200 and not answers
        (tmp_path / "faults/pictures").unlink()
        reading.join()
        assert (answers[0].status, answers[0].body) == (200, small)


def test_a_session_is_read_without_a_picture_that_the_store_has_in_part(store, tmp_path):
    small, torn = kit.png(64, 64), kit.big(2500)
    with kit.VisionStub("sglang") as engine:
        gateway = started(store, engine=engine.setting, model=kit.model_folder(tmp_path / "m"))
        sid = kit.session(gateway)
        assert kit.chat(gateway, sid, [kit.user(kit.image(small), kit.image(torn))]).status == 200
        g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
        gateway.kill()
        store.ask("LTRIM", f"rg:test:log:{{0}}:{sid}~{kit.sha(torn)}", 0, -2)
        shutil.rmtree(gateway.settings["state-dir"])
        gateway.allow("an image that cannot be read")
        gateway.start()
        got = g.wait_until(lambda: gateway.get(f"/sessions/{sid}/media/{kit.sha(small)}", timeout=60), 30, "it is read back")
        assert (got.status, got.body) == (200, small)
        assert gateway.get(f"/sessions/{sid}").status == 200
        assert pictures(store) == {f"{sid}~{kit.sha(small)}": 1}


def test_records_wait_for_their_pictures(store, tmp_path):
    """The store is full: no record is confirmed before the images that it needs."""
    with kit.VisionStub("sglang") as engine:
        gateway = started(store, engine=engine.setting, model=kit.model_folder(tmp_path / "m"), **{"fleet-outage": "2s"})
        gateway.allow("the memory of the store is used up")
        sid = kit.session(gateway)
        asked = [kit.user(kit.text("look"), kit.image(kit.big(1500)))]
        store.ask("CONFIG", "SET", "maxmemory", store.ask("INFO", "memory")["used_memory"] + 900000)
        answer = kit.chat(gateway, sid, asked)
        assert (answer.status, answer.json()["error"]["code"]) == (503, "storage_full"), answer.text
        assert logs(store)[sid] == [0, 1], "the session's beginning alone"
        store.ask("CONFIG", "SET", "maxmemory", 0)
        g.wait_until(lambda: kit.chat(gateway, sid, asked).status == 200, 30, "the store takes it")
        assert pictures(store) == {f"{sid}~{kit.sha(kit.big(1500))}": 2}
