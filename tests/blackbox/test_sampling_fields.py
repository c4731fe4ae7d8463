"""Sampling parameters that only some engines have a field for: sent to those, else 400 that names them; never dropped."""
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
