"""docs/troubleshooting.md: every literal message of the page comes from a gateway that has the fault. A block's info string is
`text NAME`; CASES has a case of that name, which causes the fault and returns what the reader sees."""
import json
import os
import re
import shutil
import socket
import subprocess
import threading

import pytest

import gateway as g
from page_kit import FENCE
from runner_kit import Runner
from stub_engines import StubEngine
from test_check import HERMES, PLAIN, THOUGHT, template
from test_streaming import new

PAGE = g.ROOT / "docs/troubleshooting.md"
BYTES = str(g.ROOT / "tests/data/models/chatml-bytes")
KEY = "k" * 32
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def run_command(*arguments, **env):
    """What a command of the binary prints, and that it fails."""
    done = subprocess.run([g.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=dict(os.environ, **env),
                          check=False)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def refuse_start(tmp_path, *arguments):
    return run_command("serve", "--state-dir", tmp_path / "state", *arguments)


def shown(answer):
    """An answer as `curl -i` shows it."""
    return f"HTTP {answer.status}\n" + "".join(f"{k}: {v}\n" for k, v in answer.headers.items()) + answer.text


# --- the gateway does not start ---

@case
def address(_, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", g.free_port()))
        taken.listen()
        return refuse_start(tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")


@case
def beyond_loopback(_, tmp_path):
    return refuse_start(tmp_path, "--listen", f"0.0.0.0:{g.free_port()}")


@case
def setting(_, tmp_path):
    (tmp_path / "rollgate.yaml").write_text("listen: 127.0.0.1:8600\nmodell: /models/Qwen3-8B\nworkers: many\n", encoding="utf-8")
    return run_command("config", "--check", "--config", tmp_path / "rollgate.yaml")


@case
def model_folder(_, tmp_path):
    return refuse_start(tmp_path, "--listen", f"127.0.0.1:{g.free_port()}", "--model", "/models/Qwen3-8B")


@case
def engine_kind(_, tmp_path):
    return refuse_start(tmp_path, "--engine", "127.0.0.1:30000")


@case
def engine_address(_, tmp_path):
    return refuse_start(tmp_path, "--engine", "sglang:http://127.0.0.1:30000/v1")


@case
def key_file(_, tmp_path):
    return refuse_start(tmp_path, "--admin-key-file", "/etc/rollgate/admin-keys")


@case
def run_folder(_, tmp_path):
    return refuse_start(tmp_path, "--run-dir", "/scratch/" + "x" * 90)


@case
def second_gateway(start, _):
    first = start(workers=1)
    second = g.Gateway(workers=1, state_dir=f"{first.folder}/state").allow("")
    second.start(wait=False)
    assert second.wait() != 0
    return second.log()


@case
def missing_segment(start, _):
    gateway = start(workers=1, journal_segment_bytes=4096).allow("")
    for _ in range(12):
        gateway.chat(new(gateway), "a" * 900)
    gateway.stop()
    segments = sorted(n for n in os.listdir(f"{gateway.folder}/state/worker-0") if n.startswith("seg-"))
    os.unlink(f"{gateway.folder}/state/worker-0/{segments[0]}")
    gateway.start(wait=False)
    assert gateway.wait() != 0
    return gateway.log()


@case
def other_tokenizer(start, tmp_path):
    gateway = start(workers=1, model=BYTES).allow("")
    gateway.chat(new(gateway), "Hello")
    gateway.stop()
    other = tmp_path / "other"
    shutil.copytree(BYTES, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    gateway.settings["model"] = str(other)
    gateway.start(wait=False)
    assert gateway.wait() != 0
    return gateway.log()


# --- calls fail ---

@case
def missing_key(start, tmp_path):
    return shown(keyed(start, tmp_path).post("/sessions"))


def keyed(start, tmp_path, **settings):
    (tmp_path / "keys").write_text(KEY + "\n", encoding="utf-8")
    (tmp_path / "keys").chmod(0o600)
    return start(workers=1, admin_key_file=str(tmp_path / "keys"), **settings)


@case
def wrong_scope(start, tmp_path):
    gateway = keyed(start, tmp_path)
    session = gateway.post("/sessions", headers={"Authorization": f"Bearer {KEY}"}).json()
    return shown(gateway.post(f"/sessions/{session['session_id']}/finalize", headers={"Authorization": f"Bearer {session['api_key']}"}))


@case
def host_name(start, _):
    return shown(start(workers=1).get("/health", headers={"Host": "rollgate.cluster.local"}))


@case
def unknown_session(start, _):
    return shown(start(workers=1).chat({"session_id": f"w0-{'0' * 32}"}, "Hello"))


@case
def reseeded(start, _):
    return shown(start(workers=1).chat({"session_id": f"w7-{'0' * 32}"}, "Hello"))


@case
def session_ended(start, _):
    gateway = start(workers=1)
    session = new(gateway)
    gateway.post(f"/sessions/{session['session_id']}/abort")
    return shown(gateway.chat(session, "Hello"))


@case
def budget(start, _):
    gateway = start(workers=1)
    session = new(gateway, max_turns=1)
    gateway.chat(session, "Hello")
    return shown(gateway.chat(session, "And now?"))


@case
def unknown_option(start, _):
    return shown(start(workers=1).post("/sessions", {"max_turn": 5}))


@case
def context_length(start, _):
    gateway = start(workers=1, context_length=60)
    return shown(gateway.chat(new(gateway), "word " * 60))


@case
def body_too_large(start, _):
    gateway = start(workers=1, max_body_bytes="64KiB")
    return shown(gateway.chat(new(gateway), "a" * 100000))


@case
def no_engine(start, _):
    gateway = start(workers=1, engine=f"sglang:http://127.0.0.1:{g.free_port()}", queue_timeout="200ms",
                    engine_health_interval="100ms").allow("")
    return shown(gateway.get("/ready")) + "\n" + shown(gateway.chat(new(gateway), "Hello"))


@case
def other_engine(start, _):
    with StubEngine("vllm") as engine:
        gateway = start(workers=1, engine=f"sglang:{engine.url}", engine_health_interval="100ms").allow("")
        gateway.wait_line("engine")
        g.wait_until(lambda: gateway.get("/admin/engines").json()["engines"][0]["state"] == "down")
        return gateway.log()


@case
def stop_ignored(start, _):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="100ms").allow("")
        engine.otherwise = lambda body: {"ids": [*b"a STOP b", 257], "matched": 257, "finish": "stop"}
        return shown(gateway.chat(new(gateway), "Hello", stop=["STOP"]))


@case
def image(start, _):
    gateway = start(workers=1)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    return shown(gateway.chat(new(gateway), [{"role": "user", "content": [part]}]))


@case
def cut_answer(start, _):
    gateway = start(workers=1)
    session = new(gateway, on_truncated="refuse")
    said = gateway.chat(session, "Hello, world", max_tokens=3).json()["choices"][0]["message"]
    return shown(gateway.chat(session, [{"role": "user", "content": "Hello, world"}, said, {"role": "user", "content": "Go on"}]))


@case
def not_obeyed(start, _):
    gateway = start(workers=1)
    return shown(gateway.chat(new(gateway), "Hello", service_tier="flex", reasoning_effort="high"))


@case
def too_many_calls(start, _):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting, max_session_inflight=1, engine_health_interval="100ms")
        session = new(gateway)
        freed = threading.Event()
        engine.plan.append({"ids": [*b"slow", 257], "wait": freed})
        first = gateway.connect()
        first.request("POST", f"/sessions/{session['session_id']}/v1/chat/completions",
                      json.dumps({"messages": [{"role": "user", "content": "Hello"}]}))
        g.wait_until(lambda: gateway.metrics()["rollgate_calls_inflight"] >= 1, what="the first call runs")
        answer = shown(gateway.chat(session, "Another"))
        freed.set()
        assert first.getresponse().status == 200
        first.close()
        return answer


@case
def storage_full(start, _):
    gateway = start(workers=1, journal_min_free="1099511627776").allow("")
    return shown(gateway.post("/sessions"))


@case
def other_node(start, _):
    gateway = start(workers=1, worker_base=256)
    return shown(gateway.chat({"session_id": f"w3-{'0' * 32}"}, "Hello"))


# --- trajectories are not as expected ---

def check_template(tmp_path, text, *options):
    (tmp_path / "template.jinja").write_text(text, encoding="utf-8")
    return subprocess.run([g.BINARY, "check", BYTES, "--chat-template", tmp_path / "template.jinja", *options], capture_output=True,
                          text=True, timeout=120, check=True).stdout


@case
def not_append_only(_, tmp_path):
    return check_template(tmp_path, template("{% if loop.last %}" + THOUGHT + "{% endif %}" + PLAIN + HERMES))


@case
def not_read_back(_, tmp_path):
    return check_template(tmp_path, template(PLAIN + HERMES), "--tool-parser", "mistral")


@case
def empty_session(start, _):
    gateway = start(workers=1)
    session = new(gateway)
    gateway.post(f"/sessions/{session['session_id']}/finalize", {"format": "none"})
    return gateway.log()


@case
def reward_missing(start, _):
    gateway = start(workers=1)
    session = new(gateway)
    gateway.chat(session, "Hello")
    return shown(gateway.post(f"/sessions/{session['session_id']}/finalize", {"require_reward": True}))


@case
def engine_lacks(start, _):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [*b"fine", 257], "matched": 257, "version": None}
        gateway = start(workers=1, engine=engine.setting, engine_health_interval="100ms", routed_experts=True)
        gateway.chat(new(gateway), "Hello")
        return json.dumps(gateway.get("/health").json(), indent=1) + gateway.log()


@case
def broken_call(start, tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps(['<tool_call>\n{"name": "search", "arguments": {"q": \n</tool_call>']), encoding="utf-8")
    gateway = start(workers=1, model=BYTES, engine=f"builtin:script:{tmp_path}/answers.json")
    session = new(gateway)
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}
    gateway.chat(session, "Hello", tools=[tool])
    return json.dumps(gateway.get(f"/sessions/{session['session_id']}").json())


