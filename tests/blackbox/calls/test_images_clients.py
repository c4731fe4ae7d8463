"""Pictures of real clients: Claude Code reading a PNG, Codex' view_image (installed as test_coding_agents.py says),
OpenAI's Agents SDK. The built-in engine simulates the model, with a folder that takes images. Each picture is in the
trajectory, with unchanged bytes."""
import json

import pytest

import test_coding_agents as agents
import vision_kit as kit
from test_clients import finalize, new_session, packages, run    # noqa: F401

SEEN, SHOT = "I see grey.", kit.png(320, 240)


def play(start, tmp_path, script):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    gateway = start(workers=1, engine=f"builtin:script:{path}", model=kit.model_folder(tmp_path / "model"), tool_parser="hermes",
                    reasoning_parser="qwen3")
    session = new_session(gateway)
    base = f"http://127.0.0.1:{gateway.port}/sessions/{session['session_id']}/v1"
    return gateway, session, agents.Place(tmp_path, base)


def pictures(gateway, session, script):
    """The one trajectory holds all that was said; its pictures, as they are served."""
    done = finalize(gateway, session)
    trajectory, = done["trajectories"]
    assert [t["cause"] for t in trajectory["turns"]] == ["new_root"] + ["extended"] * (len(script) - 1)
    rows = {row["sha256"]: row for row in done["summary"].get("media", ())}
    ids = trajectory["prompt_ids"] + trajectory["response_ids"]
    assert sum(i["length"] for i in trajectory["images"]) == ids.count(kit.PAD)
    got = []
    for image in trajectory["images"]:
        row = rows[image["media"]]
        body = gateway.get(row["url"]).body
        assert kit.sha(body) == row["sha256"] and [1, *kit.grid(row["width"], row["height"])[1:]] == image["grid_thw"]
        got.append(body)
    return got


def test_claude_code_reads_a_png(start, tmp_path):
    agents.installed("claude")
    script = [agents.say("I look.\n", ("Read", json.dumps({"file_path": f"{tmp_path}/work/shot.png"}))), SEEN]
    gateway, session, place = play(start, tmp_path, script)
    (place.work / "shot.png").write_bytes(SHOT)
    env, first, _ = agents.claude(place, "")
    assert SEEN in place.run(first, env)
    assert pictures(gateway, session, script) == [SHOT]


def test_claude_code_goes_on_after_a_broken_picture(start, tmp_path):
    agents.installed("claude")
    script = [agents.say("I look.\n", ("Read", json.dumps({"file_path": f"{tmp_path}/work/shot.png"}))), SEEN]
    gateway, session, place = play(start, tmp_path, script)
    (place.work / "shot.png").write_bytes(SHOT[:-30])
    env, first, _ = agents.claude(place, "")
    assert SEEN in place.run(first, env)
    assert gateway.metrics()['rollgate_routed_requests_total{status="400"}'] == 1
    trajectory, = finalize(gateway, session)["trajectories"]
    result = trajectory["messages"][-2]
    assert result["role"] == "tool" and result["content"].startswith("[Image removed"), result


@pytest.mark.parametrize("kind", ["", "gpt-5.5"])
def test_codex_views_an_image(start, tmp_path, kind):
    agents.installed("codex")
    script = [agents.say("I look.\n", ("view_image", json.dumps({"path": f"{tmp_path}/work/shot.png"}))), SEEN]
    gateway, session, place = play(start, tmp_path, script)
    (place.work / "shot.png").write_bytes(SHOT)
    env, first, _ = agents.codex(place, kind)
    assert SEEN in place.run(first, env)
    assert pictures(gateway, session, script) == [SHOT]


@pytest.mark.parametrize("how", ["plain", "stream"])
@pytest.mark.parametrize("form", ["url", "data", "parts"])
def test_a_tool_of_the_agents_sdk_returns_a_picture(start, tmp_path, how, form):
    script = [agents.say("I look.\n", ("screenshot", "{}")), SEEN]
    gateway, session, place = play(start, tmp_path, script)
    run("images.mjs", place.base, how, kit.b64(SHOT), form)
    assert pictures(gateway, session, script) == [SHOT]
