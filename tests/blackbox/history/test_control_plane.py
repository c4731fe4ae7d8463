"""The control plane: spec http.md section 2, errors of section 4."""
import concurrent.futures
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from gateway import BINARY, pause, stays, wait_until
from stub_engines import StubEngine
from test_streaming import new


@pytest.fixture
def gateway(start):
    return start(engine="builtin:echo", workers=2)


def path(session, rest=""):
    return f"/sessions/{session['session_id']}{rest}"


def test_create_gives_all_that_an_agent_needs(gateway):
    s = new(gateway, metadata={"task": 7}, labels={"run": "a"})
    assert s["base_url"] == f"{gateway.url}/sessions/{s['session_id']}/v1"
    assert s["anthropic_base_url"] == f"{gateway.url}/sessions/{s['session_id']}"
    assert s["session_id"].startswith(f"w{s['worker_index']}-")
    assert s["api_key"].startswith(f"rga-{s['session_id']}-")
    assert s["runner_key"].startswith(f"rgr-{s['session_id']}-")
    assert s["reward_info_url"].endswith("/reward_info") and s["complete_url"].endswith("/complete")
    state = gateway.get(path(s)).json()
    assert state["labels"] == {"run": "a"} and state["metadata"] == {"task": 7}


def test_a_group_sits_on_one_worker(gateway):
    a = gateway.post("/sessions", {"count": 5})
    sessions = a.json()["sessions"]
    assert len({s["session_id"] for s in sessions}) == 5
    assert len({s["worker_index"] for s in sessions}) == 1
    for s in sessions:
        assert gateway.chat(s, "hi").status == 200


@pytest.mark.parametrize("body, field", [
    ({"count": 0}, "count"), ({"count": 1025}, "count"), ({"count": "2"}, "count"),
    ({"history": "forest"}, "history"), ({"metadata": []}, "metadata"),
    ({"sampling_params": {"temperature": "x"}}, "temperature"), ({"sampling_params": {"max_tokens": 0}}, "max_tokens"),
])
def test_bad_options_are_named(gateway, body, field):
    a = gateway.post("/sessions", body)
    assert a.status == 400 and a.headers["x-should-retry"] == "false"
    assert a.json()["error"]["param"] == field
    assert gateway.get("/sessions").json()["sessions"] == []


def test_bad_json_is_refused(gateway):
    a = gateway.request("POST", "/sessions", body=b"{")
    assert a.status == 400 and a.json()["error"]["code"] == "invalid_request"


def test_the_list_covers_all_workers_page_by_page(gateway):
    ids = {new(gateway, labels={"n": str(i % 2)})["session_id"] for i in range(11)}
    assert {i.split("-")[0] for i in ids} == {"w0", "w1"}
    seen, cursor, pages = [], None, 0
    while True:
        page = gateway.get(f"/sessions?limit=3{f'&cursor={cursor}' if cursor else ''}").json()
        seen += [row["session_id"] for row in page["sessions"]]
        pages += 1
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert sorted(seen) == sorted(ids) and pages >= 4
    odd = gateway.get("/sessions?label=n=1").json()["sessions"]
    assert len(odd) == 5 and all(row["labels"]["n"] == "1" for row in odd)
    assert page["unreachable"] == []
    assert gateway.get("/sessions?limit=0").status == 400
    assert gateway.get("/sessions?cursor=zz").status == 400


