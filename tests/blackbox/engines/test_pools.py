"""Pools: several engines of one name in addition to the policy's, selected by `model` of a request or session."""
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import gateway as g
from gateway import wait_until
from stub_engines import StubEngine
from vision_kit import session

ASK = {"messages": [{"role": "user", "content": "hi"}]}
RATE = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "rate it"}]


@pytest.fixture
def judge(engine):
    def make(**options):
        e = engine("openai", **options)
        e.otherwise = lambda body: {"text": "7 of 10"}
        return e
    return make


def ask(gateway, sid, messages=None, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages or ASK["messages"], **more}, timeout=60)


def said(answer):
    assert answer.status == 200, answer.text
    return answer.json()["choices"][0]["message"]


def why(answer):
    return answer.json()["error"]["message"]


def turns(gateway, sid):
    state = gateway.get(f"/sessions/{sid}").json()
    return [n for n in state["tree"]["nodes"] if n.get("generated")]


def export(gateway, sid, **options):
    a = gateway.post(f"/sessions/{sid}/finalize", options)
    assert a.status == 200, a.text
    return a.json()


def put(gateway, engines, **more):
    return gateway.request("PUT", "/admin/engines", {"engines": engines, **more}, timeout=60)


def pools(gateway):
    return sorted((e["pool"], e["name"]) for e in gateway.get("/admin/engines").json()["engines"] if e["state"] != "draining")


def test_a_judge_beside_the_policy(start, engine, judge, tmp_path):
    policy, other = engine(), judge(key="secret")
    (tmp_path / "key").write_text("secret\n")
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting},model=big-judge,key-file={tmp_path}/key"])
    s = session(gateway, sampling_params={"temperature": 0.5, "engine_extra": {"lora_path": "x"}}, lock_sampling=["temperature"])
    first = said(ask(gateway, s))
    verdict = said(ask(gateway, s, RATE, model="judge", temperature=0.25))
    assert verdict["content"] == "7 of 10" and len(policy.requests) == 1
    sent = other.requests[-1]
    assert sent["body"]["model"] == "big-judge" and sent["body"]["temperature"] == 0.25 and sent["body"]["messages"] == RATE
    assert "lora_path" not in sent["body"] and sent["headers"]["authorization"] == "Bearer secret"
    # The verdict becomes the user's words, and the policy goes on upon the very ids that it had.
    said(ask(gateway, s, [*ASK["messages"], first, {"role": "user", "content": verdict["content"]}]))
    one, two = (r["body"]["input_ids"] for r in policy.requests)
    assert two[:len(one)] == one and two[len(one):len(one) + 3] == list(b"ok") + [257]
    of = [t.get("pool") for t in turns(gateway, s)]
    assert of == [None, "judge", None]
    done = export(gateway, s)
    [t] = done["trajectories"]
    assert [x.get("pool") for x in t["turns"]] == [None, None] and sum(t["response_mask"]) == 6
    assert [d["reason"] for d in done["summary"]["dropped"]] == ["pool"]
    assert pools(gateway) == [("judge", "judge"), ("policy", policy.setting)]


def test_models_lists_pools(start, engine, judge):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}", f"user={judge().setting}"])
    ids = [m["id"] for m in gateway.get("/v1/models").json()["data"]]
    assert sorted(ids[1:]) == ["judge", "user"]
    assert gateway.get("/v1/models/judge").json()["id"] == "judge"
    assert gateway.get("/v1/models/nobody").status == 404


def test_a_model_that_names_no_pool_is_the_policys(start, engine, judge):
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    s = session(gateway)
    for i, model in enumerate(("gpt-5", "policy", "Judge", "")):
        said(ask(gateway, s, model=model, seed=i))
    assert len(policy.requests) == 4 and not other.requests


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_every_server_is_asked_with_messages(start, engine, judge, kind):
    """Their ids are those of another vocabulary: of every kind it is the chat that is asked."""
    other = judge()
    gateway = start(workers=1, engine=[engine().setting, f"judge={kind}:{other.url}"])
    s = session(gateway)
    assert said(ask(gateway, s, RATE, model="judge"))["content"] == "7 of 10"
    assert other.requests[-1]["path"] == "/v1/chat/completions" and other.requests[-1]["body"]["model"] == "judge"


