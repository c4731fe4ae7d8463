#!/usr/bin/env python3
"""Plays scenarios through session_player and judges what comes out.

    run_model.py --player build/dev/tests/model/session_player golden FILE.jsonl [...]
    run_model.py --player ... random --n 2000 --seed 7

golden: against the expectations of the golden files. random: against the simple reference model and
the invariants of the trajectories. Last line: 'N passed, N failed'; exit status 0 when none failed.
"""
import argparse
import json
import subprocess
import sys

import reference as R

SAMPLES = {"samples_all_leaves": {"select": "leaves", "pick": "all", "train_once": "off"},
           "samples_default_pick": {"select": "leaves", "pick": "drop_retries", "train_once": "on"}}


class Player:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.differ = 0

    def play(self, sc):
        """Twice: once with all in memory, once with the session out of memory whenever it is idle.
        Nothing of what comes out may differ."""
        out = self.play_once(sc)
        if self.play_once({**sc, "evict": True}) != out:
            self.differ += 1
            print("DIFFERS when it is evicted:", json.dumps(sc)[:2000])
        return json.loads(out)

    def play_once(self, sc):
        self.p.stdin.write(json.dumps(sc).encode() + b"\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"session_player died (status {self.p.wait()})")
        return line

    def close(self):
        """Whatever the player had to say (a replay that differs) is a failure."""
        self.p.stdin.close()
        said = self.p.stderr.read().decode()
        sys.stdout.write(said[:2000])
        return self.p.wait() or (1 if said or self.differ else 0)


def encoded(t):
    return R.encode(t) if isinstance(t, str) else t


def runs(ids, mask):
    out, i = [], 0
    while i < len(mask):
        j = i
        while j < len(mask) and mask[j] == mask[i]:
            j += 1
        if mask[i]:
            out.append(ids[i:j])
        i = j
    return out


def tree_nodes(state):
    by = {n["id"]: n for n in state["tree"]["nodes"]}
    gen = sorted((n for n in by.values() if n["generated"]), key=lambda n: n["seq"])
    num = {n["id"]: i for i, n in enumerate(gen)}

    def up(n):
        p = n["parent"]
        while p is not None and p not in num:
            p = by[p]["parent"]
        return None if p is None else num[p]
    return [[up(n), n["truncated"], list(n["completion_span"]), n["num_tokens"]] for n in gen]


def flat(t):
    return [[["llm" if m.get("generated") else "env", m["role"], R.shown_text(m)] for m in t["messages"]],
            runs(t["response_ids"], t["response_mask"])]


def judge_golden(sc, out):
    x, bad = sc["expect"], []

    def same(what, got, want):
        if got != want:
            bad.append(f"{what}: got {str(got)[:300]} want {str(want)[:300]}")
    for e in x.get("calls", []):
        c = out["calls"][str(e["call"])]
        want = 500 if e["status"] in ("5xx", 500) else e["status"]
        same(f"call {e['call']} status", c["status"], want)
        if want in (200, 500):
            same(f"call {e['call']} prompt", c["prompt"] if c["asked"] else None,
                 None if e["engine_prompt"] is None else encoded(e["engine_prompt"]))
            if e["engine_prompt"] is None:
                same(f"call {e['call']} usage", len(c["prompt"]), e["prompt_tokens"])
        if "engine_max_tokens" in e and want == 200 and c["asked"]:
            same(f"call {e['call']} max", c["max_tokens"], e["engine_max_tokens"])
    for k, v in x.get("state", {}).items():
        same(k, out["state"][k], v)
    if "accumulated" in x:
        same("accumulated", out["state"]["accumulated_token_ids"], encoded(x["accumulated"]))
        same("num_records", out["state"]["num_records"], x["num_records"])
    if "nodes" in x:
        same("nodes", tree_nodes(out["state"]), [[n["parent"], n["truncated"], n["completion_span"], n["num_tokens"]] for n in x["nodes"]])
    for key in SAMPLES:
        if key in x:
            got = sorted([t["prompt_ids"], t["response_ids"], R.rle(t["response_mask"])] for t in out["exports"][key]["trajectories"])
            same(key, got, sorted([encoded(t["prompt"]), encoded(t["response"]), t["loss_mask_rle"]] for t in x[key]))
    got = out["exports"]["default"]["trajectories"]
    if "trajectories" in x:
        same("count", len(got), len(x["trajectories"]))
        for i, (g, w) in enumerate(zip(got, x["trajectories"])):
            same(f"t{i} prompt", g["prompt_ids"], encoded(w["prompt"]))
            same(f"t{i} response", g["response_ids"], encoded(w["response"]))
            same(f"t{i} mask", R.rle(g["response_mask"]), w["response_mask_rle"])
            same(f"t{i} logprobs", [round(v, 4) for v in g["response_logprobs"]], [round(v, 4) for v in w["response_logprobs"]])
            same(f"t{i} num_turns", g["num_turns"], len(g["turns"]))
            same(f"t{i} verl's num_turns", R.num_turns(g["messages"]), w["num_turns"])
            same(f"t{i} reward_info", g["reward_info"], w["reward_info"])
            for k in ("min_global_steps", "max_global_steps", "materialization_reason"):
                same(f"t{i} {k}", g["extra_fields"].get(k), w["extra_fields"].get(k))
    if "timelines" in x:
        want = [[[[a, m[0], m[1]] for a, m in zip(t["authors"], t["messages"])], t["generated_ids"]] for t in x["timelines"]]
        same("timelines", sorted(map(flat, got), key=json.dumps), sorted(want, key=json.dumps))
    return bad


def golden(player, files):
    for f in files:
        for line in R.scenario_lines(f):
            sc = json.loads(line)
            sc["exports"] = {"default": {}, **{k: v for k, v in SAMPLES.items() if k in sc["expect"]}}
            sc["drift"] = sc["session"]["history"] == "timelines"
            sc["replay"] = True
            # A retry that failed moved a linear head; the next record of any kind says so.
            sc["events"].append({"op": "end", "how": "complete"})
            yield sc["name"], judge_golden(sc, player.play(sc))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--player", required=True)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("mode", choices=["golden", "random"])
    p.add_argument("files", nargs="*")
    p.add_argument("--n", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    player = Player(a.player)
    ok = fail = 0
    if a.mode == "golden":
        results = golden(player, a.files)
    else:
        import random_sessions
        results = random_sessions.run(player, a.n, a.seed)
    for name, bad in results:
        if bad:
            fail += 1
            if fail <= a.show:
                print("FAIL", name, *bad[:6], sep="\n    ")
        else:
            ok += 1
        if (ok + fail) % 1000 == 0:
            print(f"... {ok} passed, {fail} failed", flush=True)
    status = player.close()
    print(f"{ok} passed, {fail} failed")
    sys.exit(1 if fail or status or not ok else 0)


if __name__ == "__main__":
    main()
