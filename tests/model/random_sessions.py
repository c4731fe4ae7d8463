"""Random sessions: what harnesses do, in any order, overlapping, failing. Each is played by the
implementation and by the reference; calls, state and exports must agree, and every export must hold
the invariants of a trajectory whatever the reference says."""
import copy
import json
import random

import reference as R

WORDS = "alpha beta gamma delta fix run list files tests bug read done naïve 你好 🙂".split()
TOOLS = [[{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {"p": {"type": t}}}}}]
         for n, t in (("ls", "string"), ("cat", "string"), ("ls", "integer"))]
ARGS = ['{"p": "/tmp"}', '{"p":"/tmp"}', '{"n": 4096}', '{"n":4096.0}', '{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', "not json", "not  json", "{}"]


class Harness:
    def __init__(self, rng, history):
        self.rng, self.history = rng, history
        self.known = []  # conversations that got an answer: (messages, tools)
        self.events, self.open, self.n = [], [], 0
        self.answers = {}

    def words(self, lo=1, hi=4):
        return " ".join(self.rng.choice(WORDS) for _ in range(self.rng.randint(lo, hi)))

    def message(self, role=None):
        r = self.rng
        role = role or r.choice(["user", "user", "tool", "tool", "system"])
        m = {"role": role, "content": self.words()}
        if role == "tool" and r.random() < .5:
            m["tool_call_id"] = f"c{r.randint(0, 9)}"
        if role == "user" and r.random() < .1:
            m["name"] = r.choice(["bob", "eve"])
        if role == "assistant" and r.random() < .4:
            m["tool_calls"] = [{"id": f"c{r.randint(0, 3)}", "type": "function", "function": {"name": r.choice(["ls", "cat"]), "arguments": r.choice(ARGS)}}]
            m["content"] = r.choice(["", "  \n", None, self.words()])
        return m

    def echo(self, messages):
        """The history as some client sends it back."""
        out = copy.deepcopy(messages)
        for m in out:
            if self.rng.random() < .08 and isinstance(m.get("content"), str) and m["content"]:
                k = self.rng.randint(0, len(m["content"]))
                m["content"] = [{"type": "text", "text": m["content"][:k]}, {"type": "text", "text": m["content"][k:]}]
            for c in m.get("tool_calls") or []:
                if self.rng.random() < .3:
                    try:
                        c["function"]["arguments"] = json.dumps(json.loads(c["function"]["arguments"]))
                    except ValueError:
                        pass
                if self.rng.random() < .2:
                    c["id"] = "other"
            if m["role"] == "assistant" and self.rng.random() < .2:
                m["refusal"] = None
        return out

    def request(self):
        r = self.rng
        x = r.random()
        if not self.known or x < .1:  # a new conversation, now and then a warm start
            ms = [self.message("system")] if r.random() < .7 else []
            ms.append(self.message("user"))
            while r.random() < .25:
                ms += [self.message("assistant"), self.message()]
            return ms, r.choice([None, None, TOOLS[0], r.choice(TOOLS)])
        ms, tools = r.choice(self.known[-4:] if r.random() < .8 else self.known)
        ms = self.echo(ms)
        last = max((i for i, m in enumerate(ms) if m["role"] == "assistant"), default=0)
        if x < .60:
            ms += [self.message() for _ in range(r.randint(1, 2))]
        elif x < .72:
            ms = ms[:last] or ms  # another sample
        elif x < .80:
            ms[last] = self.message("assistant")  # rewritten by the client
            ms.append(self.message())
        elif x < .86:
            ms[r.randrange(len(ms))] = self.message()  # spliced
            ms.append(self.message("user"))
        elif x < .90:
            ms = [{"role": "system", "content": "summary: " + self.words()}, self.message("user")]
        elif x < .93:
            ms = ms[:r.randint(1, len(ms))]
        elif x < .96:
            tools = r.choice([None] + TOOLS)
        return ms, tools

    def chat(self):
        ms, tools = self.request()
        ev = {"op": "chat", "call": self.n, "messages": ms}
        if tools:
            ev["tools"] = tools
        if self.rng.random() < .3:
            ev["sampling"] = {"max_tokens": self.rng.choice([4, 16, 64])}
        self.events.append(ev)
        self.open.append((self.n, ms, tools))
        self.n += 1

    def settle(self, i):
        call, ms, tools = self.open.pop(i)
        r = self.rng
        if r.random() < .1:
            self.events.append({"op": "engine_error", "call": call})
            return
        text = self.words()
        if self.answers and r.random() < .25:
            text = r.choice(list(self.answers.values()))
        self.answers[call] = text
        cut = r.random() < .08
        ids = list(text.encode()) + ([] if cut else [R.END])
        ev = {"op": "engine", "call": call, "ids": ids, "finish": "length" if cut else "stop"}
        if r.random() < .5:
            v = r.randint(0, 3)
            ev["versions"] = {"min_global_steps": v, "max_global_steps": v + (r.random() < .3)}
        self.events.append(ev)
        self.known.append((ms + [{"role": "assistant", "content": text}], tools))