def test_ids_of_another_vocabulary_never_enter(start, engine, judge):
    policy, other = engine(), judge()
    other.otherwise = lambda body: {"text": "7", "ids": [9_000_000, 9_000_001],
                                    "prompt_ids": [8_000_000]}
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    s = session(gateway)
    for stream in (False, True):
        a = ask(gateway, s, RATE, model="judge", return_token_ids=True, logprobs=True, stream=stream, seed=int(stream))
        assert a.status == 200, a.text
    said(ask(gateway, s))
    mine = turns(gateway, s)
    assert [(t.get("pool"), t["num_tokens"] > 0) for t in mine] == [("judge", False), ("judge", False), (None, True)] or \
        [(t.get("pool"), t["num_tokens"] > 0) for t in mine] == [("judge", False), (None, True)]
    [t] = export(gateway, s)["trajectories"]
    assert max(t["prompt_ids"] + t["response_ids"]) < 1000


@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_other_pools_stand_beside_every_history(start, engine, judge, history):
    """The policy's history goes on as if the judge had not been asked, also where both were asked the same and said the same."""
    policy, other = engine(), judge()
    other.otherwise = lambda body: {"text": "ok"}
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    s = session(gateway, history=history)
    talk = list(ASK["messages"])
    for i in range(3):
        assert said(ask(gateway, s, talk, model="judge"))["content"] == "ok"     # before,
        reply = said(ask(gateway, s, talk))
        assert reply["content"] == "ok"
        assert said(ask(gateway, s, talk, model="judge", seed=7))["content"] == "ok"     # and behind it
        talk += [reply, {"role": "user", "content": f"more {i}"}]
    prompts = [r["body"]["input_ids"] for r in policy.requests]
    assert len(prompts) == 3 and all(b[:len(a)] == a for a, b in zip(prompts, prompts[1:]))
    done = export(gateway, s)
    [t] = done["trajectories"]
    assert sum(t["response_mask"]) == 9 and all("pool" not in x for x in t["turns"])
    assert all(x["trained"] for x in t["turns"])


@pytest.mark.parametrize("format", ["openai-messages", "atif"])
def test_formats_of_text_leave_other_pools_out(start, engine, judge, format):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}"])
    s = session(gateway)
    said(ask(gateway, s, RATE, model="judge"))
    said(ask(gateway, s))
    a = gateway.post(f"/sessions/{s}/finalize?format={format}", {})
    assert a.status == 200 and "7 of 10" not in a.text and "ok" in a.text, a.text


def test_the_viewer_reads_a_branch_of_another_pool(start, engine, judge):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}"])
    s = session(gateway)
    said(ask(gateway, s))
    verdict = ask(gateway, s, RATE, model="judge").json()
    a = gateway.get(f"/sessions/{s}/tokens?branch={verdict['id']}")
    assert a.status == 200 and "7 of 10" in a.text and '"trained":true' not in a.text.replace(" ", ""), a.text


def test_a_session_of_a_pool(start, engine, judge):
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"user={other.setting}"])
    s = session(gateway, model="user", sampling_params={"temperature": 0.125})
    said(ask(gateway, s, model="whatever"))
    assert other.requests[-1]["body"]["temperature"] == 0.125 and other.requests[-1]["body"]["model"] == "user"
    said(ask(gateway, s, model="policy"))
    assert len(policy.requests) == 1 and policy.requests[0]["body"]["sampling_params"]["temperature"] != 0.125
    assert gateway.get(f"/sessions/{s}").json()["model"] == "user"
    assert [t.get("pool") for t in turns(gateway, s)] == ["user", None]
    done = export(gateway, s)
    trained = {x.get("pool"): x["trained"] for t in done["trajectories"] for x in t["turns"]}
    assert trained.get(None) is True and trained.get("user", False) is False
    for bad in ({"model": "nobody"}, {"model": "user", "adapter": "a"}, {"model": "user", "top_logprobs": 2}, {"model": 7}):
        a = gateway.post("/sessions", bad)
        assert a.status == 400 and any(w in why(a) for w in ("model", "adapter", "top_logprobs")), a.text
    assert "there are: policy, user" in gateway.post("/sessions", {"model": "nobody"}).text


