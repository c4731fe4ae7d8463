"""Behaviour of a real llama-server, which the stub imitates: missing entries of logprobs, ends at the limit of its
context, probabilities after sampling. Every answer is token-exact with true logprobs, or fails."""
import math
import struct
import threading

import pytest

import engine_kit
from gateway import wait_until
from stub_engines import StubEngine, logprob
from vision_kit import session

END = 257
ASK = {"messages": [{"role": "user", "content": "hi"}]}


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def true(ids):
    return [f32(logprob(j, t)) for j, t in enumerate(ids)]


@pytest.fixture
def server(start):
    """server(**stub attributes) -> stub and a gateway on it."""
    engines = []

    def make(settings=None, **stub):
        engine = StubEngine("llamacpp", info=stub.pop("info", None)).__enter__()
        engines.append(engine)
        for name, value in stub.items():
            setattr(engine, name, value)
        return engine, start(workers=1, engine=engine.setting, engine_retries=0, **(settings or {}))
    yield make
    for e in engines:
        e.__exit__()


def chat(gateway, sid, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, **more})


def trajectory(gateway, sid):
    return gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]


def sampled(t):
    return [(i, p) for i, p, m in zip(t["response_ids"], t["response_logprobs"], t["response_mask"]) if m]


def exact(gateway, sid, ids, scored):
    t = trajectory(gateway, sid)
    assert sampled(t) == list(zip(ids, [pytest.approx(x, abs=1e-6) for x in true(ids)])), (sampled(t), true(ids))
    assert t["turns"][0]["scored_tokens"] == scored and t["turns"][0]["logprob_basis"] == "processed"
    return t


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_speculative_decoding(server, stream):
    """Behind the first token nothing is computed: 0.0 and no alternatives."""
    engine, gateway = server(speculative=True)
    gateway.allow("leaves logprobs out")
    ids = list(b"one two three") + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    a = chat(gateway, sid, stream=stream, logprobs=True)
    assert a.status == 200 and "one two three" in a.text.replace('"}', "") or stream, a.text
    exact(gateway, sid, ids, len(ids) - 1)
    assert len(engine.forced) == len(ids) - 1
    prompts = [len(b["prompt"]) for b in engine.forced]
    assert prompts == sorted(prompts)  # each one in what the engine's cache holds
    assert 0.0 not in [p for _, p in sampled(trajectory(gateway, sid))]


def test_a_server_that_samples_on_its_backend(server):
    """It would report only the sampled token, with probability 1."""
    engine, gateway = server(backend=True)
    ids = list(b"one two") + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    assert chat(gateway, sid).status == 200
    exact(gateway, sid, ids, 0)


def test_a_draft_model_in_the_log_once(server):
    engine, gateway = server(speculative=True)
    gateway.allow("leaves logprobs out")
    for _ in range(2):
        engine.plan.append({"ids": list(b"ok") + [END]})
        assert chat(gateway, session(gateway)).status == 200
    assert gateway.log().count("leaves logprobs out") == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("text,stop,shown", [("one STOP", " STOP", "one"), ("abab", "bab", "a"), ("aaaa", "aaaa", ""), ("STOP", "STOP", "")])
def test_stop_words(server, text, stop, shown, stream):
    """The tokens are there, the entries of the word's are not, however alike they are to those before."""
    engine, gateway = server()
    gateway.allow("leaves logprobs out")
    ids = list(text.encode())
    engine.plan.append({"ids": ids, "finish": "word", "matched": stop})
    sid = session(gateway)
    a = chat(gateway, sid, stop=[stop], stream=stream)
    assert a.status == 200, a.text
    t = trajectory(gateway, sid)
    assert sampled(t) == list(zip(ids, [pytest.approx(x, abs=1e-6) for x in true(ids)]))
    assert t["turns"][0]["finish_reason"] == "stop" and t["turns"][0]["scored_tokens"] >= len(stop)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("text", ["龘", "🦀", "a龘b🦀c", "龘龘龘", "ééé"])
def test_tokens_that_end_inside_a_character(server, text, stream):
    engine, gateway = server()
    gateway.allow("leaves logprobs out")
    ids = list(text.encode()) + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    a = chat(gateway, sid, stream=stream)
    assert a.status == 200, a.text
    if not stream:
        assert a.json()["choices"][0]["message"]["content"] == text
    exact(gateway, sid, ids, len([b for b in text.encode()]) - len(text))
    assert all(b["logit_bias"][0][0] not in ids[:-1] for b in engine.forced)  # forcing them would tell nothing


