"""Adding and removing engines by /admin/engines: the effect in all workers, and what outlives them."""
import json
import os
import signal
import subprocess
import threading

import pytest

import gateway as g
from gateway import wait_until

ASK = {"messages": [{"role": "user", "content": "hi"}]}
GOOD = {"ids": list(b"ok") + [257], "matched": 257}


def sessions_of_all(gateway, n=8):
    return [gateway.post("/sessions", {}).json()["session_id"] for _ in range(n)]


def ask(gateway, sid, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, **more}, timeout=60)


def names(gateway, state=None):
    return [e["name"] for e in gateway.get("/admin/engines").json()["engines"] if state in (None, e["state"])]


def put(gateway, engines, **more):
    return gateway.request("PUT", "/admin/engines", {"engines": engines, **more}, timeout=60)


def served_by(*engines):
    return [len(e.requests) for e in engines]


def all_go_to(gateway, which, others, n=12):
    for e in (which, *others):
        e.requests.clear()
    for i, sid in enumerate(sessions_of_all(gateway, n)):
        assert ask(gateway, sid, seed=i).status == 200
    assert served_by(which, *others) == [n] + [0] * len(others)


def test_names_of_settings(start, engine):
    a, b = engine(), engine()
    gateway = start(workers=1, engine=[f"first={a.setting},weight=2", b.setting])
    engines = gateway.get("/admin/engines").json()
    assert engines["edition"] == 0
    assert [(e["name"], e["engine"], e["place"]) for e in engines["engines"]] == [
        ("first", f"first={a.setting},weight=2", 0), (b.setting, b.setting, 1)]
    s = gateway.post("/sessions", {}).json()["session_id"]
    assert ask(gateway, s).status == 200
    assert any(e["requests"] == 1 for e in gateway.get("/admin/engines").json()["engines"])


def test_a_whole_new_set_reaches_every_worker(start, engine):
    a, b, c = engine(), engine(), engine()
    gateway = start(workers=3, engine=f"a={a.setting}")
    ids = sessions_of_all(gateway, 6)
    assert all(ask(gateway, s).status == 200 for s in ids)
    done = put(gateway, [f"b={b.setting}", f"c={c.setting}"])
    assert done.status == 200, done.text
    assert {k: done.json()[k] for k in ("status", "edition", "added", "removed", "drained")} == {
        "status": "ok", "edition": 1, "added": ["b", "c"], "removed": ["a"], "drained": True}
    a.requests.clear()
    assert all(ask(gateway, s, seed=1).status == 200 for s in ids + sessions_of_all(gateway, 12))
    assert a.requests == [] and min(served_by(b, c)) > 0
    assert all(names(gateway, "up") == ["b", "c"] for _ in range(9))
    assert [e["place"] for e in put(gateway, [f"c={c.setting}"]).json()["engines"] if e["name"] == "c"] == [2]
    all_go_to(gateway, c, [a, b])
    again = put(gateway, [f"c={c.setting}"]).json()
    assert again["edition"] == 2 and again["added"] == again["removed"] == []   # nothing to change


def test_one_comes_and_one_goes(start, engine):
    a, b = engine(), engine(kind="vllm")
    gateway = start(workers=2, engine=f"a={a.setting}")
    more = gateway.post("/admin/engines", {"engines": [f"b={b.setting}"]})
    assert more.status == 200 and names(gateway) == ["a", "b"]
    less = gateway.request("DELETE", "/admin/engines?name=a")
    assert less.status == 200 and less.json()["removed"] == ["a"], less.text
    all_go_to(gateway, b, [a])
    less = gateway.request("DELETE", "/admin/engines", {"engines": ["b"]})
    assert less.status == 200 and names(gateway, "up") == []
    ready = gateway.get("/ready")
    assert ready.status == 503 and "engine" in ready.text


def test_calls_wait_where_there_is_no_engine_yet(start, engine):
    """--engine none: Ray knows the addresses only later."""
    a = engine()
    gateway = start(workers=2, engine="none")
    ids, answers = sessions_of_all(gateway, 4), []
    assert gateway.get("/ready").status == 503
    threads = [threading.Thread(target=lambda s=s: answers.append(ask(gateway, s))) for s in ids]
    for t in threads:
        t.start()
    wait_until(lambda: gateway.metrics()["rollgate_queue_depth"] == 4, what="the calls wait")
    assert put(gateway, [f"a={a.setting}"]).status == 200
    for t in threads:
        t.join()
    assert [x.status for x in answers] == [200] * 4
    wait_until(lambda: gateway.get("/ready").status == 200, what="ready")