@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_a_session_of_a_pool_is_exported_whatever_its_history(start, engine, judge, history):
    """What its own pool said is exported, mask 0, and the policy's turns beside it as ever."""
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"user={other.setting}"])
    s = session(gateway, model="user", history=history)
    verdict = said(ask(gateway, s, RATE))
    said(ask(gateway, s, [*RATE, verdict, {"role": "user", "content": "sure?"}]))
    said(ask(gateway, s, model="policy"))
    assert [t.get("pool") for t in turns(gateway, s)] == ["user", "user", None]

    def of_pools(options=""):
        done = gateway.get(f"/sessions/{s}/trajectories{options}").json()
        assert not done["summary"]["dropped"], done["summary"]
        return sorted([(x.get("pool") or "policy") for x in t["turns"]] for t in done["trajectories"])

    once = of_pools()
    assert once == [["policy"], ["user", "user"]], once
    assert gateway.get(f"/sessions/{s}").json()["num_branches"] == (3 if history == "timelines" else 2)
    every = of_pools("?select=all_checkpoints")
    assert every == [["policy"], ["user"], ["user", "user"]], every


@pytest.mark.parametrize("option", [{"adapter": "a"}, {"top_logprobs": 2}, {"sampling_support": True}])
@pytest.mark.parametrize("pool", ["openai", "builtin", "unmanned"])
def test_a_session_of_a_pool_is_refused_what_only_the_policy_has(start, engine, judge, option, pool):
    other = "builtin:echo" if pool == "builtin" else judge().setting
    gateway = start(workers=1, engine=[engine().setting, f"user={other}"])
    if pool == "unmanned":
        gone = gateway.request("DELETE", "/admin/engines?name=user", {"timeout_s": 20}, timeout=60)
        assert gone.status == 200, gone.text
    a = gateway.post("/sessions", {"model": "user", **option})
    [field] = option
    assert a.status == 400 and a.json()["error"]["param"] == field, a.text
    assert field in why(a) and 'the pool "user"' in why(a), a.text
    session(gateway, model="user", top_logprobs=0, sampling_support=False)


@pytest.mark.parametrize("path, body", [("chat/completions", ASK), ("messages", {**ASK, "max_tokens": 9}), ("responses", {"input": "hi"})])
def test_an_upstream_policy_is_asked_by_the_served_name(start, judge, path, body):
    """`policy` chooses engines here: the upstream knows no such model."""
    policy, other = judge(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"user={other.setting}"], served_model_name="qwen")
    s = session(gateway, model="user")
    a = gateway.post(f"/sessions/{s}/v1/{path}", {"model": "policy", **body}, timeout=60)
    assert a.status == 200 and not other.requests, a.text
    assert policy.requests[-1]["body"]["model"] == "qwen"


def test_engines_of_one_name_are_one_pool(start, engine, judge):
    a, b = judge(), judge()
    gateway = start(workers=1, engine=[engine().setting, f"judge={a.setting}", f"judge={b.setting}"])
    for i in range(24):
        said(ask(gateway, session(gateway), RATE, model="judge"))
    assert len(a.requests) + len(b.requests) == 24 and min(len(a.requests), len(b.requests)) > 0
    assert [p for p, _ in pools(gateway)] == ["judge", "judge", "policy"]


def test_the_last_engine_of_a_pool_goes(start, engine, judge):
    policy, other, later = engine(), judge(), judge()
    gateway = start(workers=2, engine=policy.setting)
    assert gateway.post("/admin/engines", {"engines": [f"judge={other.setting}"]}).status == 200
    ids = [session(gateway) for _ in range(4)]
    assert all(said(ask(gateway, s, RATE, model="judge")) for s in ids)
    gone = gateway.request("DELETE", "/admin/engines?name=judge", {"timeout_s": 20}, timeout=60)
    assert gone.status == 200 and gone.json()["removed"] == ["judge"], gone.text
    asked = len(policy.requests)
    for s in ids:
        a = ask(gateway, s, RATE, model="judge", seed=1)
        assert a.status == 503 and 'the pool "judge" has no engine' in why(a), a.text
    assert len(policy.requests) == asked            # never by the policy instead
    gateway.stop()
    gateway.start()                                 # nor behind a restart
    assert ask(gateway, ids[0], RATE, model="judge", seed=2).status == 503
    assert put(gateway, [policy.setting, f"judge={later.setting}"]).status == 200
    assert all(said(ask(gateway, s, RATE, model="judge", seed=3)) for s in ids)
    assert len(later.requests) == 4


