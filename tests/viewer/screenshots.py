#!/usr/bin/python3
"""Takes the pictures of docs/viewer.md anew, of a gateway that works: agents with tools, a group with its rollouts, a turn
that streams.

    tests/viewer/screenshots.py            the four of docs/, in ten minutes: a run takes its time
    tests/viewer/screenshots.py DIR        every page into DIR, light, dark and on a phone, to be looked at

Needs the Release build, chromium and node (scripts/setup).
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "blackbox"))
os.environ.setdefault("RG_BUILD", "build/release")
import gateway as g
import rollouts_kit as kit

CURVE_SECONDS = 50
RUN_SECONDS = 400
TOOLS = [{"type": "function", "function": {"name": name, "description": what, "parameters": {
    "type": "object", "properties": {key: {"type": "string"}}}}}
         for name, what, key in (("read_file", "A file's text", "path"), ("run", "Runs a command", "command"))]
# What the model writes, call by call of a session.
SCRIPT = [
    'I will look at the parser first.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "parse.py"}}\n</tool_call>',
    "The loop stops one character too early, so “naïve” loses its last letter.\n<tool_call>\n"
    '{"name": "run", "arguments": {"command": "pytest -q test_parse.py"}}\n</tool_call>',
    "All 12 tests pass now: the bound of the loop was `len(text) - 1`, it is `len(text)`.",
    "Yes: an empty text gives an empty list, and there is a test for it.",
]
TASKS = ["fix-parser", "rename-flag", "speed-up", "read-config"]
FILES = {0: "def parse(text):\n    for i in range(len(text) - 1):\n        yield text[i]\n", 1: "12 passed in 0.03s"}


def model(folder):
    """A model whose tokens are words' parts, as they are in the wild."""
    source = g.ROOT / "tests/data"
    os.makedirs(folder)
    shutil.copy(source / "tokens/tiny-qwen3/tokenizer.json", folder)
    shutil.copy(source / "models/chatml-bytes/tokenizer_config.json", folder)
    return folder


def chat(gateway, session, messages, **more):
    headers = {"Rollgate-Label": more.pop("label")} if "label" in more else {}
    answer = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions",
                          {"model": "m", "messages": messages, "tools": TOOLS, **more}, headers=headers, timeout=120)
    assert answer.status == 200, answer.text
    return answer.json()["choices"][0]["message"]


def agent(gateway, session, task, turns=4, found=None):
    """A coding agent's session; its messages."""
    messages = [{"role": "system", "content": "You are a careful software engineer. Use the tools."},
                {"role": "user", "content": f"{task}: parse() loses the last letter of “naïve”. Find out why, and mend it."}]
    for turn in range(turns):
        message = chat(gateway, session, messages)
        messages.append(message)
        calls = message.get("tool_calls") or []
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": found or FILES[turn]} for c in calls]
        if not calls:
            messages.append({"role": "user", "content": "And an empty text?"})
    return messages


def forked(gateway, session):
    """The session of the pictures: a branch of an agent that rewrote an answer, a sub-agent, a rewarded turn."""
    messages = agent(gateway, session, TASKS[0])
    rewritten = messages[:2] + [{"role": "assistant", "content": "I look at parse.py."}, {"role": "user", "content": "Go on."}]
    chat(gateway, session, rewritten)
    chat(gateway, session, [{"role": "user", "content": "Sum the session up in a title."}], label="title")
    state = gateway.get(f"/sessions/{session['session_id']}").json()
    ends = sorted((n for n in state["tree"]["nodes"] if n["generated"]), key=lambda n: n["seq"])
    gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": {"reward": 0.75, "tests": 12}})
    return ends[3]["response_id"]


def rollout(gateway, attempt):
    agent(gateway, attempt["session"], attempt["input"], turns=3,
          found=f"{12 - attempt['rollout']} passed" if attempt["rollout"] else None)
    return {"outcome": "ok", "reward_info": {"reward": [1.0, 1.0, 0.0, 0.5][attempt["rollout"] % 4]}}