def test_max_tokens_inside_a_character(server):
    engine, gateway = server()
    gateway.allow("leaves logprobs out")
    ids = list("a龘".encode())[:-1]
    engine.plan.append({"ids": ids, "finish": "length"})
    sid = session(gateway)
    a = chat(gateway, sid, max_tokens=len(ids))
    assert a.status == 200 and a.json()["choices"][0]["finish_reason"] == "length"
    exact(gateway, sid, ids, 2)


def model(ids):
    """A distribution over 256 bytes that depends on the last id; best first."""
    weights = [(t, math.exp(-abs(t - 97 - ids[-1] % 7) / 6)) for t in range(256)]
    total = sum(w for _, w in weights)
    return sorted(((t, math.log(w / total)) for t, w in weights), key=lambda x: -x[1])


@pytest.mark.parametrize("params", [{}, {"temperature": 0.7}, {"temperature": 1.5}, {"top_p": 0.9}, {"top_k": 12}, {"min_p": 0.05},
                                    {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.02}], ids=str)
def test_what_was_sampled_from_whatever_the_parameters(server, params):
    """Scored tokens have the probability that the others would have had."""
    ids = list(b"cdcbd")
    recorded = {}
    for draft in (False, True):
        engine, gateway = server(speculative=draft, dist=model)
        gateway.allow("leaves logprobs out")
        engine.plan.append({"ids": ids, "finish": "length"})
        sid = session(gateway)
        a = chat(gateway, sid, max_tokens=len(ids), **params)
        assert a.status == 200, a.text
        assert engine.requests[0]["body"]["post_sampling_probs"] is True
        recorded[draft] = [p for _, p in sampled(trajectory(gateway, sid))]
        assert trajectory(gateway, sid)["turns"][0]["scored_tokens"] == (len(ids) - 1 if draft else 0)
    assert recorded[True] == pytest.approx(recorded[False], abs=2e-5)


BENDING = [{"presence_penalty": 0.5}, {"logit_bias": {"97": 2}}, {"response_format": {"type": "json_object"}}]


@pytest.mark.parametrize("params", BENDING, ids=str)
@pytest.mark.parametrize("strict", [False, True], ids=["warns", "strict"])
def test_what_alternatives_do_not_show_is_scored_raw(server, params, strict):
    """One basis for the whole answer, and it is told."""
    engine, gateway = server({"strict_logprobs": strict}, speculative=True, dist=model)
    gateway.allow(".*")
    ids = list(b"{}") + [END] if "response_format" in params else list(b"cdc")
    engine.dist = lambda so_far: [*model(so_far), (END, -12.5)]
    engine.plan.append({"ids": ids, "finish": "length"})
    sid = session(gateway)
    a = chat(gateway, sid, logprobs=True, top_logprobs=2, **params)
    if strict:
        assert a.status == 502 and "--strict-logprobs" in a.json()["error"]["message"], a.text
        assert gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] == []
        return
    assert a.status == 200, a.text
    t, prompt = trajectory(gateway, sid), engine.requests[0]["body"]["prompt"]
    raw = [dict(engine.dist(prompt + ids[:j]))[x] for j, x in enumerate(ids)]
    assert sampled(t) == [(x, pytest.approx(p, abs=1e-5)) for x, p in zip(ids, raw)]
    assert t["turns"][0]["logprob_basis"] == "raw" and t["turns"][0]["scored_tokens"] == len(ids)
    assert all(e["top_logprobs"] == [] for e in a.json()["choices"][0]["logprobs"]["content"])
    assert gateway.log().count("not those of the distribution that was sampled") == 1
    # what the server gives otherwise is as before
    assert gateway.get("/admin/engines").json()["engines"][0]["logprobs"] == {"asked": "processed", "given": "processed"}


@pytest.mark.parametrize("params", BENDING[:2] + [{"repetition_penalty": 1.2}, {"response_format": {"type": "json_object"}}], ids=str)
@pytest.mark.parametrize("text", ["龘", "a龘🦀b", "éé", '{"a": "ñ龘"}'])
def test_characters_of_several_tokens_where_logits_are_bent(server, text, params):
    """A token that begins inside a character is no text by itself: the server refuses to be made to sample it alone."""
    engine, gateway = server(dist=lambda so_far: [*model(so_far), (END, -12.5)])
    gateway.allow(".*")
    ids = list(text.encode()) + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    a = chat(gateway, sid, **params)
    assert a.status == 200, a.text
    t, prompt = trajectory(gateway, sid), engine.requests[0]["body"]["prompt"]
    assert sampled(t) == [(x, pytest.approx(dict(engine.dist(prompt + ids[:j]))[x], abs=1e-5)) for j, x in enumerate(ids)]
    assert t["turns"][0]["logprob_basis"] == "raw" and t["turns"][0]["scored_tokens"] == len(ids)
    assert engine.refused == 0      # those that are known to be refused are not asked for so


