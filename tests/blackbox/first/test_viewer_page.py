"""The viewer in Debian's headless Chromium, driven by tests/viewer/page.mjs: every page of a running gateway, a turn
that streams, changes without lists, hostile content, keys. A scene reports its checks as one line of JSON."""
import json
import os
import shutil
import subprocess
import threading

import pytest

import gateway as g
import test_odds as odds
import vision_kit as kit
from odds_engine import OddsEngine

pytestmark = pytest.mark.alone
VIEWER = g.ROOT / "tests/viewer"
ADMIN = "an-admin-key-of-the-viewers-page"
# Controls, an end of line for a terminal's title, marks of direction, and all that wants to be markup.
HOSTILE = ("<script>window.pwned=1</script><img src=x onerror=window.pwned=1><marquee onstart=pwned=1>"
           "\u202egnp.exe\u202c \u2066x\u2069 \u200b\u0007\x1b]0;title\x07\x1b[31mred "
           "javascript:alert(1) ${alert(1)} {{7*7}} </pre></textarea><style>*{display:none}</style>\u0000")


@pytest.fixture(scope="module", autouse=True)
def browser():
    if not shutil.which("chromium"):
        pytest.skip("chromium is absent: scripts/setup installs it")
    if not shutil.which("node"):
        pytest.skip("node is absent: scripts/setup installs it")
    if (VIEWER / "node_modules/puppeteer-core").exists():
        return
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=VIEWER, capture_output=True,
                          text=True, timeout=600)
    if done.returncode != 0:
        pytest.skip("npm ci failed: " + done.stderr[-300:])


def play(scene, told, then=None, timeout=240, script="page.mjs"):
    """Plays the scene; `then` is called once it says that it is ready. Its report."""
    env = dict(os.environ, LD_PRELOAD=str(g.BUILD / "tests/blackbox/libstill_network.so"))     # other tests change the host's network
    with subprocess.Popen(["node", str(VIEWER / script), scene, json.dumps(told)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=env) as scene_process:
        errors = []

        def listen():
            for line in scene_process.stderr:
                if then and line == "ready\n":
                    then()
                else:
                    errors.append(line)
        ear = threading.Thread(target=listen)
        ear.start()
        killer = threading.Timer(timeout, scene_process.kill)
        killer.start()
        out = scene_process.stdout.read().strip().splitlines()
        killer.cancel()
        ear.join()
    assert out, "".join(errors)[-2000:]
    report = json.loads(out[-1])
    assert report["ok"], "\n".join(report["failed"])
    return report


def conversation(gateway, session, text, turns=3, fork=False, **more):
    """Turns of one conversation; with `fork` one more that rewrites an answer: the response ids."""
    messages, ends, forked = [{"role": "user", "content": text}], [], None
    for turn in range(turns):
        answer = gateway.chat(session, messages, **more)
        assert answer.status == 200, answer.text
        ends.append(answer.json()["id"])
        if fork and turn == 1:
            rewritten = [{"role": "assistant", "content": "I would say otherwise"}, {"role": "user", "content": "and now?"}]
            forked = gateway.chat(session, messages + rewritten).json()["id"]
        messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"go on, {turn}"}]
    return ends, forked


def bare(session, gateway, response):
    """The response id as the session's state spells it."""
    nodes = gateway.get(f"/sessions/{session['session_id']}").json()["tree"]["nodes"]
    return next(n["response_id"] for n in nodes if n["generated"] and n["response_id"].endswith(response.split("-", 1)[-1]))


def two_sessions(gateway):
    one = gateway.post("/sessions", {"labels": {"task": "one"}}).json()
    two = gateway.post("/sessions", {"labels": {"task": "two"}}).json()
    _, forked = conversation(gateway, one, "What is 2+2?", fork=True)
    gateway.post(f"/sessions/{one['session_id']}/reward_info", {"reward_info": {"reward": 0.5}})
    conversation(gateway, two, "What is 2+3?", turns=1)
    return one, two, forked


