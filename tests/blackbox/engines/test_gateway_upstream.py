"""Kind `openai` with a whole gateway: text capture if the upstream reports no ids, exact tokens if it does."""
import json
import os
import signal

import pytest

from gateway import wait_until
from stub_engines import StubEngine, logprob
from vision_kit import session

USER = {"role": "user", "content": "hi"}
TOKENS = ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "response_versions")
CALL = {"id": "call_7", "type": "function", "function": {"name": "run", "arguments": '{"cmd": "ls -l"}'}}
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]


@pytest.fixture
def pair(start):
    engines = []

    def make(*options, stub=None, **settings):
        engine = StubEngine("openai", **(stub or {}))
        engines.append(engine.__enter__())
        return engine, start(workers=1, engine=",".join((engine.setting,) + options), **settings)
    yield make
    for e in engines:
        e.__exit__()


def ask(gateway, sid, messages, **more):
    """One chat call; its assistant message, put together when it was streamed."""
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages, **more})
    assert a.status == 200, a.text
    if not more.get("stream"):
        return a.json()["choices"][0]["message"]
    assert a.text.rstrip().endswith("data: [DONE]"), a.text
    message, calls = {"role": "assistant", "content": ""}, {}
    for line in a.text.split("\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            d = choice["delta"]
            message["content"] += d.get("content") or ""
            for c in d.get("tool_calls") or []:
                at = calls.setdefault(c["index"], {"id": c.get("id"), "type": "function", "function": {"name": "", "arguments": ""}})
                at["function"]["name"] += c["function"].get("name") or ""
                at["function"]["arguments"] += c["function"].get("arguments") or ""
    if calls:
        message["tool_calls"] = [calls[i] for i in sorted(calls)]
    return message


def finalize(gateway, sid, **options):
    a = gateway.post(f"/sessions/{sid}/finalize", options)
    assert a.status == 200, a.text
    return a.json()


@pytest.mark.parametrize("bad", [None, 0, 1, 2])
def test_strict_logprobs_hold_for_each_of_n_answers(pair, bad):
    """The engine takes one request at a time: the answers come in order."""
    engine, gateway = pair("max-inflight=1", strict_logprobs=True)
    gateway.allow("strict-logprobs")
    sid = session(gateway)
    engine.plan.extend({"text": "abc", "ids": [11, 12, 2], "drop": {"ids", "logprobs"} if i == bad else ()} for i in range(3))
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "n": 3, "return_token_ids": True, "logprobs": True})
    if bad is None:
        assert a.status == 200 and len(a.json()["choices"]) == 3, a.text
    else:
        assert a.status == 502 and "--strict-logprobs" in a.json()["error"]["message"], a.text
        assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"] == []


PLACES = {"all known": [{}], "no prompt": [{"prompt_ids": []}], "one without ids": [{}, {"drop": {"ids", "logprobs"}}],
          "other prompts": [{}, {"prompt_ids": [3, 1, 5]}]}


@pytest.mark.parametrize("told", PLACES)
@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_ids_without_a_place_are_left_out(pair, history, told):
    """Where nobody knows what all answers' ids stand on, or the policy cannot go on from it, the answers are text, also when
    they are read back."""
    engine, gateway = pair("max-inflight=1")
    sid = session(gateway, history=history)
    engine.plan.extend({"text": "abc", "ids": [11, 12, 2], **plan} for plan in PLACES[told])
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions",
                     {"messages": [USER], "n": len(PLACES[told]), "return_token_ids": True, "logprobs": True})
    assert a.status == 200 and {c["message"]["content"] for c in a.json()["choices"]} == {"abc"}, a.text
    gateway.stop()
    gateway.start()
    text = told != "all known" or history in ("chains", "linear")
    every = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
    assert every and all([t[name] is None for name in ("prompt_ids", "response_ids", "response_logprobs")] == [text] * 3 for t in every)
    ask(gateway, sid, [USER, {"role": "assistant", "content": "abc"}, USER])
    assert finalize(gateway, sid)["summary"]["calls"] == 2


