"""Coding agents, installed as users do (tests/clients/agents: `npm install` there, 2 GB, or RG_AGENTS = a folder that
has them), do a task of three turns with parallel calls with the built-in engine. Most continue in a second process.
The result is one trajectory with every generated token."""
import json
import os
import subprocess
from pathlib import Path

import pytest

import gateway as g
from test_clients import finalize, new_session

AGENTS = Path(os.environ.get("RG_AGENTS", g.ROOT / "tests/clients/agents"))
BIN = AGENTS / "node_modules/.bin"
FIRST = "What is the secret code? Look at the files."
AGAIN = "And now? Look again."
THOUGHT = "<think>\nA thought.\n\nAnother.\n</think>\n\n"


def say(text, *calls):
    return text + "\n".join('<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % c for c in calls)


def task(look, read):
    """What the engine says: spaces, escapes and numbers are as no client would write them."""
    return [say(THOUGHT + "I'll look first.\n\n", look, look), say(THOUGHT + "\n\n", read),
            THOUGHT + "The code is MAGENTA-4417. \u2615 na\u00efve \u65e5\u672c\u8a9e",
            say("Again.\n", look), say(THOUGHT, read), "It still is MAGENTA-4418."]


class Place:
    """A home and a working folder for one agent, and where the gateway is."""

    def __init__(self, tmp_path, base):
        self.home, self.work = tmp_path / "home", tmp_path / "work"
        self.base, self.root = base, base.removesuffix("/v1")
        for folder in (self.home, self.work):
            folder.mkdir(exist_ok=True)
        (self.work / "notes.txt").write_text("The secret code is MAGENTA-4417.\n")
        (self.work / "data.csv").write_text("a,b\n1,2\n")
        self.env = {"HOME": str(self.home), "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1",
                    "XDG_CONFIG_HOME": f"{self.home}/.config", "XDG_DATA_HOME": f"{self.home}/.data"}

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return str(path)

    def run(self, command, env):
        done = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=self.work, text=True,
                              env={**self.env, **env}, capture_output=True, timeout=180,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout


# Each: (program, look, read, how) where how(place, kind) gives the environment and the commands.

def claude(p, kind):
    env = {"ANTHROPIC_BASE_URL": p.root, "ANTHROPIC_API_KEY": "k", "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
    base = ["claude", "--output-format", "json", "--allowedTools", "Bash,Read", "--model", "m", "-p"]
    return env, [*base, FIRST], [*base, AGAIN, "--continue"]


def codex(p, kind):
    """Models that it knows get their tools in the input, and one that runs JavaScript."""
    p.write(".codex/config.toml", f'model = "{kind or "m"}"\nmodel_provider = "rg"\n[model_providers.rg]\n'
            f'name = "rg"\nbase_url = "{p.base}"\nenv_key = "RG_KEY"\nwire_api = "responses"\n')
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ({"RG_KEY": "k"}, ["codex", "exec", *free, FIRST],
            ["codex", "exec", "resume", "--last", *free, AGAIN])


def copilot(p, kind):
    kind, _, api = kind.partition(" ")
    env = {"COPILOT_PROVIDER_BASE_URL": p.base if kind == "openai" else p.root, "COPILOT_OFFLINE": "true",
           "COPILOT_PROVIDER_TYPE": kind, "COPILOT_PROVIDER_WIRE_API": api or "completions",
           "COPILOT_PROVIDER_API_KEY": "k", "COPILOT_MODEL": "m", "COPILOT_AUTO_UPDATE": "false"}
    return env, ["copilot", "-p", FIRST, "--allow-all-tools", "--allow-all-paths"], None


def cn(p, kind):
    path = p.write("config.yaml", "name: t\nversion: 0.0.1\nschema: v1\nmodels:\n"
                   f"  - {{name: m, provider: {kind}, model: m, apiBase: '{p.base}/', apiKey: k, roles: [chat],"
                   " capabilities: [tool_use]}\n")
    env = {"CONTINUE_TELEMETRY_ENABLED": "0"}
    return env, ["cn", "--config", path, "--auto", "-p", FIRST], None


def opencode(p, kind):
    model = {"name": "m", "tool_call": True, "reasoning": True, "limit": {"context": 200000, "output": 8000}}
    path = p.write("opencode.json", {
        "autoupdate": False, "share": "disabled", "permission": {"*": "allow"},
        "provider": {"rg": {"npm": f"@ai-sdk/{kind}", "name": "rg", "models": {"m": model},
                            "options": {"baseURL": p.base, "apiKey": "k"}}}})
    env = {"OPENCODE_CONFIG": path, "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    base = ["opencode", "run", "--title", "t", "-m", "rg/m"]
    return env, [*base, FIRST], [*base, "--continue", AGAIN]


def qwen(p, kind):
    """Its second process takes a reminder out of the first message: a history of its own."""
    name = kind.upper()
    env = {f"{name}_BASE_URL": p.base if kind == "openai" else p.root, f"{name}_API_KEY": "k",
           f"{name}_MODEL": "m", "QWEN_TELEMETRY_ENABLED": "false"}
    return env, ["qwen", "-y", "--auth-type", kind, "-m", "m", "-p", FIRST], None


def pi(p, kind):
    p.write(".pi/agent/models.json", {"providers": {"rg": {
        "baseUrl": p.root if kind == "anthropic-messages" else p.base, "apiKey": "k", "api": kind,
        "models": [{"id": "m", "name": "m", "reasoning": True, "input": ["text"], "contextWindow": 200000,
                    "maxTokens": 8000,
                    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}]}}})
    base = ["pi", "-p", "--provider", "rg", "--model", "m"]
    return {"PI_OFFLINE": "1"}, [*base, FIRST], [*base, "--continue", AGAIN]


def cline(p, kind):
    p.run(["cline", "auth", "-p", kind, "-k", "k", "-m", "m", "-b", p.base], {})
    return {}, ["cline", "--json", "-P", kind, "-m", "m", FIRST], None


LS = '{"command" :"ls",  "description": "list caf\\u00e9 files"}'
RUNS = {
    "claude": (claude, "", ("Bash", LS), ("Read", '{"file_path" :"%s/notes.txt", "limit": 10.0}')),
    **{f"codex {k}".strip(): (codex, k, ("exec_command", '{"cmd" :"ls", "workdir": "."}'),
                              ("exec_command", '{"cmd": "cat %s/notes.txt", "yield_time_ms": 1000.0}'))
       for k in ("", "gpt-5.5")},
    "codex gpt-5.6-luna": (
        codex, "gpt-5.6-luna",
        ("exec", '{"input" :"const r = await tools.exec_command({cmd: \'ls\'});\\ntext(r.output);"}'),
        ("exec", '{"input": "text((await tools.exec_command({cmd: \'cat %s/notes.txt\'})).output); '
                 'notify(\'caf\\u00e9\');"}')),
    **{f"copilot {k}": (copilot, k, ("bash", LS), ("view", '{"path" :"%s/notes.txt"}'))
       for k in ("openai", "openai responses", "anthropic", "azure")},
    **{f"cn {k}": (cn, k, ("Bash", '{"command" :"ls"}'), ("Read", '{"filepath" :"%s/notes.txt"}'))
       for k in ("openai", "anthropic")},
    **{f"opencode {k}": (opencode, k, ("bash", LS), ("read", '{"filePath" :"%s/notes.txt", "limit": 10.0}'))
       for k in ("openai-compatible", "openai", "anthropic")},
    **{f"qwen {k}": (qwen, k, ("run_shell_command", '{"command" :"ls",  "is_background": false}'),
                     ("read_file", '{"file_path" :"%s/notes.txt", "limit": 10.0}'))
       for k in ("openai", "anthropic")},
    **{f"pi {k}": (pi, k, ("bash", '{"command" :"ls",  "timeout": 10.0}'),
                   ("read", '{"path" :"%s/notes.txt", "limit": 10.0}'))
       for k in ("openai-completions", "openai-responses", "anthropic-messages")},
    **{f"cline {k}": (cline, k, ("run_commands", '{"commands" :["ls"]}'),
                      ("read_files", '{"files": [{"path" :"%s/notes.txt"}]}'))
       for k in ("openai", "openai-native")},
}


def installed(program):
    if not (BIN / program).exists():
        pytest.skip(f"{program} is not installed below {AGENTS} (npm install there)")


def play(start, tmp_path, script):
    """A gateway whose engine says the script, a session, a place for an agent of it."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    gateway = start(workers=1, engine=f"builtin:script:{path}", tool_parser="hermes",
                    reasoning_parser="qwen3")
    session = new_session(gateway)
    base = f"http://127.0.0.1:{gateway.port}/sessions/{session['session_id']}/v1"
    return gateway, session, Place(tmp_path, base)


def check(gateway, session, said):
    state = gateway.request("GET", f"/sessions/{session['session_id']}").json()
    assert not state["tito_session_mismatch"]
    trajectory, = finalize(gateway, session)["trajectories"]
    assert [t["cause"] for t in trajectory["turns"]] == ["new_root"] + ["extended"] * (len(said) - 1)
    assert {(t["purpose"], t["role"]) for t in trajectory["turns"]} == {("main", "main")}
    # every byte that was said, and one stop id a turn
    assert sum(trajectory["response_mask"]) == sum(len(s.encode()) + 1 for s in said)


@pytest.mark.parametrize("name", list(RUNS))
def test_a_coding_agent_keeps_one_conversation(start, tmp_path, name):
    how, kind, look, read = RUNS[name]
    installed(name.split()[0])
    script = task(look, (read[0], read[1].replace("%s", str(tmp_path / "work"))))
    gateway, session, place = play(start, tmp_path, script)
    env, first, again = how(place, kind)
    assert "MAGENTA-4417" in place.run(first, env)
    if again:
        assert "MAGENTA-4418" in place.run(again, env)
    check(gateway, session, script if again else script[:3])


MCP = {
    "claude": [("ToolSearch", '{"query": "select:mcp__f__list_files,mcp__f__read_file"}'),
               ("mcp__f__list_files", "{}"), ("mcp__f__read_file", '{"path" :"notes.txt"}')],
    "codex": [("list_files", "{}"), ("read_file", '{"path" :"notes.txt"}')],
    "codex gpt-5.5": [("tool_search", '{"query" :"list_files read_file", "limit": 4}'),
                      ("list_files", "{}"), ("read_file", '{"path" :"notes.txt"}')],
}


@pytest.mark.parametrize("name", list(MCP))
def test_tools_of_a_server_keep_the_conversation(start, tmp_path, name):
    """Claude Code has them deferred and brings them in by a search; Codex in a namespace, or deferred, too."""
    how, kind, *_ = RUNS[name]
    installed(name.split()[0])
    script = [say(THOUGHT + "So.\n", call) for call in MCP[name]] + ["It is MAGENTA-4417."]
    gateway, session, place = play(start, tmp_path, script)
    server = {"command": str(BIN / "node"), "args": [str(AGENTS / "mcp.mjs")]}
    env, first, _ = how(place, kind)
    if name == "claude":
        path = place.write("mcp.json", {"mcpServers": {"f": {"type": "stdio", **server}}})
        first[1:1] = ["--mcp-config", path, "--strict-mcp-config"]
        first[first.index("Bash,Read")] = "mcp__f__list_files,mcp__f__read_file"
    else:
        first[1:1] = ["-c", f"mcp_servers.f.command={json.dumps(server['command'])}",
                      "-c", f"mcp_servers.f.args={json.dumps(server['args'])}"]
    assert "MAGENTA-4417" in place.run(first, env)
    check(gateway, session, script)


@pytest.mark.parametrize("kind", ["openai-compatible", "openai"])
def test_opencode_renames_a_failed_call(start, tmp_path, kind):
    """Arguments that break behind what was sent come back as a call of its tool `invalid`, alone and after a good call."""
    installed("opencode")
    broken = ("write", '{"filePath": "%s/new.txt", "content": "%s\nb"}' % (tmp_path / "work", "x" * 400))
    good = ("read", '{"filePath" :"%s/notes.txt"}' % (tmp_path / "work"))
    script = [say(THOUGHT, broken), say("", good, broken), "The code is MAGENTA-4417."]
    gateway, session, place = play(start, tmp_path, script)
    env, first, _ = opencode(place, kind)
    assert "MAGENTA-4417" in place.run(first, env)
    check(gateway, session, script)


@pytest.mark.parametrize("options,name", [([], None), (["--enable", "multi_agent_v2"], "/root/looker")])
def test_codex_and_an_agent_that_it_spawns(start, tmp_path, options, name):
    """Both call themselves /root, unless agents have paths: only the first one is main."""
    installed("codex")
    # Each of the two histories begins with the first answer, and only the main agent has that tool.
    script = [say("", ("spawn_agent", '{"message": "Look around.", "task_name": "looker"}')), "Seen.", "Seen.", "Seen."]
    gateway, session, place = play(start, tmp_path, script)
    env, first, _ = codex(place, "")
    place.run([*first[:2], *options, *first[2:]], env)

    def turns():
        told = gateway.get(f"/sessions/{session['session_id']}/trajectories").json()["trajectories"]
        return {t["turns"][0]["purpose"]: t["turns"][0] for t in told}
    g.wait_until(lambda: len(turns()) == 2, what="two agents")
    main, spawned = turns()["main"], turns()["sub_agent"]
    assert main["role"] == "main" and main["label"] is None
    assert spawned["role"] == (name or spawned["role"]) and spawned["role"] not in ("/root", "thread_spawn", "collab_spawn")
    assert spawned["parent_label"]
