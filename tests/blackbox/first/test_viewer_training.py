"""The viewer's pages about training, in Debian's Chromium, driven by tests/viewer/training.mjs."""
import json
import re
import shutil
import subprocess

import pytest

import gateway as g
import rollouts_kit as kit
from fleet_kit import ADMIN, AS_ADMIN, Fleet
from test_viewer import read_tensors
from test_viewer_page import browser, play  # noqa: F401 (a fixture)

pytestmark = pytest.mark.alone
TOOLS = [{"type": "function", "function": {"name": name, "description": what, "parameters": {
    "type": "object", "properties": {key: {"type": "string"}}}}}
         for name, what, key in (("read_file", "A file's text", "path"), ("run", "Runs a command", "command"))]
PROMPT = "You are careful.\n" + "Rule: never skip a test.\n" * 200 + "The last letter counts."
CALL = 'I look.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "parse.py"}}\n</tool_call>'


def words_model(folder):
    """A model whose tokens are words' parts: a text has several spellings in tokens."""
    source = g.ROOT / "tests/data"
    folder.mkdir()
    shutil.copy(source / "tokens/tiny-qwen3/tokenizer.json", folder)
    shutil.copy(source / "models/chatml-bytes/tokenizer_config.json", folder)
    return folder


def spelt(folder, text):
    """A text in tokens of one character each, and the end of an answer."""
    tokens = json.loads((folder / "tokenizer.json").read_text())
    ids = tokens["model"]["vocab"]
    end = next(t["id"] for t in tokens["added_tokens"] if t["content"] == "<|im_end|>")
    return [ids[c] for c in text.replace(" ", "Ġ")] + [end]


def chat(gateway, session, messages, status=200, **more):
    answer = gateway.post(f"/sessions/{session}/v1/chat/completions", {"model": "m", "messages": messages, **more}, timeout=60)
    assert answer.status == status, answer.text
    return answer.json()


def test_faults_that_were_seen(start):
    gateway = start(engine="builtin:echo", workers=1)
    one = gateway.post("/sessions", {}).json()
    attempt = gateway.post("/sessions", {"labels": {"attempt": "0123456789abcdef" * 2, "task": "one"}}).json()
    for session in (one, attempt):
        assert gateway.chat(session, "a text that is long enough for a line of tokens " * 4).status == 200
    assert gateway.post("/groups", {"id": "seen", "runner": "nobody", "queue": "q", "input": 1, "n": 2}).status == 201
    play("faults", {"url": gateway.url, "a": one["session_id"], "attempt": attempt["session_id"]}, script="training.mjs")


def run_rollout(gateway, attempt):
    """Four rollouts: good, bad, one out of time with an answer that was cut, one whose scorer fails."""
    session, k = attempt["session"]["session_id"], attempt["rollout"]
    ask = [{"role": "user", "content": f"rollout {k}: " + "a text that is echoed " * 3}]
    first = chat(gateway, session, ask, **({"max_tokens": 5} if k == 2 else {}))
    if k == 1:
        chat(gateway, session, ask + [first["choices"][0]["message"], {"role": "user", "content": "and on"}])
    if k == 3:
        return {"outcome": "error", "reason": "the scorer ended with status 1", "log_tail": "Traceback\n  line 7\nAssertionError"}
    return {"outcome": "timeout" if k == 2 else "ok", "reward_info": {"reward": [1.0, 0.0, 0.5][k]}, "timings": {"run": 1.25, "score": 0.5}}


def test_a_group(start):
    gateway = start(engine="builtin:echo")
    with kit.Executor(gateway, "node", {"coder": 4}, {"coder": run_rollout}):
        made = {"id": "four", "runner": "coder", "queue": "q", "input": 1, "n": 4, "min": 2, "attempts": 1}
        assert gateway.post("/groups", made).status == 201
        waiting = {"id": "waits", "runner": "nobody-runs-it", "queue": "q", "input": 1, "n": 2}
        assert gateway.post("/groups", waiting).status == 201
        g.wait_until(lambda: gateway.get("/groups/four").json()["state"] == "partial", 60, "the group has settled")
        why = gateway.get("/groups/waits").json()["waits"]
        assert "nobody-runs-it" in why
        play("group", {"url": gateway.url, "group": "four", "reward": "0.5 ± 0.4082, 1 of 3 pass", "pair": [0, 1], "failed": 3, "kept": 2,
                       "waiting": "waits", "why": why, "sessions": 3,
                       "measured": "3.75 s of runs, 1.5 s of scoring, in 4 attempts", "members": [
                           [0, {"state": "succeeded", "outcome": "ok", "reward": "1", "advantage": "+1.22", "turns": "1"}],
                           [1, {"state": "succeeded", "outcome": "ok", "reward": "0", "advantage": "-1.22", "turns": "2"}],
                           [2, {"state": "succeeded", "outcome": "timeout", "reward": "0.5", "advantage": "0.00", "turns": "1"}],
                           [3, {"state": "failed", "outcome": "error", "reward": "–", "advantage": "–"}]]}, script="training.mjs")