def test_pages(start):
    gateway = start(engine="builtin:echo")
    one, two, forked = two_sessions(gateway)
    parts = gateway.get(f"/sessions/{one['session_id']}/trajectories").json()["trajectories"]
    longest = max(parts, key=lambda t: len(t["turns"]))
    other = gateway.get(f"/sessions/{two['session_id']}/trajectories").json()["trajectories"][0]
    ids = [t["prompt_ids"] + t["response_ids"] for t in (longest, other)]
    play("pages", {"url": gateway.url, "a": one["session_id"], "b": two["session_id"], "n": 2, "answers": 4,
                   "fork": bare(one, gateway, forked), "parts_at": next(i for i, (x, y) in enumerate(zip(*ids)) if x != y)})


@pytest.mark.cases(2)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_looks(start, dark, width):
    gateway = start(engine="builtin:echo")
    one, two, forked = two_sessions(gateway)
    assert gateway.post("/groups", {"id": "seen", "runner": "nobody", "queue": "q", "input": 1, "n": 2}).status == 201
    play("looks", {"url": gateway.url, "a": one["session_id"], "b": two["session_id"], "fork": bare(one, gateway, forked),
                   "group": "seen", "dark": dark, "width": width}, timeout=600)


def test_groups(start):
    gateway = start(engine="builtin:echo")
    group = {"id": "group-of-the-viewer", "runner": "nobody-runs-it", "queue": "seen", "input": 1, "n": 3}

    def submit():
        assert gateway.post("/groups", group).status == 201
    play("groups", {"url": gateway.url, "group": group["id"], "queue": "seen", "runner": "nobody-runs-it"}, submit)


def test_a_turn_that_streams(start):
    """The first one; one that goes on from it; one that goes on from the first one otherwise."""
    gateway = start(engine="builtin:echo,tokens_per_s=6")
    session = gateway.post("/sessions", {}).json()
    answers = ["Grüße 世界, token by token", "what was answered goes on", "and goes on otherwise, too"]
    path = f"/sessions/{session['session_id']}/v1/chat/completions"
    asked = []

    def stream():
        first = [{"role": role, "content": answers[0]} for role in ("user", "assistant")]
        messages = (first if asked else []) + [{"role": "user", "content": answers[len(asked)]}]
        asked.append(messages)
        assert gateway.post(path, {"model": "m", "stream": True, "messages": messages}, timeout=120).status == 200
    report = play("live", {"url": gateway.url, "a": session["session_id"], "answers": answers}, stream)
    assert report["steps"] >= 4 and len(asked) == 3


def test_alternatives(start):
    with OddsEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        session = gateway.post("/sessions", {"top_logprobs": 2}).json()["session_id"]
        engine.plan.append({"ids": [*b"ok", 257]})
        chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        assert gateway.post(f"/sessions/{session}/v1/chat/completions", chat).status == 200
        told, = gateway.get(f"/sessions/{session}/trajectories?format=json").json()["trajectories"]
        (first, second), (p, q) = (odds.cells(told, f"response_top_{name}")[0] for name in ("ids", "logprobs"))
        play("alternatives", {"url": gateway.url, "a": session, "at": len(told["prompt_ids"]),
                              "others": [[first, f"{p:.4f}"], [second, f"{q:.4f}"]]})


def test_calls_that_wait(start):
    """Of two workers, each of which knows of its own calls alone."""
    gateway = start(engine=["a=builtin:echo,tokens_per_s=1", "b=builtin:echo,tokens_per_s=1"], workers=2, engine_max_inflight=1)
    sessions = [gateway.post("/sessions", {}).json()["session_id"] for _ in range(8)]
    body = {"model": "m", "messages": [{"role": "user", "content": "a long answer, seen before it ends " * 15}]}
    calls = [threading.Thread(target=gateway.post, args=(f"/sessions/{s}/v1/chat/completions", body), kwargs={"timeout": 240})
             for s in sessions]
    for call in calls:
        call.start()
    try:
        def of(name):
            return [gateway.metrics().get(f'rollgate_engine_{name}{{engine="{place}"}}', 0) for place in (0, 1)]
        g.wait_until(lambda: of("inflight") == [1, 1] and sum(of("queued")) == 6, what="two run, six wait")
        queued = of("queued")
        play("waiting", {"url": gateway.url, "engines": [["a", 1, int(queued[0])], ["b", 1, int(queued[1])]]})
        assert gateway.request("DELETE", "/admin/engines?name=b").status == 200
        g.wait_until(lambda: of("queued") == [6, 0], what="those that waited for the one that goes wait for the other one")
    finally:
        for s in sessions:
            gateway.request("DELETE", f"/sessions/{s}")
        for call in calls:
            call.join()
    g.wait_until(lambda: of("queued") == [0, 0] and of("inflight") == [0, 0], what="nobody waits")