@pytest.mark.parametrize("text", ["龘", "a龘🦀b"])
def test_characters_of_several_tokens_of_a_draft_model(server, text):
    engine, gateway = server(speculative=True)
    gateway.allow("leaves logprobs out")
    ids = list(text.encode()) + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    assert chat(gateway, sid).status == 200
    exact(gateway, sid, ids, len(ids) - (text[0] == "a"))
    assert engine.refused == 0


def test_a_token_that_cannot_be_forced_is_looked_for_among_others(server):
    engine, gateway = server(speculative=True, dist=lambda so_far: [*model(so_far), (END, -12.5)], refuses=set(b"cd"))
    gateway.allow(".*")
    ids = list(b"cdb") + [END]
    engine.plan.append({"ids": ids})
    sid = session(gateway)
    a = chat(gateway, sid, presence_penalty=0.5)
    assert a.status == 200 and engine.refused == 2, a.text
    prompt = engine.requests[0]["body"]["prompt"]
    assert sampled(trajectory(gateway, sid)) == [(x, pytest.approx(dict(engine.dist(prompt + ids[:j]))[x], abs=1e-5)) for j, x in enumerate(ids)]


def test_a_stop_token_that_cannot_be_forced_either_ends_the_call(server):
    engine, gateway = server(speculative=True, refuses={*b"cd", END})
    gateway.allow(".*")
    engine.plan.append({"ids": list(b"cd")})
    a = chat(gateway, session(gateway), presence_penalty=0.5)
    assert a.status == 502 and "cannot be asked for it" in a.text, a.text


LOADS = {"engine_health_interval": "100ms", "queue_timeout": "20s"}


def ask_all(gateway, sids):
    got = {}
    threads = [threading.Thread(target=lambda s=s: got.update({s: chat(gateway, s)})) for s in sids]
    for t in threads:
        t.start()
    return threads, got


@pytest.mark.parametrize("retries", [0, 2])
def test_calls_wait_while_the_server_loads_its_model(start, retries):
    """It is started again under eight calls, and answers 503 until its model is there."""
    engine = StubEngine("llamacpp")
    engine.otherwise = lambda body: {"ids": list(b"ok") + [END]}
    engine.__enter__()
    try:
        gateway = start(workers=1, engine=engine.setting, engine_retries=retries, **LOADS)
        gateway.allow("engine")
        sids = [session(gateway) for _ in range(8)]
        assert {chat(gateway, s).status for s in sids} == {200}
        engine.loading = True
        threads, got = ask_all(gateway, sids)
        wait_until(lambda: "/completion" in engine.turned_away, 20, "the first was turned away")
        wait_until(lambda: gateway.get("/ready").status == 503, 20, "the gateway sees it")
        assert got == {}
        engine.loading = False
        for t in threads:
            t.join(60)
        assert len(got) == 8 and {a.status for a in got.values()} == {200}, {a.text for a in got.values()}
        for s in sids:
            assert gateway.get(f"/sessions/{s}").json()["num_records"] == 2
    finally:
        engine.__exit__()


def test_calls_under_way_outlive_a_restart_of_the_server(start):
    engine, go = StubEngine("llamacpp"), threading.Event()
    engine.otherwise = lambda body: {"ids": list(b"ok") + [END], "wait": go}
    engine.__enter__()
    again = StubEngine("llamacpp")
    again.port, again.loading = engine.port, True
    again.otherwise = lambda body: {"ids": list(b"ok") + [END]}
    try:
        gateway = start(workers=1, engine=engine.setting, **LOADS)
        gateway.allow("engine")
        sids = [session(gateway) for _ in range(8)]
        threads, got = ask_all(gateway, sids)
        wait_until(lambda: engine.running == 8, 20, "all run")
    finally:
        engine.__exit__()
    with again:
        wait_until(lambda: again.turned_away, 20, "it is asked while it loads")
        again.loading = False
        for t in threads:
            t.join(60)
        assert len(got) == 8 and {a.status for a in got.values()} == {200}, {a.text for a in got.values()}