def test_calls_that_wait_when_a_pool_ends_are_told(start, engine, judge):
    other = judge()
    gateway = start(workers=1, engine=[engine().setting, f"judge={other.setting},max-inflight=1"])
    hold = threading.Event()
    other.otherwise = lambda body: {"text": "x", "wait": hold}
    ids = [session(gateway) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(ask, gateway, s, RATE, model="judge") for s in ids]
        wait_until(lambda: len(other.requests) == 1 and gateway.metrics().get("rollgate_queue_depth", 0) == 1,
                   what="one runs, one waits")
        assert gateway.request("DELETE", "/admin/engines?name=judge", {}, timeout=60).status == 200
        wait_until(lambda: any(c.done() for c in calls), what="the one that waits")
        hold.set()
        ends = sorted(c.result().status for c in calls)
    assert ends == [200, 503] and other.most_running == 1


def test_pauses_and_versions_are_the_policys(start, engine, judge):
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    s = session(gateway)
    assert gateway.post("/admin/weight_version", {"version": "w7"}).status == 200
    assert gateway.post("/admin/pause", {"mode": "hold"}).status == 200
    assert said(ask(gateway, s, RATE, model="judge"))["content"] == "7 of 10"     # not held
    assert gateway.post("/admin/resume", {}).status == 200
    said(ask(gateway, s))
    assert policy.requests[-1]["body"].get("extra_key") == "w7"
    assert "extra_key" not in other.requests[-1]["body"] and "cache_salt" not in other.requests[-1]["body"]


def test_restart_fork_and_import(start, engine, judge, tmp_path):
    policy, other = engine(), judge()
    settings = dict(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    gateway = start(**settings)
    s = session(gateway)
    first = ask(gateway, s).json()
    verdict = ask(gateway, s, RATE, model="judge").json()
    gateway.stop()
    gateway.start()
    assert [t.get("pool") for t in turns(gateway, s)] == [None, "judge"]
    talk = [*RATE, verdict["choices"][0]["message"], {"role": "user", "content": "sure?"}]
    said(ask(gateway, s, talk, model="judge"))
    said(ask(gateway, s, [*ASK["messages"], first["choices"][0]["message"], {"role": "user", "content": "on"}]))
    assert [t.get("pool") for t in turns(gateway, s)] == [None, "judge", "judge", None]
    bad = gateway.post(f"/sessions/{s}/fork", {"response_id": verdict["id"]})
    assert bad.status == 400 and 'pool "judge"' in why(bad)
    fork = gateway.post(f"/sessions/{s}/fork", {"response_id": first["id"]})
    assert fork.status == 200, fork.text
    snapshot = gateway.get(f"/sessions/{s}/snapshot")
    assert snapshot.status == 200
    plain = start(workers=1, engine=policy.setting)         # knows no judge
    copy = plain.post("/sessions/import", snapshot.json())
    assert copy.status == 200, copy.text
    sid = copy.json()["session_id"]
    assert [t.get("pool") for t in turns(plain, sid)] == [None, "judge", "judge", None]
    assert sum(export(plain, sid)["trajectories"][0]["response_mask"]) == 6


def test_a_pool_session_on_a_gateway_without_that_pool(start, engine, judge):
    gateway = start(workers=1, engine=[engine().setting, f"user={judge().setting}"])
    s = session(gateway, model="user")
    said(ask(gateway, s))
    snapshot = gateway.get(f"/sessions/{s}/snapshot").json()
    policy = engine()
    plain = start(workers=1, engine=policy.setting)
    sid = plain.post("/sessions/import", snapshot).json()["session_id"]
    a = ask(plain, sid, seed=1)
    assert a.status == 503 and 'pool "user" is not among' in why(a) and not policy.requests


def test_the_built_in_engine_in_a_pool(start, tmp_path):
    """It answers in this model's own tokens, which are kept, and never trained."""
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["a verdict"]))
    gateway = start(workers=1, engine=["builtin:echo", f"judge=builtin:script:{script}"])
    s = session(gateway)
    assert said(ask(gateway, s, RATE, model="judge"))["content"] == "a verdict"
    said(ask(gateway, s))
    assert [t.get("pool") for t in turns(gateway, s)] == ["judge", None]
    [t] = export(gateway, s)["trajectories"]
    assert all(x["trained"] and "pool" not in x for x in t["turns"])