def test_a_session(start, tmp_path):
    folder = words_model(tmp_path / "model")
    script = tmp_path / "script.json"
    script.write_text(json.dumps([CALL, {"ids": spelt(folder, "The last letter is lost.")}, "All tests pass now, it seems.",
                                  "And once more."]))
    gateway = start(workers=1, model=str(folder), engine=f"policy=builtin:script:{script}")
    a, b = (gateway.post("/sessions", {}).json()["session_id"] for _ in range(2))
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Which letter is lost?"}]
    for _ in range(3):
        message = chat(gateway, a, messages, tools=TOOLS)["choices"][0]["message"]
        follow = ([{"role": "tool", "tool_call_id": c["id"], "content": "def parse(): pass"} for c in message.get("tool_calls") or []]
                  or [{"role": "user", "content": "Go on."}])
        messages += [message, *follow]
    chat(gateway, b, [{"role": "user", "content": "first"}])
    samples = chat(gateway, b, [{"role": "user", "content": "thrice"}], n=3)["choices"]
    tensors, meta = read_tensors(gateway.get(f"/sessions/{a}/tokens?drift=on").body)
    again = read_tensors(gateway.get(f"/sessions/{a}/tokens?drift=on").body)[1]
    (branch,), ids = meta["trajectories"], tensors["ids.0"]
    assert again["drift"] == meta["drift"], "a kept audit has no places: it is made again"
    places = meta["drift"]
    assert branch["extra_fields"]["drift"]["count"] == len(places) > 0
    first = len(ids) - len(tensors["response_mask.0"])
    begins, ends = (first + branch["turns"][1][k] for k in ("start", "end"))
    (place,) = [p for p in places if begins <= p["position"] < ends]
    words = {int(k): v["t"] for k, v in meta["vocabulary"].items()}
    sent, want = ("".join(words[i] for i in some) for some in (ids[place["position"]:place["position"] + place["n"]], place["want"]))
    assert sent == want and len(want) > 10 and place["n"] > len(place["want"]) and not place["cut"]
    assert [t["turn"] for t in meta["tools"]] == [0] and meta["tools"][0]["tools"] == TOOLS
    shown = places[0]
    play("session", {
        "url": gateway.url, "a": a, "end": branch["turns"][-1]["response_id"], "answers": [2, 4, 6],
        "prompt": len(PROMPT) - 100,
        "jumps": {"answers": "3", "tools": "2", "drift": str(len(places)), "truncated": "0"}, "words": "letter", "hits": 3, "n": len(ids),
        "tokens": [first + t["start"] for t in branch["turns"]], "tools": ["read_file", "run"],
        "drift": {"kind": shown["kind"].replace("_", " "), "position": shown["position"], "want": shown["want"],
                  "sent": ids[shown["position"]:shown["position"] + shown["n"]]},
        "sampled": b, "samples": [c["message"]["content"] for c in samples]}, script="training.mjs")


def test_a_run(start):
    gateway = start(engine="builtin:echo", workers=2)
    ended = []
    given_up = gateway.post("/sessions", {"labels": {"task": "sums"}}).json()["session_id"]     # begins first and ends last
    for task, rewards in (("sums", (1.0, 0.0, 1.0)), ("<b>texts</b>", (0.25,))):
        for reward in rewards:
            session = gateway.post("/sessions", {"labels": {"task": task}}).json()["session_id"]
            chat(gateway, session, [{"role": "user", "content": "some words to say again"}])
            assert gateway.post(f"/sessions/{session}/complete", {"reward_info": {"reward": reward}}).status == 200
            assert gateway.post(f"/sessions/{session}/finalize", {}).status == 200
            ended.append(session)
    chat(gateway, given_up, [{"role": "user", "content": "hello"}])
    assert gateway.post(f"/sessions/{given_up}/abort", {}).status in (200, 204)
    gateway.post("/sessions", {})
    g.wait_until(lambda: gateway.get("/stats").json()["total"]["sessions"] == 5, 20, "all that ended are counted")
    stats = gateway.get("/stats?by=task").json()
    total, (longest, slowest, *_) = stats["total"], stats["slowest"]
    assert (longest["session_id"], longest["ended"]) == (given_up, "aborted")
    listed = gateway.get("/sessions?limit=100&archived=false").json()["sessions"]
    play("run", {"url": gateway.url, "tiles": {
        "Reward": "0.563", "Pass rate": "50 %", "Ended": "5", "Failures": "1", "Truncated": "0 %",
        "Turns": "1", "Tokens": str(round(total["tokens_mean"], 1)).removesuffix(".0")[:3]},
        "slowest": slowest["session_id"], "waited": slowest["waited_for"], "tasks": [["sums", "0.667"], ["<b>texts</b>", "0.25"]],
        "ended": sum(row["phase"] != "open" for row in listed)}, script="training.mjs")


