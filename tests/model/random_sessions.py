"""Random sessions: what harnesses do, in any order, overlapping, failing: extend, resample (also several
answers of one call), rewrite, splice, shorten, sub-agents that come and go, condensation with and without
the latest turns, warm starts, other tools and template kwargs, counts in between, errors, ends of every kind.
Each is played by the implementation and by the reference. After every event state and exports must
agree, and every export must hold the invariants of a trajectory whatever the reference says."""
import copy
import json
import random

import reference as R

WORDS = "alpha beta gamma delta fix run list files tests bug read done naïve 你好 🙂".split()
TOOLS = [[{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {"p": {"type": t}}}}}]
         for n, t in (("ls", "string"), ("cat", "string"), ("ls", "integer"))]
KWARGS = [None, {"enable_thinking": True}, {"enable_thinking": False}, {"depth": 4096}, {"depth": 4096.0}]
ARGS = ['{"p": "/tmp"}', '{"p":"/tmp"}', '{"n": 4096}', '{"n":4096.0}', '{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', "not json", "not  json", "{}"]


class Harness:
    def __init__(self, rng, history):
        self.rng, self.history = rng, history
        self.known = []  # conversations that got an answer: (messages, tools)
        self.events, self.open, self.n = [], [], 0
        self.answers = {}
        self.agents = []  # sub-agents: (system message, tools, kwargs)
        self.drift = False

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

    def sub_agent(self):
        """Another system prompt, maybe other tools; or one of those again, at its beginning or where it was."""
        r = self.rng
        if not self.agents or r.random() < .3:
            self.agents.append(({"role": "system", "content": f"agent {len(self.agents)}: " + self.words()}, r.choice([None, None] + TOOLS),
                                r.choice(KWARGS)))
        system, tools, kwargs = r.choice(self.agents)
        mine = [k for k in self.known if k[0][0] == system]
        if mine and r.random() < .6:
            return self.echo(r.choice(mine)[0]) + [self.message()], tools, kwargs
        return [dict(system), self.message("user")], tools, kwargs

    def condensed(self, ms):
        """A recap instead of the history, maybe with its latest messages kept."""
        keep = self.rng.choice([0, 0, 1, 2, 3])
        tail = ms[-keep:] if keep else [self.message("user")]
        head = ms[:1] if ms[0]["role"] == "system" and self.rng.random() < .5 else []
        return head + [{"role": self.rng.choice(["system", "user"]), "content": "summary: " + self.words()}] + tail + \
            ([self.message()] if self.rng.random() < .5 else [])

    def request(self):
        r = self.rng
        x = r.random()
        if r.random() < .12:
            return self.sub_agent()
        if not self.known or x < .1:  # a new conversation, now and then a warm start
            ms = [self.message("system")] if r.random() < .7 else []
            ms.append(self.message("user"))
            while r.random() < .25:
                ms += [self.message("assistant"), self.message()]
            return ms, r.choice([None, None, TOOLS[0], r.choice(TOOLS)]), r.choice(KWARGS) if r.random() < .2 else None
        ms, tools, kwargs = r.choice(self.known[-4:] if r.random() < .8 else self.known)
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
            ms = self.condensed(ms)
        elif x < .93:
            ms = ms[:r.randint(1, len(ms))]
        elif x < .95:
            tools = r.choice([None] + TOOLS)
        elif x < .97:
            kwargs = r.choice(KWARGS)
        return ms, tools, kwargs

    def chat(self):
        ms, tools, kwargs = self.request()
        ev = {"op": "chat", "call": self.n, "messages": ms}
        if tools:
            ev["tools"] = tools
        if kwargs:
            ev["kwargs"] = kwargs
        if self.rng.random() < .15:
            self.events.append({**ev, "op": "count"})
        if self.rng.random() < .3:
            ev["sampling"] = {"max_tokens": self.rng.choice([4, 16, 64])}
        if self.rng.random() < .05:
            ev["context_length"] = self.rng.choice([60, 200, 1000])
        self.events.append(ev)
        self.open.append((self.n, ms, tools, kwargs))
        self.n += 1

    def answer(self):
        """What an engine says: text, now and then said before, whole or cut, in ids that need not be the encoder's."""
        r = self.rng
        text = self.words()
        if self.answers and r.random() < .25:
            text = r.choice(list(self.answers.values()))
        cut = r.random() < .08
        ids = list(text.encode())
        if self.drift and r.random() < .6:
            k = r.choice([0, 0, len(text) // 2])
            ids = R.encode(text[:k]) + R.encode_drift(text[k:])
        ev = {"ids": ids + ([] if cut else [R.END]), "finish": "length" if cut else "stop"}
        if r.random() < .5:
            v = r.randint(0, 3)
            ev["versions"] = {"min_global_steps": v, "max_global_steps": v + (r.random() < .3)}
        if r.random() < .03:
            ev["no_logprobs"] = True
        return text, ev

    def play(self, most, at_once):
        """Up to so many calls, so many of them running at a time; all are settled at the end."""
        r = self.rng
        overlap = r.choice([0, 0, .3, .6])
        for _ in range(r.randint(1, most)):
            self.chat()
            while self.open and (r.random() >= overlap or len(self.open) > at_once):
                self.settle(r.randrange(len(self.open)))
        while self.open:
            self.settle(r.randrange(len(self.open)))

    def settle(self, i):
        call, ms, tools, kwargs = self.open.pop(i)
        r = self.rng
        if r.random() < .1:
            self.events.append({"op": "engine_error", "call": call})
            return
        said = [self.answer() for _ in range(r.choice([1] * 9 + [3]))]
        self.answers[call] = said[0][0]
        ev = {"op": "engine", "call": call, **said[0][1]}
        if len(said) > 1:
            ev["more"] = [a for _, a in said[1:]]
        self.events.append(ev)
        for text, _ in said:
            self.known.append((ms + [{"role": "assistant", "content": text}], tools, kwargs))


def scenario(seed):
    r = random.Random(seed)
    history = r.choice(["tree", "tree", "chains", "linear", "timelines"])
    o = {"history": history, "message_matcher": r.choice(["canonical", "canonical", "strict", "loose_tool_call", "role_content_only"])}
    if history == "tree":
        o["idempotent_retry"] = r.random() < .5
        if r.random() < .6:
            o["on_truncated"] = r.choice(["continue", "refuse"])
    if history == "chains":
        o["rollback_last_assistant"] = r.random() < .7
        if r.random() < .3:
            o["prompt_length"], o["response_length"] = r.choice([60, 120]), r.choice([80, 320])
    if history == "timelines":
        o.update(message_matcher="canonical", timeline_compare_level=r.choice(["text", "token"]), ignore_tools=r.random() < .5)
    h = Harness(r, history)
    h.drift = r.random() < (.5 if history == "timelines" else .15)
    h.play(14, 4)
    if r.random() < .5:
        h.events.append({"op": "reward_info", "reward_info": {"reward": 0.5, "n": r.randint(0, 9)}})
    if r.random() < .2:
        h.events.insert(r.randrange(len(h.events)), {"op": "end", "how": "complete"})
    for _ in range(2):
        if r.random() < .12:
            h.events.insert(r.randrange(len(h.events)), {"op": "end", "how": r.choice(["delete", "abort", "finalize", "expire"])})
    return {"name": f"seed {seed}", "session": o, "events": h.events, "replay": True, "drift": h.drift,
            "steps": {"once": {"train_once": "on"}} if history == "tree" else {"default": {"train_once": "on"}} if history == "timelines" else {"default": {}},
            "exports": {"default": {}, "once": {"train_once": "on"}, "all": {"select": "all_checkpoints"},
                        "pick": {"pick": "drop_retries", "train_once": "on"}, "cut": {"max_tokens": 200},
                        "merged": {"merge": "text", "train_once": True}, "long": {"select": "longest"}}}


def gate(ev):
    return R.Gate(ev.get("tools"), ev["kwargs"]) if ev.get("kwargs") else ev.get("tools")


class Reference:
    """Calls as the reference answers them: status, prompt ids, max tokens; and what it holds by now."""

    def __init__(self, sc):
        o = sc["session"]
        encode = R.encode_drift if sc["drift"] else R.encode
        self.s = {"tree": R.Tree, "chains": R.Chains, "linear": R.Linear, "timelines": R.Timelines}[o["history"]](o, encode)
        # prompts of timelines stand on stored tokens all the same
        self.tree = R.Tree({**o, "idempotent_retry": False}, encode) if o["history"] == "timelines" else None
        self.plans, self.calls, self.ended, self.gone = {}, {}, False, False
        self.full = set()  # calls without room: no engine is asked

    def chat(self, ev):
        c = ev["call"]
        if self.ended:
            self.calls[c] = (410, None, None)
            return
        args = c, ev["messages"], gate(ev), ev.get("sampling", {}), ev.get("context_length", 0)
        try:
            p = self.s.prepare(*args)
            if self.tree is not None:
                q = self.tree.prepare(*args, refuse=False)
                p.update(tokens=q["tokens"], tree=q, max_tokens=q["max_tokens"])
            self.calls[c] = (200 if p.get("full") else None, p["tokens"].ids, p["max_tokens"])
            if p.get("full"):
                self.full.add(c)
            else:
                self.plans[c] = p
        except R.Refused as e:
            self.calls[c] = (e.status, None, None)

    def settle(self, ev):
        c = ev["call"]
        if c not in self.plans:
            return
        p, status = self.plans.pop(c), 500
        if ev["op"] == "engine" and not self.ended:
            a = [R.Answer(x["ids"], x["finish"], x.get("versions")) for x in [ev, *ev.get("more", [])]]
            status = 200
            try:
                self.s.commit(p, *a)
                if self.tree is not None:
                    self.tree.commit(p["tree"], *a)
            except R.Refused as e:
                status = e.status
        elif ev["op"] == "engine":
            status = 410
        else:
            self.s.release(p)
            if self.tree is not None:
                self.tree.release(p["tree"])
        self.calls[c] = (status, *self.calls[c][1:])

    def play(self, ev):
        if ev["op"] == "chat":
            self.chat(ev)
        elif ev["op"] in ("engine", "engine_error"):
            self.settle(ev)
        elif ev["op"] == "end" and not self.ended:
            self.ended = ev["how"] != "complete"
            self.gone = ev["how"] in ("delete", "abort")
        elif ev["op"] == "end":
            self.gone = self.gone or ev["how"] == "delete"


def turn_of(response_id):
    """"r7.2" is the third answer of call 7."""
    call, _, i = response_id[1:].partition(".")
    return int(call), int(i or 0)


def check_export(name, x, sent, answers, silent, bad, exact=True):
    """The invariants that hold for every export, whoever made it. silent: answers without logprobs."""
    for t in x["trajectories"]:
        where = f"{name}[{t['trajectory_index']}]"
        n = len(t["response_ids"])
        if len(t["response_mask"]) != n or (t["response_logprobs"] is not None and len(t["response_logprobs"]) != n):
            bad.append(f"{where}: lengths disagree")
        full = t["prompt_ids"] + t["response_ids"]
        lp = t["response_logprobs"]
        for u in t["turns"]:
            call, _ = key = turn_of(u["response_id"])
            own = t["response_ids"][u["start"]:u["end"]]
            if own != answers[key]:
                bad.append(f"{where}: turn {key} holds {own[:20]}, the engine said {answers[key][:20]}")
            if exact and full[:len(t["prompt_ids"]) + u["start"]] != sent[call]:
                bad.append(f"{where}: turn {call} stands behind other ids than were sent")
            if t["response_mask"][u["start"]:u["end"]] != [int(u["trained"])] * len(own):
                bad.append(f"{where}: turn {call} has the wrong mask")
            want = [R.logprob(j, i) for j, i in enumerate(own)] if u["trained"] else [0.0] * len(own)
            if lp is not None and any(abs(a - b) > 1e-6 for a, b in zip(lp[u["start"]:u["end"]], want)):
                bad.append(f"{where}: turn {call} has other logprobs")
        trained = sum(u["end"] - u["start"] for u in t["turns"] if u["trained"])
        if sum(t["response_mask"]) != trained:
            bad.append(f"{where}: trains what nobody generated")
        if (lp is None) != any(turn_of(u["response_id"]) in silent for u in t["turns"]):
            bad.append(f"{where}: logprobs of some turns only")
        if not t["turns"] or t["turns"][0]["start"] != 0:
            bad.append(f"{where}: the response does not begin with a sampled token")


def check_once(name, x, answers, bad):
    kept = {u["response_id"] for t in x["trajectories"] for u in t["turns"]}
    want = sum(len(answers[turn_of(r)]) for r in kept)
    if sum(sum(t["response_mask"]) for t in x["trajectories"]) != want:
        bad.append(f"{name}: trained tokens are not the distinct generated tokens of the kept branches")


def flat(t):
    return [[["llm" if m.get("generated") else "env", m["role"], R.shown_text(m)] for m in t["messages"]],
            [t["response_ids"][u["start"]:u["end"]] for u in t["turns"]]]


def expected(s):
    """What the reference holds by now, comparable with state and exports."""
    if isinstance(s, R.Tree):
        flat_of = lambda **kw: sorted([t["prompt"], t["response"], t["mask"]] for t in s.samples(**kw))
        return {"nodes": s.nodes(), "default": flat_of(), "once": flat_of(train_once=True),
                "pick": flat_of(pick="drop_retries", train_once=True)}
    if isinstance(s, R.Chains):
        return {**s.state(), "chains": [[t["prompt"], t["response"], t["mask"], t["num_turns"]] for t in s.trajectories()]}
    if isinstance(s, R.Linear):
        return {"accumulated": s.accumulated(), "num_records": s.num_records(), "one": 1 if s.points else 0}
    return {"timelines": sorted([[[[a, m[0], m[1]] for a, m in zip(t["authors"], t["messages"])], t["ids"]] for t in s.timelines()], key=json.dumps)}


def observed(s, state, exports):
    if isinstance(s, R.Tree):
        from run_model import tree_nodes
        return {"nodes": tree_nodes(state), **{k: sorted([t["prompt_ids"], t["response_ids"], R.rle(t["response_mask"])] for t in exports[k]["trajectories"])
                                               for k in ("default", "once", "pick") if k in exports}}
    got = exports["default"]["trajectories"]
    if isinstance(s, R.Chains):
        return {**{k: state[k] for k in s.state()}, "chains": [[t["prompt_ids"], t["response_ids"], t["response_mask"], R.num_turns(t["messages"])] for t in got]}
    if isinstance(s, R.Linear):
        return {"accumulated": state["accumulated_token_ids"], "num_records": state["num_records"], "one": len(got)}
    return {"timelines": sorted(map(flat, got), key=json.dumps)}


def judge_step(where, ref, want, seen, facts, bad):
    """One moment: the reference's view, and the invariants of all exports."""
    if ref.gone or seen["state"] is None:
        if not ref.gone or seen["state"] is not None:
            bad.append(f"{where}: a deleted session is there, or another one is not")
        return
    got = observed(ref.s, seen["state"], seen["exports"])
    for k, v in got.items():
        if v != want[k]:
            bad.append(f"{where} {k}: got {str(v)[:300]} want {str(want[k])[:300]}")
    timelines = isinstance(ref.s, R.Timelines)
    for name, x in seen["exports"].items():
        merged = name == "merged" or (timelines and name != "all")
        check_export(f"{where} {name}", x, *facts, bad, exact=not merged)
        if name in ("once", "pick", "merged") or (timelines and name == "default" and where != "at the end"):
            check_once(f"{where} {name}", x, facts[1], bad)
        if name == "cut" and any(len(t["prompt_ids"]) + len(t["response_ids"]) > 200 for t in x["trajectories"]) and not timelines:
            bad.append(f"{where} cut: a trajectory is longer than max_tokens")


def judge(sc, out):
    bad, ref = [], Reference(sc)
    said = {(ev["call"], i): a for ev in sc["events"] if ev["op"] == "engine" for i, a in enumerate([ev, *ev.get("more", [])])}
    facts = ({int(c): v["prompt"] for c, v in out["calls"].items()}, {k: a["ids"] for k, a in said.items()},
             {k for k, a in said.items() if a.get("no_logprobs")})
    want = None
    for i, (ev, seen) in enumerate(zip(sc["events"], out["steps"])):
        ref.play(ev)
        if ev["op"] != "count" or want is None:
            want = expected(ref.s)
        if not bad:
            judge_step(f"after event {i} ({ev['op']})", ref, want, seen, facts, bad)
    for c, (status, prompt, limit) in ref.calls.items():
        got = out["calls"][str(c)]
        if got["status"] != status:
            bad.append(f"call {c} status: got {got['status']} want {status} ({got['text']})")
        elif prompt is not None and got["prompt"] != prompt:
            bad.append(f"call {c} prompt: got {got['prompt']} want {prompt}")
        elif limit and got["asked"] and status in (200, 500) and got["max_tokens"] != limit:
            bad.append(f"call {c} max tokens: got {got['max_tokens']} want {limit}")
    if not bad:
        judge_step("at the end", ref, want, out, facts, bad)
    return bad


def run(player, n, seed):
    for i in range(n):
        sc = scenario(seed * 1000003 + i)
        yield sc["name"], judge(sc, player.play(sc))
