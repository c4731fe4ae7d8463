"""The figures of the run: GET /stats and /metrics count each session when it ends, by task, model and version; the trainer's
logprobs against the sampler's (POST /sessions/{id}/logprobs); `rollgate top`, `session show` and `watch` show the same."""
import json
import math
import os
import signal
import subprocess

import pytest

import gateway as g
from export_readers import read_safetensors
from gateway import wait_until
from stub_engines import StubEngine
from test_streaming import new



def episode(gateway, reward=None, turns=1, end="finalize", text="hello", **options):
    """One session from its creation to its end; its id."""
    s, messages = new(gateway, **options), []
    for i in range(turns):
        messages.append({"role": "user", "content": f"{text} {i}"})
        answer = gateway.chat(s, messages)
        assert answer.status == 200, answer.text
        messages.append(answer.json()["choices"][0]["message"])
    sid = s["session_id"]
    if end:
        body = {"reward_info": {"reward": reward}} if reward is not None else {}
        assert gateway.post(f"/sessions/{sid}/complete", body).status == 200
        assert gateway.post(f"/sessions/{sid}/{end}").status in (200, 204)
    return sid


def stats(gateway, query=""):
    answer = gateway.get(f"/stats{query}")
    assert answer.status == 200, answer.text
    return answer.json()