def scenario(seed):
    r = random.Random(seed)
    history = r.choice(["tree", "tree", "chains", "linear", "timelines"])
    o = {"history": history, "message_matcher": r.choice(["canonical", "canonical", "strict", "loose_tool_call", "role_content_only"])}
    if history == "tree":
        o["idempotent_retry"] = r.random() < .5
    if history == "chains":
        o["rollback_last_assistant"] = r.random() < .7
        if r.random() < .3:
            o["prompt_length"], o["response_length"] = r.choice([60, 120]), r.choice([80, 320])
    if history == "timelines":
        o.update(message_matcher="canonical", timeline_compare_level="text", ignore_tools=r.random() < .5)
    h = Harness(r, history)
    overlap = r.choice([0, 0, .3, .6])
    for _ in range(r.randint(1, 14)):
        h.chat()
        while h.open and (r.random() >= overlap or len(h.open) > 4):
            h.settle(r.randrange(len(h.open)))
    while h.open:
        h.settle(r.randrange(len(h.open)))
    if r.random() < .5:
        h.events.append({"op": "reward_info", "reward_info": {"reward": 0.5, "n": r.randint(0, 9)}})
    h.events.append({"op": "end", "how": "complete"})
    if r.random() < .2:
        h.events.insert(r.randrange(len(h.events)), {"op": "end", "how": r.choice(["delete", "abort", "finalize"])})
    return {"name": f"seed {seed}", "session": o, "events": h.events, "replay": True,
            "exports": {"default": {}, "once": {"train_once": "on"}, "all": {"select": "all_checkpoints"},
                        "pick": {"pick": "drop_retries", "train_once": "on"}, "cut": {"max_tokens": 200},
                        "merged": {"merge": "text", "train_once": True}, "long": {"select": "longest"}}}


def reference(sc):
    """Calls as the reference answers them: status, prompt ids, max tokens; and its final self."""
    o = sc["session"]
    s = {"tree": R.Tree, "chains": R.Chains, "linear": R.Linear, "timelines": R.Timelines}[o["history"]](o)
    tree = R.Tree({**o, "idempotent_retry": False}) if o["history"] == "timelines" else None
    plans, calls, ended, gone = {}, {}, False, False
    for ev in sc["events"]:
        c = ev.get("call")
        if ev["op"] == "chat":
            if ended:
                calls[c] = (410, None, None)
                continue
            try:
                p = s.prepare(c, ev["messages"], ev.get("tools"), ev.get("sampling", {}))
                if tree is not None:  # prompts of timelines stand on stored tokens all the same
                    q = tree.prepare(c, ev["messages"], ev.get("tools"), {}, refuse=False)
                    p["tokens"], p["tree"] = q["tokens"], q
                calls[c] = (200 if p.get("full") else None, p["tokens"].ids, p.get("max_tokens", (ev.get("sampling") or {}).get("max_tokens")))
                if not p.get("full"):
                    plans[c] = p
            except R.Refused as e:
                calls[c] = (e.status, None, None)
        elif ev["op"] == "engine" and c in plans:
            p = plans.pop(c)
            if ended:
                calls[c] = (410, *calls[c][1:])
                continue
            a = R.Answer(ev["ids"], ev["finish"], ev.get("versions"))
            try:
                s.commit(p, a)
                if tree is not None:
                    tree.commit(p["tree"], a)
                calls[c] = (200, *calls[c][1:])
            except R.Refused as e:
                calls[c] = (e.status, *calls[c][1:])
        elif ev["op"] == "engine_error" and c in plans:
            p = plans.pop(c)
            s.release(p)
            if tree is not None:
                tree.release(p["tree"])
            calls[c] = (500, *calls[c][1:])
        elif ev["op"] == "end" and not ended:
            ended = ev["how"] != "complete"
            gone = ev["how"] in ("delete", "abort")
    return s, calls, gone


