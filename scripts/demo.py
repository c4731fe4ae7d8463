#!/usr/bin/python3
"""The walk through rollgate that scripts/run shows: a trainer makes a session, an agent with two
tools works in it over the OpenAI API (one answer streamed), and the trainer takes the trajectory,
whose ids are checked against what the agent saw; then a group of rollouts, run by a real executor
(`rollgate runner`). Standard library only."""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

TOOLS = [
    {"type": "function", "function": {"name": "list_files", "description": "Names of the files",
                                      "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "read_file", "description": "A file's text",
                                      "parameters": {"type": "object", "required": ["path"],
                                                     "properties": {"path": {"type": "string"}}}}},
]
FILES = {"notes.txt": "The key is under the mat.", "todo.txt": "water the plants"}
# What the built-in engine answers, turn by turn: a model's raw text, tool calls in Hermes form.
SCRIPT = [
    'I will look around first.\n<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n</tool_call>',
    "The key is under the mat.",
]


def call_tool(name, arguments):
    if name == "list_files":
        return "\n".join(sorted(FILES))
    return FILES.get(arguments.get("path"), "no such file")


class Client:
    def __init__(self, port):
        self.port = port

    def send(self, method, path, body=None, key=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        c.request(method, path, None if body is None else json.dumps(body), headers)
        return c, c.getresponse()

    def json(self, method, path, body=None, key=None):
        c, r = self.send(method, path, body, key)
        text = r.read()
        c.close()
        if r.status not in (200, 201):
            sys.exit(f"{method} {path}: {r.status} {text.decode()}")
        return json.loads(text)

    def stream(self, path, body, key):
        """The deltas of one streamed chat answer, put together again."""
        c, r = self.send("POST", path, dict(body, stream=True), key)
        text, events = "", 0
        for line in r:
            if line.startswith(b"data: {"):
                events += 1
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
        c.close()
        return text, events


def run_agent(client, session):
    """An agent as any harness writes it: ask, run the tools, tell, until there is an answer."""
    messages = [{"role": "system", "content": "You find things."},
                {"role": "user", "content": "Where is the key?"}]
    path = f"/sessions/{session['session_id']}/v1/chat/completions"
    key = session.get("api_key")
    print(f"   user       {messages[1]['content']}")
    for turn in range(len(SCRIPT) - 1):
        answer = client.json("POST", path, {"model": "any", "messages": messages, "tools": TOOLS}, key)
        message = answer["choices"][0]["message"]
        messages.append(message)
        for tool_call in message["tool_calls"]:
            function = tool_call["function"]
            result = call_tool(function["name"], json.loads(function["arguments"]))
            print(f"   assistant  {function['name']}({function['arguments']})")
            print(f"   tool       {result!r}")
            messages.append({"role": "tool", "tool_call_id": tool_call["id"], "content": result})
    text, events = client.stream(path, {"model": "any", "messages": messages, "tools": TOOLS}, key)
    print(f"   assistant  {text}   ({events} events streamed)")
    return text


def show(out):
    for t in out["trajectories"]:
        ids, mask = t["response_ids"], t["response_mask"]
        trained = sum(mask)
        print(f"   {len(t['prompt_ids'])} prompt ids, {len(ids)} response ids, {trained} of them trained "
              f"(mask 1), {len(t['turns'])} turns, reward {t['reward']}")
        start = 0
        while start < len(ids):
            end = start
            while end < len(ids) and mask[end] == mask[start]:
                end += 1
            text = bytes(i for i in ids[start:end] if i < 256).decode("utf-8", "replace")
            print(f"   mask {mask[start]}  {end - start:4d} ids  {text!r:.88}")
            start = end
        assert len(ids) == len(mask) == len(t["response_logprobs"])
        assert trained == sum(turn["end"] - turn["start"] for turn in t["turns"])
        assert all(p == 0.0 for p, m in zip(t["response_logprobs"], mask) if m == 0)


def run_group(binary, client, folder):
    """A group of four rollouts, as a trainer has them run; how many attempts there were."""
    agent = [sys.executable, "-S", os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_agent.py")]
    with open(f"{folder}/runners.yaml", "w", encoding="utf-8") as f:
        json.dump({"runners": {"find": {"run": agent, "score": agent + ["--score"], "slots": 4, "timeout": "1m",
                                        "env": {"CRASH_ONCE": f"{folder}/crashed"}}}}, f)
    with open(f"{folder}/runner.log", "w", encoding="utf-8") as log:
        executor = subprocess.Popen([binary, "runner", "--runners", f"{folder}/runners.yaml", "--gateway",
                                     f"http://127.0.0.1:{client.port}", "--logs", f"{folder}/logs"], stderr=log)
    try:
        client.json("POST", "/groups", {"id": "demo", "runner": "find", "n": 4, "input": {
            "question": "Where is the key?", "expected": "under the mat"}})
        groups = []
        while not groups:
            groups = client.json("GET", "/queues/train/next?wait_s=20")["groups"]
            if executor.poll() is not None:
                sys.exit("the executor has ended")
        group = groups[0]
        print(f"   group {group['id']}: {group['state']}, {group['succeeded']} of {group['n']}")
        for m in group["members"]:
            tokens = client.json("POST", f"/sessions/{m['session_id']}/finalize", {})["trajectories"][0]
            trained = sum(tokens["response_mask"])
            assert trained == m["trained_tokens"] and tokens["reward"] == m["reward"] == 1.0
            again = "" if m["attempts"] == 1 else "   (its first attempt crashed)"
            print(f"   rollout {m['rollout']}  reward {m['reward']}  {len(tokens['response_ids'])} response ids, "
                  f"{trained} trained  run {m['timings']['run']:.2f} s{again}")
        client.json("POST", "/queues/train/ack", {"groups": [group["id"]]})
        return sum(m["attempts"] for m in group["members"])
    finally:
        executor.send_signal(signal.SIGTERM)
        executor.wait(30)


NEXT = """Try next{where}:
  {first}S=$(curl -s {url}/sessions -d '{{}}' | sed 's/.*"session_id":"\\([^"]*\\)".*/\\1/'); echo $S
  curl -s {url}/sessions/$S/v1/chat/completions -d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'
  curl -s {url}/sessions/$S/complete -d '{{"reward_info": {{"reward": 1.0}}}}'
  curl -s {url}/sessions/$S/finalize -d '{{}}'      # the trajectory: ids, mask, logprobs, reward
With a model and its engine: scripts/run serve --model FOLDER --engine sglang:http://HOST:30000
More: README.md, scripts/run serve --help, docs/deploy.md"""


def show_next(arguments):
    """Lines to copy, for the gateway that runs (arguments: of `serve`) or that one could run (none)."""
    listen = "127.0.0.1:8600"
    for flag, value in zip(arguments, arguments[1:] + [""]):
        if flag == "--listen":
            listen = value
        elif flag.startswith("--listen="):
            listen = flag[len("--listen="):]
    port = listen.rpartition(":")[2]
    print(NEXT.format(url=f"http://127.0.0.1:{port}", where=", in another terminal" if arguments else "",
                      first="" if arguments else "scripts/run serve &    # a gateway on 127.0.0.1:8600\n  "), flush=True)


def main():
    if sys.argv[1] == "--next":
        show_next(sys.argv[2:])
        return 0
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="rollgate-demo-") as folder:
        with open(f"{folder}/script.json", "w", encoding="utf-8") as f:
            json.dump(SCRIPT, f)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        log = open(f"{folder}/log", "w+", encoding="utf-8")
        gateway = subprocess.Popen(
            [binary, "serve", "--listen", f"127.0.0.1:{port}", "--workers", "2", "--state-dir",
             f"{folder}/state", "--engine", f"builtin:script:{folder}/script.json"], stderr=log)
        try:
            while True:
                log.seek(0)
                if " serving " in log.read():
                    break
                if gateway.poll() is not None:
                    log.seek(0)
                    sys.exit(log.read())
            print(f"1. a gateway: one router, two workers, http://127.0.0.1:{port}")
            client = Client(port)
            session = client.json("POST", "/sessions", {"labels": {"task": "demo"}})
            print(f"2. the trainer makes a session: {session['session_id']}")
            print("3. an agent works in it, over the OpenAI API:")
            answer = run_agent(client, session)
            client.json("POST", f"/sessions/{session['session_id']}/complete",
                        {"reward_info": {"reward": 1.0 if "under the mat" in answer else 0.0}})
            print("4. the trainer takes the trajectory:")
            show(client.json("POST", f"/sessions/{session['session_id']}/finalize", {}))
            print("5. a group of 4 rollouts of one task, run and scored by `rollgate runner`, and acknowledged:")
            assert run_group(binary, client, folder) == 5, "one of four was to be tried twice"
        finally:
            gateway.send_signal(signal.SIGTERM)
            status = gateway.wait(30)
        print(f"6. the gateway has stopped, exit status {status}")
        log.close()
    print()
    show_next([])
    return status


sys.exit(main())