def test_what_a_pool_cannot_be_asked(start, engine, judge):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}"])
    s = session(gateway)
    a = gateway.post(f"/sessions/{s}/v1/completions", {"model": "judge", "prompt": "x"})
    assert a.status == 400 and 'the pool "judge" answers chats only' in why(a)
    a = gateway.post(f"/sessions/{s}/v1/messages/count_tokens", {"model": "judge", **ASK})
    assert a.status == 400 and "model of their own" in a.text


def test_every_dialect_asks_a_pool(start, engine, judge):
    other = judge()
    gateway = start(workers=1, engine=[engine().setting, f"judge={other.setting}"])
    s = session(gateway)
    a = gateway.post(f"/sessions/{s}/v1/messages", {"model": "judge", "max_tokens": 9, **ASK})
    assert a.status == 200 and a.json()["content"][0]["text"] == "7 of 10", a.text
    a = gateway.post(f"/sessions/{s}/v1/responses", {"model": "judge", "input": "hi"})
    assert a.status == 200 and "7 of 10" in a.text, a.text
    a = ask(gateway, s, RATE, model="judge", stream=True)
    assert a.status == 200 and a.text.rstrip().endswith("[DONE]")
    assert len(other.requests) == 3


@pytest.mark.parametrize("engines, why", [
    (["builtin:echo", "judge=openai:http://127.0.0.1:1,token-ids=vllm"], "option token-ids"),
    (["builtin:echo", "judge=vllm:http://127.0.0.1:1,priority=on"], "option priority"),
    (["builtin:echo", "judge=sglang:http://127.0.0.1:1,logprobs=raw"], "option logprobs"),
    (["builtin:echo,model=x"], "option model"),
    (["builtin:echo", "judge=builtin:echo,model=x"], "option model"),
    (["builtin:echo", "judge=builtin:echo", "judge=builtin:echo,weight=2"], "two engines are called"),
    (["builtin:echo,max-inflight=0"], "max-inflight must be a number from 1"),
    (["builtin:echo,name=a b"], "an engine's name is")])
def test_settings_that_cannot_be(engines, why, tmp_path):
    out = subprocess.run([g.BINARY, "config", "--check", f"--state-dir={tmp_path}", *(f"--engine={e}" for e in engines)],
                         capture_output=True, text=True, timeout=60)
    assert out.returncode != 0 and why in out.stdout + out.stderr, out


def test_no_engine_changes_its_pool(start, engine, judge):
    """Where all engines have names, names are names, and all are the policy's."""
    a, b = engine(), engine()
    gateway = start(workers=1, engine=[f"a={a.setting}", f"b={b.setting}"])
    assert pools(gateway) == [("policy", "a"), ("policy", "b")]
    s = session(gateway)
    said(ask(gateway, s, model="a"))                # a name, no pool
    more = gateway.post("/admin/engines", {"engines": [engine().setting]})
    assert more.status == 400 and 'engine "a" is the policy\'s, and would become the pool "a"' in why(more), more.text
    assert pools(gateway) == [("policy", "a"), ("policy", "b")]
    other = judge()
    assert put(gateway, [a.setting + ",name=a", f"judge={other.setting}"]).status == 200
    assert pools(gateway) == [("judge", "judge"), ("policy", "a")]
    # The policy's last engine goes: the judge does not become the policy.
    assert gateway.request("DELETE", "/admin/engines?name=a", {"timeout_s": 20}, timeout=60).status == 200
    assert pools(gateway) == [("judge", "judge")]
    assert said(ask(gateway, s, RATE, model="judge"))["content"] == "7 of 10"
    assert put(gateway, [f"judge={other.setting}", f"judge={judge().setting}"]).status == 200
    assert {p for p, _ in pools(gateway)} == {"judge"}


