"""Engines of a whole gateway: what a client sees of them, and what a failed call leaves."""
import json
import signal
import socket
import threading

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from vision_kit import session

ASK = {"messages": [{"role": "user", "content": "hi"}]}
GOOD = {"ids": list(b"ok") + [257], "matched": 257}


@pytest.fixture
def pair(start):
    """pair(kind, **settings) -> engine and gateway on it."""
    engines = []

    def make(kind="sglang", plan=GOOD, **settings):
        engine = StubEngine(kind, **settings.pop("stub", {}))
        engines.append(engine.__enter__())
        engine.plan.append(plan)
        return engine, start(workers=1, engine=engine.setting, **settings)
    yield make
    for e in engines:
        e.__exit__()


def state_of(gateway, sid):
    s = gateway.get(f"/sessions/{sid}").json()
    return {k: s[k] for k in ("phase", "accumulated_token_ids", "tree") if k in s}


def chat(gateway, sid, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, **more})


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_exact_tokens_of_every_kind(pair, kind):
    engine, gateway = pair(kind)
    sid = session(gateway)
    engine.plan.extend([GOOD, GOOD])
    assert chat(gateway, sid).json()["choices"][0]["message"]["content"] == "ok"
    body = engine.requests[0]["body"]
    prompt = body.get("input_ids") or body.get("token_ids") or body.get("prompt")
    fin = gateway.post(f"/sessions/{sid}/finalize", {}).json()
    t = fin["trajectories"][0]
    assert t["prompt_ids"] == prompt and t["response_ids"][:3] == GOOD["ids"]
    assert [round(x, 4) for x in t["response_logprobs"][:3]] == [round(-((v * 7 + j * 13) % 100) / 100, 4) for j, v in enumerate(GOOD["ids"])]


@pytest.mark.parametrize("kind,info", [("sglang", {"context_length": 90}), ("sglang", {"max_model_len": 90, "context_length": None}),
                                       ("vllm", {"object": "list", "data": [{"id": "m", "max_model_len": 90}]}),
                                       ("llamacpp", {"default_generation_settings": {"n_ctx": 90}})], ids=str)
def test_the_engines_context_length_holds_where_the_models_is_unknown(pair, kind, info):
    engine, gateway = pair(kind, stub={"info": info})
    sid = session(gateway)
    listed = f"/sessions/{sid}/v1/models"
    wait_until(lambda: gateway.get(listed).json()["data"][0].get("max_model_len") == 90, 20, "the context length")
    assert chat(gateway, sid, max_tokens=1000).status == 200
    body = engine.requests[0]["body"]
    prompt = body.get("input_ids") or body.get("token_ids") or body.get("prompt")
    limit = body.get("n_predict") or body["sampling_params"].get("max_new_tokens") or body["sampling_params"]["max_tokens"]
    assert limit == 90 - len(prompt)
    long = chat(gateway, sid, messages=[{"role": "user", "content": "x" * 90}])
    assert long.status == 400 and long.json()["error"]["code"] == "context_length_exceeded"


def test_ready_follows_the_engine(pair):
    """Not before it has answered once, not while it is down; no request is needed to see either."""
    engine, gateway = pair(stub={"health": 503}, engine_health_interval="100ms")
    a = gateway.get("/ready")
    assert a.status == 503 and a.json()["reason"] == "no engine answers"
    wait_until(lambda: gateway.has_line("engine is down"), what="probes fail")
    for health, status in ((200, 200), (503, 503), (200, 200)):
        engine.health = health
        wait_until(lambda: gateway.get("/ready").status == status, what=f"/ready is {status}")
        assert gateway.get("/health").status == 200


FAULTS = [({"lp_extra": -1}, 502), ({"drop": {"logprobs"}}, 502), ({"drop": {"finish"}}, 502), ({"truncate": True}, 502), ({"cut": "reset"}, 502),
          ({"cut": "close"}, 502), ({"prompt_tokens": 1}, 502), ({"ids": [1, 99999]}, 502), ({"type": "text/html"}, 502), ({"status": 500}, 502),
          ({"status": 503}, 503), ({"status": 429}, 429), ({"status": 400}, 400), ({"finish": "abort", "abort_status": 503}, 503)]


