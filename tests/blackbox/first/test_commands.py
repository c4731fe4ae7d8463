"""Commands of the binary: settings, live view, and reports on a running gateway."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import gateway as g


def run(*arguments, **more):
    return subprocess.run([str(g.BINARY), *map(str, arguments)], capture_output=True, text=True, **more)


def test_a_dump_loads_again(tmp_path):
    first = run("config", "--dump", "--workers", 3, "--engine", "builtin:echo", "--grace", "1500ms")
    assert first.returncode == 0, first.stderr
    (tmp_path / "c.yaml").write_text(first.stdout)
    again = run("config", "--dump", "--config", tmp_path / "c.yaml")
    assert again.stdout == first.stdout
    assert run("config", "--check", "--config", tmp_path / "c.yaml").returncode == 0


def test_mistakes_name_their_place(tmp_path):
    (tmp_path / "c.yaml").write_text("workers: 2\n\nworkerz: 3\ngrace: soon\n")
    done = run("serve", "--config", tmp_path / "c.yaml", "--history", "twig", "--max-nodes=-1")
    assert done.returncode == 2
    for part in (f"{tmp_path}/c.yaml:3: unknown setting \"workerz\"", "c.yaml:4: grace: \"soon\"",
                 "--history: \"twig\" is not one of tree, chains, linear, timelines", "--max-nodes"):
        assert part in done.stderr, done.stderr


def test_docs_and_manual_come_from_the_table(tmp_path):
    docs, manual = run("config", "--docs").stdout, run("config", "--man").stdout
    flags = re.findall(r"^#([a-z-]+): ", docs, re.M)
    assert len(flags) > 60 and "on-template-rewrite" in flags
    for flag in flags:
        assert flag.replace("-", "\\-") in manual
    if shutil.which("man"):
        (tmp_path / "rollgate.yaml.5").write_text(manual)
        done = subprocess.run(["man", "--warnings", "-l", tmp_path / "rollgate.yaml.5"], capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr


def test_docs_are_a_file_of_settings(tmp_path):
    """`config --docs` works as it is. With all lines uncommented it changes nothing."""
    docs = run("config", "--docs").stdout
    assert max(map(len, docs.splitlines())) <= 120
    (tmp_path / "as-it-is.yaml").write_text(docs)
    (tmp_path / "all.yaml").write_text(re.sub(r"^#(?=[a-z-]+: )", "", docs, flags=re.M).replace("worker-base: 0", ""))
    plain = run("config", "--dump").stdout
    for name in ("as-it-is.yaml", "all.yaml"):
        done = run("config", "--dump", "--config", tmp_path / name)
        assert done.returncode == 0 and done.stdout == plain, done.stderr
    assert plain.count("\n") > 100


def test_unknown_commands_and_arguments_are_usage_errors():
    assert run().returncode == 2
    assert run("dance").returncode == 2
    assert run("serve", "extra").returncode == 2
    assert run("--version").stdout.startswith("rollgate ")


def test_top_and_metrics_of_a_working_gateway(start):
    s = start(workers=2, routers=2, engine="builtin:echo")
    for i in range(5):
        session = s.post("/sessions").json()
        assert s.chat(session, f"call {i}").status == 200
    page = s.get("/metrics").text
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
    m = s.metrics()
    assert m['rollgate_requests_total{dialect="chat",status="200"}'] == 5
    assert m["rollgate_sessions_created_total"] == 5
    assert m["rollgate_turn_engine_seconds_count"] == 5
    assert m["rollgate_generated_tokens_total"] == 5 * len("call 0") + 5
    assert sum(v for k, v in m.items() if k.startswith("rollgate_process_resident")) > 4e6
    def top():
        done = run("top", "--once", "--listen", f"127.0.0.1:{s.port}")
        assert done.returncode == 0 and "worker-1" in done.stdout
        return "5 open" in done.stdout
    g.wait_until(top, what="the workers have published their gauges")
    assert s.has_line(r"rollgate starts .*keys=.off: every program .*refused.*sandbox=.* model=.*PCRE2 JIT on")


def test_ps_shows_what_each_process_is(start):
    s = start(workers=2, routers=1, engine="builtin:echo")
    titles = {name: pathlib.Path(f"/proc/{s.child(name)}/cmdline").read_bytes().rstrip(b"\0").decode()
              for name in ("worker-0", "worker-1", "router-0", "dispatcher")}
    assert titles == {"worker-0": "rollgate: worker 0", "worker-1": "rollgate: worker 1", "router-0": "rollgate: router 0",
                      "dispatcher": "rollgate: dispatcher"}
    assert pathlib.Path(f"/proc/{s.process.pid}/cmdline").read_bytes().rstrip(b"\0") == b"rollgate: supervisor"
    names = {name: [pathlib.Path(f"/proc/{pid}/task/{t}/comm").read_text().strip() for t in sorted(os.listdir(f"/proc/{pid}/task"), key=int)]
             for name, pid in [("supervisor", s.process.pid), *[(n, s.child(n)) for n in titles]]}
    assert names["supervisor"] == ["rollgate"] and names["router-0"][0] == "rollgate-r0" and names["dispatcher"][0] == "rollgate-d"
    assert names["worker-1"][0] == "rollgate-w1" and "rollgate-helper" in names["worker-1"][1:]
    assert all(name.startswith("rollgate") and len(name) <= 15 for each in names.values() for name in each)
    s.signal(signal.SIGHUP)     # reads the command line again
    s.wait_line("configuration reloaded")


def test_counters_survive_a_killed_worker(start):
    import os
    import signal
    s = start(workers=1, engine="builtin:echo").allow("process died")
    session = s.post("/sessions").json()
    assert s.chat(session, "one").status == 200
    victim = s.child("worker-0")
    os.kill(victim, signal.SIGKILL)
    g.wait_until(lambda: s.child("worker-0") != victim)
    m = s.metrics()
    assert m['rollgate_requests_total{dialect="chat",status="200"}'] == 1
    assert m['rollgate_process_restarts_total{role="worker"}'] == 1


WRONG = {
    "listen": ["127.0.0.1:99999", "nowhere", "127.0.0.1:http"],
    "peer": ["zzz", "4-7=127.0.0.1:99999", "7-4=127.0.0.1:1"],
    "engine": ["bar:baz", "sglang:foo", "vllm:http://127.0.0.1:99999", "builtin:dance", "builtin:script:/no/script", "builtin:recorded:/no/record",
               "sglang:http://127.0.0.1:1,key-file=/no/engine-key", "vllm:http://127.0.0.1:1,weight=much"],
    "sink": ["ftp:x", "redis:x", "redis://127.0.0.1?password_file=/no/password"],
    "tool-parser": ["none-such-tools"], "reasoning-parser": ["none-such-thoughts"], "tito-family": ["none-such-family"],
    "model": ["/no/model"], "admin-key-file": ["/no/admins"], "key-secret-file": ["/no/secret"],
    "media-fetch": ["ftp://a", "a.example,b c"], "media-fetch-address": ["10.0.0.1/8"], "media-fetch-ca-file": ["/no/ca.pem"],
    "passthrough": ["perhaps"], "workers": ["many"],
}


def test_what_settings_stand_for_is_checked_too_and_all_at_once(tmp_path):
    for flag, values in WRONG.items():
        for value in values:
            done = run("config", "--check", f"--{flag}={value}", f"--state-dir={tmp_path}/state")
            assert done.returncode == 2 and f"--{flag}" in done.stderr, (flag, value, done.stderr)
            assert done.stderr.count("\n") == 1, done.stderr
    all_wrong = [f"--{flag}={value}" for flag, values in WRONG.items() for value in values]
    for command in (["config", "--check"], ["serve"]):
        done = run(*command, *all_wrong, f"--state-dir={tmp_path}/state", "extra")
        assert done.returncode == 2
        # of a repeated flag that takes one value the last one counts, but for what is no value at all
        repeats = len(WRONG["listen"]) - 1
        assert done.stderr.count("\n") == len(all_wrong) - repeats + 1, done.stderr
        for flag in WRONG:
            assert f"--{flag}" in done.stderr, flag
    done = run("route", "--listen=127.0.0.1:99999", "--workers=many")
    assert done.returncode == 2
    assert {line.split(":")[0] for line in done.stderr.splitlines()} == {"--listen", "--workers", "--upstream"}
    assert not (tmp_path / "state").exists(), "a check makes nothing"
    shell = tmp_path / "key"
    shell.write_text("an admin's key\n")
    assert run("config", "--check", "--listen=0.0.0.0:1").returncode == 2, "nobody listens everywhere without keys"
    assert run("config", "--check", "--listen=0.0.0.0:1", f"--admin-key-file={shell}").returncode == 0


def test_a_file_says_each_thing_once(tmp_path):
    (tmp_path / "c.yaml").write_text("workers: 2\nmax_nodes: 5\nworkers: 3\nmax-nodes: 6\n")
    done = run("config", "--check", "--config", tmp_path / "c.yaml")
    assert done.returncode == 2
    assert "c.yaml:3: workers: set twice" in done.stderr and "c.yaml:4: max-nodes: set twice" in done.stderr


def test_a_switch_takes_its_value_from_behind(tmp_path):
    for value, says in (("off", "sandbox: off"), ("on", "sandbox: on"), ("=no", "sandbox: off")):
        words = [f"--sandbox{value}"] if value[0] == "=" else ["--sandbox", value]
        assert says in run("config", "--dump", *words, "--workers", 3).stdout
    assert "sandbox: on" in run("config", "--dump", "--sandbox", "--workers", 3).stdout
    assert run("dance").stderr.startswith('rollgate: no command is called "dance"')


def test_an_nginx_site_holds_only_what_was_meant():
    for words in (["--server-name", "a; b"], ["--certificate", "/c}"], ["--site-listen", "443 ssl;"], ["--server-name="],
                  ["--server-name"], ["--listen=nowhere"], ["--peer=4-7=nowhere"], ["--site-nodes=a:1"],
                  ["--site-nodes=a:1,b", "--fleet=redis://s?name=x"], ["--site-nodes=a:1,b:2;", "--fleet=redis://s?name=x"]):
        done = run("nginx-config", *words)
        assert done.returncode == 2 and words[0].split("=")[0] in done.stderr and not done.stdout, (words, done)
    assert "server_name a.test b.test;" in run("nginx-config", "--server-name", "a.test b.test").stdout


@pytest.mark.parametrize("words, told", [
    (["--tool-parser", "auto"], ["--tool-parser", "auto", "hermes", "qwen3_coder", "leave it out"]),
    (["--reasoning-parser", "foo"], ["--reasoning-parser", "deepseek_r1", "leave it out"]),
    (["--engine", "builtin:echo,weigth=3"], ["--engine", '"weigth"', 'did you mean "weight"', "key-file"]),
    (["--engine", "sglang:http://127.0.0.1:1,weigth=3"], ["--engine", '"weigth"', 'did you mean "weight"']),
    (["--engine", "sglang:http://127.0.0.1:1,weight=x"], ["--engine", "weight", '"x"', "0 to 1e9"]),
    (["--engine", "sgl:http://x"], ["--engine", '"sgl"', "sglang"]),
    (["--workers", "999"], ["--workers: must be between", "256", "999"]),
    (["--workers", "some"], ['--workers: "some" is not a whole number']),
    (["--queue-timeout", "999999d"], ["--queue-timeout", "31622400s", "999999d"]),
    (["--listen", "9.9.9.9:80"], ["--listen", "9.9.9.9:80", "--admin-key-file"]),
    (["--state_dirr", "x"], ['did you mean "state-dir"']),
])
def test_a_mistake_names_setting_value_and_what_is_allowed(words, told):
    done = run("config", "--check", *words)
    assert done.returncode == 2 and all(t in done.stderr for t in told), done.stderr
    assert done.stderr.count(f"{words[0]}:") <= 1 and "e+" not in done.stderr


def test_a_script_may_have_any_name(tmp_path):
    script = tmp_path / "a,b=c.jsonl"
    script.write_text("")
    assert "option" not in run("config", "--check", "--engine", f"builtin:script:{script}").stderr


def test_detokenize_refuses_ids_that_no_token_has():
    done = run("detokenize", input="104 105 99999")
    assert done.returncode == 1 and "99999" in done.stderr and not done.stdout
    assert run("detokenize", input="104 105").stdout == "hi"
    done = run("detokenize", "--jsonl", input='{"ids": [104, 99999, 105, 4000000000]}\n{"ids": [104]}\n')
    told = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert told == [{"text": "hi", "unknown_ids": [99999, 4000000000]}, {"text": "h"}]


def test_the_option_for_special_tokens_holds_for_lines_without_their_own():
    lines = '{"ids": [104, 257]}\n{"ids": [104, 257], "skip_special_tokens": false}\n'
    done = run("detokenize", "--jsonl", "--skip-special", input=lines)
    assert [json.loads(x)["text"] for x in done.stdout.splitlines()] == ["h", "h<|im_end|>"]
    file = g.MODELS.parent / "tokens" / "tiny-llama3" / "tokenizer.json"
    lines = '{"text": "h"}\n{"text": "h", "add_special_tokens": false}\n'
    done = run("tokenize", "--jsonl", "--special", "--tokenizer", file, input=lines)
    assert [len(json.loads(x)["ids"]) for x in done.stdout.splitlines()] == [2, 1]


@pytest.mark.parametrize("words", [
    ["tokenize"], ["tokenize", "--jsonl"], ["detokenize"], ["detokenize", "--jsonl"], ["render"], ["render", "--jsonl"],
    ["group", "submit", "-", "--gateway", "http://127.0.0.1:1"]])
def test_an_input_that_cannot_be_read_is_an_error(words, tmp_path):
    """It was the end of the input, with status 0. A folder can be opened and not read."""
    folder = os.open(tmp_path, os.O_RDONLY)
    done = run(*words, stdin=folder)
    os.close(folder)
    assert done.returncode == 1 and "cannot read standard input: Is a directory" in done.stderr, done


@pytest.mark.parametrize("words, text", [
    (["tokenize", "--jsonl"], '{"text": "hi"}'), (["render", "--jsonl"], '{"template": "x", "context": {}}'),
    (["config", "--docs"], ""), (["help"], ""), (["--version"], "")])
def test_an_output_that_cannot_be_written_is_an_error(words, text):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(g.BINARY), *words], input=text, text=True, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and "cannot write to standard output" in done.stderr, done


def test_detokenize_reads_behind_a_nul_byte():
    for text in ("104\0 105", "104 105\0"):
        done = run("detokenize", input=text)
        assert done.returncode == 1 and "not token ids" in done.stderr and not done.stdout, done


def test_a_key_file_is_read_by_whole_lines(start, tmp_path):
    """A long line was cut, and the rest of a long comment was the key."""
    (tmp_path / "admins").write_text(f"{'k' * 400}\n")
    gateway = start(admin_key_file=f"{tmp_path}/admins")
    (tmp_path / "key").write_text(f"# {'c' * 300}\n\n{'k' * 400}\n")
    done = run("group", "list", "--gateway", gateway.url, "--key-file", tmp_path / "key")
    assert done.returncode == 0, done.stderr
    done = run("group", "list", "--gateway", gateway.url, "--key-file", tmp_path)
    assert done.returncode != 0 and "Is a directory" in done.stderr, done


def test_a_mistake_in_the_environment_is_named_once():
    done = run("config", "--check", env={**os.environ, "ROLLGATE_WORKERS": "many"})
    assert done.returncode != 0 and 'ROLLGATE_WORKERS: "many"' in done.stdout + done.stderr


def test_an_export_makes_its_folder(start, tmp_path):
    s = start(engine="builtin:echo", workers=1, durability="process")
    session = s.post("/sessions").json()
    s.chat(session, "hi")
    s.stop()
    out = tmp_path / "new" / "below"
    done = run("export", f"{s.folder}/state/worker-0", "--out", out)
    assert done.returncode == 0 and [p.name for p in out.iterdir()] == [f"{session['session_id']}.json"], done.stderr
    (tmp_path / "file").write_text("")
    done = run("export", f"{s.folder}/state/worker-0", "--out", tmp_path / "file")
    assert done.returncode == 1 and "--out" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_export_writes_a_line_for_each_trajectory(start, tmp_path):
    s = start(engine="builtin:random:3", workers=1, durability="process")
    sessions = [s.post("/sessions", {"history": "tree"}).json() for _ in range(2)]
    for session in sessions:
        s.post(f"/sessions/{session['session_id']}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "n": 2})
    whole = [s.get(f"/sessions/{x['session_id']}/trajectories").json() for x in sessions]
    s.stop()
    folder = f"{s.folder}/state/worker-0"
    done = run("export", folder, "--to", "jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    want = [{"session_id": x["session_id"], **t} for x in whole for t in x["trajectories"]]
    assert done.returncode == 0 and len(want) == 4

    def order(rows):
        return sorted(rows, key=lambda row: (row["session_id"], row["trajectory_index"]))
    assert order(lines) == order(want) and [list(a) for a in order(lines)] == [list(b) for b in order(want)]
    done = run("export", folder, "--to", "jsonl", "--out", tmp_path, "select=longest")
    files = {p.name: p.read_text().splitlines() for p in tmp_path.iterdir()}
    assert done.returncode == 0 and {k: len(v) for k, v in files.items()} == {f"{x['session_id']}.jsonl": 1 for x in sessions}
    for arguments, words in ((["--to", "csv"], "--to is jsonl, not csv"), (["--to", "jsonl", "--format", "verl"], "takes no --format"),
                             (["--html", sessions[0]["session_id"], "--to", "jsonl"], "--to or OPTION=VALUE")):
        done = run("export", folder, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_lines_hold_no_evaluations(start):
    """A data set trains its lines. An evaluation is left out, with a word, unless it is asked for by name."""
    s = start(engine="builtin:echo", workers=1, durability="process")
    trained, evaluation = (s.post("/sessions", {"evaluation": e}).json()["session_id"] for e in (False, True))
    for session in (trained, evaluation):
        s.post(f"/sessions/{session}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    s.stop()
    folder = f"{s.folder}/state/worker-0"
    done = run("export", folder, "--to", "jsonl")
    assert done.returncode == 0 and [json.loads(x)["session_id"] for x in done.stdout.splitlines()] == [trained], done.stderr
    assert f"{evaluation}: an evaluation: left out (--session {evaluation} exports it)" in done.stderr
    done = run("export", folder, "--to", "jsonl", "--session", evaluation)
    assert json.loads(done.stdout)["session_id"] == evaluation and "left out" not in done.stderr
    assert evaluation in run("export", folder).stdout, "whole exports say that they are of an evaluation"


COMMANDS = ["serve", "route", "runner", "group", "key", "journal", "export", "config", "tokenize", "detokenize", "render", "check",
            "top", "session", "watch", "nginx-config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_its_own_help(command):
    done = run(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"rollgate {command}: ") and not done.stderr
    assert f"usage: rollgate {command} " in done.stdout and f"examples:\n  " in done.stdout
    assert run("help", command).stdout == run(command, "-h").stdout == done.stdout
    assert "--max-nodes" not in done.stdout and fits_a_screen(done.stdout)
    assert ("config --docs" in done.stdout) == (command in ("serve", "route", "config", "nginx-config", "key"))


def fits_a_screen(page):
    return page.count("\n") <= 24 and max(map(len, page.splitlines())) <= 100


def test_help_is_one_screen_that_names_every_command():
    page = run("--help").stdout
    assert fits_a_screen(page) and "config --docs" in page
    assert set(COMMANDS) <= set(re.findall(r"^  ([a-z-]+) ", page, re.M))
    assert run("help").stdout == page


def test_a_model_that_is_no_folder_is_explained(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for command in (["serve", f"--state-dir={tmp_path}/state"], ["check"]):
        done = run(*command, "--model", "Qwen/Qwen3-8B")
        assert done.returncode != 0 and "a local folder is needed" in done.stderr, done.stderr
        done = run(*command, "--model", tmp_path / "tokenizer.json")
        assert done.returncode != 0 and "is a file; name the folder" in done.stderr, done.stderr
        done = run(*command, "--model", tmp_path / "missing")
        assert done.returncode != 0 and "does not exist" in done.stderr, done.stderr


def test_words_of_a_command_and_its_settings_come_in_any_order(tmp_path):
    """`top --listen X --once` and `key --config F executor n1` are what people type."""
    (tmp_path / "c.yaml").write_text(f"state-dir: {tmp_path}/state\nkey-secret-file: {tmp_path}/secret\nadmin-key-file: {tmp_path}/admins\n")
    (tmp_path / "secret").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "admins").write_text("an-admins-key\n")
    keys = {run("key", *words).stdout for words in (
        ["executor", "n1", "--config", tmp_path / "c.yaml"], ["--config", tmp_path / "c.yaml", "executor", "n1"],
        ["executor", "--config", tmp_path / "c.yaml", "n1"])}
    assert len(keys) == 1 and keys.pop().startswith("rgx-n1-")
    assert run("key", "--config", tmp_path / "c.yaml").returncode == 2
    for words in (["--once", "--listen", "127.0.0.1:1"], ["--listen", "127.0.0.1:1", "--once"], ["--once", "--gateway", "http://127.0.0.1:1"]):
        done = run("top", *words)
        assert done.returncode == 1 and "127.0.0.1:1" in done.stderr, done.stderr


def test_top_takes_gateway_and_key_file(start, tmp_path):
    (tmp_path / "admins").write_text("# of the operators\nan-admins-key\n")
    s = start(workers=1, engine="builtin:echo", admin_key_file=tmp_path / "admins", metrics_auth="on")
    url = f"http://127.0.0.1:{s.port}"
    done = run("top", "--once", "--gateway", url, "--key-file", tmp_path / "admins")
    assert done.returncode == 0 and "worker-0" in done.stdout, done.stderr
    done = run("top", "--once", "--listen", f"127.0.0.1:{s.port}", "--admin-key-file", tmp_path / "admins")
    assert done.returncode == 0 and "worker-0" in done.stdout, done.stderr
    done = run("top", "--once", "--gateway", url)
    assert done.returncode == 1 and "--key-file" in done.stderr


def test_the_options_that_help_tells_are_known():
    for command in ("tokenize", "detokenize", "render", "check"):
        told = re.findall(r"^  (?:DIR, )?--([a-z-]+)( [A-Z]+)?  ", run(command, "--help").stdout, re.M)
        assert ("model", " DIR") in told
        for flag, value in told:
            done = run(command, f"--{flag}", *(["/nowhere"] if value else []), input="")
            assert "usage:" not in done.stderr or flag == "context-length", (command, flag, done.stderr)
        assert run(command, "--no-such-thing", input="").returncode == 2


def test_one_way_to_name_a_model(tmp_path):
    """check, tokenize, detokenize and render take DIR or --model DIR alike."""
    inputs = {"check": "", "tokenize": "hi", "detokenize": "104 105",
              "render": '{"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": true}'}
    for command, given in inputs.items():
        bare, named, none = (run(command, *words, input=given) for words in ([tmp_path], ["--model", tmp_path], []))
        assert bare.returncode == named.returncode == 1 and bare.stderr == named.stderr and str(tmp_path) in bare.stderr, command
        assert none.returncode == 0 and none.stdout, (command, none.stderr)
    assert run("render", input=inputs["render"]).stdout.endswith("assistant\n")


def test_a_model_folder_renders_with_its_own_special_tokens(tmp_path):
    shutil.copy(g.ROOT / "tests/data/tokens/tiny-llama3/tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",
        "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                         "{% if add_generation_prompt %}[assistant]{% endif %}"}))
    context = {"messages": [{"role": "user", "content": "hi"}], "eos_token": "<mine>"}
    done = run("render", tmp_path, input=json.dumps(context))
    assert done.stdout == "<|begin_of_text|>[user]hi<mine>", done.stderr


def test_slips_in_a_command_are_understood():
    assert 'did you mean "check"?' in run("chekc").stderr
