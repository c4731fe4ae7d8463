"""--compat and the settings that it sets: what a replacement of miles' session server or uni-agent's gateway needs."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import pytest

import gateway as g
from gateway import in_parallel, wait_until
from stub_engines import StubEngine
from test_commands import run
from test_streaming import new, user

PROFILE = {"miles": {"workers": "1", "session-ids": "bare", "history": "linear", "message-matcher": "strict", "idempotent-retry": "off", "linear-conflict": "answer",
                     "samples-select": "longest", "reseed": "off", "ended-status": "404", "error-body": "miles"},
           "uni-agent": {"history": "chains", "message-matcher": "canonical", "rollback-last-assistant": "on", "reseed": "off", "ended-status": "409",
                         "engine-error-texts": "on", "serial-calls": "off"}}


def dumped(*arguments, **more):
    done = run("config", "--dump", *arguments, **more)
    assert done.returncode == 0, done.stderr
    return {name: (value, why) for name, value, why in re.findall(r"^([a-z-]+): (.*?)(?: # --compat: (.*))?$", done.stdout, re.M)}


@pytest.mark.parametrize("profile", PROFILE)
def test_a_profile_sets_what_it_says_and_the_dump_says_why(profile, tmp_path):
    plain, got = dumped(), dumped("--compat", profile)
    assert {name: value for name, (value, why) in got.items() if why} == PROFILE[profile]
    changed = {name for name in got if got[name][0] != plain[name][0]} - {"workers", "routers"}
    assert changed <= {*PROFILE[profile], "compat"}, "a profile sets nothing else"
    text = run("config", "--dump", "--compat", profile).stdout
    (tmp_path / "c.yaml").write_text(text)
    assert run("config", "--dump", "--config", tmp_path / "c.yaml").stdout == text


def test_a_setting_that_is_set_wins_wherever_it_is_set(tmp_path):
    (tmp_path / "c.yaml").write_text("history: tree\ncompat: miles\n")
    got = dumped("--config", tmp_path / "c.yaml", "--ended-status=410", env={"ROLLGATE_RESEED": "minted"})
    assert [got[n] for n in ("history", "ended-status", "reseed")] == [("tree", ""), ("410", ""), ("minted", "")]
    assert got["message-matcher"] == ("strict", "miles compares role, content, reasoning and calls")


def test_an_unknown_profile_lists_those_that_there_are():
    done = run("config", "--dump", "--compat", "mile")
    assert done.returncode == 2 and '"mile" is not one of none, miles, uni-agent' in done.stderr


@pytest.mark.parametrize("more, word", [(["--workers=3"], "--workers=1"), (["--worker-base=4"], "--worker-base"),
                                        (["--peer=4-7=h:1"], "--peer")])
def test_bare_ids_need_one_worker(more, word):
    done = run("config", "--dump", "--compat=miles", *more)
    assert done.returncode == 2 and "--session-ids" in done.stderr and word in done.stderr and "--session-ids=routed" in done.stderr
    assert run("config", "--dump", "--compat=miles", "--session-ids=routed", *more).returncode == 0


def test_bare_ids_are_ids_everywhere(start, tmp_path):
    """Create, call, state, list, keys, restart, export from the journal."""
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    keys.chmod(0o600)
    admin = {"Authorization": "Bearer sesame"}
    gateway = start(workers=1, engine="builtin:echo", session_ids="bare", admin_key_file=str(keys))
    s = gateway.request("POST", "/sessions", {}, admin).json()
    name = s["session_id"]
    assert re.fullmatch("[0-9a-f]{32}", name) and s["base_url"].endswith(f"/sessions/{name}/v1")
    key = {"Authorization": f"Bearer {s['api_key']}"}
    for path in (f"/sessions/{name}/v1/chat/completions", "/v1/chat/completions"):
        answer = gateway.request("POST", path, {"messages": user("hi")}, key)
        assert answer.status == 200 and answer.headers["rollgate-session"] == name, answer.text
    gateway.stop()
    gateway.start()
    assert [r["session_id"] for r in gateway.request("GET", "/sessions", headers=admin).json()["sessions"]] == [name]
    assert gateway.request("GET", f"/sessions/{name}", headers=admin).json()["num_calls"] == 2
    wrong = gateway.request("GET", f"/sessions/{name[:-1]}", headers=admin)
    assert wrong.status == 404 and "<32 hex digits>" in wrong.text and "w<index>" not in wrong.text
    done = gateway.request("POST", f"/sessions/{name}/finalize", {}, admin)
    assert done.status == 200 and len(done.json()["trajectories"]) == 1
    gateway.stop()
    journal = f"{gateway.folder}/state/worker-0"
    env = {"ROLLGATE_SESSION_IDS": "bare", "PATH": "/usr/bin", "HOME": str(tmp_path)}
    assert run("journal", "check", journal, env=env).returncode == 0
    out = run("export", journal, "--session", name, env=env)
    assert out.returncode == 0 and name in out.stdout, out.stderr


def test_without_the_setting_a_bare_id_is_no_id(start):
    gateway = start(workers=1, engine="builtin:echo")
    answer = gateway.get("/sessions/" + 32 * "a")
    assert answer.status == 404 and "its w<index>- is missing" in answer.text


@pytest.mark.parametrize("status", [410, 400, 404, 409])
def test_the_status_of_ended_sessions(start, status):
    gateway = start(workers=1, engine="builtin:echo", ended_status=str(status))
    s = new(gateway)
    gateway.request("DELETE", f"/sessions/{s['session_id']}")
    for answer in (gateway.chat(s, user("hi")), gateway.get(f"/sessions/{s['session_id']}"),
                   gateway.request("DELETE", f"/sessions/{s['session_id']}")):
        assert answer.status == status and answer.headers["x-should-retry"] == "false"


def test_errors_as_miles_writes_them(start):
    gateway = start(engine="builtin:echo", workers=1, error_body="miles", ended_status="404", history="linear")
    s = new(gateway)
    path = f"/sessions/{s['session_id']}"
    bad = gateway.request("POST", f"{path}/v1/chat/completions", b"{not json")
    assert bad.status == 400 and list(bad.json()) == ["error"] and bad.json()["error"].startswith("invalid JSON body: ")
    assert gateway.get("/sessions/nonexistent").json() == {"error": "session not found: session_id=nonexistent"}
    messages = user("one")
    for text in ("two", "three"):
        messages = messages + [gateway.chat(s, messages).json()["choices"][0]["message"]] + user(text)
    gateway.chat(s, messages)
    deep = gateway.chat(s, user("other"))
    assert deep.status == 400 and deep.json() == {
        "error": "rollback failed: discard_count=3 exceeds max_assistant_rollback_steps=1 (stored has 6 messages, request has 1 messages)"}
    anthropic = gateway.request("POST", f"{path}/v1/messages", {"max_tokens": 1})
    assert anthropic.status == 400 and anthropic.json()["type"] == "error", "Messages keeps its form"
    assert gateway.get("/sessions/nonexistent/trajectories").json()["error"].startswith("session not found")
    gateway.request("DELETE", path)
    gone = gateway.chat(s, user("hi"))
    assert (gone.status, gone.json()) == (404, {"error": f"session not found: session_id={s['session_id']}"})


def overlapping(gateway, engine, n, history="linear", **more):
    """n calls with one body that are all at the engine at once: session, answers."""
    s = new(gateway, history=history)
    held = threading.Event()
    engine.plan += [{"ids": [65 + i, 257], "matched": 257, "wait": held} for i in range(n)]
    answers = {}

    def call(i):
        answers[i] = gateway.chat(s, user("hi"), **more)
    threads = [threading.Thread(target=call, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    wait_until(lambda: engine.running == n, what="all calls are at the engine")
    held.set()
    for t in threads:
        t.join()
    return s, list(answers.values())


@pytest.mark.parametrize("policy, lost", [("answer", 200), ("refuse", 409)])
@pytest.mark.parametrize("stream", [False, True])
def test_concurrent_calls_of_a_linear_session(start, policy, lost, stream):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, linear_conflict=policy)
        s, answers = overlapping(gateway, engine, 4, stream=stream)
        if not stream:
            assert sorted(a.status for a in answers) == sorted([200, lost, lost, lost])
        state = gateway.get(f"/sessions/{s['session_id']}").json()
        assert (state["num_records"], state["num_calls"], state["num_inflight_generations"]) == (1, 1, 0)
        metric = gateway.metrics()["rollgate_unrecorded_answers_total"]
        assert metric == (3 if policy == "answer" else 0)
        assert gateway.has_line("an answer is not recorded") == (policy == "answer")
        whole = [a for a in answers if "[DONE]" in a.text] if stream else [a for a in answers if a.status == 200]
        assert len(whole) == (4 if policy == "answer" else 1)
        # The answer that was recorded goes on, and the export has it alone.
        kept = gateway.get(f"/sessions/{s['session_id']}?records=1").json()["records"][0]["answers"][0]["message"]
        assert gateway.chat(s, user("hi") + [kept] + user("next")).status == 200
        trajectories = gateway.post(f"/sessions/{s['session_id']}/finalize", {}).json()["trajectories"]
        assert len(trajectories) == 1 and sum(trajectories[0]["response_mask"]) == 2 + 4


def test_an_unrecorded_answer_can_be_large(start):
    """What is long would be journaled in parts before the commit."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, linear_conflict="answer")
        s = new(gateway, history="linear")
        held = threading.Event()
        engine.plan += [{"ids": [65] * 300_000 + [257], "matched": 257, "wait": held} for _ in range(2)]
        text = user("x" * 300_000)
        threads = [threading.Thread(target=lambda: got.append(gateway.chat(s, text))) for _ in range(2)]
        got = []
        for t in threads:
            t.start()
        wait_until(lambda: engine.running == 2, what="both are at the engine")
        held.set()
        for t in threads:
            t.join()
        assert [a.status for a in got] == [200, 200] and all(len(a.text) > 300_000 for a in got)
        gateway.stop()
        gateway.start()
        assert gateway.get(f"/sessions/{s['session_id']}").json()["num_calls"] == 1


