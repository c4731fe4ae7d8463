"""Scores of finished branches by other engines (--scorer): each branch's ids are sent once, as a prompt. The scores
are in every format that supports them, and survive a crash."""
import math
import subprocess
import threading

import pytest

import gateway as g
from export_readers import read_safetensors
from gateway import wait_until
from scoring_engine import ScoringEngine
from stub_engines import StubEngine
from test_odds import IDS, USER, ask, cells, f32, session
from test_turn_recovery import kill_worker

KINDS = {"sglang": ("sglang", {}), "vllm": ("vllm", {"routes": ("generate",)}),
         "vllm-completions": ("vllm", {"routes": ("completions",)})}


@pytest.fixture
def serve(start):
    """A policy, scorers by name, and a gateway that knows them."""
    engines = []

    def make(kinds, **settings):
        policy = StubEngine("sglang").__enter__()
        policy.otherwise = lambda body: {"ids": IDS}
        scorers = {n: ScoringEngine(KINDS[kind][0], **KINDS[kind][1]).__enter__() for n, kind in kinds.items()}
        engines.extend([policy, *scorers.values()])
        gateway = start(workers=1, engine=policy.setting, scorer=[f"{n}={e.setting}" for n, e in scorers.items()], **settings)
        return gateway, policy, *scorers.values()
    yield make
    for engine in engines:
        engine.__exit__(None, None, None)


def finalize(gateway, sid, **body):
    return gateway.post(f"/sessions/{sid}/finalize", body, timeout=60)


def talk(gateway, sid, turns):
    messages = list(USER)
    for _ in range(turns):
        assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages}).status == 200
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_each_branch_is_scored_once(serve, kind, k):
    gateway, _, teacher = serve({"big": kind})
    sid = session(gateway)
    talk(gateway, sid, 2)
    assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 1}}).status == 200
    a = finalize(gateway, sid, score=[{"engine": "big", "top_k": k}])
    assert a.status == 200, a.text
    t = a.json()["trajectories"][0]
    ids = t["prompt_ids"] + t["response_ids"]
    assert teacher.scored == [ids]
    want = teacher.positions(ids, k)
    assert cells(t, "teacher_logprobs") == f32([p or 0 for _, p, _ in want]) and t["teacher_logprobs_shape"] == [len(ids)]
    assert ("teacher_top_ids" in t) == (k > 0)
    if k:
        best = [sorted(b if kind == "sglang" else {*b, (own, p)}, key=lambda x: -x[1])[:k] if b else [(-1, -math.inf)] * k
                for own, p, b in want]
        assert cells(t, "teacher_top_ids") == [[i for i, _ in b] for b in best]
        assert cells(t, "teacher_top_logprobs") == [f32([p for _, p in b]) for b in best]
    # Asked again, nothing more is asked for; every format reads what is known.
    assert finalize(gateway, sid, score=[{"engine": "big", "top_k": k}]).json()["trajectories"][0] == t
    assert len(teacher.scored) == 1
    lps = cells(t, "teacher_logprobs")
    read = gateway.get
    slime = read(f"/sessions/{sid}/trajectories?format=slime").json()["samples"][0]
    assert f32(slime["teacher_log_probs"]) == lps[len(t["prompt_ids"]):]
    prime = read(f"/sessions/{sid}/trajectories?format=prime-rl").json()["samples"][0]
    assert f32(prime["ref_logprobs"]) == lps
    miles, _ = read_safetensors(read(f"/sessions/{sid}/trajectories?format=miles").body)
    assert miles["teacher_log_probs.0"] == ("F32", [len(t["response_ids"])], lps[len(t["prompt_ids"]):])
    native, _ = read_safetensors(read(f"/sessions/{sid}/trajectories?format=safetensors").body)
    assert native["teacher_logprobs.0"] == ("F32", [len(ids)], lps)
    tree, _ = read_safetensors(read(f"/sessions/{sid}/trajectories?format=prefix-tree").body)
    assert tree["teacher_logprobs"] == ("F32", [len(ids)], lps)
    # verl and AReaL read at token i what was expected behind it
    areal, _ = read_safetensors(read(f"/sessions/{sid}/trajectories?format=areal").body)
    assert areal["teacher_logp.0"] == ("F32", [1, len(ids)], lps[1:] + [0.0]) and "ref_logp.0" not in areal
    verl, _ = read_safetensors(read(f"/sessions/{sid}/trajectories?format=verl").body)
    width = max(k, 1)
    rows = (cells(t, "teacher_top_ids"), cells(t, "teacher_top_logprobs")) if k else ([[i] for i in ids], [[p] for p in lps])
    flat = [[v for row in column[1:] for v in row] + [0] * width for column in rows]
    assert verl["teacher_ids.0"] == ("I32", [len(ids), width], flat[0])
    assert verl["teacher_logprobs.0"] == ("F32", [len(ids), width], flat[1])


