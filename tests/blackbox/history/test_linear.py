"""One history (spec sessions.md 5.3): answers that a retry drops stay dropped, roles follow the model, counting
tokens neither drops nor refuses."""
import threading

import pytest

from gateway import wait_until
from stub_engines import DEFAULT, StubEngine
from test_streaming import new, user
from test_turn_cancel import inflight
from test_turn_recovery import kill_worker

SYSTEM_FIRST = """{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def state(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}?records=1").json()


def two_turns(gateway, session):
    """The messages up to and including the second answer."""
    messages = user("one")
    for text in ("two", None):
        a = gateway.chat(session, messages)
        assert a.status == 200, a.text
        messages = messages + [a.json()["choices"][0]["message"]] + (user(text) if text else [])
    return messages


def count(gateway, session, messages):
    return gateway.post(f"/sessions/{session['session_id']}/v1/messages/count_tokens",
                        {"model": "m", "messages": messages})


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_dropped_turn_stays_dropped_after_a_crash(start, durability):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, durability=durability)
        s = new(gateway, history="linear")
        messages = two_turns(gateway, s)
        assert state(gateway, s)["num_records"] == 2
        engine.plan.append({"ids": [65, 257], "wait": threading.Event()})
        retry = messages[:2] + user("another")
        t = threading.Thread(target=lambda: gateway.chat(s, retry))
        t.start()
        wait_until(lambda: len(engine.requests) == 3 and engine.running == 1, 5, "the retry runs")
        before = state(gateway, s)
        assert (before["num_records"], before["rollback_count"], before["rollback_dropped_trainable_tokens_total"]) == (1, 1, len(DEFAULT["ids"]))
        kill_worker(gateway)
        t.join(10)
        after = state(gateway, s)
        for key in ("num_records", "rollback_count", "rollback_dropped_trainable_tokens_total", "accumulated_token_ids", "tree"):
            assert after[key] == before[key], key
        assert gateway.chat(s, messages[:2] + user("and again")).status == 200
        assert state(gateway, s)["num_records"] == 2


def test_the_dropped_turn_is_gone_when_the_retry_fails(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        s = new(gateway, history="linear")
        messages = two_turns(gateway, s)
        engine.plan.append({"status": 400, "body": {"error": {"message": "no"}}})
        assert gateway.chat(s, messages[:2] + user("another")).status == 400
        assert state(gateway, s)["num_records"] == 1
        assert gateway.chat(s, messages[:2] + user("another")).status == 200
        assert (state(gateway, s)["num_records"], state(gateway, s)["rollback_count"]) == (2, 1)


@pytest.mark.parametrize("history", ["linear", "tree", "chains", "timelines"])
def test_counting_refuses_nothing_and_changes_nothing(start, history):
    gateway = start(engine="builtin:echo", workers=1, context_length=400, max_nodes=12)
    s = new(gateway, history=history, prompt_length=100, response_length=40)
    two_turns(gateway, s)
    before = state(gateway, s)
    unrelated = user("something else entirely")
    fresh = new(gateway)
    alone = gateway.chat(fresh, unrelated).json()["usage"]["prompt_tokens"]
    for messages in (unrelated, user("one"), user("z" * 2000), [m for i in range(20) for m in user(str(i))]):
        a = count(gateway, s, messages)
        assert a.status == 200, a.text
        if messages is unrelated:
            assert a.json()["input_tokens"] == alone
        else:
            assert a.json()["input_tokens"] >= sum(len(m["content"]) for m in messages)
    assert state(gateway, s) == {**before, "updated_at": state(gateway, s)["updated_at"]}


def test_counting_behind_a_cut_turn(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    cut = gateway.chat(s, "abcdef", max_tokens=3).json()["choices"][0]["message"]
    messages = user("abcdef") + [cut] + user("more")
    refused = new(gateway, on_truncated="refuse")
    assert gateway.chat(refused, "abcdef", max_tokens=3).status == 200
    assert gateway.chat(refused, messages).status == 409
    assert count(gateway, refused, messages).status == 200
    assert count(gateway, s, messages).status == 200


def test_roles_that_the_template_cannot_append_are_refused(start, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text(SYSTEM_FIRST)
    gateway = start(engine="builtin:echo", workers=1, chat_template=str(template))
    s = new(gateway, history="linear")
    begin = [{"role": "system", "content": "be brief"}, *user("one")]
    answer = gateway.chat(s, begin).json()["choices"][0]["message"]
    refused = gateway.chat(s, begin + [answer, {"role": "system", "content": "now be long"}])
    assert refused.status == 400, refused.text
    error = refused.json()["error"]
    assert error["code"] == "history_conflict"
    assert "message 3 of role 'system'" in error["message"] and error["message"].endswith("tool, user, developer, assistant"), error
    assert refused.headers["x-should-retry"] == "false"
    assert gateway.chat(s, begin + [answer] + user("two")).status == 200
    # another first message is a retry of the whole: nothing is appended then
    t = new(gateway, history="linear")
    assert gateway.chat(t, user("one")).status == 200
    assert gateway.chat(t, begin).status == 200


@pytest.mark.parametrize("turns", [1, 2])
def test_retries_that_overlap_drop_one_answer_alone(start, turns):
    """Each means the same last answer. They are prepared while a helper counts for the session, and rendered behind that."""
    gateway = start(engine="builtin:echo", workers=1, context_length=400_000)
    for n in range(4):
        s = new(gateway, history="linear")
        messages = []
        for _ in range(turns):
            messages += user("again")
            a = gateway.chat(s, messages)
            assert a.status == 200, a.text
            messages.append(a.json()["choices"][0]["message"])
        where = f"/sessions/{s['session_id']}/v1"
        count_first = ("POST", f"{where}/messages/count_tokens", {"model": "m", "messages": user("word " * 60_000)})
        retries = [("POST", f"{where}/chat/completions", {"model": "m", "messages": messages[:-2] + user("another"), "temperature": k})
                   for k in (0, 0.5, 1)]
        first, *got = [a.status for a in gateway.ask_while_held("worker-0", [count_first, *retries])]
        assert first == 200 and sorted(got) == [200, 409, 409], got
        told = state(gateway, s)
        assert (told["num_records"], told["rollback_count"]) == (turns, 1)