def test_serial_calls_run_one_after_the_other(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [65, 257], "matched": 257, "delay_s": 0.02}
        gateway = start(engine=engine.setting, workers=1, serial_calls=True)
        one, other = new(gateway), new(gateway)
        got = in_parallel(lambda i: gateway.chat(one if i % 2 else other, user(f"call {i}")), range(12))
        assert all(a.status == 200 for a in got.values())
        assert engine.most_running == 2, "two sessions overlap, the calls of one do not"
        for s in (one, other):
            assert gateway.get(f"/sessions/{s['session_id']}").json()["num_calls"] == 6


def test_a_serial_call_waits_for_no_client_that_left_and_no_ended_session(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, serial_calls=True, rejoin_window="50ms")
        s = new(gateway)
        held = threading.Event()
        engine.plan += [{"ids": [65, 257], "matched": 257, "wait": held}]
        c = gateway.connect()
        c.request("POST", f"/sessions/{s['session_id']}/v1/chat/completions", json.dumps({"messages": user("first")}),
                  {"Content-Type": "application/json"})
        wait_until(lambda: engine.running == 1, what="the first call is at the engine")
        later = {}
        t = threading.Thread(target=lambda: later.update(answer=gateway.chat(s, user("second"))))
        t.start()
        wait_until(lambda: gateway.get(f"/sessions/{s['session_id']}").json()["num_inflight_generations"] >= 1, what="it runs")
        c.close()
        t.join(60)
        assert later["answer"].status == 200
        # The end of the session ends the one that runs, and the one that waits.
        engine.plan += [{"ids": [65, 257], "matched": 257, "wait": held}]
        got = []
        threads = [threading.Thread(target=lambda i=i: got.append(gateway.chat(s, user(f"more {i}")))) for i in range(2)]
        for t in threads:
            t.start()
        wait_until(lambda: engine.running == 1, what="one is at the engine")
        wait_until(lambda: gateway.metrics()["rollgate_calls_inflight"] == 2, what="the other waits")
        gateway.post(f"/sessions/{s['session_id']}/abort", {})
        for t in threads:
            t.join(60)
        held.set()
        assert [a.status for a in got] == [410, 410]


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("status, code", [(500, 502), (503, 503)])
def test_texts_of_an_engines_failure(start, shown, status, code):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"status": status, "body": {"error": {"message": "RuntimeError: boom"}}}
        gateway = start(engine=engine.setting, workers=1, engine_error_texts=shown, engine_retries=0)
        answer = gateway.chat(new(gateway), user("hi"))
        assert answer.status == code and ("boom" in answer.text) == shown, answer.text
        assert g.wait_until(lambda: gateway.has_line("boom"), what="the log has it in any case")