def digits(x, n=3):
    return f"{float(f'{x:.{n}g}'):g}"


def test_figures_are_the_same_everywhere(start, tmp_path):
    """Run page, GET /stats, /metrics and `rollgate top` have the same sessions."""
    folder = words_model(tmp_path / "model")
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"ids": spelt(folder, "The last letter is lost.")}, "All tests pass."]))
    gateway = start(workers=2, model=str(folder), engine=f"policy=builtin:script:{script}")
    for version in (1, 2):
        assert gateway.post("/admin/weight_version", {"version": version}).status == 200
        for reward, most in ((1.0, 50), (0.25, 3), (-1.0, 50)):
            session = gateway.post("/sessions", {"labels": {"task": f"t{version}"}}).json()["session_id"]
            messages = [{"role": "user", "content": "say it"}]
            messages.append(chat(gateway, session, messages, max_tokens=most)["choices"][0]["message"])
            chat(gateway, session, [*messages, {"role": "user", "content": "and on"}])
            assert gateway.post(f"/sessions/{session}/complete", {"reward_info": {"reward": reward}}).status == 200
            if reward < 0:
                assert gateway.post("/admin/weight_version", {"version": version + 1}).status == 200
            assert gateway.post(f"/sessions/{session}/finalize", {}).status == 200
    given_up = gateway.post("/sessions", {}).json()["session_id"]
    chat(gateway, given_up, [{"role": "user", "content": "hello"}])
    assert gateway.post(f"/sessions/{given_up}/abort", {}).status in (200, 204)
    t = gateway.get("/stats").json()["total"]
    assert (t["sessions"], t["truncated"], t["staleness_sum"], t["ended"]["aborted"]) == (7, 2, 2, 1) and 0 < t["drifted"]
    m = gateway.metrics()
    named = {"turns": t["turns"], "tokens": t["tokens"], "sampled_tokens": t["sampled_tokens"], "trained_tokens": t["trained_tokens"],
             "rewards": t["rewarded"], "passed": t["passed"], "truncated": t["truncated"], "drifted": t["drifted"], "trajectories": t["trajectories"]}
    assert {name: m[f"rollgate_run_{name}_total"] for name in named} == named
    assert sum(v for k, v in m.items() if k.startswith("rollgate_run_sessions_total")) == t["sessions"]
    assert m["rollgate_run_reward"] == pytest.approx(t["reward_sum"])

    def percent(a, b):
        return f"{100 * t[a] / t[b]:.1f} %"
    top = [str(g.BINARY), "top", "--once", "--listen", f"127.0.0.1:{gateway.port}"]
    seen = json.loads(subprocess.run([*top, "--json"], capture_output=True, text=True, check=True).stdout)
    assert seen["stats"]["total"] == t and seen["fleet"] is None
    shown = subprocess.run(top, capture_output=True, text=True, check=True).stdout
    for words in (f"{t['reward_mean']:.3f} mean", f"{t['reward_std']:.3f} deviation", f"{percent('passed', 'rewarded')} passed", "7 ended",
                  f"staleness {t['staleness_mean']:.2f}", f"{t['tokens_mean']:.0f} tokens", f"{t['turns_mean']:.1f} turns",
                  f"{percent('truncated', 'sessions')} truncated", f"{percent('trained_tokens', 'sampled_tokens')} of sampled",
                  f"{t['drifted']} of {t['trajectories']} drifted", "1 aborted"):
        assert words in shown, (words, shown)

    def share(a, b):
        return f"{digits(100 * t[a] / t[b])} %"
    play("tiles", {"url": gateway.url, "tiles": {
        "Reward": f"{t['reward_mean']:.3f}".rstrip("0"), "Pass rate": share("passed", "rewarded"), "Ended": "7", "Turns": digits(t["turns_mean"]),
        "Tokens": f"{t['tokens_mean']:.0f}" if t["tokens_mean"] >= 100 else digits(t["tokens_mean"]), "Truncated": share("truncated", "sessions"),
        "Failures": "1", "Staleness": f"{t['staleness_mean']:.2f}".rstrip("0"), "Drift": share("drifted", "trajectories"),
        "Tokens trained": share("trained_tokens", "sampled_tokens")}}, script="training.mjs")