def test_removal_lets_running_calls_end(start, engine):
    a, b = engine(), engine()
    gate = threading.Event()
    a.plan.append({**GOOD, "wait": gate})
    gateway = start(workers=2, engine=f"a={a.setting}")
    (sid,), answers = sessions_of_all(gateway, 1), []
    t = threading.Thread(target=lambda: answers.append(ask(gateway, sid)))
    t.start()
    wait_until(lambda: a.running == 1, what="the call runs")
    done = put(gateway, [f"b={b.setting}"])
    assert done.status == 200 and done.json()["drained"] is False
    assert put(gateway, [f"b={b.setting}"]).json()["added"] == []
    wait_until(lambda: "a" in names(gateway, "draining"), what="one worker drains it")
    waits = []
    w = threading.Thread(target=lambda: waits.append(put(gateway, [f"b2={b.setting}"], timeout_s=30)))
    w.start()
    all_end = [ask(gateway, s, seed=7).status for s in sessions_of_all(gateway, 4)]
    assert all_end == [200] * 4 and a.running == 1 and not answers
    gate.set()
    t.join()
    w.join()
    assert answers[0].status == 200 and waits[0].json()["drained"] is True
    assert gateway.get(f"/sessions/{sid}?records=1").json()["num_branches"] == 1
    gateway.wait_line("engine is gone engine=a")
    wait_until(lambda: all("a" not in names(gateway) for _ in range(6)), what="every worker has closed it")


def test_a_call_can_wait_for_the_drain(start, engine):
    a, b = engine(), engine()
    gate = threading.Event()
    a.plan.append({**GOOD, "wait": gate})
    gateway = start(workers=2, engine=f"a={a.setting}")
    (sid,), answers, orders = sessions_of_all(gateway, 1), [], []
    t = threading.Thread(target=lambda: answers.append(ask(gateway, sid)))
    t.start()
    wait_until(lambda: a.running == 1, what="the call runs")
    short = put(gateway, [f"b={b.setting}"], timeout_s=0.2)
    assert short.json()["drained"] is False and put(gateway, [f"a={a.setting}"]).status == 200
    o = threading.Thread(target=lambda: orders.append(put(gateway, [f"b={b.setting}"], timeout_s=60)))
    o.start()
    gate.set()
    for x in (t, o):
        x.join()
    assert answers[0].status == 200 and orders[0].json()["drained"] is True


def test_an_address_that_does_not_answer_changes_nothing(start, engine):
    a, b, sick = engine(), engine(), engine(health=500)
    gateway = start(workers=2, engine=f"a={a.setting}", engine_connect_timeout="500ms")
    dead = "sglang:http://127.0.0.1:9"
    for bad in (f"d={dead}", f"s={sick.setting}"):
        refused = put(gateway, [f"b={b.setting}", bad])
        error = refused.json()["error"]
        assert refused.status == 503 and error["code"] == "engine_unavailable" and bad[0] in error["message"], refused.text
    assert names(gateway) == ["a"] and gateway.get("/admin/engines").json()["edition"] == 0
    all_go_to(gateway, a, [b])
    taken = put(gateway, [f"a={a.setting}", f"d={dead}"], probe=False)
    assert taken.status == 200 and taken.json()["added"] == ["d"]
    for i, s in enumerate(sessions_of_all(gateway, 8)):
        assert ask(gateway, s, seed=i).status == 200    # those of the dead one go elsewhere