def test_a_new_set_without_the_policy(start, engine, judge):
    """Its engines all have names: those of pools, for one was known before."""
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    a = put(gateway, [f"a={policy.setting}", f"judge={other.setting}"])
    assert a.status == 400 and "none of these engines is the policy's" in why(a), a.text
    assert put(gateway, [f"policy={policy.setting}", f"judge={other.setting}"]).status == 200


def test_a_pool_stays_one_under_other_settings(start, engine, judge):
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting}"])
    s = session(gateway)
    said(ask(gateway, s, RATE, model="judge"))
    gateway.stop()
    gateway.settings["engine"] = [policy.setting]
    gateway.start()
    asked = len(policy.requests)
    a = ask(gateway, s, RATE, model="judge")
    assert a.status == 503 and 'pool "judge" has no engine' in why(a), a.text
    assert len(policy.requests) == asked
    said(ask(gateway, s))


def test_a_pool_that_a_source_tells_and_that_is_silent(start, engine, tmp_path):
    policy, source = engine(), tmp_path / "engines"
    source.write_text(policy.setting + "\n")
    gateway = start(workers=1, engine_source=f"file:{source}", engine_health_interval="200ms")
    wait_until(lambda: [p for p, _ in pools(gateway)] == ["policy"], what="the policy's engine")
    s = session(gateway)
    said(ask(gateway, s))
    source.write_text(policy.setting + "\njudge=openai:http://127.0.0.1:1\n")
    wait_until(lambda: ask(gateway, s, RATE, model="judge").status == 503, what="the judge is a pool")


def test_a_pool_has_places_and_a_queue_of_its_own(start, engine, judge):
    policy, other = engine(), judge()
    hold = threading.Event()
    other.otherwise = lambda body: {"text": "x", "wait": hold}
    gateway = start(workers=1, engine=[policy.setting, f"judge={other.setting},max-inflight=1"], max_queue=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, gateway, session(gateway), RATE, model="judge")
        wait_until(lambda: len(other.requests) == 1, what="the first")
        second = pool.submit(ask, gateway, session(gateway), RATE, model="judge")
        wait_until(lambda: gateway.metrics().get("rollgate_queue_depth", 0) == 1, what="the second waits")
        refused = ask(gateway, session(gateway), RATE, model="judge")
        assert refused.status == 429 and "of pool judge is full" in refused.text, refused.text
        said(ask(gateway, session(gateway)))        # the policy's calls do not stand behind it
        hold.set()
        assert first.result().status == second.result().status == 200
    assert other.most_running == 1


def test_an_old_upstream_without_usage(start, engine):
    """It tells its words alone: they are kept."""
    with StubEngine("openai") as old:
        old.otherwise = lambda body: {"text": "7",
                                      "edit": lambda docs: [{k: v for k, v in d.items() if k != "usage"} for d in docs]}
        gateway = start(workers=1, engine=[engine().setting, f"judge={old.setting}"])
        s = session(gateway)
        assert said(ask(gateway, s, RATE, model="judge"))["content"] == "7"
        assert [t.get("pool") for t in turns(gateway, s)] == ["judge"]


def test_a_judge_takes_no_column_from_the_policy(start, engine, judge):
    """verl drops a column that one row lacks: what has no row takes none away."""
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}"])
    s = session(gateway)
    said(ask(gateway, s))
    said(ask(gateway, s, RATE, model="judge"))
    a = gateway.get(f"/sessions/{s}/trajectories?format=verl")
    assert a.status == 200 and b"rollout_log_probs" in a.body
    [row] = [r for r in gateway.get("/sessions").json()["sessions"] if r["session_id"] == s]
    assert row["branches"] == 1