def run(*arguments):
    return subprocess.run([str(g.BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def sums(figures):
    """The members of FIGURES that are sums, flat."""
    flat = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{k}": v for k, v in value.items()})
        elif not name.endswith(("_mean", "_mean_s", "_std", "_rate")) and name != "at":
            flat[name] = value
    return flat


def test_stats_metrics_and_top_agree(start):
    gateway = start(workers=2, engine="builtin:echo")
    for reward in (1, 0, 0.5):
        episode(gateway, reward, turns=2, labels={"task": "math"})
    episode(gateway, -2, labels={"task": "code"})
    episode(gateway, end="abort")
    episode(gateway, 1, evaluation=True)
    episode(gateway, end=None)  # still open: counts nowhere
    s = stats(gateway, "?by=task")
    total = s["total"]
    assert (total["sessions"], total["turns"], total["rewarded"], total["passed"]) == (5, 8, 4, 1)
    assert total["reward_sum"] == -0.5 and total["reward_mean"] == -0.125 and total["pass_rate"] == 0.25
    assert total["reward_std"] == pytest.approx(math.sqrt(5.25 / 4 - 0.125 ** 2))
    assert total["ended"] | {"stop": 0, "aborted": 0} == dict.fromkeys(total["ended"], 0)
    assert (total["ended"]["stop"], total["ended"]["aborted"]) == (4, 1)
    assert total["trajectories"] == 4 and total["drifted"] == 0 and total["unmeasured"] == 0
    assert 0 < total["trained_tokens"] < total["sampled_tokens"] < total["tokens"]
    assert sum(total["time_s"].values()) == pytest.approx(total["run_s"], abs=0.01)
    assert s["evaluation"]["sessions"] == 1 and s["evaluation"]["reward_sum"] == 1
    rows = {r["name"]: r["total"] for r in s["rows"]}
    assert {k: (v["sessions"], v["reward_sum"]) for k, v in rows.items()} == {"math": (3, 1.5), "code": (1, -2)}
    assert [r["name"] for r in stats(gateway, "?by=model")["rows"]] == ["policy"]
    added = {}
    for point in s["series"]:
        for name, value in sums(point).items():
            added[name] = added.get(name, 0) + value
    assert added == pytest.approx(sums(total))
    m = gateway.metrics()
    named = {"turns": "turns_total", "tokens": "tokens_total", "sampled_tokens": "sampled_tokens_total",
             "trained_tokens": "trained_tokens_total", "rewarded": "rewards_total", "reward_sum": "reward",
             "reward_square_sum": "reward_square", "passed": "passed_total", "truncated": "truncated_total",
             "trajectories": "trajectories_total", "drifted": "drifted_total"}
    for figure, metric in named.items():
        assert m[f"rollgate_run_{metric}"] == pytest.approx(total[figure]), figure
    for cause, n in total["ended"].items():
        assert m.get(f'rollgate_run_sessions_total{{ended="{cause}"}}', 0) == n
    for on, seconds in total["time_s"].items():
        assert m[f'rollgate_run_seconds_total{{on="{on}"}}'] == pytest.approx(seconds)
    top = run("top", "--once", "--json", "--listen", f"127.0.0.1:{gateway.port}")
    assert top.returncode == 0, top.stderr
    seen = json.loads(top.stdout)
    assert seen["stats"]["total"] == total
    assert seen["metrics"]["rollgate_run_turns_total"] == total["turns"]
    page = run("top", "--once", "--listen", f"127.0.0.1:{gateway.port}").stdout
    assert "reward" in page and "-0.125" in page and "25.0 % passed" in page and "5 ended" in page


def test_time_is_spent_on_parts_that_add_up(start):
    with StubEngine("sglang") as engine:
        gateway = start(workers=1, engine=engine.setting)
        s = new(gateway)
        sid = s["session_id"]
        engine.otherwise = lambda body: {"ids": [72, 105, 257], "delay_s": 0.1}
        for text in ("one", "two"):
            assert gateway.chat(s, text).status == 200
            g.pause(0.15, "the agent runs its tools")
        row = gateway.get("/sessions").json()["sessions"][0]
        assert row["turns"] == 2 and row["sampled_tokens"] == 6 and row["truncated_turns"] == 0
        state = gateway.get(f"/sessions/{sid}").json()
        assert state["time_s"] == row["time_s"]
        node = [n for n in state["tree"]["nodes"] if n["generated"]][0]
        assert set(node["latency_ms"]) == {"queue", "engine", "gateway"}
        assert gateway.post(f"/sessions/{sid}/complete").status == 200
        gateway.post(f"/sessions/{sid}/finalize")
        spent = gateway.get(f"/sessions/{sid}").json()["time_s"]
        assert sum(v for k, v in spent.items() if k != "run") == pytest.approx(spent["run"], abs=1e-5)
        assert spent["tools"] >= 0.14 and spent["scoring"] >= 0.14
        slow = stats(gateway)["slowest"]
        assert [x["session_id"] for x in slow] == [sid]
        assert slow[0]["run_s"] == pytest.approx(spent["run"])
        assert slow[0]["waited_for"] == max(slow[0]["time_s"], key=slow[0]["time_s"].get)


def test_calls_that_overlap_count_once(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [72, 105, 257], "delay_s": 0.2}
        gateway = start(workers=1, engine=engine.setting)
        s = new(gateway)
        g.in_parallel(lambda text: gateway.chat(s, text), ("one", "two", "three"))
        spent = gateway.get(f"/sessions/{s['session_id']}").json()["time_s"]
        assert sum(v for k, v in spent.items() if k != "run") == pytest.approx(spent["run"], abs=1e-5)
        assert 0.1 < spent["engine"] <= spent["run"] and spent["tools"] < 0.1


def test_counts_survive_a_worker_but_not_what_it_did_not_measure(start):
    gateway = start(workers=1, engine="builtin:echo", durability="power").allow("process died")
    episode(gateway, 1)
    kept = episode(gateway, end=None)
    victim = gateway.child("worker-0")
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: gateway.child("worker-0") not in (None, victim))
    wait_until(lambda: gateway.get("/ready").status == 200)
    assert stats(gateway)["total"]["sessions"] == 1
    assert gateway.post(f"/sessions/{kept}/finalize").status == 200  # it is read back for the export
    total = stats(gateway)["total"]
    assert (total["sessions"], total["turns"], total["unmeasured"]) == (2, 2, 0)


def test_staleness_is_the_newest_version_minus_the_oldest(start):
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [72, 105, 257]}
        gateway = start(workers=1, engine=engine.setting)
        assert gateway.post("/admin/weight_version", {"version": 3}).status == 200
        s = new(gateway)
        assert gateway.chat(s, "hi").status == 200
        assert gateway.post("/admin/weight_version", {"version": 5}).status == 200
        gateway.post(f"/sessions/{s['session_id']}/finalize")
        total = stats(gateway, "?by=version")
        assert total["total"]["staleness_sum"] == 2 and total["total"]["staleness_mean"] == 2
        assert [r["name"] for r in total["rows"]] == ["3"]
        assert gateway.post("/admin/weight_version", {"version": 4}).status == 200  # the trainer went back
        assert gateway.post("/admin/adapters", {"name": "side", "version": 5000}).status == 200
        for options in ({"adapter": "side"}, {}):
            s = new(gateway, **options)
            assert gateway.chat(s, "hi").status == 200
            gateway.post(f"/sessions/{s['session_id']}/finalize")
        total = stats(gateway)["total"]
        assert total["staleness_sum"] == 2 and total["staleness_mean"] == 1


def test_a_copied_beginning_counts_in_no_figure(start):
    gateway = start(workers=1, engine="builtin:echo", durability="power")
    sid = episode(gateway, end=None, turns=2)
    for copy in (gateway.post(f"/sessions/{sid}/fork", {}), gateway.post("/sessions/import", gateway.get(f"/sessions/{sid}/snapshot").json())):
        assert copy.status == 200, copy.text
        assert gateway.post(f"/sessions/{copy.json()['session_id']}/finalize").status == 200
        assert gateway.get(f"/sessions/{copy.json()['session_id']}/trajectories").status == 200
    total = stats(gateway)["total"]
    assert (total["sessions"], total["turns"], total["sampled_tokens"], total["tokens"], total["trained_tokens"]) == (2, 0, 0, 0, 0)


def test_a_long_task_is_cut_between_characters(start):
    gateway = start(workers=1, engine="builtin:echo")
    episode(gateway, 1, labels={"task": "\u0436" * 32})
    assert [(r["name"], r["total"]["sessions"]) for r in stats(gateway, "?by=task")["rows"]] == [("\u0436" * 31, 1)]


def test_a_wrong_range_names_itself(start):
    gateway = start(workers=1, engine="builtin:echo")
    for query, field in (("from=9&to=9", "from"), ("step=61", "step"), ("step=0", "step"), ("by=day", "by"), ("since=1", "since"),
                         ("from=x", "from")):
        answer = gateway.get(f"/stats?{query}")
        assert answer.status == 400 and field in answer.text, answer.text
    s = stats(gateway, "?from=60&to=120")
    assert s["total"]["sessions"] == 0 and s["series"] == []
    s = stats(gateway, "?step=3600")
    assert s["step"] == 3600 and s["from"] % 3600 == 0 and s["held_s"] == 14400


def test_keys_of_agents_and_runners_read_no_figures(start, tmp_path):
    key = tmp_path / "admin.key"
    key.write_text("secret-admin-key\n")
    key.chmod(0o600)
    gateway = start(workers=1, engine="builtin:echo", admin_key_file=key)
    admin = {"authorization": "Bearer secret-admin-key"}
    s = gateway.post("/sessions", {}, headers=admin).json()
    for name in ("api_key", "runner_key"):
        other = {"authorization": f"Bearer {s[name]}"}
        assert gateway.get("/stats", headers=other).status in (401, 403)
        path = f"/sessions/{s['session_id']}/logprobs"
        assert gateway.post(path, {"version": 1, "turns": []}, headers=other).status in (401, 403)
    assert gateway.get("/stats", headers=admin).status == 200


# --- trainer against sampler ---

SAMPLED = [-0.25, -0.5, -0.125]


@pytest.fixture
def sampled(start):
    """A gateway, and a session with two answers of known logprobs that version 7 sampled."""
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [72, 105, 257], "logprobs": SAMPLED}
        gateway = start(workers=1, engine=engine.setting, durability="power")
        assert gateway.post("/admin/weight_version", {"version": 7}).status == 200
        sid = episode(gateway, end=None, turns=2)
        turns = gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0]
        yield gateway, sid, turns