@pytest.mark.parametrize("body, told", [
    ({"engines": ["sglan:http://x"]}, r'engines[0]: unknown engine kind'),
    ({"engines": ["a=builtin:echo", "a=builtin:echo,weight=2"]}, 'two engines are called'),
    ({"engines": ["a b=builtin:echo"]}, "an engine's name is"),
    ({"engines": ["=builtin:echo"]}, "an engine's name is"),
    ({"engines": "builtin:echo"}, "engines"), ({"engines": [3]}, "engines"), ({"engines": [""]}, "engines"),
    ({}, "engines is missing"),
    ({"engine": ["builtin:echo"]}, "engine"), ({"engines": [], "probe": "no"}, "probe"),
    ({"engines": ["builtin:script:/nowhere/at/all"]}, "engines[0]"), ({"engines": [], "timeout_s": -1}, "timeout_s"),
    ({"engines": ["sglang:http://127.0.0.1:1,key-file=/nowhere"]}, "engines[0]"),
])
def test_what_cannot_be_is_told(kept, body, told):
    gateway = kept.gateway(workers=1, engine="a=builtin:echo")
    answer = gateway.request("PUT", "/admin/engines", body)
    assert answer.status == 400 and told in answer.json()["error"]["message"], answer.text
    assert names(gateway) == ["a"]


def test_names_that_are_not_there(start):
    gateway = start(workers=1, engine="a=builtin:echo")
    for request in ({"path": "/admin/engines?name=b"}, {"path": "/admin/engines", "body": {"engines": ["a", "b"]}}):
        answer = gateway.request("DELETE", **request)
        assert answer.status == 404 and '"b"' in answer.json()["error"]["message"], answer.text
    assert gateway.request("DELETE", "/admin/engines", {}).status == 400
    assert gateway.post("/admin/engines", {"engines": ["a=builtin:echo,weight=3"]}).status == 400
    assert names(gateway) == ["a"]


def test_settings_with_one_name_twice_are_refused(start, tmp_path):
    for engines, told in ((["a=builtin:echo", "a=builtin:echo,weight=2"], 'two engines are called "a"'),
                          (["none", "builtin:echo"], '"none" excludes other engines'), (["a/b=builtin"], "an engine's name is")):
        out = subprocess.run([g.BINARY, "config", "--check", f"--state-dir={tmp_path}", *(f"--engine={e}" for e in engines)],
                             capture_output=True, text=True, timeout=60)
        assert out.returncode != 0 and told in out.stdout + out.stderr, out


@pytest.mark.parametrize("durability", ["process", "none"])
def test_a_restart_keeps_the_set(start, engine, durability):
    a, b = engine(), engine()
    gateway = start(workers=2, engine=f"a={a.setting}", durability=durability)
    assert put(gateway, [f"b={b.setting}"]).status == 200
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.get("/admin/engines").json()["edition"] == 1
    all_go_to(gateway, b, [a])
    assert put(gateway, [f"a={a.setting}", f"b={b.setting}"]).json()["edition"] == 2
    assert gateway.stop() == 0
    gateway.settings["engine"] = [f"b={b.setting},weight=3"]    # the newer word
    gateway.start()
    gateway.wait_line("--engine is not what it was")
    assert names(gateway) == ["b"] and gateway.get("/admin/engines").json()["edition"] == 0
    kept = json.loads(open(f"{gateway.folder}/state/engines.json").read())
    assert kept["settings"] == [f"a={a.setting}"]
    assert [e["engine"] for e in kept["engines"]] == [f"a={a.setting}", f"b={b.setting}"]


def test_a_damaged_file_is_no_silent_beginning(start, engine):
    gateway = start(workers=1, engine="a=builtin:echo")
    assert put(gateway, ["b=builtin:echo"]).status == 200
    assert gateway.stop() == 0
    with open(f"{gateway.folder}/state/engines.json", "w") as f:
        f.write('{"edition":1,"settings":["a=builtin:echo"],"engi')
    gateway.allow("engines.json of the state folder is damaged")
    gateway.start(wait=False)
    assert gateway.process.wait(30) == 1
    assert 'last_words="engines.json of the state folder is damaged' in gateway.log()


def test_a_crash_of_a_worker_and_an_upgrade_keep_the_set(start, engine):
    a, b = engine(), engine()
    gateway = start(workers=2, engine=f"a={a.setting}")
    gateway.allow("ended by a signal|process died|crash")
    assert put(gateway, [f"b={b.setting}"]).status == 200
    for name in ("worker-0", "worker-1"):
        before = gateway.child(name)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: gateway.child(name) not in (before, None), what="its successor")
    wait_until(lambda: gateway.get("/ready").status == 200, what="ready")
    all_go_to(gateway, b, [a])
    assert all(names(gateway) == ["b"] for _ in range(6))
    served = gateway.log().count(" serving listen")
    gateway.signal(signal.SIGUSR2)
    wait_until(lambda: gateway.log().count(" serving listen") > served, 60, "the next generation serves")
    wait_until(lambda: gateway.get("/ready").status == 200, what="ready")
    all_go_to(gateway, b, [a])
    assert put(gateway, [f"a={a.setting}"]).json()["edition"] == 2
    all_go_to(gateway, a, [b])