def test_what_a_session_wants_of_its_branches(serve):
    gateway, _, one, two = serve({"one": "sglang", "two": "vllm"})
    wants = [{"engine": "one", "what": "reference"}, {"engine": "two", "what": "self", "top_k": 1}]
    sid = session(gateway, score=wants)
    talk(gateway, sid, 2)
    gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": [{"role": "user", "content": "another beginning"}]})
    warnings = gateway.get(f"/sessions/{sid}/trajectories").json()["summary"]["warnings"]
    assert [w for w in warnings if "score" in w]
    a = finalize(gateway, sid)
    assert a.status == 200 and a.json()["summary"]["warnings"] == []
    branches = [t["prompt_ids"] + t["response_ids"] for t in a.json()["trajectories"]]
    assert len(branches) == 2 and sorted(one.scored) == sorted(two.scored) == sorted(branches)
    for t in a.json()["trajectories"]:
        assert "reference_logprobs" in t and t["self_top_ids_shape"] == [len(t["prompt_ids"] + t["response_ids"]), 1]
    verl, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=verl").body)
    areal, _ = read_safetensors(gateway.get(f"/sessions/{sid}/trajectories?format=areal").body)
    for i, t in enumerate(a.json()["trajectories"]):
        lps = cells(t, "reference_logprobs")
        assert verl[f"ref_log_prob.{i}"] == ("F32", [len(t["response_ids"])], lps[len(t["prompt_ids"]):])
        assert areal[f"ref_logp.{i}"] == ("F32", [1, len(lps)], lps[1:] + [0.0]) and f"teacher_ids.{i}" not in verl
    # The score of a branch covers every trajectory that is how it begins.
    heads = gateway.get(f"/sessions/{sid}/trajectories?select=all_checkpoints").json()["trajectories"]
    assert len(heads) == 3 and all("reference_logprobs" in t for t in heads)


def test_failures_that_pass_are_asked_again(serve):
    gateway, _, teacher = serve({"big": "sglang"})
    sid = session(gateway)
    talk(gateway, sid, 1)
    teacher.plan.extend([{"status": 503}, {"before": "close"}])
    assert finalize(gateway, sid, score=[{"engine": "big"}]).status == 200
    assert len(teacher.scored) == 3
    gateway.wait_line("a scorer failed, it is asked again")


@pytest.mark.parametrize("plan,status,why", [
    ({"status": 400, "body": {"error": {"message": "too long"}}}, 400, "too long"),
    ({"scores": lambda p: p[:-1]}, 502, "another number of tokens"),
    ({"scores": lambda p: [[x[0] + 1, *x[1:]] for x in p]}, 502, "another prompt"),
    ({"scores": lambda p: [[t, None, b] for t, _, b in p]}, 502, "missing or out of range"),
    ({"scores": lambda p: [[t, 12.5, b] for t, _, b in p]}, 502, "above 0"),
    ({"truncate": True}, 502, "ends inside"),
], ids=["refused", "short", "foreign", "null", "logits", "torn"])
def test_what_cannot_be_scored_leaves_the_session_open(serve, plan, status, why):
    gateway, _, teacher = serve({"big": "sglang"})
    sid = session(gateway)
    talk(gateway, sid, 1)
    teacher.plan.append(plan)
    a = finalize(gateway, sid, score=[{"engine": "big"}])
    assert a.status == status and why in a.text and "scorer big" in a.text, a.text
    assert gateway.get(f"/sessions/{sid}").json()["phase"] == "open"
    assert finalize(gateway, sid, score=[{"engine": "big"}]).status == 200


def test_what_was_scored_survives_a_crash(serve):
    gateway, _, quick, slow = serve({"quick": "sglang", "slow": "sglang"})
    wants = [{"engine": "quick"}, {"engine": "slow", "what": "reference"}]
    sid = session(gateway, score=wants)
    talk(gateway, sid, 1)
    held = threading.Event()
    slow.plan.append({"wait": held})
    t = threading.Thread(target=lambda: pytest.raises(Exception, finalize, gateway, sid))
    t.start()
    wait_until(lambda: slow.requests, what="the second one is asked")
    gateway.kill()
    t.join(30)
    held.set()
    gateway.start()
    assert gateway.get(f"/sessions/{sid}").json()["phase"] == "open"
    assert "teacher_logprobs" in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]
    a = finalize(gateway, sid)
    assert a.status == 200 and {"teacher_logprobs", "reference_logprobs"} <= set(a.json()["trajectories"][0])
    assert len(quick.requests) == 1 and len(slow.requests) == 2
    gateway.kill()
    gateway.start()
    assert gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"] == a.json()["trajectories"]


def test_a_turn_while_it_waits_is_scored_as_well(serve):
    gateway, _, teacher = serve({"big": "sglang"})
    sid = session(gateway)
    talk(gateway, sid, 1)
    held, answer = threading.Event(), {}
    teacher.plan.append({"wait": held})
    t = threading.Thread(target=lambda: answer.update(a=finalize(gateway, sid, score=[{"engine": "big"}])))
    t.start()
    wait_until(lambda: teacher.requests, what="asked")
    assert ask(gateway, sid, messages=[{"role": "user", "content": "late"}]).status == 200
    held.set()
    t.join(60)
    got = answer["a"].json()["trajectories"]
    assert answer["a"].status == 200 and len(got) == 2 and all("teacher_logprobs" in x for x in got)