def test_a_session_that_only_asked_a_judge_trains_nothing(start, judge, tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["a verdict"]))
    gateway = start(workers=1, engine=["builtin:echo", f"judge=builtin:script:{script}"])
    s = session(gateway)
    said(ask(gateway, s, RATE, model="judge"))
    a = gateway.get(f"/sessions/{s}/trajectories?require_trained=on")
    assert a.status == 422 and "require_trained" in why(a), a.text
    assert gateway.get(f"/sessions/{s}/trajectories").json()["trajectories"] == []


def test_a_pool_with_the_served_models_name(start, engine, judge):
    """Agents name it: they would be answered by the pool."""
    policy, other = engine(), judge()
    gateway = start(workers=1, engine=policy.setting)
    served = gateway.get("/v1/models").json()["data"][0]["id"]
    a = gateway.post("/admin/engines", {"engines": [f"{served}={other.setting}"]})
    assert a.status == 400 and "the name of the served model" in why(a), a.text
    said(ask(gateway, session(gateway), model=served))
    assert len(policy.requests) == 1 and not other.requests


def test_a_session_asks_the_pools_that_it_may(start, engine, judge):
    policy, other, user = engine(), judge(), judge()
    settings = dict(workers=1, engine=[policy.setting, f"judge={other.setting}", f"user={user.setting}"])
    gateway = start(**settings)
    s = session(gateway, pools=["user"])
    first = said(ask(gateway, s))
    said(ask(gateway, s, RATE, model="user"))
    talk = [*ASK["messages"], first, {"role": "user", "content": "on"}]
    said(ask(gateway, s, talk, model="gpt-5"))
    for sid in (s, gateway.post(f"/sessions/{s}/fork", {}).json()["session_id"],
                gateway.post("/sessions/import", gateway.get(f"/sessions/{s}/snapshot").json()).json()["session_id"]):
        bad = ask(gateway, sid, RATE, model="judge")
        assert bad.status == 403 and 'may not ask the pool "judge"' in why(bad), bad.text
        assert bad.json()["error"]["code"] == "wrong_scope" and bad.json()["error"]["param"] == "model"
        said(ask(gateway, sid, [*RATE, {"role": "user", "content": "again"}], model="user"))
        assert gateway.get(f"/sessions/{sid}").json()["pools"] == ["user"]
    gateway.stop()
    gateway.start()
    assert ask(gateway, s, RATE, model="judge").status == 403 and not other.requests
    bad = gateway.post(f"/sessions/{s}/v1/messages", {"model": "judge", "max_tokens": 9, "messages": ASK["messages"]})
    assert bad.status == 403 and bad.json()["error"]["type"] == "permission_error", bad.text
    free = session(gateway)
    said(ask(gateway, free, RATE, model="judge"))
    assert "pools" not in gateway.get(f"/sessions/{free}").json()


@pytest.mark.parametrize("model,pools,may", [
    (None, [], "policy"), (None, ["judge", "user"], "policy judge user"), ("judge", [], "judge"),
    ("judge", ["policy"], "judge policy"), ("policy", ["policy", "user", "user"], "policy user")], ids=str)
def test_the_own_pool_needs_no_leave(start, engine, judge, model, pools, may):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}", f"user={judge().setting}"])
    s = session(gateway, pools=pools, **({"model": model} if model else {}))
    said(ask(gateway, s))
    for i, name in enumerate(("policy", "judge", "user")):
        assert ask(gateway, s, [{"role": "user", "content": str(i)}], model=name).status == (200 if name in may.split() else 403)


def test_a_list_of_pools_that_are_none(start, engine, judge):
    gateway = start(workers=1, engine=[engine().setting, f"judge={judge().setting}"])
    bad = gateway.post("/sessions", {"pools": ["judge", "jugde"]})
    assert bad.status == 400 and bad.json()["error"]["param"] == "pools", bad.text
    assert 'called "jugde"' in why(bad) and "there are: policy, judge" in why(bad)
    for value in ("judge", [1], [""], {"judge": True}):
        bad = gateway.post("/sessions", {"pools": value})
        assert bad.status == 400 and bad.json()["error"]["param"] == "pools", bad.text