def test_of_two_changes_at_once_one_waits(start, engine):
    a, slow, b = engine(), engine(health_delay=1.5), engine()
    gateway = start(workers=2, engine=f"a={a.setting}")
    first = []
    t = threading.Thread(target=lambda: first.append(put(gateway, [f"slow={slow.setting}"])))
    t.start()
    wait_until(lambda: slow.probes > 0, what="the probe of the first")
    second = put(gateway, [f"b={b.setting}"])
    t.join()
    assert second.status == 409 and second.json()["error"]["code"] == "state_conflict", second.text
    assert first[0].status == 200 and names(gateway, "up") == ["slow"]
    assert put(gateway, [f"b={b.setting}"]).status == 200


def test_who_leaves_before_the_probe_changes_nothing(start, engine):
    a, slow = engine(), engine(health_delay=1.0)
    gateway = start(workers=1, engine=f"a={a.setting}")
    c = gateway.connect()
    c.request("PUT", "/admin/engines", body=json.dumps({"engines": [f"slow={slow.setting}"]}))
    wait_until(lambda: slow.probes > 0, what="the probe")
    c.close()
    wait_until(lambda: put(gateway, [f"a={a.setting}"]).status == 200, what="the lock is given back")
    assert names(gateway) == ["a"] and gateway.get("/admin/engines").json()["edition"] == 0


def test_a_waiting_call_is_not_given_to_an_engine_that_lacks_its_field(start, engine):
    """min_tokens: SGLang has a field for it, llama-server has none and would ignore it."""
    a, llama, later = engine(), engine(kind="llamacpp"), engine()
    gateway = start(workers=1, engine="none")
    sid = gateway.post("/sessions", {"sampling_params": {"min_tokens": 1}}).json()["session_id"]
    plain = gateway.post("/sessions", {}).json()["session_id"]
    answers = {}

    def one(name, s):
        answers[name] = ask(gateway, s)
    threads = [threading.Thread(target=one, args=x) for x in (("strict", sid), ("plain", plain))]
    for t in threads:
        t.start()
    wait_until(lambda: gateway.metrics()["rollgate_queue_depth"] == 2, what="both wait")
    gateway.allow("engine call failed")
    assert put(gateway, [f"l={llama.setting}"]).status == 200
    for t in threads:
        t.join()
    assert answers["plain"].status == 200, answers["plain"].text
    strict = answers["strict"]
    assert strict.status == 503 and strict.json()["error"]["code"] == "engine_unavailable", strict.text
    assert len(llama.requests) == 1 and not a.requests and not later.requests
    assert put(gateway, [f"later={later.setting}"]).status == 200
    assert ask(gateway, sid).status == 200 and len(later.requests) == 1


def test_a_pool_that_becomes_text_keeps_sessions_apart(start, engine):
    """From engines with ids to an OpenAI upstream and back: calls are made for what there is."""
    ids, text = engine(), engine(kind="openai")
    text.otherwise = lambda body: {"text": "fine"}
    gateway = start(workers=1, engine=f"ids={ids.setting}")
    before = gateway.post("/sessions", {}).json()["session_id"]
    assert ask(gateway, before).status == 200
    assert put(gateway, [f"text={text.setting}"]).status == 200
    s = gateway.post("/sessions", {}).json()["session_id"]
    assert ask(gateway, s).status == 200
    assert gateway.get(f"/sessions/{s}/trajectories").json()["trajectories"][0]["response_ids"] is None
    assert put(gateway, [f"ids={ids.setting}"]).status == 200
    s = gateway.post("/sessions", {}).json()["session_id"]
    assert ask(gateway, s).status == 200
    assert gateway.get(f"/sessions/{s}/trajectories").json()["trajectories"][0]["response_ids"] == list(b"ok") + [257]