def test_changes_without_lists(start):
    gateway = start(engine="builtin:echo", workers=3)
    first = gateway.post("/sessions", {}).json()

    def change():
        for i in range(3):      # one on each worker
            session = gateway.post("/sessions", {"labels": {"came": f"later-{i}"}}).json()
            gateway.chat(session, "hello")
        gateway.request("DELETE", f"/sessions/{first['session_id']}")
    play("changes", {"url": gateway.url, "a": first["session_id"], "label": "came=later-2"}, change)


def test_a_list_that_is_still_read(start):
    gateway = start(engine="builtin:echo", workers=2)
    made = [gateway.post("/sessions", {"count": 750, "labels": {"batch": i}}, timeout=120).json() for i in range(3)]
    assert sum(len(m["sessions"]) for m in made) == 2250
    first = gateway.get("/sessions?limit=1").json()["sessions"][0]["session_id"]
    play("loading", {"url": gateway.url, "first": "1,000", "all": "2,250", "one": first})


def test_pages_that_were_left(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    assert gateway.chat(session, "hello").status == 200
    play("left", {"url": gateway.url, "a": session["session_id"]})


def test_hostile_content(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {"labels": {"<img src=x onerror=pwned=1>": HOSTILE}, "metadata": {"x": HOSTILE}}).json()
    messages = [{"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE, "name": HOSTILE}]
    answer = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", {"model": "m", "messages": messages},
                          headers={"Rollgate-Label": "<b>label</b>"})
    assert answer.status == 200, answer.text
    gateway.post(f"/sessions/{session['session_id']}/complete", {"reason": HOSTILE, "reward_info": {HOSTILE: HOSTILE}})
    play("hostile", {"url": gateway.url, "a": session["session_id"]})


def test_pictures(start, tmp_path):
    """A good one, and one whose bytes end where its header says but hold nothing."""
    gateway = start(engine="builtin:echo", workers=1, model=kit.model_folder(tmp_path / "model"))
    sid = kit.session(gateway)
    broken = kit.jpeg(64, 64)
    answer = kit.chat(gateway, sid, [kit.user(kit.text("look"), kit.image(kit.png(320, 240, 200)), kit.image(broken, "jpeg"))])
    assert answer.status == 200, answer.text
    trajectory, = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
    first = trajectory["images"][0]
    play("pictures", {"url": gateway.url, "a": sid, "offset": first["offset"], "length": first["length"], "shade": 200})


def test_keys(start, tmp_path):
    keys = tmp_path / "admin.keys"
    keys.write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", admin_key_file=str(keys))
    bearer = {"Authorization": f"Bearer {ADMIN}"}
    one, two = (gateway.post("/sessions", {}, headers=bearer).json() for _ in range(2))
    assert gateway.post(f"/sessions/{one['session_id']}/v1/chat/completions",
                        {"model": "m", "messages": [{"role": "user", "content": "hello"}]}, headers=bearer).status == 200
    play("keys", {"url": gateway.url, "a": one["session_id"], "b": two["session_id"], "admin": ADMIN,
                  "agent": one["api_key"], "runner": one["runner_key"]})


def test_commands_and_downloads(start, tmp_path):
    keys = tmp_path / "admin.keys"
    keys.write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(keys))
    bearer = {"Authorization": f"Bearer {ADMIN}"}
    session = gateway.post("/sessions", {}, headers=bearer).json()["session_id"]
    chat = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert gateway.post(f"/sessions/{session}/v1/chat/completions", chat, headers=bearer).status == 200
    folder = tmp_path / "saved"
    folder.mkdir()
    report = play("files", {"url": gateway.url, "a": session, "key": ADMIN, "folder": str(folder)})
    path = f"/sessions/{session}"
    formats = ["json", "msgpack", "safetensors", "verl", "miles", "areal", "slime", "prime-rl", "openai-messages",
               "prefix-tree", "skyrl", "nemo-gym", "atif"]
    wanted = {f: f"{path}/trajectories?format={f}" for f in formats} | {"state": f"{path}?records=1"}
    assert len(report["saved"]) == len(wanted)
    for name, route in wanted.items():
        (file,) = [f for f in report["saved"] if f.startswith(f"{session}.{name}.")]
        saved, answer = (folder / file).read_bytes(), gateway.get(route, headers=bearer)
        assert answer.status == 200 and len(saved) > 50
        assert len(saved) == len(answer.body), f"{file} is what the gateway answers"
    told = {}
    for name, command in report["commands"].items():
        assert "$ROLLGATE_KEY" in command and session in command
        command = command.replace("curl ", f"curl --max-time {5 if name == 'events' else 50} ", 1)
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False, capture_output=True,
                              env={"PATH": "/usr/bin:/bin", "ROLLGATE_KEY": ADMIN}, timeout=60)
        told[name] = done.stdout
        assert done.returncode == (28 if name == "events" else 0), done.stderr      # events go on until curl's time is over
    assert json.loads(told["state"])["session_id"] == session and len(json.loads(told["state with records"])["records"]) == 1
    assert len(json.loads(told["trajectories"])["trajectories"]) == 1 and told["events"].startswith(b"event: hello\n")
    assert b"response_mask.0" in (tmp_path / f"{session}.safetensors").read_bytes()


