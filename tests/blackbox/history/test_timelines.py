"""Timelines (spec sessions.md 5.4): merges are counted and named, and so are answers that cannot be merged."""
import re

from stub_engines import StubEngine
from test_streaming import new, user

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
# Behind the last user message it shows answers; before that it hides them.
FORGETFUL = """{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' + (m.content if m.role != 'assistant' or loop.last else '...') + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if tools -%}{{ 'T' }}{%- endif -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def state(gateway, s):
    return gateway.get(f"/sessions/{s['session_id']}").json()


def two_calls(engine, gateway, s):
    """The second call has tools: another gate, so the first answer is rendered again, from its text."""
    engine.plan.append({"ids": [65, 255, 257]})  # no UTF-8: its text encodes to other ids
    a = gateway.chat(s, "one")
    assert a.json()["choices"][0]["message"]["content"] == "A\ufffd"
    b = gateway.chat(s, user("one") + [a.json()["choices"][0]["message"]] + user("two"), tools=TOOLS)
    assert b.status == 200
    return a, b


def test_repairs_are_counted(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway, history="timelines")
        two_calls(engine, gateway, s)
        for _ in range(2):  # asked again nothing is counted twice
            out = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()
            assert len(out["trajectories"]) == 1 and len(out["trajectories"][0]["turns"]) == 2
            t = out["trajectories"][0]
            assert t["response_ids"][:3] == [65, 255, 257] and t["response_mask"][:3] == [1, 1, 1]
            assert (out["summary"]["merge_repaired"], out["summary"]["merge_not_found"]) == (1, 0)
            assert out["summary"]["dropped"] == []
        assert (state(gateway, s)["merge_repaired"], state(gateway, s)["merge_not_found"]) == (1, 0)
        assert gateway.metrics()['rollgate_merged_answers_total{kind="repaired"}'] == 1


def test_an_answer_that_is_not_found_is_named(start, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text(FORGETFUL)
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, chat_template=str(template))
        s = new(gateway, history="timelines")
        a, _ = two_calls(engine, gateway, s)
        out = gateway.post(f"/sessions/{s['session_id']}/finalize").json()
        assert len(out["trajectories"]) == 1 and len(out["trajectories"][0]["turns"]) == 1
        assert (out["summary"]["merge_repaired"], out["summary"]["merge_not_found"]) == (0, 1)
        lost = out["summary"]["dropped"][0]
        assert (lost["reason"], lost["tokens"], lost["gone"]) == ("merge_not_found", 3, False)
        assert a.json()["id"].endswith(lost["response_id"])
        assert state(gateway, s)["merge_not_found"] == 1
        assert gateway.metrics()['rollgate_merged_answers_total{kind="not_found"}'] == 1


def test_other_policies_merge_when_asked(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway)
        two_calls(engine, gateway, s)
        plain = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()
        assert len(plain["trajectories"]) == 2 and plain["summary"]["merge_repaired"] == 0
        merged = gateway.get(f"/sessions/{s['session_id']}/trajectories?merge=text&ignore_tools=on").json()
        assert len(merged["trajectories"]) == 1 and merged["summary"]["merge_repaired"] == 1


def test_the_same_answer_is_counted_as_such(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    for _ in range(3):
        assert gateway.chat(s, "x").status == 200
    m = gateway.metrics()
    assert state(gateway, s)["forks_by_cause"] == {"new_root": 1, "same_answer": 2}
    assert (m['rollgate_forks_total{cause="new_root"}'], m['rollgate_forks_total{cause="same_answer"}']) == (1, 2)
    causes = re.findall(r" call .*?dialect=chat .*?cause=(\w+)", gateway.log())
    assert causes == ["new_root", "same_answer", "same_answer"]     # one word in log, metrics and state