def chains(gateway, s):
    return gateway.get(f"/sessions/{s['session_id']}").json()["active_chains"]


def test_active_chains_have_tip_hashes_and_calls_in_flight(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [65, 257], "matched": 257}
        gateway = start(engine=engine.setting, workers=1, compat="uni-agent")
        s = new(gateway)
        assert chains(gateway, s) == []
        first = gateway.chat(s, user("one")).json()
        gateway.chat(s, user("one"))
        gateway.chat(s, user("two"))
        before = chains(gateway, s)
        assert [c["id"] for c in before] == [1, 2, 3] and {c["in_flight"] for c in before} == {None}
        assert before[0]["response_id"] == first["id"]
        hashes = [c["tip_hash"] for c in before]
        assert all(re.fullmatch("[0-9a-f]{64}", h) for h in hashes)
        assert hashes[0] == hashes[1] != hashes[2], "equal messages have equal hashes"
        held = threading.Event()
        engine.plan.append({"ids": [66, 257], "matched": 257, "wait": held})
        more = user("two") + [{"role": "assistant", "content": "A"}] + user("more")
        t = threading.Thread(target=gateway.chat, args=(s, more))
        t.start()
        wait_until(lambda: engine.running == 1, what="the call runs")
        during = chains(gateway, s)
        assert [c["in_flight"] for c in during] == [None, None, 3] and [c["tip_hash"] for c in during] == hashes
        held.set()
        t.join()
        after = chains(gateway, s)
        assert [c["in_flight"] for c in after] == 3 * [None]
        assert [c["tip_hash"] for c in after[:2]] == hashes[:2] and after[2]["tip_hash"] != hashes[2]
        gateway.stop()
        gateway.start()
        assert chains(gateway, s) == after
        gateway.post(f"/sessions/{s['session_id']}/finalize", {})
        assert chains(gateway, s) == [], "a finalized session has no active chain"


