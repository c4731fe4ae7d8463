"""The files of images: nothing is lost, left over or incomplete, whatever process dies, disk fills up or session
moves."""
import os
import signal
import subprocess
import threading

import pytest

import vision_kit as kit
from gateway import BUILD, in_parallel, wait_until
from test_faults import SHIM, sanitizer
from vision_kit import GOOD, big, chat, files, image, media, session, text, user

SHOT, OTHER = kit.png(640, 480), kit.png(64, 64)


def whole(gateway):
    """Every file below media/ is a picture under its own hash."""
    found = [p for p in media(gateway).rglob("*") if p.is_file()]
    return all(p.name == kit.sha(p.read_bytes()) for p in found)


@pytest.mark.parametrize("who", ["worker", "all"])
def test_killed_between_the_file_and_the_commit(vision, who):
    """The engine has the picture, so its file is written; nothing of the call is on record yet."""
    engine, gateway = vision(durability="process")
    gateway.allow("process died")
    sid = session(gateway)
    messages = [user(text("look"), image(SHOT))]
    never = threading.Event()
    engine.plan.append({**GOOD, "wait": never})
    asked = threading.Thread(target=lambda: lost(gateway, sid, messages))
    asked.start()
    wait_until(lambda: engine.requests, what="the engine is asked")
    assert files(gateway) == {kit.sha(SHOT): 1}
    if who == "all":
        gateway.kill()
        gateway.start()
    else:
        worker = gateway.child("worker-0")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: gateway.child("worker-0") not in (None, worker), what="the worker is replaced")
    never.set()
    asked.join(30)
    assert gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] == []
    answer = chat(gateway, sid, messages)
    assert answer.status == 200, answer.body
    assert files(gateway) == {kit.sha(SHOT): 1} and whole(gateway)
    messages += [answer.json()["choices"][0]["message"], user(text("go on"))]
    assert chat(gateway, sid, messages).status == 200
    assert [kit.of_data_url(u) for u in engine.requests[-1]["body"]["image_data"]] == [SHOT]
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    gateway.stop()
    gateway.start()
    assert not [p for p in media(gateway).rglob("*") if p.is_file()]


def lost(gateway, sid, messages):
    try:
        chat(gateway, sid, messages)
    except OSError:
        pass


def test_workers_come_and_go_and_pictures_stay(vision):
    """Sessions of workers that are no more are served, with their pictures, by those that are; and are forgotten with them."""
    engine, gateway = vision(workers=3, durability="process")
    talks = [(session(gateway), kit.png(320 + 32 * i, 240, i)) for i in range(9)]
    for sid, shot in talks:
        assert chat(gateway, sid, [user(image(shot), image(SHOT))]).status == 200
    assert len({sid.split("-")[0] for sid, _ in talks}) == 3
    for workers in (1, 4):
        assert gateway.stop() == 0
        gateway.settings["workers"] = workers
        gateway.start()
        expected = {kit.sha(shot): 1 for _, shot in talks}
        assert files(gateway) == {**expected, kit.sha(SHOT): len(talks)} and whole(gateway)
        for sid, shot in talks:
            assert gateway.get(f"/sessions/{sid}/media/{kit.sha(shot)}").body == shot
            messages = [user(image(shot), image(SHOT)), {"role": "assistant", "content": "x"}, user(text("on"))]
            answer = chat(gateway, sid, messages)
            assert answer.status == 200, answer.body
        gone, talks = talks[:3], talks[3:]
        for sid, _ in gone:
            assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    assert gateway.stop() == 0
    gateway.start()
    assert files(gateway) == {**{kit.sha(shot): 1 for _, shot in talks}, kit.sha(SHOT): len(talks)}


