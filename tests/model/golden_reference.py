"""Does the simple model itself agree with the golden scenarios? (It must, before it may judge.)"""
import json
import sys

import reference as R


def play(sc):
    o = sc["session"]
    policy = {"tree": R.Tree, "chains": getattr(R, "Chains", None), "linear": getattr(R, "Linear", None),
              "timelines": getattr(R, "Timelines", None)}[o["history"]]
    s = policy(o)
    plans, results, bad = {}, {}, []
    for ev in sc["events"]:
        c = ev.get("call")
        if ev["op"] == "chat":
            try:
                plans[c] = s.prepare(c, ev["messages"], ev.get("tools"), {**o.get("sampling_params", {}), **ev.get("sampling", {})})
                results[c] = (None, plans[c])
                if plans[c].get("full"):
                    results[c] = (200, plans.pop(c))
            except R.Refused as e:
                results[c] = (e.status, str(e))
        elif ev["op"] == "engine" and c in plans:
            a = R.Answer(ev["ids"] if "ids" in ev else R.encode(ev["text"]), ev["finish"], ev.get("versions"))
            try:
                s.commit(plans[c], a)
                results[c] = (200, plans.pop(c))
            except R.Refused as e:
                results[c] = (e.status, plans.pop(c))
        elif ev["op"] == "engine_error" and c in plans:
            if hasattr(s, "release"):
                s.release(plans[c])
            results[c] = (500, plans.pop(c))
        elif ev["op"] == "reward_info":
            s.reward = ev["reward_info"]
    x = sc["expect"]

    def same(what, got, want):
        if got != want:
            bad.append(f"{what}: got {str(got)[:700]} want {str(want)[:700]}")
    for e in x.get("calls", []):
        st, p = results[e["call"]]
        want = 500 if e["status"] in ("5xx", 500) else e["status"]
        same(f"call {e['call']} status", st, want)
        if "why" in e and o["history"] == "linear":
            same(f"call {e['call']} why", p, e["why"][:len(str(p))])
        if st in (200, 500) and e["engine_prompt"] is not None and not isinstance(p, str):
            same(f"call {e['call']} prompt", p["tokens"].ids, R.encode(e["engine_prompt"]))
        if "engine_max_tokens" in e and st == 200 and not p.get("full"):
            same(f"call {e['call']} max", p["max_tokens"], e["engine_max_tokens"])
        if e["engine_prompt"] is None and st == 200:
            same(f"call {e['call']} full", bool(p.get("full")), True)
            same(f"call {e['call']} usage", len(p["tokens"].ids), e["prompt_tokens"])
    if "nodes" in x:
        same("nodes", s.nodes(), [[n["parent"], n["truncated"], n["completion_span"], n["num_tokens"]] for n in x["nodes"]])
        for key, kw in (("samples_all_leaves", {}), ("samples_default_pick", {"pick": "drop_retries", "train_once": True})):
            same(key, sorted([t["prompt"], t["response"], t["mask"]] for t in s.samples(**kw)),
                 sorted([R.encode(t["prompt"]), R.encode(t["response"]), t["loss_mask_rle"]] for t in x[key]))
    if "accumulated" in x:
        same("accumulated", s.accumulated(), R.encode(x["accumulated"]))
        same("num_records", s.num_records(), x["num_records"])
    if "state" in x:
        for k, v in x["state"].items():
            same(k, s.state()[k], v)
    if "trajectories" in x:
        got = s.trajectories()
        same("count", len(got), len(x["trajectories"]))
        for i, (g, w) in enumerate(zip(got, x["trajectories"])):
            same(f"t{i} prompt", g["prompt"], R.encode(w["prompt"]))
            same(f"t{i} response", g["response"], R.encode(w["response"]))
            same(f"t{i} mask", rle_of(g["mask"]), w["response_mask_rle"])
            same(f"t{i} lps", [round(v, 4) for v in g["logprobs"]], [round(v, 4) for v in w["response_logprobs"]])
            same(f"t{i} turns", g["num_turns"], w["num_turns"])
            same(f"t{i} extra", g["extra"], w["extra_fields"])
            same(f"t{i} reward", s.reward, w["reward_info"])
    if "timelines" in x:
        got = sorted(([[a, m] for a, m in zip(t["authors"], t["messages"])], t["ids"]) for t in s.timelines())
        want = sorted(([[a, m] for a, m in zip(t["authors"], t["messages"])], t["generated_ids"]) for t in x["timelines"])
        same("timelines", [list(g) for g in got], [list(w) for w in want])
    return bad


rle_of = R.rle

if __name__ == "__main__":
    ok = fail = 0
    for f in sys.argv[1:]:
        for line in R.scenario_lines(f):
            sc = json.loads(line)
            bad = play(sc)
            if bad:
                fail += 1
                if fail <= 5:
                    print("FAIL", sc["name"], *bad[:4], sep="\n   ")
            else:
                ok += 1
    print(ok, "passed,", fail, "failed")
    sys.exit(fail != 0)