@pytest.mark.parametrize("history", [None, "tree", "chains", "linear", "timelines"])
@pytest.mark.parametrize("stream", [False, True])
def test_text_capture(pair, stream, history):
    engine, gateway = pair()
    sid = session(gateway, **({"history": history} if history else {}))
    engine.plan.extend([{"text": "Hello there."}, {"text": "", "message_extra": {"content": "", "tool_calls": [CALL]}, "finish": "tool_calls"}, {"text": "Done."}])
    messages = [USER]
    messages += [ask(gateway, sid, messages, stream=stream), {"role": "user", "content": "list"}]
    called = ask(gateway, sid, messages, stream=stream, tools=TOOLS)
    assert called["tool_calls"][0]["function"] == CALL["function"] and called["tool_calls"][0]["id"] == "call_7"
    messages += [called, {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "a b"}]
    messages.append(ask(gateway, sid, messages, stream=stream, tools=TOOLS))
    assert engine.requests[-1]["body"]["messages"] == messages[:-1]
    done = finalize(gateway, sid)
    t = done["trajectories"][-1]
    assert all(t[name] is None for name in TOKENS), t
    said = [m["content"] for m in t["messages"] if m["role"] == "assistant"]
    assert said == ["Hello there.", "", "Done."][-len(said):] and t["messages"][-1]["generated"]
    assert t["messages"][-3]["tool_calls"][0]["function"] == CALL["function"]
    if history in (None, "timelines"):
        assert len(done["trajectories"]) == 1 and [m.get("generated", False) for m in t["messages"]] == [False, True, False, True, False, True]
        assert [x["finish_reason"] for x in t["turns"]] == ["stop", "tool_calls", "stop"]
    assert done["summary"]["calls"] == 3


def test_formats_of_a_text_capture(pair):
    engine, gateway = pair()
    sid = session(gateway)
    ask(gateway, sid, [USER])
    for form in ("safetensors", "verl", "miles", "areal", "slime", "prime-rl", "msgpack", "openai-messages"):
        a = gateway.get(f"/sessions/{sid}/trajectories?format={form}")
        assert a.status == 200, (form, a.text)
        if form == "safetensors":
            assert b"no_token_ids" in a.body
        if form == "openai-messages":
            assert a.json()["messages"][-1]["content"] == "Hello there."


def rendered(messages):
    """What the upstream of these tests makes of messages: it drops earlier answers' thoughts, say."""
    return [1000 + i for m in messages for i in (len(m["role"]), len(m["content"]))] + [999]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way,asks", [("vllm", {"return_token_ids": True, "logprobs": True}), ("vllm", None), ("sglang", None)])
def test_ids_that_come_back(pair, way, asks, stream):
    """Each call is a timeline of its own as the upstream rendered it; merged, every message is
    trained on what the model wrote."""
    engine, gateway = pair(*([] if asks else [f"token-ids={way}"]))
    sid = session(gateway)
    first, second = [11, 12, 13, 2], [21, 22, 2]
    messages = [USER]
    engine.plan.append({"ids": first, "prompt_ids": rendered(messages), "text": "one", "version": "7"})
    messages += [ask(gateway, sid, messages, stream=stream, **(asks or {})), {"role": "user", "content": "again"}]
    prompt = rendered(messages)
    engine.plan.append({"ids": second, "prompt_ids": prompt, "text": "two", "version": "8"})
    messages.append(ask(gateway, sid, messages, stream=stream, **(asks or {})))
    every = gateway.get(f"/sessions/{sid}/trajectories?merge=none&select=all_checkpoints").json()["trajectories"]
    assert [t["prompt_ids"] for t in every] == [rendered([USER]), prompt]
    assert [t["response_ids"] for t in every] == [first, second]
    assert [t["response_mask"] for t in every] == [[1] * 4, [1] * 3]
    assert all(t["extra_fields"]["drift"] is None for t in every)  # nobody here knows the upstream's tokenizer
    for t, ids in zip(every, (first, second)):
        assert t["response_logprobs"] == pytest.approx([logprob(j, x) for j, x in enumerate(ids)], abs=1e-6)
    if way == "sglang":
        assert [t["response_versions"] for t in every] == [[7] * 4, [8] * 3]
    merged = finalize(gateway, sid)["trajectories"]
    assert len(merged) == 1 and merged[0]["response_ids"][-3:] == second and [m["content"] for m in merged[0]["messages"]] == ["hi", "one", "again", "two"]