def check_export(name, x, sent, answers, bad, exact=True):
    """The invariants that hold for every export, whoever made it."""
    for t in x["trajectories"]:
        where = f"{name}[{t['trajectory_index']}]"
        n = len(t["response_ids"])
        if len(t["response_mask"]) != n or (t["response_logprobs"] is not None and len(t["response_logprobs"]) != n):
            bad.append(f"{where}: lengths disagree")
        full = t["prompt_ids"] + t["response_ids"]
        for u in t["turns"]:
            call = int(u["response_id"][1:])
            own = t["response_ids"][u["start"]:u["end"]]
            if own != answers[call]:
                bad.append(f"{where}: turn {call} holds {own[:20]}, the engine said {answers[call][:20]}")
            if exact and full[:len(t["prompt_ids"]) + u["start"]] != sent[call]:
                bad.append(f"{where}: turn {call} stands behind other ids than were sent")
            if t["response_mask"][u["start"]:u["end"]] != [int(u["trained"])] * len(own):
                bad.append(f"{where}: turn {call} has the wrong mask")
            lp = t["response_logprobs"]
            want = [R.logprob(j, i) for j, i in enumerate(own)] if u["trained"] else [0.0] * len(own)
            if lp is not None and any(abs(a - b) > 1e-6 for a, b in zip(lp[u["start"]:u["end"]], want)):
                bad.append(f"{where}: turn {call} has other logprobs")
        trained = sum(u["end"] - u["start"] for u in t["turns"] if u["trained"])
        if sum(t["response_mask"]) != trained:
            bad.append(f"{where}: trains what nobody generated")
        if not t["turns"] or t["turns"][0]["start"] != 0:
            bad.append(f"{where}: the response does not begin with a sampled token")


def check_once(name, x, answers, bad):
    kept = {u["response_id"] for t in x["trajectories"] for u in t["turns"]}
    want = sum(len(answers[int(r[1:])]) for r in kept)
    if sum(sum(t["response_mask"]) for t in x["trajectories"]) != want:
        bad.append(f"{name}: trained tokens are not the distinct generated tokens of the kept branches")


def flat(t):
    return [[["llm" if m.get("generated") else "env", m["role"], R.content_text(m.get("content"))] for m in t["messages"]],
            [t["response_ids"][u["start"]:u["end"]] for u in t["turns"]]]


def judge_policy(sc, s, out, bad):
    def same(what, got, want):
        if got != want:
            bad.append(f"{what}: got {str(got)[:300]} want {str(want)[:300]}")
    got = out["exports"]["default"]["trajectories"]
    if isinstance(s, R.Tree):
        from run_model import tree_nodes
        same("nodes", tree_nodes(out["state"]), s.nodes())
        for key, kw in (("default", {}), ("pick", {"pick": "drop_retries", "train_once": True}), ("once", {"train_once": True})):
            same(key, sorted([t["prompt_ids"], t["response_ids"], R.rle(t["response_mask"])] for t in out["exports"][key]["trajectories"]),
                 sorted([t["prompt"], t["response"], t["mask"]] for t in s.samples(**kw)))
    elif isinstance(s, R.Chains):
        for k, v in s.state().items():
            same(k, out["state"][k], v)
        same("chains", [[t["prompt_ids"], t["response_ids"], t["response_mask"], t["num_turns"]] for t in got],
             [[t["prompt"], t["response"], t["mask"], t["num_turns"]] for t in s.trajectories()])
    elif isinstance(s, R.Linear):
        same("accumulated", out["state"]["accumulated_token_ids"], s.accumulated())
        same("num_records", out["state"]["num_records"], s.num_records())
        same("one branch", len(got), 1 if s.points else 0)
    else:
        want = [[[[a, m[0], m[1]] for a, m in zip(t["authors"], t["messages"])], t["ids"]] for t in s.timelines()]
        same("timelines", sorted(map(flat, got), key=json.dumps), sorted(want, key=json.dumps))


def judge(sc, out):
    bad = []
    s, calls, gone = reference(sc)
    for c, (status, prompt, limit) in calls.items():
        got = out["calls"][str(c)]
        if got["status"] != status:
            bad.append(f"call {c} status: got {got['status']} want {status} ({got['text']})")
        elif prompt is not None and got["prompt"] != prompt:
            bad.append(f"call {c} prompt: got {got['prompt']} want {prompt}")
        elif limit and got["asked"] and status in (200, 500) and got["max_tokens"] != limit:
            bad.append(f"call {c} max tokens: got {got['max_tokens']} want {limit}")
    if bad or gone:
        return bad + (["a deleted session is still there"] if gone and out["state"] is not None else [])
    judge_policy(sc, s, out, bad)
    sent = {int(c): v["prompt"] for c, v in out["calls"].items()}
    answers = {ev["call"]: ev["ids"] for ev in sc["events"] if ev["op"] == "engine"}
    timelines = sc["session"]["history"] == "timelines"
    for name, x in out["exports"].items():
        merged = name == "merged" or (timelines and name not in ("all",))
        check_export(name, x, sent, answers, bad, exact=not merged)
        if name in ("once", "pick", "merged"):
            check_once(name, x, answers, bad)
        if name == "cut" and any(len(t["prompt_ids"]) + len(t["response_ids"]) > 200 for t in x["trajectories"]) and not timelines:
            bad.append("cut: a trajectory is longer than max_tokens")
    return bad


def run(player, n, seed):
    for i in range(n):
        sc = scenario(seed * 1000003 + i)
        yield sc["name"], judge(sc, player.play(sc))