def test_logprobs_of_a_trainer(start):
    gateway = start(engine="builtin:echo", workers=1)
    a, b = (gateway.post("/sessions", {}).json()["session_id"] for _ in range(2))
    for session in (a, b):
        chat(gateway, session, [{"role": "user", "content": "what <img src=x> is sampled"}])
    tensors, meta = read_tensors(gateway.get(f"/sessions/{a}/tokens").body)
    (branch,) = meta["trajectories"]
    (turn,) = branch["turns"]
    first = len(tensors["ids.0"]) - len(tensors["response_mask.0"])
    ids, sampled = tensors["ids.0"][first:][turn["start"]:turn["end"]], tensors["response_logprobs.0"][turn["start"]:turn["end"]]
    trained = [p - 1.25 if i == 6 else p for i, p in enumerate(sampled)]
    report = {"version": "step-9", "turns": [{"response_id": turn["response_id"], "ids": ids, "logprobs": trained}]}
    answer = gateway.post(f"/sessions/{a}/logprobs", report)
    assert answer.status == 200, answer.text
    play("ratios", {"url": gateway.url, "a": a, "b": b, "version": "1.2500", "largest": "largest 1.2500", "difference": "-1.2500",
                    "token": bytes([ids[6]]).decode(), "at": first + turn["start"] + 6, "ratio": "0.2865"}, script="training.mjs")


def finish(gateway, reward, headers=None, **options):
    """A session from its creation to its end; its id."""
    session = gateway.post("/sessions", options, headers=headers).json()["session_id"]
    path = f"/sessions/{session}"
    ask = {"model": "m", "messages": [{"role": "user", "content": "some words to say again"}], "max_tokens": 8}
    for route, body in (("/v1/chat/completions", ask), ("/complete", {"reward_info": {"reward": reward}}), ("/finalize", {})):
        answer = gateway.post(path + route, body, headers=headers, timeout=60)
        assert answer.status == 200, answer.text
    return session


def test_a_fleet(tmp_path):
    with Fleet(tmp_path, nodes="ab") as fleet:
        for node, rewards in (("a", (1.0, 0.0)), ("b", (0.5,))):
            for reward in rewards:
                finish(fleet[node], reward, AS_ADMIN, labels={"task": "sums"})
        fleet.create("b")
        a = fleet["a"]
        for node, n in (("a", 2), ("b", 1)):
            got = a.get(f"/stats?node={node}", headers=AS_ADMIN).json()["total"]
            assert got["sessions"] == n, got
        g.wait_until(lambda: fleet.owner("d"), 20, "a node has the dispatcher")
        places = 3      # a worker's of each node, and the dispatcher's
        g.wait_until(lambda: [p["whole"] for p in a.get("/fleet", headers=AS_ADMIN).json()["places"]] == [True] * places, 20, "the store has all")
        told = {"url": a.url, "key": ADMIN, "places": str(places), "ended": "3", "reward": "0.5"}
        play("fleet", {**told, "states": {"a": "up", "b": "up"}, "span": "Sessions that ended",
                       "nodes": {"a": {"sessions": "0", "calls": "0", "behind": "0", "not whole": "0", "ended in 1 h": "2", "reward": "0.5"},
                                 "b": {"sessions": "1", "calls": "0", "behind": "0", "not whole": "0", "ended in 1 h": "1", "reward": "0.5"}},
                       "run": {"a": {"ended": "2", "reward": "0.5"}, "b": {"ended": "1", "reward": "0.5"}}}, script="training.mjs")
        top = [str(g.BINARY), "top", "--once", "--gateway", a.url, "--key-file", str(fleet.keys["admin_key_file"])]
        seen = json.loads(subprocess.run([*top, "--json"], capture_output=True, text=True, check=True).stdout)["fleet"]
        assert [(n["name"], n["state"], n["behind"], n["sessions"], n["ended"], n["reward_mean"]) for n in seen["nodes"]] == [
            ("a", "up", 0, 0, 2, 0.5), ("b", "up", 0, 1, 1, 0.5)]
        assert sum(n["places"] for n in seen["nodes"]) == places and not any(n["not_whole"] for n in seen["nodes"])
        fleet["b"].kill()
        play("fleet", {**told, "states": {"a": "up", "b": "lost"}, "nodes": {"a": {"ended in 1 h": "2"}}, "ended": "2"}, script="training.mjs")
        shown = subprocess.run(top, capture_output=True, text=True, check=True).stdout
        assert re.search(r"^a +up +\d+ +0 +\d+ +\d+ +0 +2 +0.500  127", shown, re.M) and re.search(r"^b +lost +\d+ +0 +- +- +- +- +-  127", shown, re.M), shown
        unknown = a.get("/stats?node=c", headers=AS_ADMIN)
        assert unknown.status == 400 and 'no node of this fleet has the name \\"c' in unknown.text, unknown.text
        answer = a.get("/stats?node=b", headers=AS_ADMIN)
        assert answer.status == 503 and "the node b is lost" in answer.text, answer.text