def test_calls_go_to_another_server_while_one_loads(start):
    with StubEngine("llamacpp") as one, StubEngine("llamacpp") as two:
        for e in (one, two):
            e.otherwise = lambda body: {"ids": list(b"ok") + [END]}
        gateway = start(workers=1, engine=[one.setting, two.setting], engine_health_interval="1h", queue_timeout="20s")
        gateway.allow("engine")
        wait_until(lambda: one.probes and two.probes, 20, "both were probed")
        one.loading = True
        sids = [session(gateway) for _ in range(12)]
        assert {chat(gateway, s).status for s in sids} == {200}
        assert "/completion" in one.turned_away and not one.requests and len(two.requests) == 12


def test_a_server_that_loads_for_too_long_is_said_to_be_unavailable(start):
    with StubEngine("llamacpp") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="100ms", queue_timeout="1s", engine_retries=0)
        gateway.allow("engine")
        wait_until(lambda: gateway.get("/ready").status == 200, 20, "it is up")
        engine.loading = True
        a = chat(gateway, session(gateway))
        assert a.status == 503 and a.headers["x-should-retry"] == "true", a.text


def test_a_server_that_is_started_again_while_it_is_asked_for_logprobs(start):
    """What it had answered cannot be completed: the call is asked again, once it has loaded."""
    with StubEngine("llamacpp") as engine:
        engine.speculative = True
        gateway = start(workers=1, engine=engine.setting, **LOADS)
        gateway.allow(".*")
        sid = session(gateway)

        def first(body):
            engine.loading = len(engine.requests) == 1
            return {"ids": list(b"ok") + [END]}
        engine.otherwise = first
        threads, got = ask_all(gateway, [sid])
        wait_until(lambda: engine.turned_away.count("/completion") >= 1, 20, "the question was turned away")
        engine.loading = False
        threads[0].join(60)
        assert got[sid].status == 200, got[sid].text
        exact(gateway, sid, list(b"ok") + [END], 2)


def test_calls_of_one_answer_are_bounded(server):
    engine, gateway = server(speculative=True)
    gateway.allow(".*")
    engine.plan.append({"ids": list(b"x" * 8194)})
    sid = session(gateway)
    a = chat(gateway, sid)
    assert a.status == 502 and "8193 tokens would have to be asked for, of one answer at most 8192" in a.json()["error"]["message"], a.text
    assert engine.forced == []