def test_a_closed_chain_is_not_active(start):
    gateway = start(engine="builtin:echo", workers=1, compat="uni-agent")
    s = new(gateway, prompt_length=30, response_length=1)
    messages = user("hello")
    a = gateway.chat(s, messages).json()["choices"][0]["message"]
    assert len(chains(gateway, s)) == 1
    assert gateway.chat(s, messages + [a] + user("more")).json()["choices"][0]["finish_reason"] == "length"
    assert chains(gateway, s) == []
    assert chains(gateway, new(gateway, history="tree")) == []


def test_an_engines_refusal_in_miles_form_is_its_text(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"status": 400, "body": {"error": "context too long"}}
        for style, error in (("miles", "context too long"), ("dialect", None)):
            gateway = start(engine=engine.setting, workers=1, error_body=style)
            answer = gateway.chat(new(gateway), user("hi"))
            assert answer.status == 400
            assert answer.json()["error"] == error if error else answer.json()["error"]["message"] == "engine: context too long"


def samples_of(gateway, s):
    raw = gateway.post(f"/sessions/{s['session_id']}/samples", {"metadata": {"lifecycle": "mine", "task": 7}}).body
    size = int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8:8 + size])["_samples_meta"]["data_offsets"]
    return json.loads(raw[8 + size + begin:8 + size + end])