@contextlib.contextmanager
def traffic(gateway, running):
    """Agents that work all the while; one in this session."""
    over = threading.Event()

    def work(k):
        i = 0
        while not over.wait(0.1 + 0.05 * k):
            session = gateway.post("/sessions", {"labels": {"task": TASKS[(i + k) % 4]}}).json()
            agent(gateway, session, TASKS[(i + k) % 4], turns=1 + (i + k) % 3)
            reward = min(1.0, (i % 3) / 2 + (k == 0 and i % 2) * 0.5)
            gateway.post(f"/sessions/{session['session_id']}/complete", {"reward_info": {"reward": reward}})
            gateway.post(f"/sessions/{session['session_id']}/finalize", {"format": "none"})
            i += 1
            over.wait(2.0 if i % 5 == 0 else 0.0)

    def run():
        while not over.is_set():
            chat = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "What is wrong with parse()?"}]}
            gateway.post(f"/sessions/{running['session_id']}/v1/chat/completions", chat, timeout=120)
    threads = [threading.Thread(target=run)] + [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        over.set()
        for t in threads:
            t.join()


def pages(a, b, end, live):
    """name -> (address, what shows that it is there)"""
    return {
        "overview": ("#/", ".tile .spark"),
        "run": ("#/run?window=900&by=task&label=fix-parser&label=speed-up", ".timechart"),
        "sessions": ("#/sessions", ".row[data-id]"), "groups": ("#/groups", "main td"),
        "group": ("#/groups/fix-parser-1", "main td"), "conversation": (f"#/sessions/{a}?at={end}", ".message.own"),
        "live": (f"#/sessions/{live}", "li.live pre"),
        **{mode: (f"#/sessions/{a}?at={end}&tab=tokens&colour={mode}&token=318", ".side dl")
           for mode in ("mask", "logprob", "version", "turn", "drift")},
        "samples": (f"#/sessions/{a}?at={end}&tab=samples", ".body p"),
        "audit": (f"#/sessions/{a}?at={end}&tab=drift", ".body p"), "turns": (f"#/sessions/{a}?at={end}&tab=turns", ".body td"),
        "json": (f"#/sessions/{a}?at={end}&tab=json", ".body pre"), "compare": (f"#/compare?a={a}&b={b}", ".verdict"),
    }


def shoot(gateway, shots):
    done = subprocess.run(["node", str(HERE / "screenshots.mjs"), json.dumps({"url": gateway.url, "shots": shots})],
                          capture_output=True, text=True, timeout=900)
    told = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"ok": False, "failed": [done.stderr]}
    if not told["ok"]:
        sys.exit("\n".join(told["failed"]))


def wanted(where, seen):
    """The pictures to take."""
    if where:
        return [{"hash": address, "shows": shows, "file": f"{where}/{name}-{look}.png", "width": width, "height": height,
                 "dark": look == "dark", "seconds": 12 if name == "overview" else 0} for name, (address, shows) in seen.items()
                for look, width, height in (("light", 1280, 900), ("dark", 1280, 900), ("phone", 390, 844))]
    return [{"hash": seen[name][0], "shows": seen[name][1], "file": str(g.ROOT / f"docs/viewer_{picture}.png"), "width": 1280,
             "height": height, "dark": dark, "seconds": {"overview": CURVE_SECONDS, "run": RUN_SECONDS}.get(name, 0)}
            for picture, name, height, dark in (("overview", "overview", 960, False), ("run", "run", 960, False),
                                                ("tokens", "logprob", 960, False),
                                                ("compare", "compare", 860, True))]


def main():
    where = sys.argv[1] if len(sys.argv) > 1 else None
    if where:
        os.makedirs(where, exist_ok=True)
    gateway = g.Gateway(engine=None)
    script = f"{gateway.folder}/script.json"
    pathlib.Path(script).write_text(json.dumps(SCRIPT))
    gateway.settings.update({"model": model(f"{gateway.folder}/model"),
                             "engine": f"policy=builtin:script:{script},tokens_per_s=60"})
    gateway.start()
    try:
        assert gateway.post("/admin/weight_version", {"version": "step-120"}).status == 200
        made = [gateway.post("/sessions", {"labels": {"task": TASKS[0], "kind": "train"}}).json() for _ in range(3)]
        end = forked(gateway, made[0])
        agent(gateway, made[1], TASKS[0], found="3 failed, 9 passed")
        runners = {"coder": rollout}
        with kit.Executor(gateway, "node-7", {"coder": 4}, runners), traffic(gateway, made[2]):
            for i, task in enumerate(TASKS):
                gateway.post("/groups", {"id": f"{task}-{i + 1}", "runner": "coder", "queue": "train", "input": task, "n": 4})
            gateway.post("/groups", {"id": "waits-for-nobody", "runner": "browser", "queue": "eval", "input": "x", "n": 8})
            g.wait_until(lambda: gateway.get("/groups/fix-parser-1").json()["succeeded"] == 4, 60, "the group is finished")
            shoot(gateway, wanted(where, pages(made[0]["session_id"], made[1]["session_id"], end, made[2]["session_id"])))
    finally:
        gateway.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
