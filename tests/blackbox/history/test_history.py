"""A history in each client's own spelling, through any dialect, streamed or not, still extends the one branch. Plays
random sessions in which every request re-spells all earlier messages."""
import json
import random

import pytest

TOOLS = {"read": {"type": "object", "properties": {"path": {"type": "string"}}},
         "list_files": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
THOUGHT = "<think>\nWhere to\n\nbegin? caf\u00e9\n</think>\n\n"
ODD = ['{"path" :"a.txt",  "n": 4096.0, "s": "\\u00e9 \\"q\\" \\\\n\\n"}', "{}",
       '{"b": [1, 2.50, {"z": null, "a": true}], "path": "\u65e5\u672c\u8a9e </b> & \\/"}']


def answers(rng):
    """What the engine says, call by call: texts and calls in every combination."""
    said = []
    for _ in range(6):
        thought = rng.choice(["", THOUGHT])
        text = rng.choice(["", "\n\n", "I look.\n\n", "Caf\u00e9 \u2615. \n", "  so:"])
        calls = [CALL % (rng.choice(list(TOOLS)), rng.choice(ODD)) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        if not calls and not text.strip():
            text = "Nothing."
        between, after = rng.choice(["\n", "\n\n", "\nAnd:\n", ""]), rng.choice(["", "", "\n", "\nSo be it.\n"])
        said.append(thought + text + between.join(calls) + after)
    return said + ["The end."]


# --- how clients re-spell what they echo ---

def respell(rng, arguments):
    """The same JSON value in another spelling."""
    value = json.loads(arguments)
    if value.get("n") == 4096.0:
        value["n"] = rng.choice([4096, 4096.0])
    return json.dumps(value, sort_keys=rng.random() < 0.5, ensure_ascii=rng.random() < 0.5,
                      separators=rng.choice([(",", ":"), (", ", ": "), (" ,  ", " :")]))


def rewrite(rng, arguments):
    """Another value: defaults filled in, fields dropped."""
    value = json.loads(arguments)
    if rng.random() < 0.5:
        value.pop("path", None)
    return {**value, "limit": 10}


class Habits:
    """One client's way with one request."""

    def __init__(self, rng):
        self.rng = rng
        self.rename = rng.random() < 0.25
        self.rewrite = not self.rename and rng.random() < 0.2
        self.invalid = not self.rename and rng.random() < 0.15    # a failed call comes back as one of another tool
        self.drop_text = not self.rename and rng.random() < 0.1
        self.strip = rng.random() < 0.3
        self.thoughts = rng.choice(["keep", "drop", "right", "last"])
        self.inline = rng.random() < 0.1    # <think>...</think> before the text
        self.as_text = not self.rename and rng.random() < 0.1    # the thought where there is no text

    def id(self, given):
        return f"x_{given[-20:]}" if self.rename else given

    def name(self, given):
        return "invalid" if self.invalid else given

    def arguments(self, given):
        if self.invalid:
            return json.dumps({"tool": "read", "error": "no such tool"})
        if self.rewrite:
            return json.dumps(rewrite(self.rng, given))
        return respell(self.rng, given) if self.rng.random() < 0.7 else given

    def text(self, m):
        if m["calls"] and (self.drop_text or not m["text"].strip() and self.rng.random() < 0.5):
            return m["thought"] if self.as_text and not m["text"].strip() else ""
        text = m["text"].strip() if self.strip else m["text"]
        return f"<think>{m['thought']}</think>\n\n{text}" if self.inline and m["thought"] else text

    def thought(self, m):
        t = m["thought"]
        return {"keep": t, "drop": "", "right": t.rstrip(), "last": t[-5:]}[self.thoughts]

    def marked(self, part):
        """Cache marks move from request to request."""
        if self.rng.random() < 0.3:
            part["cache_control"] = {"type": "ephemeral"}
        return part

    def parts(self, text, kind="text"):
        """Text as a string, as one part, or as several."""
        if not text or self.rng.random() < 0.4:
            return text
        at = self.rng.randrange(1, len(text)) if len(text) > 1 and self.rng.random() < 0.5 else None
        pieces = [text] if at is None else [text[:at], text[at:]]
        return [self.marked({"type": kind, "text": p}) for p in pieces]


# --- the dialects: a request from a history, a message from an answer ---

def chat_body(history, h):
    out = []
    for m in history:
        if m["role"] == "assistant":
            text = h.text(m)
            item = {"role": "assistant", "content": h.parts(text) if text else h.rng.choice(["", None])}
            if item["content"] is None and h.rng.random() < 0.5 and m["calls"]:
                del item["content"]
            if h.thought(m):
                item[h.rng.choice(["reasoning_content", "reasoning"])] = h.thought(m)
            if m["calls"]:
                item["tool_calls"] = [
                    {"id": h.id(i), "type": "function", "index": k,
                     "function": {"name": h.name(n), "arguments": h.arguments(a)}}
                    for k, (i, n, a) in enumerate(m["calls"])]
            elif h.rng.random() < 0.3:
                item["tool_calls"] = []
            if h.rng.random() < 0.3:
                item.update(refusal=None, annotations=[], name="model")
            out.append(item)
        elif m["role"] == "tool":
            out.append({"role": "tool", "tool_call_id": h.id(m["id"]), "content": h.parts(m["text"])})
        else:
            out.append({"role": m["role"], "content": h.parts(m["text"])})
    return {"messages": out, "tools": [h.marked({"type": "function", "function": {
        "name": n, "parameters": p}}) for n, p in TOOLS.items()]}


def messages_body(history, h):
    out = []

    def user(*blocks):
        if out and out[-1]["role"] == "user":
            out[-1]["content"].extend(blocks)
        else:
            out.append({"role": "user", "content": list(blocks)})

    for m in history[1:]:
        if m["role"] == "assistant":
            blocks = []
            if h.thought(m):
                blocks.append({"type": "thinking", "thinking": h.thought(m), "signature": "s"})
            elif h.rng.random() < 0.2:
                blocks.append({"type": "redacted_thinking", "data": "x"})
            text = h.text(m)
            if text.strip():
                parts = h.parts(text)
                blocks += [{"type": "text", "text": text}] if isinstance(parts, str) else parts
            for i, n, a in m["calls"]:
                blocks.append(h.marked({"type": "tool_use", "id": h.id(i), "name": h.name(n),
                                        "input": json.loads(h.arguments(a))}))
            plain = len(blocks) == 1 and blocks[0]["type"] == "text" and h.rng.random() < 0.5
            out.append({"role": "assistant", "content": blocks[0]["text"] if plain else blocks})
        elif m["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": h.id(m["id"]), "content": h.parts(m["text"])}
            if h.rng.random() < 0.3:
                block["is_error"] = False
            user(h.marked(block))
        elif out and out[-1]["role"] == "assistant" and h.rng.random() < 0.5:
            out.append({"role": "user", "content": m["text"]})
        elif out and out[-1]["role"] == "user" and isinstance(out[-1]["content"], list):
            user(h.marked({"type": "text", "text": m["text"]}))
        else:
            out.append({"role": "user", "content": h.parts(m["text"])})
    system = history[0]["text"]
    return {"max_tokens": 10000, "messages": out,
            "system": [h.marked({"type": "text", "text": system})] if h.rng.random() < 0.5 else system,
            "tools": [h.marked({"name": n, "input_schema": p}) for n, p in TOOLS.items()]}


def responses_body(history, h):
    out, instructions = [], {}
    apart = h.rng.random() < 0.5 and not h.rename    # a call, its result, the next call ...
    for at, m in enumerate(history):
        if m["role"] == "assistant":
            if h.thought(m):
                out.append({"type": "reasoning", "id": f"rs_{at}", "summary": [],
                            "content": [{"type": "reasoning_text", "text": h.thought(m)}]})
            text = h.text(m)
            if text.strip():
                item = {"role": "assistant", "content": h.parts(text, "output_text")}
                if h.rng.random() < 0.5:
                    item.update(type="message", status="completed")
                out.append(item)
            for i, n, a in m["calls"]:
                out.append({"type": "function_call", "call_id": h.id(i), "name": h.name(n),
                            "arguments": h.arguments(a)})
        elif m["role"] == "tool":
            item = {"type": "function_call_output", "call_id": h.id(m["id"]),
                    "output": h.parts(m["text"], "input_text")}
            calls = [k for k, o in enumerate(out) if o.get("call_id") == item["call_id"]]
            out.insert(calls[0] + 1 if apart else len(out), item)
        elif at == 0 and h.rng.random() < 0.5:
            instructions = {"instructions": m["text"]}
        else:
            out.append({"role": m["role"], "content": h.parts(m["text"], "input_text")})
    return {"input": out, **instructions, "tools": [
        {"type": "function", "name": n, "parameters": p} for n, p in TOOLS.items()]}


def read_chat(v):
    m = v["choices"][0]["message"]
    return (m.get("reasoning_content") or "", m["content"] or "",
            [(c["id"], c["function"]["name"], c["function"]["arguments"])
             for c in m.get("tool_calls", [])], v["usage"]["completion_tokens"])


def read_messages(v):
    def of(kind, key):
        return "".join(b[key] for b in v["content"] if b["type"] == kind)
    return (of("thinking", "thinking"), of("text", "text"),
            [(b["id"], b["name"], json.dumps(b["input"])) for b in v["content"] if b["type"] == "tool_use"],
            v["usage"]["output_tokens"])


def read_responses(v):
    def of(kind):
        return "".join(p["text"] for i in v["output"] if i["type"] == kind for p in i["content"])
    return (of("reasoning"), of("message"),
            [(i["call_id"], i["name"], i["arguments"]) for i in v["output"] if i["type"] == "function_call"],
            v["usage"]["output_tokens"])


# --- the same from a stream: the whole answer as a client puts it together ---

def events_of(text):
    for frame in text.strip("\n").split("\n\n"):
        data = frame[frame.index("data: ") + 6:]
        if data != "[DONE]":
            yield json.loads(data)


def whole_chat(events):
    m, calls, usage = {"content": "", "reasoning_content": ""}, [], None
    for v in events:
        usage = v.get("usage") or usage
        for delta in (c["delta"] for c in v["choices"]):
            for key in m:
                m[key] += delta.get(key) or ""
            for c in delta.get("tool_calls", []):
                if "id" in c:
                    calls.append({"id": c["id"], "function": dict(c["function"])})
                else:
                    calls[c["index"]]["function"]["arguments"] += c["function"]["arguments"]
    return {"choices": [{"message": {**m, "tool_calls": calls}}], "usage": usage}


def whole_messages(events):
    blocks, usage = [], None
    for v in events:
        usage = v.get("usage") or usage
        if v["type"] == "content_block_start":
            blocks.append({**v["content_block"], "json": ""})
        elif v["type"] == "content_block_delta":
            for key, field in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
                if key in v["delta"]:
                    blocks[v["index"]][field] += v["delta"][key]
    for b in blocks:
        b["input"] = json.loads(b["json"] or "{}")
    return {"content": blocks, "usage": usage}


def whole_responses(events):
    return list(events)[-1]["response"]


WHOLE = {read_chat: whole_chat, read_messages: whole_messages, read_responses: whole_responses}

DIALECTS = {
    "chat": ("/v1/chat/completions", chat_body, read_chat),
    "messages": ("/v1/messages?beta=true", messages_body, read_messages),
    "responses": ("/v1/responses", responses_body, read_responses),
}


def play(gateway, rng, dialects):
    """One session; (its id, tokens that were generated, all requests)."""
    session = gateway.request("POST", "/sessions", {}).json()["session_id"]
    history = [{"role": "system", "text": "You are careful."}, {"role": "user", "text": "hi \u2615"}]
    tokens, requests = 0, []
    for turn in range(7):
        path, body, read = DIALECTS[rng.choice(dialects)]
        request = {"model": "m", **body(history, Habits(rng))}
        stream = rng.random() < 0.5
        if stream:
            request.update(stream=True, stream_options={"include_usage": True})
        requests.append(request)
        answer = gateway.request("POST", f"/sessions/{session}{path}", request)
        assert answer.status == 200, answer.text
        said = WHOLE[read](events_of(answer.text)) if stream else answer.json()
        thought, text, calls, n = read(said)
        tokens += n
        history.append({"role": "assistant", "thought": thought, "text": text, "calls": calls})
        for i, name, _ in calls:
            history.append({"role": "tool", "id": i, "text": f"result of {name}\nin turn {turn}"})
        if not calls or rng.random() < 0.2:
            history.append({"role": "user", "text": f"<system-reminder>now {turn}</system-reminder>"})
    return session, tokens, requests


@pytest.mark.parametrize("dialects", [["chat"], ["messages"], ["responses"], list(DIALECTS)],
                         ids=lambda d: "+".join(d))
def test_an_echoed_history_never_forks(start, tmp_path, dialects):
    rng = random.Random(str(dialects))
    for script in range(4):
        path = tmp_path / f"{script}.json"
        path.write_text(json.dumps(answers(rng)), encoding="utf-8")
        gateway = start(workers=1, engine=f"builtin:script:{path}", tool_parser="hermes",
                        reasoning_parser="qwen3")
        for _ in range(25):
            session, tokens, requests = play(gateway, rng, dialects)
            state = gateway.request("GET", f"/sessions/{session}").json()
            causes = [n["cause"] for n in state["tree"]["nodes"] if n.get("generated")]
            told = json.dumps([n for n in state["tree"]["nodes"] if n.get("diff_field")] + requests)
            assert causes == ["new_root"] + ["extended"] * 6, told
            assert not state["tito_session_mismatch"]
            export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
            trajectory, = export["trajectories"]
            assert sum(trajectory["response_mask"]) == tokens
        gateway.stop()


@pytest.mark.parametrize("history", ["chains", "linear", "timelines"])
def test_nor_does_it_under_the_other_policies(start, tmp_path, history):
    rng = random.Random(history)
    for script in range(2):
        path = tmp_path / f"{script}.json"
        path.write_text(json.dumps(answers(rng)), encoding="utf-8")
        gateway = start(workers=1, engine=f"builtin:script:{path}", tool_parser="hermes",
                        reasoning_parser="qwen3", history=history)
        for _ in range(12):
            session, tokens, _ = play(gateway, rng, list(DIALECTS))
            export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
            trajectory, = export["trajectories"]
            assert sum(trajectory["response_mask"]) == tokens
        gateway.stop()


def test_a_state_shows_what_a_request_changed(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    history = [{"role": "user", "content": "hello"}]
    answer = gateway.chat(session, history).json()["choices"][0]["message"]
    for said in answer["content"], "changed":
        sent = [*history, {"role": "assistant", "content": said}, {"role": "user", "content": "more"}]
        assert gateway.chat(session, sent).status == 200

    def diffs():
        nodes = gateway.get(f"/sessions/{session['session_id']}").json()["tree"]["nodes"]
        return [n.get("diff") for n in nodes if n.get("generated")]

    assert diffs() == [None, None, {"message": 1, "field": "content", "stored": answer["content"], "request": "changed"}]
    assert gateway.stop() == 0
    gateway.start()
    assert diffs()[2]["request"] == "changed"