def test_an_append_only_upstream_grows_one_chain(pair):
    engine, gateway = pair("token-ids=vllm")
    sid = session(gateway, history="tree")
    engine.plan.append({"ids": [11, 12, 2], "prompt_ids": [5, 6, 7], "text": "one"})
    messages = [USER]
    messages += [ask(gateway, sid, messages), {"role": "user", "content": "again"}]
    engine.plan.append({"ids": [21, 2], "prompt_ids": [5, 6, 7, 11, 12, 2, 8, 9], "text": "two"})
    ask(gateway, sid, messages)
    trajectories = finalize(gateway, sid)["trajectories"]
    assert len(trajectories) == 1
    t = trajectories[0]
    assert t["prompt_ids"] == [5, 6, 7] and t["response_ids"] == [11, 12, 2, 8, 9, 21, 2] and t["response_mask"] == [1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tell", [False, True])
def test_faults_leave_the_session_as_it_was(pair, tell, stream):
    engine, gateway = pair(*(["token-ids=vllm"] if tell else []), engine_retries=0)
    gateway.allow(".*")
    sid = session(gateway)
    ask(gateway, sid, [USER])

    def state():
        return json.dumps([gateway.get(f"/sessions/{sid}").json()[k] for k in ("phase", "tree") if k in gateway.get(f"/sessions/{sid}").json()])
    before = state()
    faults = [({"truncate": True}, 502), ({"cut": "close"}, 502), ({"cut": "reset"}, 502), ({"type": "text/html"}, 502), ({"drop": {"finish"}}, 502),
              ({"status": 500}, 502), ({"status": 503}, 503), ({"status": 429}, 429), ({"status": 400}, 400), ({"before": "reset"}, 503), ({"late_500": True}, 502)]
    faults += [({"drop": {"ids"}}, 502), ({"lp_extra": -1}, 502), ({"lp_null": True}, 502), ({"prompt_tokens": 8}, 502)] if tell else []
    for fault, status in faults:
        engine.plan.append(fault)
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER], "stream": stream})
        assert (a.status == status) if not stream else '"error"' in a.text, (fault, a.status, a.text)
        assert state() == before, fault
    ask(gateway, sid, [USER], stream=stream)


