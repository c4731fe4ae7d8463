"""SGLang's chat with ids (return_input_ids_in_sglext, return_output_ids_in_sglext): in the body of a whole answer,
and in a last chunk without choices of a stream."""
import pytest

from stub_engines import StubEngine, logprob
from test_gateway_upstream import USER, ask, rendered
from vision_kit import session as new_session


class Sglext(StubEngine):
    """As the server of October 2026; `plan["old"]`: one that does not know the fields."""

    def openai(self, body, plan, stream, more):
        docs = super().openai(body, plan, stream, more)
        if plan.get("old") or not body.get("return_output_ids_in_sglext"):
            return docs
        assert body["return_input_ids_in_sglext"] is True and "return_meta_info" not in body
        prompt, ids = plan["prompt_ids"], plan["ids"]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": 0}
        ext = {"input_ids": prompt, "output_ids": [plan.get("told", ids)]}
        if not stream:
            return [{**docs[0], "usage": usage, "sglext": ext}]
        head = {k: v for k, v in docs[-1].items() if k != "usage"}
        last = [{**head, "choices": [], "sglext": ext}, {**head, "choices": [], "usage": usage}]
        return [d for d in docs if d["choices"]] + last


@pytest.fixture
def place(start):
    with Sglext("openai") as engine:
        yield engine, start(workers=1, engine=engine.setting + ",token-ids=sglext")


@pytest.mark.parametrize("stream", [False, True])
def test_ids_of_streams_and_whole_answers(place, stream):
    engine, gateway = place
    sid = new_session(gateway)
    first, second = [11, 12, 13, 2], [21, 22, 2]
    messages = [USER]
    engine.plan.append({"ids": first, "prompt_ids": rendered(messages), "text": "one"})
    messages += [ask(gateway, sid, messages, stream=stream), {"role": "user", "content": "again"}]
    engine.plan.append({"ids": second, "prompt_ids": rendered(messages), "text": "two"})
    ask(gateway, sid, messages, stream=stream)
    assert [r["body"]["stream"] for r in engine.requests] == [stream, stream]
    every = gateway.get(f"/sessions/{sid}/trajectories?merge=none&select=all_checkpoints").json()["trajectories"]
    assert [t["prompt_ids"] for t in every] == [rendered([USER]), rendered(messages)]
    assert [t["response_ids"] for t in every] == [first, second]
    for t, ids in zip(every, (first, second)):
        assert t["response_logprobs"] == pytest.approx([logprob(j, x) for j, x in enumerate(ids)], abs=1e-6)


@pytest.mark.parametrize("plan,why", [({"old": True}, "no token ids"), ({"told": [11]}, "differ"),
                                      ({"told": [11, -1]}, "no such number"), ({"told": [11, "x"]}, "no such number")])
def test_an_answer_that_does_not_hold_them(place, plan, why):
    """Told, never wrong: a server that ignores the fields, and ids that are not those of its logprobs."""
    engine, gateway = place
    sid = new_session(gateway)
    engine.plan.extend([{"ids": [11, 2], "prompt_ids": [5, 6], "text": "one", **plan}] * 4)
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [USER]})
    assert a.status == 502 and why in a.text, a.text
    assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"] == []