@pytest.mark.parametrize("score", [
    "big", {}, ["big"], [{}], [{"engine": ""}], [{"engine": "nobody"}], [{"engine": "big", "what": "critic"}],
    [{"engine": "big", "top_k": 129}], [{"engine": "big", "top_k": -1}], [{"engine": "big", "temperature": 1}],
    [{"engine": "big"}, {"engine": "big", "top_k": 2}]], ids=str)
def test_what_cannot_be_wanted(serve, score):
    gateway, _, _ = serve({"big": "sglang"})
    a = gateway.post("/sessions", {"score": score})
    assert a.status == 400 and a.json()["error"]["param"] == "score", a.text
    sid = session(gateway)
    talk(gateway, sid, 1)
    a = finalize(gateway, sid, score=score)
    assert a.status == 400 and a.json()["error"]["param"] == "score", a.text
    assert gateway.get(f"/sessions/{sid}").json()["phase"] == "open"


@pytest.mark.parametrize("text", [
    "sglang:http://127.0.0.1:1", "a=llamacpp:http://127.0.0.1:1", "=sglang:http://127.0.0.1:1", "a=b"])
def test_scorers_that_cannot_be(text):
    done = subprocess.run([g.BINARY, "config", "--check", "--scorer", text],
                          capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and done.stderr.startswith("--scorer: "), done.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_what_expires_is_scored_first(serve, fails):
    gateway, _, one = serve({"one": "sglang"})
    if fails:
        one.plan.append({"status": 400, "body": {"error": {"message": "too long"}}})
    sid = session(gateway, score=[{"engine": "one"}], ttl_s=4)
    talk(gateway, sid, 2)
    plain = session(gateway, ttl_s=4)
    talk(gateway, plain, 1)
    for x in (sid, plain):
        wait_until(lambda x=x: gateway.get(f"/sessions/{x}").json()["phase"] == "expired", 60, "it expires")
    (t,) = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
    assert ("teacher_logprobs" in t) == (not fails)
    assert one.scored == [t["prompt_ids"] + t["response_ids"]]
    if fails:
        gateway.wait_line("a session expires without its scores")


def test_what_cannot_be_read_back_expires_without_its_scores(serve):
    """Its record is damaged on the disk while nothing of it is in memory."""
    gateway, _, one = serve({"one": "sglang"})
    for line in ("process died", "cannot be read back", "a session expires without its scores"):
        gateway.allow(line)
    sid = session(gateway, score=[{"engine": "one"}], ttl_s=4)
    talk(gateway, sid, 2)
    kill_worker(gateway)
    with open(f"{gateway.folder}/state/worker-0/seg-00000001", "r+b") as f:
        whole = f.read()
        f.seek(whole.rindex(b"more"))
        f.write(b"less")
    wait_until(lambda: gateway.metrics()["rollgate_sessions_expired_total"] == 1, what="it expires")
    assert gateway.get(f"/sessions/{sid}").status == 500
    gateway.wait_line("a session expires without its scores")
    assert one.scored == []
    with open(f"{gateway.folder}/state/worker-0/seg-00000001", "r+b") as f:
        f.write(whole)
    assert gateway.get(f"/sessions/{sid}").json()["phase"] == "expired"


@pytest.mark.parametrize("how", ["DELETE", "abort", "finalize"])
@pytest.mark.parametrize("retention", ["0s", "60s"])
def test_a_session_that_ends_while_it_is_scored_gets_no_score(serve, how, retention):
    """Its worker lives, and an export that was made stays as it was."""
    gateway, _, big, small = serve({"big": "sglang", "small": "sglang"}, export_retention=retention)
    sid = session(gateway)
    talk(gateway, sid, 2)
    release, answers = threading.Event(), []
    big.plan.append({"wait": release})
    asked = threading.Thread(target=lambda: answers.append(finalize(gateway, sid, score=[{"engine": "big"}])))
    asked.start()
    wait_until(lambda: big.requests, what="the scorer is asked")
    if how == "finalize":
        other = finalize(gateway, sid, score=[{"engine": "small", "what": "reference"}])
        assert other.status == 200 and "reference_logprobs" in other.json()["trajectories"][0]
    else:
        ended = gateway.request("DELETE", f"/sessions/{sid}") if how == "DELETE" else gateway.post(f"/sessions/{sid}/abort")
        assert ended.status == 204
    release.set()
    asked.join()
    assert answers[0].status == 410, answers[0].text
    if how == "finalize" and retention == "60s":
        [t] = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]
        assert t == other.json()["trajectories"][0] and "teacher_logprobs" not in t
    assert gateway.post("/sessions").status == 200 and not gateway.has_line("process died")
