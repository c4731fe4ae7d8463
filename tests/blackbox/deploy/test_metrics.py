"""Every metric of section 5 of the operations spec, after a mix of requests. The limits of section 4 as settings,
metrics and refusals. The rate of the log."""
import os
import re
import shutil
import signal
import subprocess

from gateway import ROOT, in_parallel, pause, wait_until
from test_faults import Talk
from test_streaming import new, user


def page_of(gateway):
    text = gateway.get("/metrics").text
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              capture_output=True)
        assert done.returncode == 0 and not done.stdout + done.stderr, done
    return text


def test_every_metric_has_help_and_type_and_a_name_of_ours(start):
    text = page_of(start(workers=2))
    names = re.findall(r'^X\(\w+, \w+, "(\w+)"', (ROOT / "common/proc/metrics.def").read_text(), re.M)
    assert len(names) > 50
    for name in names:
        assert re.search(rf"^# HELP rollgate_{name} \S", text, re.M), name
        assert re.search(rf"^# TYPE rollgate_{name} (counter|gauge|histogram)$", text, re.M), name
    for line in text.splitlines():
        assert line.startswith(("# HELP rollgate_", "# TYPE rollgate_", "rollgate_")), line


def test_a_little_of_everything_is_counted(start):
    gateway = start(engine="builtin:echo", workers=1, durability="power")
    gateway.allow("process died")
    one, two = Talk(gateway), Talk(gateway)
    for _ in range(3):
        assert one.turn() == 200 and two.turn() == 200
    assert gateway.chat(one.session, user("begin")).status == 200           # the same answer
    gateway.chat(one.session, user("another root"))
    gateway.post(f"{two.path}/complete")
    gateway.post(f"{one.path}/finalize")
    gateway.post("/sessions/w77-00112233445566778899aabbccddeeff/v1/chat/completions",
                 {"messages": user("who")})                                 # no such worker: reseeded
    gateway.get("/sessions/bad/nothing")
    m = wait_until(lambda: (lambda m: m if m['rollgate_sessions{phase="completed"}'] == 1 else None)(
        gateway.metrics()), 10, "the worker has published")
    expect = {
        'requests_total{dialect="chat",status="200"}': 9,
        'requests_total{dialect="control",status="200"}': 4,
        "turn_queue_seconds_count": 9, "turn_engine_seconds_count": 9,
        "turn_gateway_seconds_count": 9, "turn_gateway_seconds_sum": 1e-9,
        "prompt_tokens_total": 100, "reused_tokens_total": 100, "encoded_tokens_total": 100,
        "generated_tokens_total": 50,
        'forks_total{cause="extended"}': 4, 'forks_total{cause="new_root"}': 4,
        'sessions{phase="open"}': 1, 'sessions{phase="finalized"}': 1,
        "sessions_created_total": 2, "sessions_reseeded_total": 1,
        "live_tokens": 100, "session_memory_bytes": 1000,
        'engine_up{engine="0"}': 1, 'engine_requests_total{engine="0"}': 9,
        'relayed_bytes_total{direction="to_worker"}': 500,
        'relayed_bytes_total{direction="to_client"}': 1000,
        "round_robin_fallbacks_total": 1, "connections": 1, "connections_accepted_total": 10,
        "journal_written_bytes_total": 1000, "journal_records_total": 13,
        "journal_bytes": 1000, "journal_live_bytes": 1000,
        "journal_fsync_seconds_count": 10, "journal_fsync_seconds_sum": 1e-6,
        'process_resident_memory_bytes{process="worker-0"}': 1e6,
        'process_open_fds{process="router-0"}': 3,
        "loop_round_seconds_count": 1,
    }
    for name, least in expect.items():
        assert m[f"rollgate_{name}"] >= least, (name, m.get(f"rollgate_{name}"))
    for name in ("upstream_errors_total",
                 'loop_lag_seconds{process="worker-0"}', 'drift_total{kind="assistant_text"}',
                 'engine_inflight{engine="0"}', "calls_inflight", "queue_depth"):
        assert f"rollgate_{name}" in m, name
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    assert two.gateway.get(two.path).status in (200, 502, 503)
    wait_until(lambda: gateway.metrics()["rollgate_journal_replayed_records_total"] >= 13, 20)
    again = gateway.metrics()
    assert again['rollgate_process_restarts_total{role="worker"}'] == 1
    assert again["rollgate_journal_replay_seconds_total"] >= 0
    for name in ("prompt_tokens_total", "journal_records_total", "sessions_created_total"):
        assert again[f"rollgate_{name}"] >= m[f"rollgate_{name}"], name
    page_of(gateway)