def turns_of(trajectory, logprobs=SAMPLED):
    return [{"response_id": t["response_id"], "ids": trajectory["response_ids"][t["start"]:t["end"]],
             "logprobs": list(logprobs)[:t["end"] - t["start"]]} for t in trajectory["turns"]]


def report(gateway, sid, turns, version=8):
    return gateway.post(f"/sessions/{sid}/logprobs", {"version": version, "turns": turns})


def reported(gateway, sid, query=""):
    tensors, meta = read_safetensors(gateway.get(f"/sessions/{sid}/tokens{query}").body)
    return tensors.get("response_trainer_logprobs.0"), json.loads(meta["reported_versions"])


def test_reported_logprobs_are_compared_token_by_token(sampled):
    gateway, sid, t = sampled
    assert reported(gateway, sid) == (None, [])
    worse = [-0.25, -3.5, None]
    answer = report(gateway, sid, [turns_of(t)[0], turns_of(t, worse)[1]])
    assert answer.status == 200, answer.text
    a = answer.json()
    assert (a["status"], a["turns"], a["tokens"], a["max"], a["p99"]) == ("ok", 2, 5, 3.0, 3.0)
    assert a["mean"] == pytest.approx(-3 / 5) and a["mean_abs"] == pytest.approx(3 / 5)
    tensor, versions = reported(gateway, sid)
    first, second = [(x["start"], x["end"]) for x in t["turns"]]
    assert versions == ["8"] and tensor[1] == [len(t["response_ids"])]
    assert tensor[2][slice(*first)] == SAMPLED[:first[1] - first[0]]
    assert tensor[2][second[0]:second[0] + 2] == [-0.25, -3.5] and math.isnan(tensor[2][second[0] + 2])
    m = stats(gateway)["mismatch"]
    assert m["total"]["tokens"] == 5 and m["total"]["max"] == 3.0
    before = stats(gateway, "?from=60&to=120")["mismatch"]
    assert (before["total"]["tokens"], before["total"]["p99"], before["versions"], before["worst"]) == (0, None, [], [])
    [row] = m["versions"]
    assert row["version"] == "7" and row["positions"][0]["tokens"] == 5 and row["positions"][1]["tokens"] == 0
    [worst] = m["worst"]
    assert (worst["session_id"], worst["position"], worst["token_id"]) == (sid, 1, 105)
    assert (worst["version"], worst["reported_version"], worst["difference"]) == ("7", "8", -3.0)
    assert (worst["before"], worst["token"], worst["after"]) == ("H", "i", "<|im_end|>")
    counted = gateway.metrics()
    assert counted["rollgate_reported_tokens_total"] == 5
    assert counted["rollgate_reported_difference"] == pytest.approx(-3)
    assert counted["rollgate_reported_abs_difference"] == pytest.approx(3)


