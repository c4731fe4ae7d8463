"""--otlp-endpoint: spans of every call. Neither Debian 12 nor npm has a collector. otlp_kit has one that accepts only
what the protobuf definition allows, and OpenTelemetry's own messages (npm, tests/traces) read the same bodies."""
import json
import re
import shutil
import subprocess
import time

import pytest

from gateway import ROOT, wait_until
from otlp_kit import Collector
from vision_kit import session

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENTS = f"00-{TRACE}-{PARENT}-01"
PARTS = ["render", "queue", "engine", "parse", "commit"]


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


def chat(gateway, sid, text="a secret of the agent", headers=None, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", body, headers=headers)


def turns(collector, n=1):
    """The spans of turns, once n are there; a turn's own comes behind its parts."""
    def enough():
        found = [s for s in list(collector.spans) if s.name.split()[0] in ("chat", "text_completion")]
        return found if len(found) >= n else None
    return wait_until(enough, what=f"{n} turns are told")


def parts(collector, turn):
    return [s for s in collector.spans if s.parent == turn.id]


def metric(gateway, result):
    for line in gateway.get("/metrics").text.splitlines():
        if line.startswith("rollgate_spans_total{") and f'result="{result}"' in line:
            return int(float(line.split()[-1]))
    return 0


def test_a_turn_and_its_parts(start, engine, collector):
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    before = time.time_ns()
    answer = chat(gateway, sid, max_tokens=40)
    assert answer.status == 200, answer.text
    turn, = turns(collector)
    mine = parts(collector, turn)
    assert [s.name for s in mine] == PARTS and turn.name == "chat m" and turn.raw["kind"] == 2
    assert before - 10**10 < turn.start <= turn.end < time.time_ns() + 10**10
    # they nest, and follow each other
    assert all(turn.start <= s.start <= s.end <= turn.end for s in mine)
    assert all(a.end <= b.start + 10**6 for a, b in zip(mine, mine[1:]))
    assert mine[0].start == turn.start and mine[-1].end == turn.end
    assert {s.trace for s in mine} == {turn.trace} and turn.parent is None and len({s.id for s in [turn, *mine]}) == 6
    usage = answer.json()["usage"]
    for key, value in {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": sid,
                       "gen_ai.response.id": answer.json()["id"], "gen_ai.response.finish_reasons": ["stop"],
                       "gen_ai.usage.input_tokens": usage["prompt_tokens"],
                       "gen_ai.usage.output_tokens": usage["completion_tokens"],
                       "gen_ai.request.max_tokens": 40, "rollgate.call": 0, "rollgate.stream": False}.items():
        assert turn.has[key] == value, (key, turn.has)
    assert turn.resource["service.name"] == "rollgate" and turn.resource["service.instance.id"].endswith("worker-0")
    # the engine is told where it stands
    told = e.requests[0]["headers"]["traceparent"]
    assert told == f"00-{turn.trace}-{mine[2].id}-01" and mine[2].raw["kind"] == 3
    assert "secret" not in str([s.raw for s in collector.spans])
    assert collector.asked[0][0] == "/v1/traces"
    wait_until(lambda: metric(gateway, "sent") == 6, what="they are counted")


def test_turns_of_a_session_stand_together_with_gaps(start, collector):
    gateway = start(workers=1, engine="builtin:echo", otlp_endpoint=collector.url + "/of/mine")
    one, other = session(gateway), session(gateway)
    for sid in (one, other, one):
        assert chat(gateway, sid, str(len(collector.spans))).status == 200
    told = turns(collector, 3)
    of = {sid: [t for t in told if t.has["gen_ai.conversation.id"] == sid] for sid in (one, other)}
    assert len(of[one]) == 2 and len({t.trace for t in of[one]}) == 1 and of[one][0].trace != of[other][0].trace
    gap, = [s for s in collector.spans if s.name == "tool gap"]
    assert gap.trace == of[one][0].trace and gap.parent is None and gap.has["gen_ai.conversation.id"] == one
    # each call has its own reading of the wall's clock, and the process may stand still behind it
    assert abs(gap.start - of[one][0].end) < 5 * 10**9 and abs(gap.end - of[one][1].start) < 5 * 10**9 and gap.start < gap.end
    assert collector.asked[0][0] == "/of/mine"
    # a restart: the trace is the session's, the gap is not known any more
    gateway.stop()
    gateway.start()
    assert chat(gateway, one, "again").status == 200
    assert turns(collector, 4)[3].trace == gap.trace
    assert len([s for s in collector.spans if s.name == "tool gap"]) == 1


@pytest.mark.parametrize("kind", ["sglang", "vllm", "openai"])
def test_the_client_says_where_it_stands(start, engine, collector, kind):
    e = engine(kind)
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    for i in range(2):
        a = chat(gateway, sid, str(i), {"traceparent": CLIENTS, "tracestate": "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"})
        assert a.status == 200, a.text
    for turn in turns(collector, 2):
        assert (turn.trace, turn.parent) == (TRACE, PARENT) and turn.raw["flags"] & 0x301 == 0x301
        assert {s.trace for s in parts(collector, turn)} == {TRACE}
    gap, = [s for s in collector.spans if s.name == "tool gap"]
    assert (gap.trace, gap.parent) == (TRACE, PARENT)
    assert {s.raw["traceState"] for s in collector.spans} == {"congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"}
    engines = {s.id for s in collector.spans if s.name == "engine"}
    for r in e.requests:
        version, trace, span, flags = r["headers"]["traceparent"].split("-")
        assert (version, trace, flags) == ("00", TRACE, "01") and span in engines
        assert r["headers"]["tracestate"] == "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"


def test_what_is_not_sampled_is_not_told_but_passed_on(start, engine, collector):
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    assert chat(gateway, sid, "quiet", {"traceparent": CLIENTS[:-1] + "0"}).status == 200
    assert chat(gateway, sid, "loud", {"traceparent": CLIENTS}).status == 200
    turn, = turns(collector)
    assert {s.trace for s in collector.spans} == {TRACE} and len([s for s in collector.spans if s.name == "engine"]) == 1
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", e.requests[0]["headers"]["traceparent"])
    assert turn.parent == PARENT


NONE = ["", "x", CLIENTS[:-1], CLIENTS + "-", CLIENTS + "0", CLIENTS.upper(), "ff" + CLIENTS[2:], f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01", CLIENTS.replace("-", "_"), "0x" + CLIENTS[2:], f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"01{CLIENTS[2:]}x"]


def test_a_malformed_traceparent_is_none(start, engine, collector):
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    for i, text in enumerate(NONE):
        assert chat(gateway, sid, str(i), {"traceparent": text, "tracestate": "a=b"}).status == 200
    told = turns(collector, len(NONE))
    assert len({t.trace for t in told}) == 1 and told[0].trace != TRACE and {t.parent for t in told} == {None}
    assert not any("traceState" in s.raw for s in collector.spans) and "tracestate" not in e.requests[0]["headers"]
    # a later version is read as far as it is known; a tracestate that is none is dropped, the parent stays
    for text, state in (("cc" + CLIENTS[2:] + "-what the future brings", "a=b"), (CLIENTS, "A=b"), (CLIENTS, "a=b,a=c"),
                        (CLIENTS, "a"), (CLIENTS, ",".join(f"k{i}=v" for i in range(33))), (CLIENTS, "a=" + "x" * 257)):
        assert chat(gateway, sid, text + state, {"traceparent": text, "tracestate": state}).status == 200
    told = turns(collector, len(NONE) + 6)[len(NONE):]
    assert {(t.trace, t.parent) for t in told} == {(TRACE, PARENT)}
    assert [t.raw.get("traceState") for t in told] == ["a=b"] + [None] * 5
    assert e.requests[len(NONE)]["headers"]["traceparent"].startswith(f"00-{TRACE}-")


def test_what_fails_says_so(start, engine, collector):
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    e.plan.append({"status": 400, "body": {"error": {"message": "no"}}})
    assert chat(gateway, sid).status >= 400
    assert chat(gateway, sid, n=2).status == 200
    assert chat(gateway, sid, max_tokens=-1).status == 400
    failed, good = turns(collector, 2)
    assert failed.failed and failed.has["error.type"] and not good.failed and "error.type" not in good.has
    assert [(s.name, s.failed) for s in parts(collector, failed)] == [("render", False), ("engine", True)]
    both = [s for s in parts(collector, good) if s.name == "engine"]
    assert [s.has["rollgate.choice"] for s in both] == [0, 1] and good.has["gen_ai.request.choice.count"] == 2
    assert good.has["gen_ai.response.finish_reasons"] == ["stop", "stop"]


MESSAGES = ROOT / "tests/traces"


@pytest.fixture(scope="module")
def messages():
    """messages(file of bodies, a line each): what OpenTelemetry's own messages make of them."""
    if not shutil.which("npm"):
        pytest.skip("npm is absent: scripts/setup installs it")
    if not (MESSAGES / "node_modules/@opentelemetry").exists():
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=MESSAGES, capture_output=True,
                              text=True, timeout=600)
        if done.returncode != 0:
            pytest.skip("npm ci failed: " + done.stderr[-300:])

    def read(file):
        done = subprocess.run(["node", str(MESSAGES / "otlp.mjs"), str(file)], capture_output=True, text=True, timeout=120)
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout)
    return read