def exported(told, code=0, **more):
    """Standard output of `rollgate export`, or its complaint."""
    done = subprocess.run([g.BINARY, "export", *told], capture_output=True, timeout=120, check=False, **more)
    assert done.returncode == code, done.stderr
    return done.stderr.decode() if code else done.stdout


def test_an_exported_page(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1)
    session, _, forked = two_sessions(gateway)
    conversation(gateway, session, HOSTILE, turns=1)
    gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": {"why": HOSTILE, "reward": 0.5}})
    end = bare(session, gateway, forked)
    state = gateway.get(f"/sessions/{session['session_id']}").json()
    assert gateway.stop() == 0
    page = exported([f"{gateway.folder}/state/worker-0", "--html", session["session_id"]])
    held = page.split(b'id="rollgate-data">', 1)[1].split(b"</script>", 1)[0]
    assert b"<" not in held, "data can neither end its element nor begin another"
    told = json.loads(held)
    assert told["state"]["tree"] == state["tree"] and told["state"]["reward_info"]["why"] == HOSTILE
    assert len(told["branches"]) == len(state["tree"]["leaves"]) == 3
    assert page.count(b"<script") == 2 and b"src=" not in page.split(b"<script", 1)[0], "nothing is fetched"
    assert session["runner_key"].encode() not in page and session["api_key"].encode() not in page
    path = tmp_path / "page.html"
    path.write_bytes(page)
    play("exported", {"url": path.as_uri(), "a": session["session_id"], "fork": end, "answers": 5})


def test_an_exported_page_of_the_state_folder(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    assert gateway.chat(session, "hello").status == 200
    assert gateway.stop() == 0
    where = {"env": {"PATH": "/usr/bin:/bin", "ROLLGATE_STATE_DIR": f"{gateway.folder}/state"}}
    told = ["--html", session["session_id"]]
    assert exported(told, **where) == exported([f"{gateway.folder}/state/worker-0", *told])
    for more in (["--out", "pages"], ["--session", "x"], ["--format", "verl"], ["select=last"]):
        assert "--html writes one session whole" in exported(told + more, code=2, **where)
    assert "no session's id" in exported(["--html", "mine"], code=2, **where)
