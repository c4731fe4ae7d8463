"""Purpose and role of turns: in agents' requests, in turns, and in the options of exports."""
import json

import pytest

COLLAB = {"x-openai-subagent": "collab_spawn", "x-codex-parent-thread-id": "t0"}
SPAWNED = {"request_kind": "turn", "subagent_kind": "thread_spawn", "thread_source": "subagent", "parent_thread_id": "t0"}
SAYS = [
    ({}, "main", None, None),
    ({"rollgate-label": "main"}, "main", "main", None),
    ({"rollgate-label": "planner", "rollgate-parent-label": "root"}, "sub_agent", "planner", "root"),
    ({"x-claude-code-agent-id": "a7", "x-claude-code-parent-agent-id": "a1"}, "sub_agent", "a7", "a1"),
    ({"x-openai-subagent": "compact"}, "compaction", "compact", None),
    ({"x-openai-subagent": "review"}, "review", "review", None),
    ({"x-openai-subagent": "memory_consolidation"}, "memory", "memory_consolidation", None),
    ({"x-openai-memgen-request": "true"}, "memory", "memory_consolidation", None),
    ({"x-openai-subagent": "guardian"}, "sub_agent", "guardian", None),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"agent_name": "root/child", "thread_id": "t1"})},
     "sub_agent", "root/child", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"thread_id": "t1"})}, "sub_agent", "t1", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": "{no json"}, "sub_agent", "collab_spawn", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": '{"agent_name": 3, "thread_id": []}'}, "sub_agent", "collab_spawn", "t0"),
    ({"rollgate-label": "title", "x-openai-subagent": "review"}, "title", "title", None),
    ({"x-openai-subagent": "compact", "x-codex-turn-metadata": json.dumps({"agent_name": "root/child"})},
     "compaction", "root/child:compact", None),
    ({"x-codex-turn-metadata": json.dumps({"request_kind": "compaction", "thread_id": "t1"})}, "compaction", "compaction", None),
    ({"x-codex-turn-metadata": json.dumps({"request_kind": "turn", "thread_id": "t1"})}, "main", None, None),
    ({"x-codex-turn-metadata": json.dumps({"subagent_kind": "thread_spawn", "agent_name": "root/a"})},
     "sub_agent", "root/a", None),
    # Codex 0.171, as recorded: its own agent, its compaction, its review, agents of both kinds of spawning and their compaction.
    ({"x-codex-turn-metadata": json.dumps({"agent_name": "/root", "thread_id": "t0", "request_kind": "turn", "thread_source": "user"})}, "main", None, None),
    ({"x-codex-turn-metadata": json.dumps({"agent_name": "/root", "thread_id": "t0", "request_kind": "compaction", "thread_source": "user"})},
     "compaction", "compaction", None),
    ({"x-openai-subagent": "review", "x-codex-parent-thread-id": "t0", "x-codex-turn-metadata": json.dumps(
        {"agent_name": "/root", "thread_id": "t2", "subagent_kind": "review", "thread_source": "subagent"})}, "review", "review", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"agent_name": "/root", "thread_id": "t3", **SPAWNED})}, "sub_agent", "t3", "t0"),
    ({"x-codex-turn-metadata": json.dumps({"agent_name": "/root", "thread_id": "t3", **SPAWNED})}, "sub_agent", "t3", None),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"agent_name": "/root", "thread_id": "t3", **SPAWNED, "request_kind": "compaction"})},
     "compaction", "t3:compaction", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"agent_name": "/root/worker", "thread_id": "t4", **SPAWNED})}, "sub_agent", "/root/worker", "t0"),
    ({**COLLAB, "x-codex-turn-metadata": json.dumps({"agent_name": "/root"})}, "sub_agent", "collab_spawn", "t0"),
    ({"x-openai-subagent": "guardian", "x-codex-turn-metadata": json.dumps({"agent_name": "/root"})}, "sub_agent", "guardian", None),
    ({"x-session-id": "s2", "x-parent-session-id": "s1"}, "sub_agent", "s2", "s1"),
    ({"x-session-id": "s1"}, "main", None, None),
    ({"x-openclaw-session-key": "agent:main:subagent:5f3", "x-openclaw-agent-id": "main"}, "sub_agent", "5f3", None),
    ({"x-openclaw-session-key": "agent:main:main", "x-openclaw-agent-id": "main"}, "main", "main", None),
    ({"x-deepseek-harness-compact": "1"}, "compaction", "compact", None),
    ({"x-deepseek-harness-compact": "1", "x-claude-code-agent-id": "a7"}, "compaction", "a7:compact", None),
    ({"rollgate-label": "planner:compaction"}, "compaction", "planner:compaction", None),
    ({"rollgate-label": ":compact"}, "sub_agent", ":compact", None),
    ({"rollgate-label": "main:title"}, "title", "main:title", None),
]