def test_opentelemetrys_own_messages_hold_all_of_it(start, engine, collector, messages, tmp_path):
    """Every body, of good and failed calls, streams, several answers and gaps, becomes protobuf and comes back as it was."""
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting, otlp_endpoint=collector.url)
    sid = session(gateway)
    assert chat(gateway, sid, "one", {"traceparent": CLIENTS, "tracestate": "congo=t61rcWkgMzE"}, max_tokens=40, temperature=0.5).status == 200
    assert chat(gateway, sid, "two", n=2, stream=True).status == 200
    e.plan.append({"status": 400, "body": {"error": {"message": "no \u00e4\n\"way\""}}})
    assert chat(gateway, sid, "three").status >= 400
    turns(collector, 3)
    wait_until(lambda: metric(gateway, "sent") == len(collector.spans), what="all are told")
    file = tmp_path / "bodies"
    file.write_bytes(b"\n".join(collector.bodies))
    report = messages(file)
    assert report["ok"] and report["spans"] == len(collector.spans) >= 17, report
    for spelled, wrong in ((b'"endTimeUnixNano":', b'"endTime":'), (b'"kind":2', b'"kind":"server"'), (b'"intValue":"', b'"intValue":"x')):
        assert spelled in collector.bodies[0]
        file.write_bytes(collector.bodies[0].replace(spelled, wrong))
        assert not messages(file)["ok"], wrong