def test_samples_have_lifecycle_and_mismatch(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    first = gateway.chat(s, user("one")).json()["choices"][0]["message"]
    (one,) = samples_of(gateway, s)["samples"]
    assert set(one["metadata"]["lifecycle"]) == {"t0", "t1", "turn", "req_ts"} and one["metadata"]["task"] == 7
    gateway.chat(s, user("one") + [first] + user("two"))
    meta = samples_of(gateway, s)
    (both,) = meta["samples"]
    a, b = both["metadata"]["lifecycle"]
    assert a == one["metadata"]["lifecycle"] and b["turn"] == 2 and b["prev_t1"] == a["t1"]
    assert a["req_ts"] <= a["t0"] <= a["t1"] <= b["req_ts"] <= b["t0"] <= b["t1"]
    assert both["metadata"]["tito_session_mismatch"] == meta["session_metadata"]["tito_session_mismatch"] == []


def test_a_mismatch_of_samples_says_where(start):
    """The model sampled two tokens for what a new encoding has as one."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, model=str(g.MODELS / "chatml-drift"))
        engine.otherwise = lambda body: {"ids": [*b"li", 257], "matched": 257}
        s = new(gateway)
        gateway.chat(s, user("hi"))
        drift = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"][0]["extra_fields"]["drift"]
        assert drift["count"] > 0
        (mismatch,) = samples_of(gateway, s)["samples"][0]["metadata"]["tito_session_mismatch"]
        assert mismatch == {"type": drift["first"]["kind"], "segment_index": -1, "expected_text": "", "actual_text": "",
                            "detail": f"{drift['count']} differences, the first at token {drift['first']['position']}"}


# --- the peers' own suites (scripts/test peers), whose sources a machine may lack ---

PEERS = g.ROOT / "tests/peers"


def runner():
    spec = importlib.util.spec_from_file_location("peers_run", PEERS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("peer, page", [("uni-agent", "uni-agent"), ("miles", "miles")])
def test_each_failure_of_a_peers_suite_is_by_design_and_counted_on_its_page(peer, page):
    run_peers = runner()
    expected = run_peers.expected_of(peer)
    assert expected and all(why.startswith("by design: ") for why in expected.values())
    text = (g.ROOT / f"docs/trainers/{page}.md").read_text()
    assert run_peers.sources.TRAINERS[peer][1][:7] in text
    passed, all_of, left = map(int, re.search(r"(\d+) of (\d+) tests (?:[a-z ]*)pass\. (\d+) fail by design", text).groups())
    assert left == len(expected) and passed + left == all_of, "no failure is left that is not by design"


def test_a_peers_suite_is_compared_with_its_list(monkeypatch):
    run_peers = runner()
    monkeypatch.setattr(run_peers, "expected_of", lambda name: {"a": "by design: x", "b": "by design: x", "c": "by design: x"})
    assert run_peers.compare("miles", {"a": "failed", "b": "failed", "c": "skipped", "d": "passed"}) == []
    assert run_peers.compare("miles", {"a": "passed", "b": "failed", "d": "failed"}) == [
        "d: fails, and is not named", "a: passes now: take it out of miles.expected", "c: is not there any more"]


def test_sources_that_cannot_be_had_are_named(tmp_path):
    done = subprocess.run([sys.executable, PEERS / "run.py"], env={**os.environ, "RG_PEER_SOURCES": str(tmp_path)}, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("CANNOT REACH") == 2 and done.stdout.endswith("0 passed, 0 failed\n")


def test_a_peers_failure_that_is_not_named_fails_the_run(tmp_path):
    """A suite of one file stands for a peer's."""
    files = runner().PEERS["miles"][1]
    for name in files:
        file = tmp_path / "miles" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test_new():\n    assert False\n" if name == files[0] else "")
    package = tmp_path / "miles/miles/utils/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    (tmp_path / "miles/miles/__init__.py").write_text("")
    done = subprocess.run([sys.executable, PEERS / "run.py", "miles"], env={**os.environ, "RG_PEER_SOURCES": str(tmp_path)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "test_sessions::test_new: fails, and is not named" in done.stdout, done.stdout