@pytest.mark.parametrize("stream", [False, True])
def test_faults_leave_the_session_as_it_was(pair, stream):
    engine, gateway = pair()
    gateway.allow(".*")
    sid = session(gateway)
    chat(gateway, sid)
    before = state_of(gateway, sid)
    for fault, status in FAULTS:
        engine.plan.append({**GOOD, **fault})
        a = chat(gateway, sid, stream=stream)
        if not stream:
            assert a.status == status, (fault, a.status, a.text)
            assert a.headers.get("x-should-retry") == ("false" if status == 400 else "true"), (fault, a.headers)
        else:
            assert '"error"' in a.text and "[DONE]" not in a.text.split('"error"')[-1], (fault, a.text)
        assert state_of(gateway, sid) == before, fault
    engine.plan.append(GOOD)
    assert chat(gateway, sid, stream=stream).status == 200


def test_an_answer_that_repeats_itself_is_cut(pair):
    """vLLM names its repetition detection as the reason, and in place of a stop string."""
    engine, gateway = pair("vllm", plan={**GOOD, "finish": "repetition"})

    def name_it(docs):
        docs[-1]["choices"][0]["stop_reason"] = "repetition_detected"
        return docs
    for dialect, more, member, want in (("chat/completions", {}, "finish_reason", "length"), ("messages", {"max_tokens": 9}, "stop_reason", "max_tokens")):
        engine.plan[-1]["edit"] = name_it
        engine.plan.append(engine.plan[-1])
        sid = session(gateway)
        a = gateway.post(f"/sessions/{sid}/v1/{dialect}", {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more})
        assert a.status == 200, a.text
        said = a.json()
        assert {**said, **said.get("choices", [{}])[0]}[member] == want and not said.get("stop_sequence"), a.text
        turn = gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"][-1]
        assert turn["finish_reason"] == "length" and "repeats itself" in turn["parse_warning"], turn


@pytest.mark.parametrize("stream", [False, True])
def test_errors_show_neither_addresses_nor_exceptions(pair, start, stream):
    engine, gateway = pair(engine_retries=0)
    sid = session(gateway)
    address = engine.setting.split("//")[1]
    trace = {"detail": "Traceback: KeyError in /srv/engine.py"}
    faults = [{"status": 500, "body": trace}, {"status": 503, "body": trace}, {"status": 401, "body": trace},
              {"cut": "reset"}, {"cut": "close"}]
    engine.plan.clear()
    for fault in faults:
        engine.plan.append({**GOOD, **fault})
        text = chat(gateway, sid, stream=stream).text
        assert '"error"' in text and address not in text and "srv" not in text, (fault, text)
    assert gateway.has_line("Traceback") and gateway.has_line(address)
    dead = start(workers=1, engine="sglang:http://127.0.0.1:1", engine_retries=0, queue_timeout="500ms")
    sid = session(dead)
    for answer in (chat(dead, sid, stream=stream), dead.get(f"/sessions/{sid}/v1/other")):
        assert '"error"' in answer.text and "127.0.0.1" not in answer.text, answer.text


