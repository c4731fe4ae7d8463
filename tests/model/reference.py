"""A deliberately simple model of sessions: every history policy as lists of whole messages and whole
token lists, scanned from the front, nothing shared and nothing clever. The C implementation must agree.

Model: ids 0..255 are UTF-8 bytes, 256 <|im_start|>, 257 <|im_end|>; ChatML rendering.
"""
import json
import lzma
import re
from pathlib import Path

SPECIALS = {"<|im_start|>": 256, "<|im_end|>": 257, "<|endoftext|>": 258}
SPLIT = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")
MERGES = [("li", 259), ("st", 260), ("list", 261), ("fi", 262), ("es", 263), ("fil", 264),
          ("files", 265), ("ta", 266), ("al", 267), ("ne", 268)]
END = 257


def scenario_lines(path):
    """The lines of a file of scenarios, compressed (.xz) or not."""
    data = Path(path).read_bytes()
    text = (lzma.decompress(data) if str(path).endswith(".xz") else data).decode("utf-8")
    return [line for line in text.split("\n") if line]


def encode(text):
    ids = []
    for part in SPLIT.split(text):
        ids.extend([SPECIALS[part]] if part in SPECIALS else part.encode("utf-8"))
    return ids


def encode_drift(text):
    """The ten merges of chatml-drift, applied by rank."""
    pairs = [(108, 105, 259), (115, 116, 260), (259, 260, 261), (102, 105, 262), (101, 115, 263),
             (262, 108, 264), (264, 263, 265), (116, 97, 266), (97, 108, 267), (110, 101, 268)]
    ids = encode(text)
    while True:
        best = None
        for a, b, c in pairs:
            if any(ids[i] == a and ids[i + 1] == b for i in range(len(ids) - 1)):
                best = (a, b, c)
                break
        if best is None:
            return ids
        a, b, c = best
        out, i = [], 0
        while i < len(ids):
            if i + 1 < len(ids) and ids[i] == a and ids[i + 1] == b:
                out.append(c)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        ids = out


def content_text(c):
    if c is None:
        return ""
    return c if isinstance(c, str) else "".join(p.get("text", "") for p in c)


def render(messages, tools, prompt=True):
    out = ""
    if tools and len(tools):
        out += "<|im_start|>system\n# Tools\n" + "\n".join(json.dumps(t, ensure_ascii=False) for t in tools) + "<|im_end|>\n"
    for m in messages:
        out += render_one(m)
    return out + ("<|im_start|>assistant\n" if prompt else "")


def render_one(m):
    out = "<|im_start|>" + m["role"] + "\n" + content_text(m.get("content"))
    for tc in m.get("tool_calls") or []:
        a = tc["function"]["arguments"]
        try:
            a = json.loads(a) if isinstance(a, str) else a
        except ValueError:
            pass
        a = a if isinstance(a, str) else json.dumps(a, ensure_ascii=False)
        out += '\n<tool_call>\n{"name": "' + tc["function"]["name"] + '", "arguments": ' + a + "}\n</tool_call>"
    return out + "<|im_end|>\n"


def logprob(j, t):
    return -((t * 7 + j * 13) % 100) / 100


def parsed(x):
    try:
        return ["json", json.loads(x)]
    except (ValueError, TypeError):
        return ["text", x]


def canon(m, matcher):
    """What the matcher compares, as a JSON-comparable value."""
    content = m.get("content")
    if isinstance(content, list) and matcher == "canonical":
        content = content_text(content)
    content = content or ""
    calls = m.get("tool_calls") or []
    if matcher == "canonical":
        if calls and not content.strip():
            content = ""
        return [m["role"], content, [[c["function"]["name"], parsed(c["function"]["arguments"])] for c in calls],
                (m.get("name") or "") if m["role"] != "assistant" else ""]
    if matcher == "role_content_only":
        return [m["role"], content]
    args = parsed if matcher == "loose_tool_call" else (lambda a: a)
    return [m["role"], content, m.get("reasoning_content") or "",
            [[c.get("id"), c.get("type"), c["function"]["name"], args(c["function"]["arguments"])] for c in calls]]


def shown_text(m):
    """Text of a message in an export. Equal messages are stored once, as the first was sent, so white space that may
    be beside calls is not compared."""
    text = content_text(m.get("content"))
    return text if m["role"] != "assistant" or text.strip() else ""


