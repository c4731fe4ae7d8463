"""Sampling parameters that only some engines have: they are sent to these, or the call fails with 400 that names
them. They are never dropped."""
import pytest

import gateway as g
from stub_engines import StubEngine

ASK = {"messages": [{"role": "user", "content": "hi"}]}
GIVEN = {"stop_token_ids": [65], "min_tokens": 2, "repeat_last_n": 64, "allowed_token_ids": [111, 107, 257], "bad_words": ["no"]}
TAKES = {
    "sglang": {"stop_token_ids": "stop_token_ids", "min_tokens": "min_new_tokens"},
    "vllm": {name: name for name in GIVEN if name != "repeat_last_n"},
    "llamacpp": {"repeat_last_n": "repeat_last_n"},
    "openai": {name: name for name in GIVEN},
    "builtin": {"stop_token_ids": None},
}


@pytest.mark.parametrize("where", ["request", "session"])
@pytest.mark.parametrize("kind", TAKES)
def test_sent_or_refused(start, kind, where):
    with StubEngine(kind if kind != "builtin" else "sglang") as engine:
        gateway = start(workers=1, engine=engine.setting if kind != "builtin" else "builtin:echo")
        for name, value in GIVEN.items():
            engine.plan.clear()
            engine.plan.append({"ids": list(b"ok") + [257]})
            made = gateway.post("/sessions", {"sampling_params": {name: value}} if where == "session" else {})
            assert made.status in (200, 201), made.text
            path = f"/sessions/{made.json()['session_id']}/v1/chat/completions"
            a = gateway.post(path, {**ASK, **({name: value} if where == "request" else {})})
            if name not in TAKES[kind]:
                assert a.status == 400 and a.json()["error"]["param"] == name, (kind, name, a.text)
                continue
            assert a.status == 200, (kind, name, a.text)
            if kind != "builtin":
                body = engine.requests[-1]["body"]
                sent = (body.get("sampling_params") or body)[TAKES[kind][name]]
                assert sent[:len(value)] == value if isinstance(value, list) else sent == value, (kind, name, sent)


@pytest.mark.parametrize("name,value", [
    ("min_tokens", -1), ("min_tokens", "2"), ("min_tokens", 1.5), ("repeat_last_n", -2), ("allowed_token_ids", ["a"]),
    ("allowed_token_ids", 7), ("bad_words", "no"), ("bad_words", [""])], ids=str)
def test_wrong_values(start, name, value):
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting)
        assert gateway.post("/sessions", {"sampling_params": {name: value}}).status == 400
        sid = gateway.post("/sessions", {}).json()["session_id"]
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, name: value})
        assert a.status == 400 and a.json()["error"]["param"] == name, a.text


@pytest.mark.parametrize("name,value", [("stop_token_ids", [65, 259]), ("allowed_token_ids", [2 ** 40]),
                                        ("logit_bias", {"65": 1, "259": -1})])
@pytest.mark.parametrize("where", ["request", "session"])
def test_an_id_beyond_the_vocabulary_does_not_leave(start, where, name, value):
    """A server that indexes by it may take another token, or end."""
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting, model=g.MODELS / "chatml-bytes")
        made = gateway.post("/sessions", {"sampling_params": {name: value}} if where == "session" else {}).json()
        ask = {**ASK, **({name: value} if where == "request" else {})}
        a = gateway.post(f"/sessions/{made['session_id']}/v1/chat/completions", ask)
        e = a.json()["error"]
        assert a.status == 400 and e["param"] == name and "ids are 0 to 258" in e["message"] and not engine.requests, a.text


def test_an_id_beyond_the_vocabulary_in_a_prompt_does_not_leave(start):
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=engine.setting, model=g.MODELS / "chatml-bytes")
        sid = gateway.post("/sessions", {}).json()["session_id"]
        for prompt in ([1, 259], [[1], [2, 10 ** 6]]):
            a = gateway.post(f"/sessions/{sid}/v1/completions", {"prompt": prompt})
            assert a.status == 400 and "ids are 0 to 258" in a.json()["error"]["message"] and not engine.requests, a.text


def test_of_ids_that_the_model_does_not_have_the_largest_is_told(start):
    """With its place in a prompt. Who read the list knows it; nobody looks for the first one."""
    gateway = start(workers=1, engine="builtin:echo", model=g.MODELS / "chatml-bytes")
    path = f"/sessions/{gateway.request('POST', '/sessions', {}).json()['session_id']}/v1/completions"
    for name, value, told in (
            ("prompt", [1, 2 ** 20, 2, 2 ** 30, 2 ** 30, 3], f"prompt[3] is {2 ** 30}; "),
            ("prompt", [2 ** 30], f"prompt[0] is {2 ** 30}; "),
            ("stop_token_ids", [2 ** 20, 2 ** 30, 1], f"stop_token_ids has the id {2 ** 30}; "),
            ("allowed_token_ids", [1, 2 ** 20, 2 ** 30], f"allowed_token_ids has the id {2 ** 30}; "),
            ("logit_bias", {str(2 ** 20): 1, str(2 ** 30): 1}, f"logit_bias has the id {2 ** 30}; ")):
        answer = gateway.request("POST", path, {"model": "m", "prompt": [1, 2], "max_tokens": 1, name: value})
        assert answer.status == 400 and answer.json()["error"]["param"] == name, answer.text
        assert told + "this model's ids are 0 to " in answer.json()["error"]["message"], answer.text


def test_ids_of_one_list_are_not_held_against_another(start):
    """Each list is judged by its own largest id, and one that a session's default has replaced not at all."""
    gateway = start(workers=1, engine="builtin:echo", model=g.MODELS / "chatml-bytes")
    options = {"sampling_params": {"stop_token_ids": [65]}, "lock_sampling": ["stop_token_ids"]}
    session = gateway.request("POST", "/sessions", options).json()["session_id"]
    body = {"model": "m", "prompt": [1, 2], "max_tokens": 1, "stop_token_ids": [2 ** 30], "logit_bias": {"1": 1}}
    answer = gateway.request("POST", f"/sessions/{session}/v1/completions", body)
    assert answer.status == 200, answer.text