def test_a_client_that_leaves_aborts_the_engine(pair):
    engine, gateway = pair(plan={**GOOD, "delay_s": 60})
    sid = session(gateway)
    s = socket.create_connection(("127.0.0.1", gateway.port))
    raw = json.dumps(ASK).encode()
    s.sendall(f"POST /sessions/{sid}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
              f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
    wait_until(lambda: engine.requests, 10, "the engine's request")
    s.close()
    wait_until(lambda: engine.left == 1 and engine.aborts, 10, "the abort")
    assert engine.aborts[0] == engine.requests[0]["body"]["rid"] and engine.aborts[0].startswith(f"{sid}:") and engine.aborts[0].endswith(".")
    engine.plan.append(GOOD)
    assert chat(gateway, sid).status == 200


def test_deltas_come_as_the_engine_writes_them(pair):
    engine, gateway = pair(plan={"ids": list(b"abcdef") + [257], "matched": 257, "chunk": 1, "gap_s": 0.05})
    a = chat(gateway, session(gateway), stream=True)
    texts = [json.loads(line[6:]) for line in a.text.split("\n") if line.startswith("data: {")]
    spelled = [c["choices"][0]["delta"].get("content") for c in texts if c["choices"] and c["choices"][0]["delta"].get("content")]
    assert "".join(spelled) == "abcdef" and len(spelled) >= 5


def test_other_paths_go_to_the_engine(pair):
    engine, gateway = pair(passthrough="read,/echo,/nowhere")
    sid = session(gateway)
    a = gateway.post(f"/sessions/{sid}/echo?x=1", {"a": 1})
    assert a.status == 200, a.text
    assert a.json()["target"] == "/echo?x=1" and json.loads(a.json()["body"]) == {"a": 1}
    assert a.json()["headers"]["x-smg-routing-key"] == sid
    assert gateway.get(f"/sessions/{sid}/nowhere").status == 404


def test_agents_do_not_control_the_engine(pair, tmp_path):
    (tmp_path / "keys").write_text("admin-key-0123456789abcdef\n")
    engine, gateway = pair(admin_key_file=str(tmp_path / "keys"), passthrough="read,/echo")
    admin = {"Authorization": "Bearer admin-key-0123456789abcdef"}
    s = gateway.post("/sessions", {}, headers=admin).json()
    agent = {"Authorization": f"Bearer {s['api_key']}"}
    sid = s["session_id"]
    assert gateway.post(f"/sessions/{sid}/echo", {}, headers=agent).status == 200
    for path in ("/abort_request", "/v1/flush_cache", "/%61bort_request", "/update_weights_from_disk", "//abort_request", "/x/../abort_request"):
        assert gateway.post(f"/sessions/{sid}{path}", {}, headers=agent).status in (400, 403, 404), path
    assert engine.aborts == []
    assert gateway.post(f"/sessions/{sid}/abort_request", {"rid": "x"}, headers=admin).status == 200
    assert engine.aborts == ["x"]


def reload_with(gateway, path, text):
    path.write_text(text)
    gateway.signal(signal.SIGHUP)


def ask_in_thread(gateway, sid, got, **more):
    t = threading.Thread(target=lambda: got.append(chat(gateway, sid, **more)))
    t.start()
    return t


def test_reload_changes_limits_of_the_pool(start, tmp_path):
    path = tmp_path / "rollgate.yaml"
    path.write_text("engine-max-inflight: 1\nqueue-timeout: 60s\n")
    with StubEngine() as engine:
        gateway = start(workers=1, engine=engine.setting, config=str(path))
        go, got = threading.Event(), []
        engine.plan.extend([{**GOOD, "wait": go}, {**GOOD, "wait": go}])
        threads = [ask_in_thread(gateway, session(gateway), got) for _ in range(2)]
        wait_until(lambda: engine.running == 1, 10, "the first call")
        assert len(engine.requests) == 1
        reload_with(gateway, path, "engine-max-inflight: 2\nengine-retry-5xx: on\n")
        wait_until(lambda: engine.running == 2, 10, "the second call")
        go.set()
        for t in threads:
            t.join()
        assert [a.status for a in got] == [200, 200]
        engine.plan.extend([{"status": 503}, GOOD])
        assert chat(gateway, session(gateway)).status == 200  # repeated now
        reload_with(gateway, path, "queue-timeout: 100ms\nengine-max-inflight: 1\nengine-retry-5xx: off\n")
        engine.plan.append({"status": 503})
        wait_until(lambda: chat(gateway, session(gateway)).status == 503 or engine.plan.append({"status": 503}), 10, "no repetition")
        go.clear()
        engine.plan.clear()
        engine.plan.append({**GOOD, "wait": go})
        first = ask_in_thread(gateway, session(gateway), got)
        wait_until(lambda: engine.running == 1, 10, "the call that fills the engine")
        a = chat(gateway, session(gateway))
        assert a.status == 429 and int(a.headers["retry-after"]) >= 1 and a.headers["x-should-retry"] == "true"
        go.set()
        first.join()


def test_reload_reads_key_files_again(start, tmp_path):
    path, key = tmp_path / "rollgate.yaml", tmp_path / "key"
    path.write_text("log-rate: 50\n")
    key.write_text("first-key\n")
    with StubEngine(key="first-key") as engine:
        gateway = start(workers=1, engine=f"{engine.setting},key-file={key}", config=str(path), engine_retries=0)
        gateway.allow("key is unchanged")
        engine.plan.extend([GOOD] * 9)
        assert chat(gateway, session(gateway)).status == 200
        engine.key = "second-key"
        assert chat(gateway, session(gateway)).status == 502
        key.write_text("second-key\n")
        gateway.signal(signal.SIGHUP)
        wait_until(lambda: chat(gateway, session(gateway)).status == 200, 10, "the new key")
        key.write_text("\n")
        gateway.signal(signal.SIGHUP)
        gateway.wait_line("key is unchanged")
        assert chat(gateway, session(gateway)).status == 200
        assert not gateway.has_line("second-key|first-key")