@case
def branches(start, _):
    gateway = start(workers=1)
    session = new(gateway)
    gateway.chat(session, "Hello")
    gateway.chat(session, [{"role": "system", "content": "Make a title."}, {"role": "user", "content": "Hello"}])
    return json.dumps(gateway.get(f"/sessions/{session['session_id']}").json())


# --- rollouts do not begin ---

@case
def no_executor(start, _):
    gateway = start(workers=1)
    answer = gateway.request("PUT", "/groups/g1", {"runner": "swe", "input": {}})
    return shown(answer) + "\n" + gateway.get("/groups/g1").text


@case
def paused(start, _):
    gateway = start(workers=1)
    gateway.post("/admin/pause", {"mode": "hold"})
    gateway.request("PUT", "/groups/g1", {"runner": "swe", "input": {}})
    with Runner(gateway, {"swe": {"run": ["/bin/true"]}}):
        g.wait_until(lambda: "paused" in gateway.get("/groups/g1").text, what="the group says why it waits")
        return gateway.get("/groups/g1").text


@case
def no_model_call(start, _):
    gateway = start(workers=1)
    gateway.request("PUT", "/groups/g1", {"runner": "swe", "input": {}, "attempts": 1})
    with Runner(gateway, {"swe": {"run": ["/bin/true"]}}):
        return gateway.get("/groups/g1/wait?timeout_s=60").text