def test_a_later_report_of_the_same_version_replaces_the_older(sampled):
    gateway, sid, t = sampled
    assert report(gateway, sid, turns_of(t, [-1, -1, -1]), 8).status == 200
    assert report(gateway, sid, turns_of(t, [-2, -2, -2]), "step-9").status == 200
    assert reported(gateway, sid)[0][2][0] == -2
    before = stats(gateway)["mismatch"]["total"]
    answer = report(gateway, sid, turns_of(t, [-4, -4, -4]), 8)
    assert answer.status == 200 and answer.json()["tokens"] == before["tokens"] // 2 and answer.json()["max"] == 3.875
    assert stats(gateway)["mismatch"]["total"] == before
    assert reported(gateway, sid)[0][2][0] == -4 and sorted(reported(gateway, sid)[1]) == ["8", "step-9"]
    assert reported(gateway, sid, "?reported=step-9")[0][2][0] == -2
    assert reported(gateway, sid, "?reported=10")[0] is None


def test_reports_survive_a_restart_and_an_import_and_come_after_the_end(sampled):
    gateway, sid, t = sampled
    gateway.allow("process died")
    assert gateway.post(f"/sessions/{sid}/finalize").status == 200
    ended = gateway.get(f"/sessions/{sid}").json()["updated_at"]
    assert report(gateway, sid, turns_of(t, [-1, -1, -1])).status == 200
    assert gateway.get(f"/sessions/{sid}").json()["updated_at"] == ended
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    before = wait_until(lambda: (lambda a: a.body if a.status == 200 else None)(gateway.get(f"/sessions/{sid}/tokens")))
    assert read_safetensors(before)[0]["response_trainer_logprobs.0"][2][0] == -1
    snapshot = gateway.get(f"/sessions/{sid}/snapshot").json()
    copy = gateway.post("/sessions/import", snapshot).json()["session_id"]
    assert reported(gateway, copy)[0][2][0] == -1
    fork = gateway.post(f"/sessions/{sid}/fork", {}).json()["session_id"]
    assert reported(gateway, fork)[0] is None  # a fork is its caller's: its trainer reports anew
    assert report(gateway, sid, turns_of(t, [-2, -2, -2])).status == 200  # read back for it