def test_a_list_names_the_workers_that_it_lacks(start):
    """A worker that dies while another one asks it for its part of the page."""
    gateway = start(workers=2).allow("process died", "did not list")
    assert new(gateway) and new(gateway)

    def missed():
        pid = gateway.child("worker-1")
        os.kill(pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lists = [pool.submit(gateway.get, "/sessions") for _ in range(2)]
            pause(0.2, "nothing tells that the other worker has asked; if it had not, this is tried again")
            os.kill(pid, signal.SIGKILL)
            answers = [a.result() for a in lists]
        wait_until(lambda: gateway.child("worker-1") not in (None, pid), 20, "the worker is replaced")
        return [1] in [a.json().get("unreachable") for a in answers]
    wait_until(missed, 30, "a list says so")
    page = gateway.get("/sessions").json()
    assert page["unreachable"] == [] and len(page["sessions"]) == 2


def test_a_list_whose_client_left_as_it_asked_keeps_no_worker_from_its_end(start):
    """The worker sees the request and its client's end at once, and the other worker never tells its part."""
    gateway = start(workers=2, grace="60s").allow("process died process=worker-1")
    asked, other = gateway.child("worker-0"), gateway.child("worker-1")
    os.kill(other, signal.SIGSTOP)
    os.kill(asked, signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX) as k:
        k.connect(f"{gateway.folder}/state/run/worker-0.sock")
        k.sendall(b"GET /sessions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    os.kill(asked, signal.SIGCONT)
    gateway.signal(signal.SIGTERM)
    os.kill(other, signal.SIGKILL)
    assert gateway.wait() == 0 and not gateway.has_line("killed what did not end")


def test_rows_tell_the_drift_that_audits_found(gateway):
    s = new(gateway)
    assert gateway.chat(s, "hello").status == 200
    assert gateway.get("/sessions").json()["sessions"][0]["drift"] is None
    told = gateway.get(path(s, "/trajectories")).json()["summary"]["drift_count"]
    assert told == gateway.get("/sessions").json()["sessions"][0]["drift"] == 0


def test_rewards_reach_the_state_and_newest_wins(gateway):
    s = new(gateway)
    assert gateway.post(path(s, "/reward_info"), {"reward_info": {"a": 1, "b": 2}}).json() == {"status": "ok"}
    assert gateway.post(path(s, "/reward_info"), {"reward_info": {"a": 3}}).status == 200
    assert gateway.get(path(s)).json()["reward_info"] == {"a": 3, "b": 2}
    bad = gateway.post(path(s, "/reward_info"), {"reward_info": 4})
    assert bad.status == 400 and bad.json()["error"]["param"] == "reward_info"


def test_wait_wakes_when_the_session_completes(gateway):
    s = new(gateway)
    got = []
    waiter = threading.Thread(target=lambda: got.append(gateway.get(path(s, "/wait?timeout_s=20"))))
    waiter.start()
    stays(lambda: not got, 0.2, "an answer that did not wait would come within milliseconds")
    assert not got
    assert gateway.post(path(s, "/complete"), {"reward_info": {"r": 1}, "finished": True}).status == 200
    waiter.join(10)
    assert got[0].status == 200 and got[0].json()["phase"] == "completed"
    assert got[0].json()["reward_info"] == {"r": 1}
    assert gateway.get(path(s, "/wait?timeout_s=20")).status == 200


def test_wait_times_out_with_204(gateway):
    s = new(gateway)
    assert gateway.get(path(s, "/wait?timeout_s=0")).status == 204
    assert gateway.get(path(s, "/wait?timeout_s=0.05")).status == 204
    assert gateway.get(path(s, "/wait?timeout_s=1.0")).status == 204
    for bad in ("-1", "x", "", "1s", "[]"):
        a = gateway.get(path(s, f"/wait?timeout_s={bad}"))
        assert a.status == 400 and a.json()["error"]["param"] == "timeout_s", bad


def test_every_answer_below_a_session_names_it(gateway):
    s = new(gateway)
    for method, rest in [("GET", ""), ("PUT", ""), ("GET", "/finalize"), ("GET", "/v1/models"),
                         ("GET", "/v1/models/none"), ("GET", "/v1/responses/none"), ("GET", "/v1/responses"),
                         ("PUT", "/v1/messages"), ("GET", "/v1/nothing"), ("POST", "/v1/chat/completions"),
                         ("POST", "/v1/messages/count_tokens"), ("POST", "/reward_info")]:
        a = gateway.request(method, path(s, rest))
        assert a.headers.get_all("Rollgate-Session") == [s["session_id"]], (method, rest)


def test_finalize_is_idempotent_and_ends_the_session(gateway):
    s = new(gateway)
    gateway.chat(s, "hello")
    first = gateway.post(path(s, "/finalize"))
    assert first.status == 200 and len(first.json()["trajectories"]) == 1
    again = gateway.post(path(s, "/finalize"))
    assert again.status == 200
    assert again.json()["trajectories"] == first.json()["trajectories"]
    late = gateway.chat(s, "more")
    assert late.status == 410 and late.headers["x-should-retry"] == "false"
    assert late.json()["error"]["code"] == "session_ended"
    assert gateway.post(path(s, "/reward_info"), {"reward_info": {}}).status == 410


def test_trajectories_look_without_closing(gateway):
    s = new(gateway)
    gateway.chat(s, "hello")
    assert len(gateway.get(path(s, "/trajectories")).json()["trajectories"]) == 1
    assert gateway.chat(s, "again").status == 200


def test_delete_and_abort(gateway):
    s, t = new(gateway), new(gateway)
    assert gateway.request("DELETE", path(s)).status == 204
    assert gateway.request("DELETE", path(s)).status == 410
    assert gateway.chat(s, "x").status == 410
    assert gateway.get(path(s)).status == 410
    assert gateway.post(path(t, "/abort")).status == 204
    assert gateway.post(path(t, "/abort")).status == 204
    assert gateway.chat(t, "x").status == 410


def test_unknown_ids_are_404_on_the_control_plane(gateway):
    unknown = "w0-" + "0" * 32
    for method, rest in [("GET", ""), ("DELETE", ""), ("POST", "/finalize"), ("POST", "/reward_info"),
                         ("POST", "/complete"), ("GET", "/wait"), ("GET", "/trajectories"),
                         ("POST", "/abort")]:
        a = gateway.request(method, f"/sessions/{unknown}{rest}", body=b"{}" if method == "POST" else None)
        assert a.status == 404, (method, rest)
        assert a.json()["error"]["code"] == "unknown_session"
        assert a.headers["Rollgate-Request-Id"]


def test_a_mistyped_id_is_no_session(gateway):
    """What this gateway may have minted itself: a digit off, or forgotten after the tombstone."""
    s = new(gateway)["session_id"]
    for wrong in ("w0-" + "0" * 32, "w1-" + "0" * 32, s[:-1] + ("0" if s[-1] != "0" else "1")):
        for call in ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"):
            a = gateway.post(f"/sessions/{wrong}{call}", {"model": "m", "max_tokens": 9,
                                                           "messages": [{"role": "user", "content": "hi"}]})
            assert a.status == 404 and "Rollgate-Reseeded" not in a.headers, a.text
    assert len(gateway.get("/sessions").json()["sessions"]) == 1


def test_a_gateway_that_keeps_nothing_reseeds_its_own_ids(start):
    gateway = start(engine="builtin:echo", durability="none")
    a = gateway.post(f"/sessions/w0-{'0' * 32}/v1/chat/completions",
                     {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert a.status == 200 and a.headers["Rollgate-Reseeded"] == "1"


def test_what_was_reseeded_is_told(gateway):
    new(gateway)
    asked = "w77-" + "1" * 32
    a = gateway.post(f"/sessions/{asked}/v1/chat/completions",
                     {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    fresh = a.headers["Rollgate-Session"]
    gateway.wait_line(rf"warn .*session reseeded.*{fresh}.*asked={asked}")
    [row] = gateway.get("/sessions?reseeded=true").json()["sessions"]
    assert row["session_id"] == fresh and row["reseeded_from"] == asked
    [row] = gateway.get("/sessions?reseeded=false").json()["sessions"]
    assert "reseeded_from" not in row
    assert gateway.get(f"/sessions/{fresh}").json()["reseeded_from"] == asked
    assert gateway.get("/sessions?reseeded=perhaps").status == 400
    assert gateway.metrics()["rollgate_sessions_reseeded_total"] == 1
    assert gateway.post("/sessions", {"reseeded_from": "x"}).status == 400
    call_unknown(gateway, f"/sessions/w78-{HEX}")
    assert len(gateway.get("/sessions?reseeded=true").json()["sessions"]) == 2


HEX = "0123456789abcdef" * 2
CALLS = ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/completions", "/chat/completions")
FORM = "w<index>-<32 hex digits>"


def call_unknown(gateway, where, call="/v1/chat/completions"):
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi"}
    body = {k: v for k, v in body.items() if k not in {"/v1/responses": ("messages", "prompt", "max_tokens"),
                                                        "/v1/completions": ("messages", "input")}.get(call, ("input", "prompt"))}
    return gateway.post(where + call, body)


MALFORMED = ["nonsense", "w0-xyz", "%00%0a", "x" * 5000, HEX, f"W0-{HEX}", f"w0-{HEX.upper()}", f"w0-{HEX[:-1]}", f"w0-{HEX}0", f"w0-{HEX}.",
             f"w0%2D{HEX}", f"w00-{HEX}", f"w1000000-{HEX}", f"w0_{HEX}", f"w0-{HEX}%20", "w0-", "w77", f"session-{HEX}",
             f"{HEX[:8]}-{HEX[:4]}-{HEX[:4]}-{HEX[:4]}-{HEX[:12]}"]


@pytest.mark.parametrize("unknown", MALFORMED)
def test_malformed_ids_are_404_and_the_text_shows_the_form(gateway, unknown):
    s = new(gateway)["session_id"]
    for call in CALLS:
        a = call_unknown(gateway, f"/sessions/{unknown}", call)
        assert a.status == 404 and "Rollgate-Reseeded" not in a.headers, (call, a.text)
        assert FORM in a.json()["error"]["message"] and s not in a.text and HEX not in a.text
    assert [r["session_id"] for r in gateway.get("/sessions").json()["sessions"]] == [s]
    a = gateway.get(f"/sessions/{unknown}")
    assert a.status == 404 and FORM in a.json()["error"]["message"]


def test_mistyped_ids_of_a_session_that_is_there(gateway):
    """Cut, longer, in capitals, encoded: never its text, nor another's, in the answer, and nothing in the session."""
    s = new(gateway)["session_id"]
    for wrong in (s[:-1], s[:-8], s + "0", s + "x", s.upper(), s[:3] + s[3:].upper().replace("0", "F"), s.replace("-", "%2D"), s[3:],
                  s[:-1] + ("0" if s[-1] != "0" else "1"), s[0] + "00" + s[2:], f"x{s}", f"{s}%20"):
        if wrong == s:
            continue
        a = call_unknown(gateway, f"/sessions/{wrong}")
        assert a.status == 404 and s not in a.text and s[3:] not in a.text, (wrong, a.text)
        assert FORM in a.json()["error"]["message"]
    assert gateway.get(path({"session_id": s})).json()["num_calls"] == 0


def test_a_call_that_names_no_session_is_404(gateway):
    a = call_unknown(gateway, "")
    assert a.status == 404 and "names no session" in a.json()["error"]["message"] and FORM in a.text
    assert gateway.get("/sessions").json()["sessions"] == []


@pytest.mark.parametrize("unknown", ["w77-" + "1" * 32, *MALFORMED, ""])
def test_any_unknown_id_may_be_reseeded(kept, unknown):
    gateway = kept.gateway(engine="builtin:echo", reseed="any", workers=1)
    a = call_unknown(gateway, f"/sessions/{unknown}" if unknown else "")
    assert a.status == 200 and a.headers["Rollgate-Reseeded"] == "1"
    [fresh] = a.headers.get_all("Rollgate-Session")
    assert fresh != unknown
    assert gateway.get(f"/sessions/{fresh}").json()["num_branches"] == 1
    assert call_unknown(gateway, f"/sessions/w0-{'0' * 32}").status == 404, "what was made here, if it was, is gone"


@pytest.mark.parametrize("settings, served, foreign, malformed", [
    ({}, 404, 200, 404),
    ({"reseed": "minted"}, 404, 200, 404),
    ({"reseed": "minted", "durability": "none"}, 200, 200, 404),
    ({"reseed": "any"}, 404, 200, 200),
    ({"reseed": "any", "durability": "none"}, 200, 200, 200),
    ({"reseed": "off"}, 404, 404, 404),
    ({"reseed": "off", "durability": "none"}, 404, 404, 404),
    ({"worker-base": 10}, 404, None, 404),
    ({"worker-base": 10, "reseed": "any"}, 404, None, 200),
    ({"worker-base": 10, "durability": "none"}, 200, None, 404),
    ({"peer": ["500-509=127.0.0.1:1"]}, 404, None, 404),
])
def test_who_gets_a_fresh_session(start, settings, served, foreign, malformed):
    """With other nodes (None) a foreign index is another node's: never a session of this one."""
    gateway = start(engine="builtin:echo", workers=2, **settings)
    base = settings.get("worker-base", 0)
    for unknown, status in ((f"w{base + 1}-{'0' * 32}", served), (f"w77-{'0' * 32}", foreign), ("nonsense", malformed)):
        a = call_unknown(gateway, f"/sessions/{unknown}")
        assert a.status == status or (status is None and a.status >= 400), (unknown, a.status, a.text)
        assert ("Rollgate-Reseeded" in a.headers) == (a.status == 200)


def test_reseed_is_read_anew(start, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("reseed: any\n")
    gateway = start(engine="builtin:echo", workers=1, config=str(config))
    assert call_unknown(gateway, "/sessions/nonsense").status == 200
    config.write_text("reseed: minted\n")
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: call_unknown(gateway, "/sessions/nonsense").status == 404, 20, "it is 404")
    config.write_text("reseed: true\n")
    done = subprocess.run([str(BINARY), "config", "--check", f"--config={config}"], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 2 and "minted, any, off" in done.stderr, done.stderr


@pytest.mark.parametrize("form", ["json", "none"])
def test_an_export_of_a_session_without_a_call_says_so(gateway, form):
    s = new(gateway)
    gateway.post(path(s, "/reward_info"), {"reward_info": {"reward": 1}})
    summary = gateway.post(path(s, "/finalize"), {"format": form}).json()["summary"]
    assert summary["calls"] == 0 and any("no call of this session was answered" in w for w in summary["warnings"]), summary
    gateway.wait_line("warn .*a session without any call was exported")
    t = new(gateway)
    gateway.chat(t, "x")
    summary = gateway.post(path(t, "/finalize"), {"format": form}).json()["summary"]
    assert not any("no call" in w for w in summary["warnings"]), summary


def test_reseeding_can_be_switched_off(start):
    gateway = start(engine="builtin:echo", reseed=False)
    a = gateway.post(f"/sessions/w0-{'0' * 32}/v1/chat/completions",
                     {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert a.status == 404 and a.json()["error"]["code"] == "unknown_session"


def test_ended_status_can_be_400(start):
    gateway = start(engine="builtin:echo", ended_status="400")
    s = new(gateway)
    gateway.request("DELETE", path(s))
    a = gateway.chat(s, "x")
    assert a.status == 400 and a.json()["error"]["code"] == "session_ended"


def test_methods_and_paths_that_do_not_exist(gateway):
    s = new(gateway)
    for method, where, allowed in (("PUT", path(s, "/finalize"), "POST"), ("POST", path(s), "GET, DELETE"),
                                   ("GET", "/admin/pause", "POST"), ("DELETE", "/sessions", "POST, GET"),
                                   ("GET", path(s, "/v1/chat/completions"), "POST"),
                                   ("PUT", path(s, "/messages"), "POST"), ("POST", "/health", "GET, HEAD")):
        a = gateway.request(method, where)
        assert (a.status, a.headers["Allow"]) == (405, allowed), (method, where)
    assert gateway.request("GET", "/admin/nothing").status == 404


def test_models(gateway):
    s = new(gateway)
    for p in ("/v1/models", path(s, "/v1/models"), path(s, "/models")):
        data = gateway.get(p).json()["data"]
        assert [m["id"] for m in data] == ["rollgate-builtin"]
    assert gateway.get(path(s, "/v1/models/rollgate-builtin")).json()["id"] == "rollgate-builtin"
    assert gateway.get(path(s, "/v1/models/other")).status == 404


def test_pause_holds_calls_of_all_workers_until_resume(gateway):
    sessions = [new(gateway) for _ in range(4)]
    assert {s["worker_index"] for s in sessions} == {0, 1}
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    answers = []
    threads = [threading.Thread(target=lambda s=s: answers.append(gateway.chat(s, "hi"))) for s in sessions]
    for t in threads:
        t.start()
    stays(lambda: answers == [], 0.5, "calls that were not held would be answered within milliseconds")
    assert answers == []
    assert gateway.post("/admin/resume").status == 200
    for t in threads:
        t.join(10)
    assert [a.status for a in answers] == [200] * 4


def test_pause_drain_waits_for_running_calls(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway)
        go = threading.Event()
        engine.plan.append({"ids": [65, 257], "wait": go})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            call = pool.submit(gateway.chat, s, "hi")
            wait_until(lambda: engine.running == 1, 5, "the call runs")
            pausing = pool.submit(gateway.post, "/admin/pause", {"mode": "drain", "timeout_s": 60})
            wait_until(lambda: gateway.get("/health").json()["paused"] == 1, 5, "the pause waits")
            stays(lambda: not pausing.done(), 0.3, "a pause that did not wait would be answered within milliseconds")
            go.set()
            assert pausing.result(20).json()["drained"] is True
            assert call.result(20).status == 200
        gateway.post("/admin/resume")
        assert gateway.post("/admin/pause", {"mode": "sometimes"}).json()["error"]["param"] == "mode"


def test_a_resume_ends_a_pause_that_still_waits(start):
    """Its time does not run out later, when nobody wants a pause any more."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=2)
        s = new(gateway)
        go = threading.Event()
        engine.plan.append({"ids": [65, 257], "wait": go})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            call = pool.submit(gateway.chat, s, "hi")
            wait_until(lambda: engine.running == 1, 5, "the call runs")
            pause = pool.submit(gateway.post, "/admin/pause", {"timeout_s": 2})
            second = new(gateway)
            while second["worker_index"] != s["worker_index"]:
                second = new(gateway)
            wait_until(lambda: gateway.get("/health").json()["paused"] == 2, 5, "the pause waits")
            assert gateway.post("/admin/resume").status == 200
            assert pause.result(20).json()["drained"] is False
            assert gateway.chat(second, "again").status == 200
            go.set()
            assert call.result(20).status == 200


def test_a_worker_ends_while_a_pause_waits_for_another(start):
    """The order is still out when the worker has no more time: it ends cleanly all the same."""
    gateway = start(engine="builtin:echo,delay_ms=6000", workers=2, grace="200ms")
    s = new(gateway)
    t = threading.Thread(target=gateway.chat, args=(s, "hi"))
    t.start()
    wait_until(lambda: gateway.get(path(s)).json()["num_inflight_generations"] == 1, what="the call runs")
    index = 1 - s["worker_index"]
    ending = gateway.child(f"worker-{index}")
    with socket.socket(socket.AF_UNIX) as k:
        k.connect(f"{gateway.folder}/state/run/worker-{index}.sock")
        k.sendall(b"POST /admin/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        wait_until(lambda: gateway.get("/health").json()["paused"] == 2, 5, "the other worker has it")
        os.kill(ending, signal.SIGTERM)
        wait_until(lambda: gateway.child(f"worker-{index}") not in (None, ending), 20, "the successor")
    t.join(20)
    assert gateway.post("/admin/resume").status == 200
    assert not gateway.has_line("signal=")


def test_pause_drain_gives_up_after_a_fraction_of_a_second(start):
    gateway = start(engine="builtin:echo,delay_ms=3000", workers=2)
    s = new(gateway)
    t = threading.Thread(target=gateway.chat, args=(s, "hi"))
    t.start()
    wait_until(lambda: gateway.get(path(s)).json()["num_inflight_generations"] == 1, what="the call runs")
    began = time.monotonic()
    a = gateway.post("/admin/pause", {"timeout_s": 0.25})
    assert a.json()["drained"] is False and time.monotonic() - began >= 0.2  # the loop counts in whole milliseconds
    gateway.post("/admin/resume")
    t.join(20)
    for bad in (-0.5, "1", 86401, True):
        a = gateway.post("/admin/pause", {"timeout_s": bad})
        assert a.status == 400 and a.json()["error"]["param"] == "timeout_s"


def test_weight_version_stamps_later_tokens(gateway):
    s = new(gateway)
    assert gateway.post("/admin/weight_version", {"version": 41}).status == 200
    gateway.chat(s, "hi")
    t = gateway.post(path(s, "/finalize")).json()["trajectories"][0]
    assert [v for v, m in zip(t["response_versions"], t["response_mask"]) if m] == [41] * 3
    assert gateway.post("/admin/weight_version", {}).status == 400


def test_engines_tell_the_latency_and_weights_of_their_last_answers(start):
    gateway = start(engine="builtin:echo", workers=1)
    told = gateway.get("/admin/engines").json()["engines"][0]
    assert told["latency_ms"] is None and told["weight_version"] is None
    s = new(gateway)
    assert gateway.post("/admin/weight_version", {"version": 41}).status == 200
    gateway.chat(s, "hi")
    told = gateway.get("/admin/engines").json()["engines"][0]
    assert told["latency_ms"] > 0 and told["weight_version"] == "41"
    assert gateway.post("/admin/weight_version", {"version": "step-42"}).status == 200
    gateway.chat(s, "hi again")
    assert gateway.get("/admin/engines").json()["engines"][0]["weight_version"] == "step-42"


@pytest.mark.parametrize("method, rest, body, field, hint", [
    ("POST", "/complete", {"reward": 1.0}, "reward", "reward_info"), ("POST", "/finalize", {"formt": "xml"}, "formt", "format"),
    ("POST", "/finalize?slect=last", None, "slect", "select"), ("GET", "/wait?timeout=1", None, "timeout", "timeout_s"),
    ("GET", "/trajectories?maxtokens=5", None, "maxtokens", "max_tokens"),
    ("POST", "/samples", {"max_seqlen": 5}, "max_seqlen", "max_seq_len"),
    ("POST", "/reward_info", {"reward_info": {}, "responseid": "x"}, "responseid", "response_id"),
    ("GET", "?record=1", None, "record", "records"),
    ("POST", "/abort", {"reasn": "x"}, "reasn", "reason"), ("DELETE", "?force=1", None, "force", "takes no"),
])
def test_what_a_session_does_not_know_is_refused(gateway, method, rest, body, field, hint):
    s = new(gateway)
    gateway.chat(s, "hi")
    a = gateway.request(method, path(s, rest), body=body)
    error = a.json()["error"]
    assert (a.status, error["code"], error["param"]) == (400, "invalid_request", field)
    assert f'"{field}"' in error["message"] and hint in error["message"], error
    state = gateway.get(path(s)).json()
    assert state["phase"] == "open" and state["reward_info"] == {}  # nothing of it was done


@pytest.mark.parametrize("method, where, body, field, hint", [
    ("POST", "/sessions", {"session_id": "mine"}, "session_id", "Known: count"),
    ("POST", "/sessions", {"label": {"a": "b"}}, "label", '"labels"'),
    ("POST", "/sessions", {"sampling_params": {"temprature": 0.1}}, "temprature", '"temperature"'),
    ("POST", "/sessions", {"labels": {"a": {"b": 1}}}, "labels.a", "an object"),
    ("POST", "/sessions", {"prompt_length": 0}, "prompt_length", "1"), ("POST", "/sessions", {"response_length": 0}, "response_length", "1"),
    ("POST", "/sessions", {"max_nodes": 4000000000}, "max_nodes", "--max-nodes"),
    ("POST", "/sessions?count=2", None, "count", "takes no query"), ("GET", "/sessions?phase=foo", None, "phase", "finalized"),
    ("GET", "/sessions?label=group:1", None, "label", "NAME=VALUE"), ("GET", "/sessions?limits=5", None, "limits", '"limit"'),
    ("GET", "/sessions?limit=1001", None, "limit", "1 to 1000"),
    ("POST", "/admin/pause", {"timeout": 3}, "timeout", '"timeout_s"'),
    ("POST", "/admin/resume", {"mode": "hold"}, "mode", "takes no"),
    ("POST", "/admin/weight_version", {"version": -1}, "version", "not -1"),
    ("POST", "/admin/weight_version", {"version": 1, "stamp": 2}, "stamp", "Known: version"),
    ("POST", "/admin/weight_version", {}, "version", "missing"),
])
def test_what_the_gateway_does_not_know_is_refused(kept, method, where, body, field, hint):
    gateway = kept.gateway(engine="builtin:echo", workers=2)
    a = gateway.request(method, where, body=body)
    error = a.json()["error"]
    assert (a.status, error["param"]) == (400, field) and hint in error["message"], error
    assert gateway.get("/sessions").json()["sessions"] == []


def test_a_key_that_stands_twice_is_refused(gateway):
    s = new(gateway)
    a = gateway.request("POST", path(s, "/complete"), body=b'{"reward_info": {"reward": 0, "reward": 1}}')
    assert a.status == 400 and '"reward" stands twice' in a.json()["error"]["message"]
    assert gateway.get(path(s)).json()["phase"] == "open"


def test_a_pause_is_seen_from_outside(gateway):
    def seen():
        metric, = (line for line in gateway.get("/metrics").text.split("\n") if line.startswith("rollgate_workers_paused "))
        return gateway.get("/ready").json()["paused"], gateway.get("/health").json()["paused"], float(metric.split()[1])
    assert seen() == (0, 0, 0)
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    assert seen() == (2, 2, 2) and gateway.get("/ready").status == 200
    page = subprocess.run([BINARY, "top", "--once", "--listen", f"127.0.0.1:{gateway.port}"],
                          capture_output=True, text=True).stdout
    assert "PAUSED" in page and re.search(r"^engines  .*: 2$", page, re.M) and re.search(r"^sinks ", page, re.M), page
    assert gateway.post("/admin/resume").status == 200
    assert seen() == (0, 0, 0)


def test_records_of_a_long_session_come_in_pieces(start):
    """Each call's prompt is told anew. A reader that takes its time holds nobody up, and is told of no
    call that came after it had asked."""
    gateway = start(workers=1)
    session = gateway.post("/sessions", {}).json()["session_id"]
    messages, calls = [], 50

    def turn(text):
        messages.append({"role": "user", "content": text})
        a = gateway.post(f"/sessions/{session}/v1/chat/completions", {"model": "m", "messages": messages})
        assert a.status == 200, a.text
        messages.append({"role": "assistant", "content": a.json()["choices"][0]["message"]["content"]})

    turn("first")
    where = f"/sessions/{session}?records=1"
    for i in range(1, calls):
        turn(f"{i}: " + "as long as it takes, " * 24)
    c = gateway.connect()
    c.request("GET", where)
    answer = c.getresponse()
    begun = answer.read(1)
    turn("meanwhile")
    told = json.loads(begun + answer.read())
    assert answer.getheader("Transfer-Encoding") == "chunked"
    records = told["records"]
    assert [r["call"] for r in records] == list(range(calls))
    for r, after in zip(records, records[1:]):
        had = r["prompt_ids"] + r["answers"][0]["output_ids"]
        assert after["prompt_ids"][:len(had)] == had
        assert len(r["prompt_ids"]) == r["prompt_tokens"]
    last = records[-1]
    assert last["prompt_ids"] + last["answers"][0]["output_ids"] == told["accumulated_token_ids"]
    assert len(gateway.get(where).json()["records"]) == calls + 1


@pytest.mark.parametrize("end,phase", [("finalize", "finalized"), ("abort", "aborted")])
def test_wait_tells_how_a_session_ended_that_has_left(start, end, phase):
    gateway = start(workers=1, export_retention="0s")
    s = new(gateway)
    assert gateway.post(path(s, f"/{end}")).status in (200, 204)
    a = gateway.get(path(s, "/wait"))
    assert a.status == 200 and a.json()["phase"] == phase, a.text