def say(gateway, sid, text, headers):
    body = {"messages": [{"role": "user", "content": text}]}
    answer = gateway.post(f"/sessions/{sid}/v1/chat/completions", body, headers=headers)
    assert answer.status == 200, answer.text


def test_every_agents_marks(kept):
    gateway = kept.gateway(workers=1, engine="builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for i, (headers, *_) in enumerate(SAYS):
        say(gateway, sid, f"number {i}", headers)
    told = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
    assert [(t["turns"][0]["purpose"], t["turns"][0]["label"], t["turns"][0].get("parent_label")) for t in told] == [
        (purpose, label, parent) for _, purpose, label, parent in SAYS]
    named = {"planner", "a7", "review", "guardian", "root/child", "t1", "t3", "/root/worker", "collab_spawn", "root/a", "s2", "5f3", ":compact"}
    for t in told:
        label = t["turns"][0]["label"] or "main"
        assert t["turns"][0]["role"] == (label.split(":")[0] or label if (label.split(":")[0] or label) in named else "main")
    nodes = [n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n["generated"]]
    assert [n["purpose"] for n in nodes] == [s[1] for s in SAYS]
    assert [n["role"] for n in nodes] == [t["turns"][0]["role"] for t in told]


def test_codex_own_dialect(kept):
    gateway = kept.gateway(workers=1, engine="builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    answer = gateway.post(f"/sessions/{sid}/v1/responses", {"model": "m", "input": "hi"},
                          headers={"x-openai-subagent": "compact"})
    assert answer.status == 200
    assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]["turns"][0]["purpose"] == "compaction"