class Answer:
    def __init__(self, ids, finish, versions=None):
        self.ids = list(ids)
        self.finish = finish
        self.versions = versions
        body = self.ids[:-1] if self.ids and self.ids[-1] == END else self.ids
        self.text = decode_text(body)
        self.logprobs = [logprob(j, t) for j, t in enumerate(self.ids)]
        n = len(self.ids)
        self.vers = [None] * n
        if versions:
            lo, hi = versions["min_global_steps"], versions["max_global_steps"]
            k = n if lo == hi else max(1, n // 2)
            self.vers = [lo] * k + [hi] * (n - k) if lo != hi else [hi] * n


BY_ID = {v: k for k, v in MERGES}


def decode_text(ids):
    raw = b""
    names = {256: b"<|im_start|>", 257: b"<|im_end|>", 258: b"<|endoftext|>"}
    for i in ids:
        raw += bytes([i]) if i < 256 else (BY_ID[i].encode() if i in BY_ID else b"")
    del names
    return raw.decode("utf-8", "replace")


class Seq:
    """Tokens with mask, logprobs and versions."""

    def __init__(self, ids=(), mask=(), lps=(), vers=()):
        self.ids, self.mask, self.lps, self.vers = list(ids), list(mask), list(lps), list(vers)

    def copy(self):
        return Seq(self.ids, self.mask, self.lps, self.vers)

    def context(self, ids):
        self.ids += ids
        self.mask += [0] * len(ids)
        self.lps += [0.0] * len(ids)
        self.vers += [-1] * len(ids)
        return self

    def sampled(self, a):
        self.ids += a.ids
        self.mask += [1] * len(a.ids)
        self.lps += a.logprobs
        self.vers += a.vers
        return self

    def cut(self, n):
        return Seq(self.ids[:n], self.mask[:n], self.lps[:n], self.vers[:n])


def closing(ids):
    return [10] if ids and ids[-1] == END else [END, 10]


def same_prefix(a, b, matcher):
    return len(a) <= len(b) and all(canon(x, matcher) == canon(y, matcher) for x, y in zip(a, b))


class Gate(list):
    """Tools with chat template kwargs beside them: both must be equal for a checkpoint to be reused."""

    def __init__(self, tools, kwargs):
        super().__init__(tools or [])
        self.kwargs = kwargs

    def __bool__(self):
        return True

    def __eq__(self, other):
        return isinstance(other, Gate) and list(self) == list(other) and self.kwargs == other.kwargs

    def __ne__(self, other):
        return not self == other


def same_tools(a, b):
    return (a or None) == (b or None)


def check_room(seq, sampling, context):
    """What is left of the context, or nothing: then the call is refused."""
    asked = sampling.get("max_tokens")
    if not context:
        return asked
    if len(seq.ids) >= context:
        raise Refused(400)
    return min(context - len(seq.ids), asked) if asked else context - len(seq.ids)


class Refused(Exception):
    def __init__(self, status, why=""):
        super().__init__(why)
        self.status = status


def num_turns(messages):
    return sum(m["role"] in ("user", "assistant") for m in messages) + 1


def rle(mask):
    out = []
    for m in mask:
        if out and out[-1][0] == m:
            out[-1][1] += 1
        else:
            out.append([m, 1])
    return out


class Tree:
    """Commits in order; each knows its parent commit, its messages and its tokens."""

    def __init__(self, opts, encode=encode):
        self.matcher = opts.get("message_matcher", "canonical")
        self.idempotent = opts.get("idempotent_retry", True)
        self.refuses = opts.get("on_truncated", "refuse" if opts.get("message_matcher") == "strict" else "continue") == "refuse"
        self.commits, self.plans = [], []
        self.encode = encode
        self.seq = 0

    def attach(self, messages, tools):
        best = None
        for c in self.commits:
            if same_tools(c["tools"], tools) and same_prefix(c["messages"], messages, self.matcher):
                k = (len(c["messages"]), c["seq"])
                if best is None or k > (len(best["messages"]), best["seq"]):
                    best = c
        return best

    def prepare(self, call, messages, tools, sampling, context=0, refuse=True):
        c = self.attach(messages, tools)
        if c and c["truncated"] and refuse and self.refuses:
            raise Refused(409)
        if c is None:
            seq = Seq().context(self.encode(render(messages, tools)))
            stored = messages
        else:
            new = messages[len(c["messages"]):]
            seq = c["tokens"].copy().context(closing(c["tokens"].ids) + self.encode(render(new, None)))
            stored = c["messages"] + new
        p = {"call": call, "parent": c, "tokens": seq, "messages": stored, "tools": tools,
             "max_tokens": check_room(seq, sampling, context)}
        self.plans.append(p)
        return p

    def commit(self, p, *answers):
        """Several answers of one call are siblings, whatever they say."""
        if p in self.plans:
            self.plans.remove(p)
        return [self.commit_one(p, a, self.idempotent and len(answers) == 1) for a in answers]

    def commit_one(self, p, a, idempotent):
        start = len(p["tokens"].ids)
        c = {"call": p["call"], "parent": p["parent"], "messages": p["messages"] + [{"role": "assistant", "content": a.text}],
             "tokens": p["tokens"].copy().sampled(a), "tools": p["tools"], "truncated": a.finish == "length",
             "span": [start, start + len(a.ids)], "seq": self.seq, "id": self.seq}
        self.seq += 1
        for o in sorted(self.commits, key=lambda o: -o["seq"]) if idempotent else []:
            if (o["parent"] is c["parent"] and same_tools(o["tools"], c["tools"]) and len(o["messages"]) == len(c["messages"])
                    and same_prefix(o["messages"], c["messages"], self.matcher)):
                used = any(d["parent"] is o for d in self.commits + self.plans)
                o.update({k: c[k] for k in (["seq"] if used else ["tokens", "truncated", "span", "seq", "call"])})
                return o
        self.commits.append(c)
        return c

    def release(self, p):
        self.plans.remove(p)

    def leaves(self):
        parents = {id(c["parent"]) for c in self.commits if c["parent"]}
        return [c for c in self.commits if id(c) not in parents]

    @staticmethod
    def path(c):
        out = []
        while c:
            out.append(c)
            c = c["parent"]
        return out[::-1]

    def samples(self, pick="all", train_once=False):
        leaves = self.leaves()
        if pick == "drop_retries":
            leaves = [c for c in leaves if c["parent"] is None or
                      not any(o["parent"] is c["parent"] and o["seq"] > c["seq"] for o in self.commits)]
        trained, out = set(), []
        for c in sorted(leaves, key=lambda c: c["seq"]):
            mask = list(c["tokens"].mask)
            path = self.path(c)
            for n in path:
                if train_once and id(n) in trained:
                    lo, hi = n["span"]
                    mask[lo:hi] = [0] * (hi - lo)
                trained.add(id(n))
            k = path[0]["span"][0]
            ids = c["tokens"].ids
            out.append({"leaf": c["seq"], "prompt": ids[:k], "response": ids[k:], "mask": rle(mask[k:])})
        return out

    def nodes(self):
        num = {id(c): i for i, c in enumerate(sorted(self.commits, key=lambda c: c["seq"]))}
        return [[num.get(id(c["parent"])), c["truncated"], c["span"], len(c["tokens"].ids)]
                for c in sorted(self.commits, key=lambda c: c["seq"])]


class Linear:
    """One history: its messages, and one checkpoint per generated turn."""

    def __init__(self, opts, encode=encode):
        self.matcher = opts.get("message_matcher", "canonical")
        self.messages = []
        self.tools = None
        self.points = []  # generated turns: (number of messages, tokens, call)
        self.encode = encode
        self.version = 0

    def prepare(self, call, messages, tools, sampling, context=0):
        match = 0 if same_tools(tools, self.tools) or not self.messages else None
        while (match is not None and match < len(messages) and match < len(self.messages)
               and canon(messages[match], self.matcher) == canon(self.messages[match], self.matcher)):
            match += 1
        match = match or 0
        keep = len(self.points)
        if match < len(self.messages):
            keep = sum(n <= match for n, _, _ in self.points)
            drop = len(self.points) - keep
            if drop > 1:
                raise Refused(400, f"rollback failed: discard_count={drop} exceeds max_assistant_rollback_steps=1 "
                              f"(stored has {len(self.messages)} messages, request has {len(messages)} messages")
        if keep == 0:
            seq, stored = Seq().context(self.encode(render(messages, tools))), list(messages)
        else:
            n, toks, _ = self.points[keep - 1]
            new = messages[n:]
            seq = toks.copy().context(closing(toks.ids) + self.encode(render(new, None)))
            stored = self.messages[:n] + new
        room = check_room(seq, sampling, context)
        if match < len(self.messages):
            # The discarded turn is gone from here on, whatever becomes of this call.
            self.version += 1
            self.points = self.points[:keep]
            self.messages = self.messages[:self.points[-1][0]] if keep else []
        return {"call": call, "keep": keep, "tokens": seq, "messages": stored, "version": self.version, "tools": tools,
                "max_tokens": room}

    def commit(self, p, a, *beside):
        """Further answers of the call stand beside the one history."""
        if p["version"] != self.version:
            raise Refused(409)
        self.version += 1
        self.points = self.points[:p["keep"]]
        self.tools = p["tools"]
        self.messages = p["messages"] + [{"role": "assistant", "content": a.text}]
        self.points.append((len(self.messages), p["tokens"].copy().sampled(a), p["call"]))

    def release(self, p):
        pass

    def accumulated(self):
        return self.points[-1][1].ids if self.points else []

    def num_records(self):
        return len(self.points)


class Chains:
    """Append-only linear chains; each request continues one or starts one."""

    def __init__(self, opts, encode=encode):
        self.matcher = opts.get("message_matcher", "canonical")
        self.rollback = opts.get("rollback_last_assistant", True)
        p, r = opts.get("prompt_length"), opts.get("response_length")
        self.capacity = p + r if p and r else None
        self.live, self.closed = [], []
        self.encode = encode
        self.next_id = self.seq = 0
        self.rollbacks = self.dropped = 0
        self.reward = {}

    def select(self, messages, tools):
        best, deepest_exact, backs = None, -1, []
        for c in self.live:
            if c["reserved"] or not same_tools(c["tools"], tools):
                continue
            start = c["turns"][-1]["at"]  # message index of the last assistant
            if len(messages) <= start or not same_prefix(c["messages"][:start], messages, self.matcher):
                continue
            if same_prefix(c["messages"], messages, self.matcher):
                k = (len(c["messages"]), 1, c["seq"], c["id"])
                deepest_exact = max(deepest_exact, len(c["messages"]))
            elif self.rollback and len(c["turns"]) > 1:
                k = (start, 0, c["seq"], c["id"])
                backs.append(start)
            else:
                continue
            if best is None or k > best[0]:
                best = (k, c)
        if best and not best[0][1] and backs.count(best[0][0]) > 1 and best[0][0] > deepest_exact:
            return None, False
        return (best[1], not best[0][1]) if best else (None, False)

    def prepare(self, call, messages, tools, sampling, context=0):
        c, back = self.select(messages, tools)
        drop = 0
        if c is None:
            seq, stored, turns = Seq().context(self.encode(render(messages, tools))), list(messages), []
        elif back:
            last, turns = c["turns"][-1], c["turns"][:-1]
            base = turns[-1]
            stored = c["messages"][:last["at"]] + messages[last["at"]:]
            seq = c["tokens"].cut(base["end"])
            seq.context(closing(seq.ids) + self.encode(render(stored[base["at"] + 1:], None)))
            drop = last["end"] - last["start"]
        else:
            turns = c["turns"]
            new = messages[len(c["messages"]):]
            stored = c["messages"] + new
            seq = c["tokens"].copy().context(closing(c["tokens"].ids) + self.encode(render(new, None)))
        p = {"call": call, "chain": c, "back": back, "drop": drop, "tokens": seq, "messages": stored, "tools": tools,
             "turns": turns, "max_tokens": sampling.get("max_tokens")}
        if self.capacity is not None:
            left = self.capacity - len(seq.ids)
            if left <= 0:
                p["full"] = True
                if c:
                    # What the caller is charged with: the chain as it stands, without the request's suffix and
                    # without the answer that was rolled back, its generation prompt and the line feed before.
                    if back:
                        lead = self.encode("\n<|im_start|>assistant\n")
                        c.update(tokens=c["tokens"].cut(last["start"] - len(lead)), messages=c["messages"][:last["at"]], turns=turns)
                        self.rollbacks += 1
                        self.dropped += drop
                    p["tokens"] = c["tokens"]
                    c["reason"], c["seq"] = "max_trajectory_length", self.seq
                    self.seq += 1
                    self.live.remove(c)
                    self.closed.append(c)
                return p
            p["max_tokens"] = min(left, p["max_tokens"]) if p["max_tokens"] else left
        p["max_tokens"] = check_room(seq, {"max_tokens": p["max_tokens"]}, context)
        if c:
            c["reserved"] = True
        return p

    def release(self, p):
        if p["chain"]:
            p["chain"]["reserved"] = False

    def commit(self, p, *answers):
        """Further answers of the call start chains of their own."""
        for i, a in enumerate(answers):
            self.commit_one(p if i == 0 else {**p, "chain": None, "back": False}, a)

    def commit_one(self, p, a):
        c = p["chain"]
        if c is None:
            c = {"id": self.next_id, "tools": p["tools"]}
            self.next_id += 1
            self.live.append(c)
        start = len(p["tokens"].ids)
        c.update(tokens=p["tokens"].copy().sampled(a), reserved=False, seq=self.seq,
                 messages=p["messages"] + [{"role": "assistant", "content": a.text}],
                 turns=p["turns"] + [{"at": len(p["messages"]), "start": start, "end": start + len(a.ids), "answer": a}])
        self.seq += 1
        if p["back"]:
            self.rollbacks += 1
            self.dropped += p["drop"]

    def state(self):
        return {"num_active_chains": len(self.live), "rollback_count": self.rollbacks, "num_trajectories": len(self.closed),
                "rollback_dropped_trainable_tokens_total": self.dropped}

    def trajectories(self):
        out = []
        for c in sorted(self.live + self.closed, key=lambda c: c["seq"]):
            k = c["turns"][0]["start"]
            t = c["tokens"]
            vs = [v for v in t.vers if v is not None and v >= 0]
            extra = {"min_global_steps": min(vs), "max_global_steps": max(vs)} if vs else {}
            if "reason" in c:
                extra["materialization_reason"] = c["reason"]
            out.append({"prompt": t.ids[:k], "response": t.ids[k:], "mask": t.mask[k:], "logprobs": t.lps[k:],
                        "num_turns": num_turns(c["messages"]), "extra": extra})
        return out


class Timelines:
    """Every call is its own timeline; at the end, shorter ones are absorbed by longer ones."""

    def __init__(self, opts, encode=encode_drift):
        self.level = opts.get("timeline_compare_level", "text")
        self.ignore_tools = opts.get("ignore_tools", True)
        self.encode = encode
        self.lines = []

    def prepare(self, call, messages, tools, sampling, context=0):
        return {"call": call, "messages": messages, "tools": tools, "tokens": Seq()}

    def commit(self, p, *answers):
        for a in answers:
            self.commit_one(p, a)

    def commit_one(self, p, a):
        ms = [{"role": m["role"], "text": shown_text(m), "author": "env", "canon": canon(m, "canonical"),
               "ids": self.encode(content_text(m.get("content")))} for m in p["messages"]]
        body = a.ids[:-1] if a.ids and a.ids[-1] == END else a.ids
        ms.append({"role": "assistant", "text": a.text, "author": "llm", "ids": list(body), "raw": a.ids,
                   "canon": canon({"role": "assistant", "content": a.text}, "canonical")})
        self.lines.append({"call": p["call"], "m": ms, "tools": p["tools"]})

    def release(self, p):
        pass

    def same(self, x, y):
        """Role and text (with tool calls, where a message has them); by token the ids, too: what two engines'
        answers really were, or what a client's copy encodes to."""
        ids = "raw" if "raw" in x and "raw" in y else "ids"
        return x["canon"] == y["canon"] and (self.level == "text" or x[ids] == y[ids])

    def timelines(self):
        alive = [{**t, "m": list(t["m"])} for t in self.lines]
        gone, kept = set(), []
        for a in alive[::-1]:  # only a newer timeline absorbs an older one
            for s in kept:
                if len(a["m"]) > len(s["m"]) or (not self.ignore_tools and list(a["tools"] or []) != list(s["tools"] or [])):
                    continue
                if all(self.same(x, y) for x, y in zip(a["m"], s["m"])):
                    gone.add(id(a))
                    for i, x in enumerate(a["m"]):
                        if x["author"] == "llm" and s["m"][i]["author"] != "llm":
                            s["m"][i] = x
                    break
            else:
                kept.append(a)
        return [{"call": t["call"], "authors": [m["author"] for m in t["m"]], "messages": [[m["role"], m["text"]] for m in t["m"]],
                 "ids": [m["raw"] for m in t["m"] if m["author"] == "llm"]} for t in alive if id(t) not in gone]