def test_a_busy_collector_is_asked_again(start, collector):
    gateway = start(workers=1, engine="builtin:echo", otlp_endpoint=collector.url)
    gateway.allow("spans were dropped")
    collector.plan += [(503, {}, b"busy"), (429, {"Retry-After": "1"}, b""), (404, {}, b"no"),
                       (200, {}, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "odd"}}')]
    sid = session(gateway)
    assert chat(gateway, sid, "0").status == 200
    wait_until(lambda: metric(gateway, "rejected") == 6, what="a refused batch is dropped")
    assert [n for _, _, n in collector.asked] == [6, 6, 6]
    assert chat(gateway, sid, "1").status == 200
    wait_until(lambda: metric(gateway, "rejected") == 8 and metric(gateway, "sent") == 5, what="a partial success is counted")
    assert chat(gateway, sid, "2").status == 200
    assert len(turns(collector)) == 1
    assert len(gateway.get(f"/sessions/{sid}?records=1").json()["records"]) == 3


def test_a_dead_endpoint_loses_nothing_but_spans(start):
    late = Collector(listens=False)
    gateway = start(workers=1, engine="builtin:echo", otlp_endpoint=late.url)
    gateway.allow("spans were dropped")
    sid = session(gateway)
    for i in range(5):
        assert chat(gateway, sid, str(i)).status == 200
    late.listen()
    try:
        assert chat(gateway, sid, "at last").status == 200
        # what had waited comes when somebody listens, unless that was too late
        wait_until(lambda: metric(gateway, "sent") + metric(gateway, "unsent") == 6 * 6 + 5, what="all spans are settled")
        assert metric(gateway, "sent") == len(late.spans) >= 7
    finally:
        late.close()
    assert chat(gateway, sid, "gone again").status == 200
    assert gateway.stop() == 0
    gateway.start()
    assert len(gateway.get(f"/sessions/{sid}?records=1").json()["records"]) == 7


def test_the_end_sends_what_waits(start, collector):
    gateway = start(workers=1, engine="builtin:echo", otlp_endpoint=collector.url)
    assert chat(gateway, session(gateway)).status == 200
    assert gateway.stop() == 0
    assert len(turns(collector)) == 1


def test_headers_of_a_file(start, collector, tmp_path):
    file = tmp_path / "headers"
    file.write_text("\n  Authorization: Bearer a:b c \nx-a: 1\r\n\nx-b: 2\nX-Scope-OrgID:7")
    gateway = start(workers=1, engine="builtin:echo", otlp_endpoint=collector.url, otlp_headers_file=str(file))
    assert chat(gateway, session(gateway)).status == 200
    turns(collector)
    sent = {k.lower(): v for k, v in collector.asked[0][1].items()}
    assert (sent["authorization"], sent["x-a"], sent["x-b"], sent["x-scope-orgid"]) == ("Bearer a:b c", "1", "2", "7")


@pytest.mark.parametrize("endpoint, headers, words", [
    ("ftp://x", None, "--otlp-endpoint"), ("http://u:p@x", None, "--otlp-endpoint"), ("x", None, "--otlp-endpoint"),
    ("unix:/tmp/x", None, "--otlp-endpoint"), ("http://127.0.0.1:9", "no colon, and a secret\n", "line 1"),
    ("http://127.0.0.1:9", "a: b\nHost: secret\n", "line 2"), ("http://127.0.0.1:9", "a b: secret\n", "line 1"),
    ("http://127.0.0.1:9", None, "--otlp-headers-file")])
def test_bad_settings_are_named_at_the_start(tmp_path, endpoint, headers, words):
    import subprocess

    from gateway import BINARY
    file = tmp_path / "headers"
    if headers:
        file.write_text(headers)
    named = headers or words == "--otlp-headers-file"
    done = subprocess.run([str(BINARY), "config", "--check", "--otlp-endpoint", endpoint, "--engine", "builtin:echo",
                           *(["--otlp-headers-file", str(file)] if named else [])], capture_output=True, text=True, timeout=60)
    told = done.stdout + done.stderr
    assert done.returncode != 0 and words in told and "secret" not in told, told


def test_off_is_off(start, engine, collector):
    e = engine("sglang")
    gateway = start(workers=1, engine=e.setting)
    assert chat(gateway, session(gateway), headers={"traceparent": CLIENTS}).status == 200
    assert "traceparent" not in e.requests[0]["headers"] and not collector.asked