@case
def no_reward(start, tmp_path):
    gateway = start(workers=1)
    gateway.request("PUT", "/groups/g1", {"runner": "swe", "input": {}, "attempts": 1})
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\ncurl -s $OPENAI_BASE_URL/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n",
                     encoding="utf-8")
    agent.chmod(0o755)
    with Runner(gateway, {"swe": {"run": [str(agent)], "pass_env": ["PATH"]}}):
        return gateway.get("/groups/g1/wait?timeout_s=60").text


@case
def runner_file(_, tmp_path):
    (tmp_path / "runners.yaml").write_text("runners:\n  swe:\n    runn: [/opt/swe/agent]\n    slots: many\n", encoding="utf-8")
    return run_command("config", "--check", "--runners", tmp_path / "runners.yaml")


@case
def executor_key(start, tmp_path):
    gateway = keyed(start, tmp_path).allow("")
    (tmp_path / "runners.yaml").write_text("runners:\n  swe:\n    run: [/bin/true]\n", encoding="utf-8")
    return run_command("runner", "--runners", tmp_path / "runners.yaml", "--gateway", gateway.url, "--logs", tmp_path / "logs")


# --- deliveries ---

@case
def sink_down(start, _):
    gateway = start(workers=1, sink=f"redis://127.0.0.1:{g.free_port()}").allow("")
    session = new(gateway)
    gateway.chat(session, "Hello")
    gateway.post(f"/sessions/{session['session_id']}/finalize", {"format": "none"})
    gateway.wait_line("sink")
    return gateway.log()


# --- the page ---

BLOCKS = [(block[2], block[3]) for block in FENCE.finditer(PAGE.read_text(encoding="utf-8"))]


def shows(output, line):
    return re.search(re.escape(line).replace(r"\.\.\.", ".*"), output) is not None


@pytest.mark.parametrize("name,text", BLOCKS, ids=[name for name, _ in BLOCKS])
def test_message_is_the_programs(start, tmp_path, name, text):
    output = CASES[name](start, tmp_path)
    for line in text.splitlines():
        assert shows(output, line), f"{line}\nis not in:\n{output[-3000:]}"


def test_page_has_a_case_for_each_message():
    names = [name for name, _ in BLOCKS]
    assert sorted(names) == sorted(CASES) and len(names) >= 25


@pytest.mark.parametrize("line,output,found", [("a ... c", "x a b c", True), ("a ... c", "a\nc", False), ("a.c", "abc", False)])
def test_messages_are_compared_line_by_line(line, output, found):
    assert shows(output, line) == found