def test_other_dialects_are_sent_as_chat(pair):
    engine, gateway = pair()
    sid = session(gateway)
    a = gateway.post(f"/sessions/{sid}/v1/messages", {
        "model": "claude", "max_tokens": 77, "system": "Be short.", "messages": [USER], "top_k": 5, "stop_sequences": ["END"],
        "tools": [{"name": "run", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}})
    assert a.status == 200 and a.json()["content"] == [{"type": "text", "text": "Hello there."}], a.text
    body = engine.requests[-1]["body"]
    assert [m["role"] for m in body["messages"]] == ["system", "user"] and body["max_completion_tokens"] == 77 and "max_tokens" not in body and body["stop"] == ["END"] and body["top_k"] == 5
    assert body["tools"][0]["function"]["name"] == "run" and body["tool_choice"] == "required" and body["model"] == "claude"
    engine.plan.append({"matched": "END"})
    a = gateway.post(f"/sessions/{sid}/v1/messages", {"model": "m", "max_tokens": 9, "messages": [USER], "stop_sequences": ["END"]})
    assert a.json()["stop_reason"] == "stop_sequence" and a.json()["stop_sequence"] == "END", a.text
    a = gateway.post(f"/sessions/{sid}/v1/responses", {"model": "m", "input": "hi", "max_output_tokens": 66})
    assert engine.requests[-1]["body"]["max_completion_tokens"] == 66 and "max_tokens" not in engine.requests[-1]["body"]
    assert a.status == 200 and engine.requests[-1]["body"]["messages"][-1] == USER
    assert gateway.post(f"/sessions/{sid}/v1/completions", {"model": "m", "prompt": "hi"}).status == 400


@pytest.mark.parametrize("size", [10, 20_000])
def test_what_the_trainer_pins_is_not_the_agent_s(pair, size):
    """However long the agent's own value is: long ones go another way."""
    engine, gateway = pair()
    sid = session(gateway, sampling_params={"engine_extra": {"reasoning_effort": "low", "user": "trainer"}})
    ask(gateway, sid, [USER], reasoning_effort="h" * size, user="a" * size)
    body = engine.requests[-1]["body"]
    assert body["reasoning_effort"] == "low" and body["user"] == "trainer" and body["messages"] == [USER]


@pytest.mark.parametrize("size", [10, 20_000, 3_000_000])
@pytest.mark.parametrize("dialect", ["chat/completions", "messages"])
def test_long_messages_and_tools_go_out_whole(pair, size, dialect):
    """Each attempt sends them from where they lie: also the second, and each of n answers."""
    engine, gateway = pair(engine_retries=2)
    text = ("words \u00e9\"\n\t\u0001 and \U0001f600 " * (size // 20 + 1))[:size].strip()
    messages = [{"role": "user", "content": "first"}, {"role": "assistant", "content": text}, {"role": "user", "content": text}]
    tools = [{"type": "function", "function": {"name": f"f{i}", "description": text[:200], "parameters": {"type": "object"}}}
             for i in range(size // 2000 + 1)]
    engine.plan.append({"status": 503, "body": b"{}"})
    body = {"model": "m", "max_tokens": 8, "messages": messages}
    if dialect == "chat/completions":
        body.update(tools=tools, n=2)
    else:
        body["tools"] = [{"name": t["function"]["name"], "description": t["function"]["description"],
                          "input_schema": t["function"]["parameters"]} for t in tools]
    a = gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", body, timeout=60)
    assert a.status == 200, a.text[:300]
    asked = [r["body"] for r in engine.requests if r["body"] and "messages" in r["body"]]
    assert len(asked) == (3 if dialect == "chat/completions" else 2)
    for one in asked:
        assert [m["content"] for m in one["messages"]] == [m["content"] for m in messages]
        assert [t["function"]["name"] for t in one["tools"]] == [t["function"]["name"] for t in tools]
        assert all(t["function"]["description"] == text[:200] for t in one["tools"])


def test_the_sessions_sampling_holds(pair):
    engine, gateway = pair()
    sid = session(gateway, sampling_params={"temperature": 0.25, "max_tokens": 9}, lock_sampling=["temperature"])
    ask(gateway, sid, [USER], temperature=1.5, top_p=0.5, max_completion_tokens=33)
    body = engine.requests[-1]["body"]
    assert body["temperature"] == 0.25 and body["top_p"] == 0.5 and body["max_completion_tokens"] == 33 and "max_tokens" not in body
    ask(gateway, sid, [USER], max_tokens=8)
    assert engine.requests[-1]["body"]["max_tokens"] == 8 and "max_completion_tokens" not in engine.requests[-1]["body"]
    for path, body in (("responses", {"model": "m", "input": "hi"}), ("messages", {"model": "m", "max_tokens": 12, "messages": [USER]})):
        gateway.post(f"/sessions/{sid}/v1/{path}", body)        # the API's own name, for upstreams that refuse the older one
        assert engine.requests[-1]["body"]["max_completion_tokens"] in (9, 12) and "max_tokens" not in engine.requests[-1]["body"]
    sid = session(gateway)
    ask(gateway, sid, [USER])
    assert set(engine.requests[-1]["body"]) == {"messages", "stream"}


NUMBERS = {"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "frequency_penalty": 0.0, "min_p": 0, "repetition_penalty": 1, "top_k": -1}


@pytest.mark.parametrize("of", ["client", "session", "locked"])
def test_numbers_reach_the_upstream_when_they_are_set(pair, of):
    """Also to what the API has by default; and only then: some upstreams refuse fields that their model does not take."""
    engine, gateway = pair()
    numbers = {**NUMBERS, "temperature": 1.0, "top_p": 1.0}
    sid = session(gateway, **({} if of == "client" else {"sampling_params": numbers} if of == "session" else {"lock_sampling": list(numbers)}))
    ask(gateway, sid, [USER], **({} if of == "session" else numbers))
    body = engine.requests[-1]["body"]
    assert {k: v for k, v in body.items() if k not in ("messages", "stream")} == ({} if of == "locked" else numbers)


EFFORTS = {"responses": {"model": "m", "input": "hi", "reasoning": {"effort": "high"}, "text": {"verbosity": "low"}},
           "messages": {"model": "m", "max_tokens": 9, "messages": [USER], "output_config": {"effort": "max"}},
           "chat/completions": {"model": "m", "messages": [USER], "reasoning_effort": "none", "verbosity": "low"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", EFFORTS)
def test_effort_has_the_same_field_upstream_in_every_dialect(pair, dialect, stream):
    engine, gateway = pair()
    body = {**EFFORTS[dialect], "stream": stream}
    a = gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", body)
    sent = engine.requests[-1]["body"]
    assert a.status == 200 and "rollgate-not-obeyed" not in a.headers, a.headers
    assert sent["reasoning_effort"] == {"responses": "high", "messages": "max"}.get(dialect, "none")
    assert sent.get("verbosity") == (None if dialect == "messages" else "low")
    assert set(sent) <= {"model", "messages", "stream", "stream_options", "reasoning_effort", "verbosity", "max_completion_tokens"}, sent
    # The client's own arguments of the template go as they are; what the trainer pins is not the agent's.
    sid = session(gateway, sampling_params={"engine_extra": {"reasoning_effort": "low", "verbosity": "high"}})
    gateway.post(f"/sessions/{sid}/v1/{dialect}", {**body, "chat_template_kwargs": {"reasoning_effort": "medium", "x": 1}})
    sent = engine.requests[-1]["body"]
    assert (sent["reasoning_effort"], sent["verbosity"]) == ("low", "high")
    assert sent["chat_template_kwargs"] == {"reasoning_effort": "medium", "x": 1}


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_effort_none_sets_no_switch_of_a_template(pair, dialect):
    engine, gateway = pair()
    body = {**EFFORTS[dialect], **({"reasoning": {"effort": "none"}} if dialect == "responses" else {"output_config": {"effort": "none"}})}
    assert gateway.post(f"/sessions/{session(gateway)}/v1/{dialect}", body).status == 200
    sent = engine.requests[-1]["body"]
    assert sent["reasoning_effort"] == "none" and "chat_template_kwargs" not in sent


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_for_the_client(pair, stream):
    engine, gateway = pair()
    a = gateway.post(f"/sessions/{session(gateway)}/v1/chat/completions", {"messages": [USER], "logprobs": True, "stream": stream})
    chunks = [json.loads(line[6:]) for line in a.text.split("\n") if line.startswith("data: {")] if stream else [a.json()]
    told = [x for c in chunks for choice in c["choices"] for x in (choice.get("logprobs") or {}).get("content") or []]
    assert [x["token"] for x in told] == ["t11", "t12", "t13", "t2"]
    assert [x["logprob"] for x in told] == pytest.approx([logprob(j, t) for j, t in enumerate([11, 12, 13, 2])], abs=1e-6)


def test_a_text_capture_survives_its_worker(pair):
    engine, gateway = pair()
    gateway.allow("died", "killed", "SIGKILL")
    sid = session(gateway)
    messages = [USER]
    messages += [ask(gateway, sid, messages), {"role": "user", "content": "more"}]
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    wait_until(lambda: gateway.get(f"/sessions/{sid}").status == 200, 20, "the session is back")
    ask(gateway, sid, messages)
    t = finalize(gateway, sid)["trajectories"]
    assert len(t) == 1 and [m["content"] for m in t[0]["messages"]] == ["hi", "Hello there.", "more", "Hello there."] and t[0]["response_ids"] is None