def test_holds_of_the_loop_are_shown(start):
    """Every round of a loop that did something counts; the longest of a process is shown, too."""
    gateway = start(workers=1)
    session = new(gateway)
    before = gateway.metrics()
    assert gateway.chat(session, "short").status == 200
    after = gateway.metrics()
    for part in ("count", "sum"):
        name = f"rollgate_loop_hold_seconds_{part}"
        assert after[name] > before[name]
    longest = after['rollgate_loop_hold_max_seconds{process="worker-0"}']
    assert 0 < longest < 2
    assert 0 < after['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}'] <= longest
    later = gateway.metrics()['rollgate_loop_hold_max_seconds{process="worker-0"}']
    assert later >= longest


def test_limits_are_shown_as_they_are_set(start, tmp_path):
    config = tmp_path / "rollgate.yaml"
    config.write_text("max-sessions: 7\nqueue-timeout: 90s\n")
    gateway = start(config=str(config), max_nodes=11, max_worker_memory="3g", log_rate=9)
    shown = {k: v for k, v in gateway.metrics().items() if k.startswith("rollgate_limit{")}
    want = {"sessions": 7, "live_tokens": 2e9, "worker_memory_bytes": 3 << 30, "nodes": 11,
            "inflight": 4096, "session_inflight": 256, "queue": 10000, "session_queue": 2048, "queue_seconds": 90,
            "connections": 0, "address_connections": 0, "key_connections": 1024,
                "key_body_bytes": 512 << 20, "address_body_bytes": 1 << 30, "worker_body_bytes": 1 << 30,
                "body_bytes_per_second": 1024, "header_bytes": 32768, "body_bytes": 64 << 20,
            "messages": 8192, "request_growth": 64, "request_memory_bytes": 1 << 30, "schema_bytes": 4 << 20,
            "session_recorded_bytes": 16 << 30, "stops": 4096, "tools": 2048, "log_lines_per_second": 9}
    assert shown == {f'rollgate_limit{{limit="{k}"}}': v for k, v in want.items()}
    config.write_text("max-sessions: 8\n")
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.metrics()['rollgate_limit{limit="sessions"}'] == 8, 10)
    assert gateway.metrics()['rollgate_limit{limit="queue_seconds"}'] == 300


def refusals(gateway, reason):
    return gateway.metrics()[f'rollgate_refusals_total{{reason="{reason}"}}']


def test_each_limit_refuses_and_counts(start):
    gateway = start(engine="builtin:echo,delay_ms=700", workers=1, max_sessions=3, max_nodes=4,
                    engine_max_inflight=1, max_queue=1, queue_timeout="100ms")
    one = new(gateway)
    assert gateway.chat(one, "a").status == 200
    assert gateway.chat(one, user("a") + [{"role": "assistant", "content": "a"}] + user("b")).status == 200
    full = gateway.chat(one, "c")
    assert full.status == 429 and full.json()["error"]["code"] == "max_nodes"
    assert "4" in full.json()["error"]["message"]
    two = new(gateway)
    answers = in_parallel(lambda n: gateway.chat(two, f"x{n}"), range(4))
    refused = [a for a in answers.values() if a.status != 200]
    assert {a.status for a in refused} == {429}
    assert all(int(a.headers["Retry-After"]) >= 1 and a.headers["x-should-retry"] == "true"
               for a in refused)
    new(gateway)
    many = gateway.post("/sessions")
    assert many.status == 429 and int(many.headers["Retry-After"]) >= 1
    for reason in ("sessions", "nodes", "queue", "queue_timeout"):
        assert refusals(gateway, reason) >= 1, reason
    assert refusals(gateway, "queue") + refusals(gateway, "queue_timeout") == len(refused)


def test_the_log_has_a_rate(start):
    """Lines of one kind beyond the rate are counted, told and shown, others are not touched."""
    gateway = start(engine="builtin:echo", workers=1, log_rate=5)  # more than there are processes, which the supervisor tells of
    session = new(gateway)
    for n in range(30):
        assert gateway.chat(session, f"{n}").status == 200

    def calls():
        return re.findall(r"worker-0 \d+ call .*", gateway.log())
    wait_until(lambda: gateway.metrics()["rollgate_log_suppressed_lines_total"] > 0, 10)
    pause(1.1, "the log's limits are for a second each")
    gateway.chat(session, "one more")
    told = sum(int(n) for n in re.findall(r"suppressed=(\d+)", gateway.log()))
    dropped = gateway.metrics()["rollgate_log_suppressed_lines_total"]
    assert len(calls()) + dropped == 31 and told == dropped and len(calls()) < 31
