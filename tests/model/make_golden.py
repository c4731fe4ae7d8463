#!/usr/bin/env python3
"""Random sessions as golden scenarios: what the reference model expects of them, in the format of the golden
files, to be played through a whole gateway by the runner of those.

    make_golden.py POLICY N SEED > FILE.jsonl
"""
import json
import random
import sys

import random_sessions as S
import reference as R

NAMES = {v: k for k, v in R.SPECIALS.items()}


def decode(ids):
    """Special tokens by name, others as UTF-8; what is no text as <id>."""
    out, run = [], bytearray()
    for i in ids:
        if i < 256:
            run.append(i)
            continue
        out.append(run.decode("utf-8", "replace") + NAMES.get(i, f"<{i}>"))
        run = bytearray()
    return "".join(out) + run.decode("utf-8", "replace")


def session(rng, policy):
    o = {"history": policy}
    if policy == "tree":
        o.update(idempotent_retry=rng.random() < .5, message_matcher=rng.choice(["strict", "canonical", "loose_tool_call", "role_content_only"]))
    elif policy == "linear":
        o["message_matcher"] = rng.choice(["strict", "canonical", "loose_tool_call", "role_content_only"])
    elif policy == "chains":
        o["rollback_last_assistant"] = rng.random() < .7
        if rng.random() < .4:
            o["prompt_length"], o["response_length"] = rng.choice([60, 120]), rng.choice([80, 160, 320])
        if rng.random() < .4:
            o["sampling_params"] = {"temperature": 0.7, "max_tokens": rng.choice([16, 64, 500])}
    else:
        o.update(timeline_compare_level=rng.choice(["text", "token"]), ignore_tools=rng.random() < .5)
    return o


def events(rng, policy, matcher):
    h = S.Harness(rng, policy)
    h.drift = policy == "timelines"
    h.play(12, 3)
    kept = [{k: v for k, v in ev.items() if k not in ("kwargs", "context_length", "more", "no_logprobs")} for ev in h.events if ev["op"] != "count"]
    for ev in kept if matcher != "canonical" else []:
        for m in ev.get("messages", []):  # dialects join lists of texts for some roles: others would differ
            m["content"] = R.content_text(m["content"])
    if policy == "chains" and rng.random() < .5:
        kept.append({"op": "reward_info", "reward_info": {"reward": rng.randint(0, 9) / 10}})
    return kept


def expected_call(c, ref, said, limits):
    status, prompt, limit = ref.calls[c]
    if status >= 500:
        return {"call": c, "status": "5xx"}
    if status != 200:
        return {"call": c, "status": status, "engine_prompt": decode(prompt) if prompt else None}
    full = c not in said
    out = {"call": c, "status": 200, "engine_prompt": None if full else decode(prompt), "content": "", "finish_reason": "length",
           "prompt_tokens": len(prompt), "completion_tokens": 0}
    if not full:
        a = R.Answer(said[c]["ids"], said[c]["finish"])
        out.update(content=a.text, finish_reason="length" if a.finish == "length" else "stop", completion_tokens=len(a.ids))
        if limit and limits:
            out["engine_max_tokens"] = limit
    return out


def expected(ref, said, reward):
    s = ref.s
    out = {"calls": [expected_call(c, ref, said, isinstance(s, R.Chains)) for c in ref.calls]}
    if isinstance(s, R.Tree):
        out["nodes"] = [dict(zip(("parent", "truncated", "completion_span", "num_tokens"), n)) for n in s.nodes()]
        for key, kw in (("samples_all_leaves", {}), ("samples_default_pick", {"pick": "drop_retries", "train_once": True})):
            out[key] = [{"prompt": decode(t["prompt"]), "response": decode(t["response"]), "loss_mask_rle": t["mask"]} for t in s.samples(**kw)]
    elif isinstance(s, R.Linear):
        out["accumulated"] = decode(s.accumulated())
    elif isinstance(s, R.Chains):
        out["state"] = s.state()
        out["trajectories"] = [{"prompt": decode(t["prompt"]), "response": decode(t["response"]), "response_mask_rle": R.rle(t["mask"]),
                                "response_logprobs": t["logprobs"], "num_turns": t["num_turns"], "reward_info": reward, "extra_fields": t["extra"]}
                               for t in s.trajectories()]
    else:
        out["timelines"] = [{"authors": t["authors"], "messages": t["messages"], "generated_ids": t["ids"]} for t in s.timelines()]
    return out


def scenario(policy, seed):
    rng = random.Random(seed)
    o = session(rng, policy)
    matcher = o.setdefault("message_matcher", "canonical")
    sc = {"name": f"{policy} seed {seed}", "session": o, "events": events(rng, policy, matcher), "drift": policy == "timelines"}
    ref = S.Reference(sc)
    defaults = {k: v for k, v in sc["session"].get("sampling_params", {}).items() if k == "max_tokens"}
    for ev in sc["events"]:
        ref.play({**ev, "sampling": {**defaults, **ev.get("sampling", {})}} if ev["op"] == "chat" else ev)
    said = {ev["call"]: ev for ev in sc["events"] if ev["op"] == "engine" and ref.calls[ev["call"]][0] == 200 and
            not (isinstance(ref.s, R.Chains) and ev["call"] in ref.full)}
    reward = next((ev["reward_info"] for ev in sc["events"] if ev["op"] == "reward_info"), {})
    sc["expect"] = expected(ref, said, reward)
    return sc


if __name__ == "__main__":
    for i in range(int(sys.argv[2])):
        print(json.dumps(scenario(sys.argv[1], int(sys.argv[3]) * 1000003 + i), ensure_ascii=False))