def test_what_does_not_fit_is_400_and_stores_nothing(sampled):
    gateway, sid, t = sampled
    good = turns_of(t)[0]
    n = len(good["ids"])
    bad = [({"turns": [good | {"logprobs": good["logprobs"][:-1]}]}, f"turns[0].logprobs: {n - 1} values for {n} ids"),
           ({"turns": [good, good | {"ids": good["ids"] + [1], "logprobs": good["logprobs"] + [0]}]},
            f"turns[1].ids: {n + 1} ids, the answer has {n}"),
           ({"turns": [good | {"ids": good["ids"][:1], "logprobs": [-1]}]}, f"turns[0].ids: 1 ids, the answer has {n}"),
           ({"turns": [good | {"ids": [72, 104, 257][:n]}]}, "turns[0].ids[1]: 104, the session has 105"),
           ({"turns": [good | {"ids": ["72", 105, 257][:n]}]}, "turns[0].ids[0]: 72, the session has 72"),
           ({"turns": [good | {"logprobs": [-1, 0.5, -1][:n]}]}, "turns[0].logprobs[1]: 0.5 is no logprob"),
           ({"turns": [good | {"logprobs": ["a", -1, -1][:n]}]}, "turns[0].logprobs[0]: a is no logprob"),
           ({"turns": [good | {"logprobs": [-1e60, -1, -1][:n]}]}, "turns[0].logprobs[0]: -1e+60 is no logprob"),
           ({"turns": [good | {"logprobs": [-1e10, -1, -1][:n]}]}, "turns[0].logprobs[0]: -10000000000.0 is no logprob"),
           ({"turns": [good | {"logprobs": [-3.4e38, -1, -1][:n]}]}, "a number from -10000 to 0; send null for a token"),
           ({"turns": [good | {"response_id": "chatcmpl-0"}]}, "turns[0].response_id: the session has no answer"),
           ({"turns": [good | {"mask": []}]}, 'turns[0]: unknown field "mask"'),
           ({"turns": [7]}, "turns[0]: not an object"), ({"turns": []}, "turns is missing"), ({}, "turns is missing"),
           ({"turns": [good], "version": ""}, "version"), ({"turns": [good], "version": None}, "version is missing"),
           ({"turns": [good], "version": "v" * 65}, "version: 65 bytes, at most 64"), ({"turns": [good], "weights": 1}, "weights")]
    for body, text in bad:
        answer = gateway.post(f"/sessions/{sid}/logprobs", {"version": 8} | body)
        assert answer.status == 400 and text in answer.json()["error"]["message"], (body, answer.text)
    assert reported(gateway, sid)[0] is None and stats(gateway)["mismatch"]["total"]["tokens"] == 0
    for version in range(16):
        assert report(gateway, sid, [good], version).status == 200
    answer = report(gateway, sid, [good | {"ids": [1] * 400000}])
    assert answer.status == 413 and "max-control-body-bytes" in answer.text
    answer = report(gateway, sid, [good], 16)
    assert answer.status == 400 and "16 versions" in answer.text
    assert report(gateway, sid, [good], 15).status == 200
    assert gateway.post("/sessions/w0-00112233445566778899aabbccddeeff/logprobs", {"version": 1, "turns": [good]}).status == 404


def test_reports_of_a_session_have_a_limit(start):
    """Replaced reports count, because the journal holds them; so do reports of other versions."""
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": [72, 105, 257], "logprobs": SAMPLED}
        gateway = start(workers=1, engine=engine.setting, durability="power", max_session_report_bytes=400).allow("process died")
        sid = episode(gateway, end=None, turns=1)
        turns = turns_of(gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0])
        assert [report(gateway, sid, turns, v).status for v in (1, 1, 2, 1)] == [200] * 4        # 76 bytes each
        for body in (turns * 2, turns * 5):
            answer = report(gateway, sid, body, 3)
            assert answer.status == 400, answer.text
            error = answer.json()["error"]
            n = 76 * (4 + len(body))
            assert error["message"] == f"turns: {n} are too many; --max-session-report-bytes allows 400 bytes" and error["param"] == "turns"
        victim = gateway.child("worker-0")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: gateway.child("worker-0") not in (None, victim) and gateway.get("/ready").status == 200)
        assert report(gateway, sid, turns, 1).status == 200
        assert report(gateway, sid, turns, 1).status == 400, "a restart forgets nothing"
        assert report(gateway, episode(gateway, end=None, turns=1), turns, 1).status == 400, "a different session: these ids are not its own"


def test_the_text_after_a_reported_token_keeps_its_beginning(start):
    """Eight tokens of 12 bytes follow: their text is longer than what is kept."""
    ids = [72, 105, 65, *[256] * 8, 257]
    with StubEngine("sglang") as engine:
        engine.otherwise = lambda body: {"ids": ids, "logprobs": [-0.5] * len(ids)}
        gateway = start(workers=1, engine=engine.setting)
        sid = episode(gateway, end=None, turns=1)
        turns = turns_of(gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"][0], [-0.5, -9.5] + [-0.5] * (len(ids) - 2))
        assert report(gateway, sid, turns).status == 200
        [worst] = stats(gateway)["mismatch"]["worst"]
        assert worst["before"] == "H" and worst["token"] == "i"
        whole = "A" + "<|im_start|>" * 7
        assert len(worst["after"]) > 40 and whole.startswith(worst["after"])


def test_reports_that_come_at_once_do_not_pass_the_most_that_a_turn_has(sampled):
    gateway, sid, t = sampled
    good = turns_of(t)
    for version in range(15):
        assert report(gateway, sid, good, version).status == 200
    answers = g.in_parallel(lambda version: report(gateway, sid, good * 200, version), range(100, 108))
    assert sorted(a.status for a in answers.values()) == [200] + 7 * [400], [a.text for a in answers.values()]
    assert gateway.get(f"/sessions/{sid}").status == 200