@pytest.fixture
def session(kept):
    gateway = kept.gateway(workers=1, engine="builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    say(gateway, sid, "work", {})
    say(gateway, sid, "sum it up", {"x-openai-subagent": "compact"})
    say(gateway, sid, "help", {"x-claude-code-agent-id": "a7"})
    return gateway, f"/sessions/{sid}/trajectories"


def test_what_is_trained(session):
    gateway, path = session
    plain = gateway.get(path).json()
    some = gateway.get(path + "?train_purposes=main,%20sub_agent").json()
    assert [sum(t["response_mask"]) > 0 for t in some["trajectories"]] == [True, False, True]
    assert [t["turns"][0]["trained"] for t in some["trajectories"]] == [True, False, True]
    assert [t["response_ids"] for t in some["trajectories"]] == [t["response_ids"] for t in plain["trajectories"]]
    assert some["summary"]["trained_tokens"] < plain["summary"]["trained_tokens"]
    masked = some["trajectories"][1]
    assert masked["response_logprobs"] is None or set(masked["response_logprobs"]) == {0.0}


def test_what_is_taken(session):
    gateway, path = session
    some = gateway.get(path + "?purposes=main").json()
    assert [t["turns"][0]["purpose"] for t in some["trajectories"]] == ["main"]
    assert [d["reason"] for d in some["summary"]["dropped"]] == ["purpose", "purpose"]
    none = gateway.get(path + "?purposes=title").json()
    assert none["trajectories"] == []
    last = gateway.get(path + "?purposes=main,compaction&select=last").json()["trajectories"]
    assert [t["turns"][0]["purpose"] for t in last] == ["compaction"]


@pytest.mark.parametrize("option", ["purposes", "train_purposes"])
@pytest.mark.parametrize("value", ["nobody", "main,,review", "main,", ","])
def test_purposes_that_are_none(session, option, value):
    gateway, path = session
    answer = gateway.get(f"{path}?{option}={value}")
    assert answer.status == 400 and answer.json()["error"]["param"] == option, answer.text


def test_agents_by_name(session):
    gateway, path = session
    say(gateway, path.split("/")[2], "sum the help up", {"x-deepseek-harness-compact": "1", "x-claude-code-agent-id": "a7"})
    some = gateway.get(path + "?roles=a7").json()
    assert [t["turns"][0]["label"] for t in some["trajectories"]] == ["a7", "a7:compact"]
    assert [d["reason"] for d in some["summary"]["dropped"]] == ["role", "role"]
    both = gateway.get(path + "?roles=a7&purposes=sub_agent").json()["trajectories"]
    assert [t["turns"][0]["label"] for t in both] == ["a7"]
    assert gateway.get(path + "?roles=nobody").json()["trajectories"] == []
    trained = gateway.get(path + "?train_roles=nobody,%20a7").json()["trajectories"]
    assert [t["turns"][0]["trained"] for t in trained] == [False, False, True, True]
    kept = gateway.post(path.replace("trajectories", "finalize"), {"roles": "main", "train_roles": "a7"}).json()
    assert [(t["turns"][0]["role"], t["turns"][0]["trained"]) for t in kept["trajectories"]] == [("main", False)] * 2


@pytest.mark.parametrize("option", ["roles", "train_roles"])
def test_names_that_are_none(session, option):
    gateway, path = session
    for value in ("a7,,main", ",", "%20"):
        answer = gateway.get(f"{path}?{option}={value}")
        assert answer.status == 400 and answer.json()["error"]["param"] == option, answer.text


MAIN, SUB, OTHER = {}, {"x-claude-code-agent-id": "a7", "x-claude-code-parent-agent-id": "a1"}, {"x-claude-code-agent-id": "a8"}


@pytest.mark.parametrize("first, second, speaker", [(MAIN, SUB, MAIN), (SUB, MAIN, MAIN), (SUB, OTHER, SUB), (SUB, {"rollgate-label": "a7:main"}, SUB)],
                         ids=["main first", "main second", "two sub-agents", "one with two labels"])
@pytest.mark.parametrize("continued", [False, True])
def test_a_turn_of_two_speakers(kept, first, second, speaker, continued):
    """Two speakers with the same prompt and answer have one turn: main's, or that of the first."""
    gateway = kept.gateway(workers=1, engine="builtin:echo")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    say(gateway, sid, "work", first)
    if continued:
        body = {"messages": [{"role": "user", "content": "work"}, {"role": "assistant", "content": "work"}, {"role": "user", "content": "more"}]}
        assert gateway.post(f"/sessions/{sid}/v1/chat/completions", body, headers=first).status == 200
    say(gateway, sid, "work", second)
    told = gateway.get(f"/sessions/{sid}/trajectories?select=all_checkpoints").json()["trajectories"]
    assert len(told) == 1 + continued
    turn = told[0]["turns"][0]
    want = speaker.get("x-claude-code-agent-id"), speaker.get("x-claude-code-parent-agent-id")
    assert (turn["label"], turn.get("parent_label"), turn["role"]) == (*want, want[0] or "main")
    (kept_turn,) = gateway.get(f"/sessions/{sid}/trajectories?select=all_checkpoints&roles={want[0] or 'main'}&purposes={turn['purpose']}").json()["trajectories"][:1]
    assert kept_turn["turns"][0]["response_id"] == turn["response_id"]