def test_compaction_keeps_what_is_kept(vision):
    """The journal's segments are made anew: pictures of sessions that stay are there, those of the others go."""
    engine, gateway = vision(durability="process", tombstone_ttl="1s")
    stays, goes = session(gateway), session(gateway)
    assert chat(gateway, stays, [user(image(SHOT))]).status == 200
    assert chat(gateway, goes, [user(image(OTHER))]).status == 200
    assert gateway.request("DELETE", f"/sessions/{goes}").status == 204
    assert gateway.stop() == 0
    done = subprocess.run([str(gateway.binary), "journal", "compact", str(media(gateway).parent / "worker-0")],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    gateway.start()
    assert files(gateway) == {kit.sha(SHOT): 1}
    t = gateway.post(f"/sessions/{stays}/finalize", {}).json()["trajectories"][0]
    assert t["images"][0]["media"] == kit.sha(SHOT)
    assert gateway.get(f"/sessions/{stays}/media/{kit.sha(SHOT)}").body == SHOT


def test_a_fork_has_its_pictures_though_its_source_is_deleted(vision, tmp_path):
    """The helper that links them comes late, behind a sweep of what deleted sessions had."""
    if not SHIM.exists():
        pytest.skip(f"{SHIM} is not built")
    faults = tmp_path / "faults"
    faults.mkdir()
    _, gateway = vision(helper_timeout="10m", sandbox=False,
                        env={"LD_PRELOAD": f"{sanitizer()} {SHIM}", "RG_FAULTS": str(faults)})
    source, gone = session(gateway), session(gateway)
    for sid in (source, gone):
        assert chat(gateway, sid, [user(text("look"), image(SHOT))]).status == 200
    (faults / "folder").write_text("1")
    answers = []
    asked = threading.Thread(target=lambda: answers.append(
        gateway.post(f"/sessions/{source}/fork", {"train_prefix": True})))
    asked.start()
    wait_until(lambda: (faults / "waits").exists(), what="a helper is about to link its pictures")
    for sid in (source, gone):
        assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
    wait_until(lambda: not (media(gateway) / "sessions" / gone).exists(), 20, "what the deleted had is swept")
    (faults / "folder").unlink()
    asked.join(60)
    assert answers[0].status == 200, answers[0].text
    fork = answers[0].json()["session_id"]
    assert gateway.get(f"/sessions/{fork}/media/{kit.sha(SHOT)}").status == 200
    wait_until(lambda: not (media(gateway) / "sessions" / source).exists(), 20, "its source's go with the next sweep")


def test_a_full_disk_takes_no_picture_and_harms_nothing(vision, small_disk):
    disk = small_disk("600k")
    engine, gateway = vision(state_dir=str(disk), journal_min_free="10k")
    gateway.allow("journal", "storage", "image")
    sid = session(gateway)
    assert chat(gateway, sid, [user(text("before"))]).status == 200
    before = gateway.get(f"/sessions/{sid}?records=1").json()
    for _ in range(3):
        refused = chat(gateway, sid, [user(image(big(2000)))])
        assert refused.status == 503 and refused.json()["error"]["code"] == "storage_full", refused.body
    assert len(engine.requests) == 1
    assert not [p for p in media(gateway).rglob("*") if p.is_file()]
    assert gateway.get(f"/sessions/{sid}?records=1").json() == before
    assert chat(gateway, sid, [user(image(OTHER))]).status == 200
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    assert chat(gateway, sid, [user(image(big(2000)))]).status == 200
    assert whole(gateway) and len(files(gateway)) == 2
    assert gateway.stop() == 0


def test_a_file_that_has_changed_is_not_sent(vision):
    """A picture of the past comes from the store, and must be the one that was shown."""
    engine, gateway = vision()
    sid = session(gateway)
    part = {"type": "input_image", "image_url": kit.url(SHOT)}
    first = gateway.post(f"/sessions/{sid}/v1/responses", {"input": [{"role": "user", "content": [part]}]}).json()
    path = media(gateway) / "sessions" / sid / kit.sha(SHOT)
    path.write_bytes(SHOT[:-20] + b"x" * 20)
    more = {"previous_response_id": first["id"], "input": "and?"}
    answer = gateway.post(f"/sessions/{sid}/v1/responses", more)
    assert answer.status in (500, 503) and "changed on the disk" in answer.text, answer.body
    assert len(engine.requests) == 1
    path.write_bytes(SHOT)
    assert gateway.post(f"/sessions/{sid}/v1/responses", more).status == 200


def test_a_large_picture_goes_out_in_pieces(vision):
    """Fourteen megabytes to readers that are slow: whole, and the worker holds none of it."""
    engine, gateway = vision()
    sid, shot = session(gateway), big(14 << 10)
    assert chat(gateway, sid, [user(image(shot))]).status == 200
    path = f"/sessions/{sid}/media/{kit.sha(shot)}"
    before = gateway.resident(gateway.child("worker-0"))
    bodies = in_parallel(lambda _: gateway.get(path).body, range(8)).values()
    assert all(b == shot for b in bodies)
    if "asan" not in str(BUILD):      # its freed memory stays for a while
        assert gateway.resident(gateway.child("worker-0")) - before < 16 << 20
    again = gateway.get(path, headers={"If-None-Match": f'"{kit.sha(shot)}"'})
    assert again.status == 304