@pytest.mark.parametrize("engine", ["llamacpp:http://127.0.0.1:1", "builtin:echo"])
def test_the_basis_cannot_be_said_of_engines_that_tell_it(engine):
    import subprocess
    import gateway as g
    done = subprocess.run([g.BUILD / "rollgate", "config", "--check", "--engine", engine + ",logprobs=raw"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and f"{engine.split(':')[0]} reports it" in done.stderr + done.stdout, done


def test_a_server_that_will_not_be_asked_again(server):
    engine, gateway = server()
    gateway.allow(".*")
    for plan in ({"unscorable": True}, {"lp_extra": -1}):
        engine.plan.append({"ids": list("龘".encode()) + [END], **plan})
        assert chat(gateway, session(gateway)).status == 502
    engine.plan.append({"ids": list(b"ok") + [END]})
    assert chat(gateway, session(gateway)).status == 200


def test_a_stream_that_leaves_logprobs_out(server):
    """Nobody asked for one. Places of what is left out are those of a whole answer."""
    engine, gateway = server()
    gateway.allow(".*")
    engine.plan.append({"ids": [*"龘".encode(), END], "end": "close", "frame": lambda _, parts: (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + b"".join(b"data: " + p + b"\n\n" for p in parts))})
    a = chat(gateway, session(gateway))
    assert a.status == 502 and "a stream leaves logprobs out" in a.json()["error"]["message"], a.text


def test_an_old_server_gives_raw_logprobs(server):
    engine, gateway = server(old=True)
    engine.plan.append({"ids": list(b"ok") + [END]})
    sid = session(gateway)
    assert chat(gateway, sid).status == 200
    turn = trajectory(gateway, sid)["turns"][0]
    assert (turn["logprob_basis"], turn["logprob_asked"]) == ("raw", "processed")
    gateway.kill()
    gateway.start()
    assert trajectory(gateway, sid)["turns"][0] == turn


def test_the_edge_of_the_context(server):
    """No room left is an answer cut by length; what was asked for fits what the server has, not what the model could."""
    engine, gateway = server(info={"default_generation_settings": {"n_ctx": 90}})
    gateway.wait_line("engine told its settings")
    engine.plan.append({"ids": list(b"x" * 200)})
    sid = session(gateway)
    a = chat(gateway, sid)
    body = engine.requests[0]["body"]
    assert a.status == 200 and a.json()["choices"][0]["finish_reason"] == "length", a.text
    assert len(body["prompt"]) + body["n_predict"] == 90
    assert len(sampled(trajectory(gateway, sid))) == 90 - len(body["prompt"])


def test_output_that_is_no_text(server):
    """It answers 500 then, whatever was sampled: the call failed, nothing is kept, the next one works."""
    engine, gateway = server()
    gateway.allow(".*")
    sid = session(gateway)
    engine.plan.append({"ids": [0x80, 0x80, END]})
    a = chat(gateway, sid)
    assert a.status == 502 and a.headers["x-should-retry"] == "true"
    engine.plan.append({"ids": list(b"ok") + [END]})
    assert chat(gateway, sid).status == 200


def test_cached_tokens_are_what_the_server_says(server):
    engine, gateway = server()
    gateway.allow("leaves logprobs out")
    sid = session(gateway)
    engine.plan.append({"ids": list(b"ok") + [END]})
    a = chat(gateway, sid).json()
    assert a["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    engine.plan.append({"ids": list(b"ok") + [END]})
    more = [*ASK["messages"], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
    engine.slot = engine.slot[:5]  # it threw most of it away
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": more}).json()
    assert a["usage"]["prompt_tokens_details"]["cached_tokens"] == 5
    turn = trajectory(gateway, sid)["turns"][1]
    assert turn["cached_tokens"] == 5 and turn["reused_tokens"] > 5


def test_cancelled_while_it_is_scored():
    with StubEngine("llamacpp") as engine, engine_kit.Driver(engine) as d:
        engine.speculative = True
        engine.plan.append({"ids": list(b"abc" * 200)})
        call = d.start()
        wait_until(lambda: engine.forced, 10, "the first question")
        d.tell(op="cancel", id=call)
        assert d.call()["event"] == "done"


@pytest.mark.parametrize("kind,settings,basis,params,own", [
    ("sglang", "", "temperature", {"temperature": 0.7}, True), ("sglang", "", "temperature", {"top_p": 0.9}, False),
    ("sglang", ",logprobs=raw", "raw", {"temperature": 0.7}, False), ("vllm", "", "raw", {}, True), ("vllm", "", "raw", {"temperature": 0.7}, False),
    ("vllm", ",logprobs=processed", "processed", {"temperature": 0.7, "top_p": 0.5}, True), ("llamacpp", "", "processed", {"top_k": 5}, True)], ids=str)
def test_the_basis_of_every_kind(start, kind, settings, basis, params, own):
    """Told on the turn; where it is not what was sampled from, warned of once per session, or refused."""
    with StubEngine(kind) as engine:
        for strict in (False, True):
            gateway = start(workers=1, engine=engine.setting + settings, strict_logprobs=strict)
            gateway.allow("distribution", "logprobs-mode")
            sid = session(gateway)
            for _ in range(2):
                engine.plan.clear()
                engine.plan.append({"ids": list(b"ok") + [END]})
                a = chat(gateway, sid, **params)
                assert a.status == (400 if strict and not own else 200), a.text
            assert gateway.log().count("not those of the distribution that was sampled") == (1 if not own and not strict else 0)
            asked = "processed" if kind == "llamacpp" else None
            assert gateway.get("/admin/engines").json()["engines"][0]["logprobs"] == {"asked": asked, "given": basis}
            wait_until(lambda: gateway.get("/health").json()["logprobs"] == [basis], 20, "health tells it")
            assert gateway.get("/health").json()["logprobs_asked"] == ([asked] if asked else [])
            if own or not strict:
                turn = trajectory(gateway, sid)["turns"][0]
                assert (turn["logprob_basis"], turn["logprob_asked"]) == (basis, asked)


def test_an_old_server_is_refused_when_strict(server):
    engine, gateway = server({"strict_logprobs": True}, old=True)
    gateway.allow(".*")
    engine.plan.append({"ids": list(b"ok") + [END]})
    assert chat(gateway, session(gateway), temperature=0.5).status == 502
    assert chat(gateway, session(gateway), temperature=0.5).status == 400  # it is known now
    engine.plan.append({"ids": list(b"ok") + [END]})
    assert chat(gateway, session(gateway)).status == 200  # at temperature 1 there is no difference
