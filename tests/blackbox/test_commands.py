"""The commands of the binary that are no tool of a colleague: settings, live view, and what a running
gateway says of itself."""
import re
import shutil
import subprocess

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
    for part in (f"{tmp_path}/c.yaml:3: no setting is called \"workerz\"", "c.yaml:4: grace: \"soon\"",
                 "--history: history: \"twig\" is none of tree chains linear timelines", "--max-nodes"):
        assert part in done.stderr, done.stderr


def test_help_docs_and_manual_come_from_the_table(tmp_path):
    flags = re.findall(r"^  --([a-z-]+) ", run("--help").stdout, re.M)
    assert len(flags) > 60 and "on-template-rewrite" in flags
    docs, manual = run("config", "--docs").stdout, run("config", "--man").stdout
    for flag in flags:
        assert f"`--{flag}`" in docs
        assert flag.replace("-", "\\-") in manual
    if shutil.which("man"):
        (tmp_path / "rollgate.8").write_text(manual)
        done = subprocess.run(["man", "--warnings", "-l", tmp_path / "rollgate.8"], capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr


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
        return "5 active" in done.stdout
    g.wait_until(top, what="the workers have published their gauges")
    assert s.has_line(r"rollgate starts .*keys=off sandbox=.* model=.*PCRE2 JIT on")


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


def test_json_log_lines_are_whole(start):
    import json
    s = g.Gateway(workers=1, log_format="json", engine="builtin:echo")
    s.start(wait=False)
    g.wait_until(lambda: '"serving"' in s.log(), what="it serves")
    for line in s.log().splitlines():
        entry = json.loads(line)
        assert {"ts", "level", "role", "pid", "msg"} <= entry.keys()
