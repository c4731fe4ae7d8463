"""What clients of every dialect need, over HTTP: aliases, streams that equal the whole answer, long arguments in
pieces, keepalives, several dialects on one session."""
import http.client
import json
import re
import time

import pytest

import gateway as g

TOOLS = [{"type": "function", "function": {"name": "write", "parameters": {
    "type": "object", "properties": {"content": {"type": "string"}}}}}]
CALL = '<tool_call>\n{"name": "write", "arguments": %s}\n</tool_call>'


@pytest.fixture
def serve(start, tmp_path):
    """serve([answers], options, **settings) -> (gateway, session id)"""
    def make(answers, options="", **settings):
        script = tmp_path / "script.json"
        script.write_text(json.dumps(answers), encoding="utf-8")
        settings = {"tool_parser": "hermes", "reasoning_parser": "qwen3", **settings}
        gateway = start(workers=1, engine=f"builtin:script:{script}{options}", **settings)
        return gateway, new_session(gateway)
    return make


def new_session(gateway):
    return gateway.request("POST", "/sessions", {}).json()["session_id"]


def post(gateway, session, path, body):
    return gateway.request("POST", f"/sessions/{session}{path}", body)


def events_of(gateway, session, path, body):
    """(event name or None, data) of a stream; data None for [DONE]."""
    answer = post(gateway, session, path, dict(body, stream=True))
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert answer.body.endswith(b"\n\n")
    out = []
    for frame in answer.text.strip("\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        data = fields["data"]
        out.append((fields.get("event"), None if data == "[DONE]" else json.loads(data)))
    return out


# --- one request and its answer in each dialect; `read` makes a common form of an answer ---

USER = {"role": "user", "content": "hi"}


def chat_body(**more):
    return {"model": "m", "messages": [USER], "tools": TOOLS, **more}


def messages_body(**more):
    tools = [{"name": "write", "input_schema": TOOLS[0]["function"]["parameters"]}]
    return {"model": "m", "max_tokens": 100000, "messages": [USER], "tools": tools, **more}


def responses_body(**more):
    return {"model": "m", "input": "hi", "tools": [{"type": "function", **TOOLS[0]["function"]}],
            **more}


def read_chat(v):
    m = v["choices"][0]["message"]
    return (m.get("reasoning_content") or "", m["content"] or "",
            [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls", [])])


def read_chat_stream(events):
    thought = text = ""
    calls = []
    assert events[-1][1] is None
    for _, v in events[:-1]:
        for choice in v["choices"]:
            delta = choice["delta"]
            thought += delta.get("reasoning_content") or ""
            text += delta.get("content") or ""
            for c in delta.get("tool_calls", []):
                if "id" in c:
                    calls.append([c["function"]["name"], ""])
                calls[c["index"]][1] += c["function"]["arguments"]
    return thought, text, [tuple(c) for c in calls]


def read_messages(v):
    def of(kind, key):
        return "".join(b[key] for b in v["content"] if b["type"] == kind)
    return (of("thinking", "thinking"), of("text", "text"),
            [(b["name"], b["input"]) for b in v["content"] if b["type"] == "tool_use"])


def read_messages_stream(events):
    blocks = []
    for name, v in events:
        if name == "content_block_start":
            blocks.append(dict(v["content_block"], json=""))
        elif name == "content_block_delta":
            d, b = v["delta"], blocks[v["index"]]
            for key, field in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
                if key in d:
                    b[field] += d[key]
    for b in blocks:
        if b["type"] == "tool_use":
            b["input"] = json.loads(b["json"] or "{}")
    assert events[-1][0] == "message_stop"
    return read_messages({"content": blocks})


def read_responses(v):
    thought = text = ""
    calls = []
    for item in v["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        elif item["type"] == "reasoning":
            thought += "".join(p["text"] for p in item["content"])
        else:
            text += "".join(p["text"] for p in item["content"])
    return thought, text, calls


def read_responses_stream(events):
    assert [v["sequence_number"] for _, v in events] == list(range(len(events)))
    assert events[-1][0] in ("response.completed", "response.incomplete")
    return read_responses(events[-1][1]["response"])


DIALECTS = {
    "chat": ("/v1/chat/completions", chat_body, read_chat, read_chat_stream),
    "messages": ("/v1/messages?beta=true", messages_body, read_messages, read_messages_stream),
    "responses": ("/v1/responses", responses_body, read_responses, read_responses_stream),
}
every_dialect = pytest.mark.parametrize("dialect", list(DIALECTS))

ANSWERS = [
    "plain ☕ 日本語",
    "",
    "<think>\nhm\n</think>\n\nText <b>.\n" + CALL % '{"content" :"a\\n\\u00e9",  "n": 4096.0}',
    CALL % "{}" + "\n" + CALL % '{"content": "x"}' + "\n",
    "Bad: " + CALL % '{"content": oops}' + " and " + CALL % "{}",
    "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
    "<think>never ends",
    "cut <tool_call>\n{\"name\": \"write\", \"argu",
]


@every_dialect
def test_stream_says_what_the_whole_answer_says(serve, dialect):
    path, body, read, read_stream = DIALECTS[dialect]
    for text in ANSWERS:
        gateway, session = serve([text])
        whole = read(post(gateway, session, path, body()).json())
        stream = read_stream(events_of(gateway, new_session(gateway), path, body()))
        assert stream == whole, text
        gateway.stop()


@every_dialect
def test_long_arguments_stream_in_pieces(serve, dialect):
    path, body, _, read_stream = DIALECTS[dialect]
    arguments = json.dumps({"content": "word " * 800})
    gateway, session = serve(["Here.\n" + CALL % arguments], ",tokens_per_s=4000")
    events = events_of(gateway, session, path, body())
    pieces = [v for n, v in events
              if (v and "delta" in v and ("partial_json" in v["delta"] or n and "arguments" in n))
              or (v and v.get("choices") and v["choices"][0]["delta"].get("tool_calls"))]
    assert len(pieces) > 20
    assert len(read_stream(events)[2]) == 1


@every_dialect
def test_signs_of_life(serve, dialect):
    path, body, _, _ = DIALECTS[dialect]
    gateway, session = serve(["late"], ",delay_ms=2500", keepalive="1s", nonstream_keepalive="1s")
    events = events_of(gateway, session, path, body())
    alive = {
        "chat": lambda n, v: v and v["choices"] and v["choices"][0]["delta"] == {}
        and not v["choices"][0]["finish_reason"],
        "messages": lambda n, v: n == "ping",
        "responses": lambda n, v: n == "keepalive",
    }[dialect]
    assert sum(bool(alive(n, v)) for n, v in events) >= 1
    answer = post(gateway, new_session(gateway), path, body())
    assert answer.status == 200 and answer.body.startswith(b" ")
    assert "late" in answer.text and answer.json()


def test_paths_that_clients_try(serve):
    gateway, session = serve(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    base = f"/sessions/{session}"
    for path, body in (("/chat/completions", chat_body()), ("/messages", messages_body()),
                       ("/responses", responses_body()),
                       ("/v1/completions", {"prompt": "x", "max_tokens": 5}),
                       ("/completions", {"prompt": "x"}), ("/v1/v1/messages", messages_body()),
                       # Groq's client; Azure's, which has the model in the path, slashes and all
                       ("/v1/openai/v1/chat/completions", chat_body()),
                       ("/openai/deployments/m/chat/completions?api-version=1", chat_body()),
                       ("/deployments/org/m/completions", {"prompt": "x"})):
        answer = post(gateway, session, path, body)
        assert answer.status == 200, path
        if "chat" in path:    # which one client of OpenRouter wants, and wants to be a string
            assert isinstance(answer.json()["system_fingerprint"], str)
    assert gateway.get(base + "/openai/v1/models").status == 200
    upgrade = gateway.request("GET", base + "/v1/responses", headers={"Upgrade": "websocket"})
    assert upgrade.status == 426
    assert gateway.request("GET", base + "/v1/responses/resp_none").status == 404
    models = gateway.request("GET", base + "/v1/models").json()
    assert gateway.request("GET", base + "/models/" + models["data"][0]["id"]).status == 200
    head = gateway.request("HEAD", base + "/v1/models")
    assert (head.status, head.body) == (200, b"") and int(head.headers["Content-Length"]) == len(gateway.get(base + "/v1/models").body)
    assert gateway.request("HEAD", base + "/v1/models/none").status == 404
    thread = post(gateway, session, "/v1/messages", messages_body(thread={"type": "create"}))
    assert thread.status == 400
    assert thread.json()["error"]["details"] == {
        "error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_one_session_through_every_dialect(serve):
    texts = ["<think>\na\n</think>\n\nFirst.\n" + CALL % '{"content" :"1.0"}', "Second.", "Third.",
             "Fourth."]
    gateway, session = serve(texts)
    first = post(gateway, session, "/v1/chat/completions", chat_body()).json()
    message = first["choices"][0]["message"]
    call = message["tool_calls"][0]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "done"}
    blocks = [{"type": "text", "text": message["content"]},
              {"type": "tool_use", "id": call["id"], "name": "write", "input": {"content": "1.0"}}]
    history = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    counted = post(gateway, session, "/v1/messages/count_tokens",
                   messages_body(messages=history)).json()
    second = post(gateway, session, "/v1/messages", messages_body(messages=history)).json()
    assert second["usage"]["input_tokens"] == counted["input_tokens"]
    items = [{"role": "user", "content": "hi"},
             {"role": "assistant", "content": message["content"]},
             {"type": "function_call", "call_id": call["id"], **call["function"]},
             {"type": "function_call_output", "call_id": call["id"], "output": "done"},
             {"role": "assistant", "content": "Second."}, {"role": "user", "content": "more"}]
    third = post(gateway, session, "/v1/responses", responses_body(input=items)).json()
    fourth = post(gateway, session, "/v1/responses",
                  responses_body(input="yet more", previous_response_id=third["id"])).json()
    assert fourth["output"][0]["content"][0]["text"] == "Fourth."
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1 and not state["tito_session_mismatch"], state
    export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
    assert len(export["trajectories"]) == 1 and len(export["trajectories"][0]["turns"]) == 4


ONE_CALL = {
    "chat": {"parallel_tool_calls": False},
    "messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    "responses": {"parallel_tool_calls": False},
}


@every_dialect
@pytest.mark.parametrize("stream", [False, True])
def test_one_call_where_parallel_ones_are_not_allowed(serve, dialect, stream):
    """Of three calls the first is told; its echo finds the checkpoint with all sampled ids."""
    path, body, read, read_stream = DIALECTS[dialect]
    wrote = "Both.\n" + "\n".join(CALL % f'{{"content": "{c}"}}' for c in "abc")
    gateway, session = serve([wrote, "Done."])
    ask = body(**ONE_CALL[dialect])
    if stream:
        events = events_of(gateway, session, path, ask)
        raw, (_, text, calls) = json.dumps(events), read_stream(events)
    else:
        raw = post(gateway, session, path, ask).text
        _, text, calls = read(json.loads(raw))
    assert len(calls) == 1 and '"b"' not in raw.replace("\\", "")
    name, arguments = calls[0]
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert (name, given) == ("write", {"content": "a"})
    ids = set(re.findall(r"call_[0-9a-f]{24}", raw))
    assert len(ids) == 1
    call = {"id": ids.pop(), "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)}}
    history = [USER, {"role": "assistant", "content": text, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
    second = post(gateway, session, "/v1/chat/completions", chat_body(messages=history))
    assert second.json()["choices"][0]["message"]["content"] == "Done."
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1 and not state["tito_session_mismatch"], state
    warnings = [n.get("parse_warning", "") for n in state["tree"]["nodes"] if n.get("generated")]
    assert len(warnings) == 2 and warnings[1] == ""
    assert warnings[0].startswith("2 further tool calls withheld")
    export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
    trajectory, = export["trajectories"]
    assert trajectory["response_ids"][:len(wrote)] == list(wrote.encode())


def test_of_very_many_calls_the_first_are_told(serve):
    """All tokens are on record; the next turn, which has the calls that were told, stands on them."""
    most = 2048
    wrote = "\n".join(CALL % '{"content": "a"}' for _ in range(most + 3))
    gateway, session = serve([wrote, "Done."])
    first = post(gateway, session, "/v1/chat/completions", chat_body(max_tokens=500_000)).json()["choices"][0]["message"]
    calls = first["tool_calls"]
    assert len(calls) == most
    history = [USER, first, *({"role": "tool", "tool_call_id": c["id"], "content": "."} for c in calls)]
    second = post(gateway, session, "/v1/chat/completions", chat_body(messages=history))
    assert second.json()["choices"][0]["message"]["content"] == "Done."
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1 and not state["tito_session_mismatch"], state
    warnings = [n.get("parse_warning", "") for n in state["tree"]["nodes"] if n.get("generated")]
    assert warnings == ["3 further tool calls withheld: of an answer's no more than 2048 are told", ""]
    export = gateway.request("POST", f"/sessions/{session}/finalize", {}).json()
    trajectory, = export["trajectories"]
    assert trajectory["response_ids"][:len(wrote)] == list(wrote.encode())


def test_thoughts_are_counted_alike_in_a_stream_and_a_whole_answer(serve):
    gateway, session = serve(["<think>\nsixteen letters.\n</think>\n\none"] * 2)
    whole = post(gateway, session, "/v1/chat/completions", chat_body()).json()["usage"]
    events = events_of(gateway, session, "/v1/chat/completions",
                       chat_body(stream_options={"include_usage": True}))
    assert events[-2][1]["usage"]["completion_tokens_details"] == whole["completion_tokens_details"]
    assert 16 <= whole["completion_tokens_details"]["reasoning_tokens"] <= 27


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_text_and_its_calls_in_messages_of_their_own_continue_the_answer(serve, dialect):
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    gateway, _ = serve(["I look." + call + "\n" + call, "It is.", "Bye."])

    def one(id):
        return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]} \
            if dialect == "chat" else {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}}]}

    def result(id):
        return {"role": "tool", "tool_call_id": id, "content": "r"} if dialect == "chat" else \
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "r"}]}
    path, more = ("/v1/chat/completions", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}) \
        if dialect == "chat" else ("/v1/messages", {"max_tokens": 999, "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
    for text, joined in (("I look.", True), (" I look.\n", True), ("I looked.", False)):
        sid = new_session(gateway)
        first = post(gateway, sid, path, {"model": "m", "messages": [USER], **more}).json()
        ids = [c["id"] for c in (first["choices"][0]["message"]["tool_calls"] if dialect == "chat" else first["content"]) if "id" in c]
        said = [USER, {"role": "assistant", "content": text}, one(ids[0]), result(ids[0]), one(ids[1]), result(ids[1])]
        for more_said in ([], [{"role": "assistant", "content": "It is."}, USER]):
            said += more_said
            assert post(gateway, sid, path, {"model": "m", "messages": said, **more}).status == 200
        turns = [len(t["turns"]) for t in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]]
        assert (turns == [3]) == joined, turns


LOOK = ['I look.<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "It is."]
CALLS_F = {"model": "m", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}


def go_on(gateway, sid, said, texts, **more):
    """Asks again with the calls in a message of their own, after `texts`. Returns the number of turns of each trajectory."""
    def ask(messages):
        answer = post(gateway, sid, "/v1/chat/completions", {**CALLS_F, "messages": messages})
        assert answer.status == 200, answer.text
        return answer.json()["choices"][0]["message"]
    calls = ask(said)["tool_calls"]
    ask([*said, *texts, {"role": "assistant", "content": None, "tool_calls": calls, **more}, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "r"}])
    return [len(t["turns"]) for t in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]]


def test_calls_are_not_joined_to_an_equal_text_that_their_answer_follows(serve):
    """The model said the text, was asked again, and said it again with a call. The client drops a text beside calls."""
    gateway, sid = serve(["I look.", *LOOK])
    assert post(gateway, sid, "/v1/chat/completions", {**CALLS_F, "messages": [USER]}).status == 200
    assert go_on(gateway, sid, [USER, {"role": "assistant", "content": "I look."}], []) == [3]


@pytest.mark.parametrize("at", ["text", "calls", "both"])
def test_the_thought_of_a_text_and_its_calls_is_kept(serve, at):
    gateway, sid = serve(["<think>hm</think>" + LOOK[0], LOOK[1]], message_matcher="strict")
    thought = {"reasoning_content": "hm"}
    text = {"role": "assistant", "content": "I look.", **(thought if at != "calls" else {})}
    assert go_on(gateway, sid, [USER], [text], **(thought if at != "text" else {})) == [2]


@every_dialect
def test_parallel_calls_all_arrive_otherwise(serve, dialect):
    path, body, read, _ = DIALECTS[dialect]
    gateway, session = serve(["\n".join(CALL % f'{{"content": "{c}"}}' for c in "ab")])
    assert len(read(post(gateway, session, path, body()).json())[2]) == 2


def test_tools_of_one_name_in_two_namespaces(serve):
    said = "\n".join('<tool_call>\n{"name": "%s", "arguments": {}}\n</tool_call>' % name
                     for name in ("search", "b__search"))
    gateway, session = serve([said, "Done."])
    space = {"type": "namespace", "tools": [{"type": "function", "name": "search", "parameters": {}}]}
    body = {"model": "m", "input": [USER], "tools": [{**space, "name": "a"}, {**space, "name": "b"}]}
    calls = post(gateway, session, "/v1/responses", body).json()["output"]
    assert [(c["namespace"], c["name"]) for c in calls] == [("a", "search"), ("b", "search")]
    done = [v for _, v in events_of(gateway, new_session(gateway), "/v1/responses", body)
            if v["type"].endswith("arguments.done")]
    assert [v["name"] for v in done] == ["search", "search"]
    body["input"] += calls + [{"type": "function_call_output", "call_id": c["call_id"], "output": "r"}
                              for c in calls]
    second = post(gateway, session, "/v1/responses", body).json()
    assert second["output"][0]["content"][0]["text"] == "Done."
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1


def test_tools_that_come_in_the_input_are_as_good_as_a_list_of_tools(serve):
    """Codex has no other way for its newer models. Later ones are told where they come."""
    gateway, session = serve([CALL % '{"input" :"a\\nb"}', CALL.replace("write", "late") % "{}", "Done."])
    tools = [{"type": "namespace", "name": "ns", "tools": [{"type": "custom", "name": "write"}]},
             {"type": "function", "name": "read", "parameters": {"type": "object"}}]
    more = [{"type": "additional_tools", "role": "developer", "tools": [t]} for t in tools]
    listed = post(gateway, new_session(gateway), "/v1/responses", {"input": [USER], "tools": tools}).json()
    body = {"input": [*more, USER]}
    first = post(gateway, session, "/v1/responses", body).json()
    assert first["usage"]["input_tokens"] == listed["usage"]["input_tokens"]
    assert first["tools"] == listed["tools"] == tools
    call, = first["output"]
    assert (call["type"], call["namespace"], call["input"]) == ("custom_tool_call", "ns", "a\nb")
    stored = gateway.get(f"/sessions/{session}/v1/responses/{first['id']}").json()
    assert stored == first
    body["input"] += [call, {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "r"},
                      {"type": "additional_tools", "tools": [
                          {"type": "function", "name": "late", "description": "d"}]},
                      {"type": "agent_message", "author": "/root/a", "recipient": "/root", "content": [
                          {"type": "input_text", "text": "from a"},
                          {"type": "encrypted_content", "encrypted_content": ": look"}]},
                      {"type": "configuration_update", "reasoning": {"effort": "low"}},
                      {"type": "context_compaction", "encrypted_content": "x"}]
    call, = post(gateway, session, "/v1/responses", body).json()["output"]
    assert (call["type"], call["name"]) == ("function_call", "late")
    body["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "s"}]
    assert post(gateway, session, "/v1/responses", body).status == 200
    state = gateway.get(f"/sessions/{session}?records=1").json()
    assert state["num_branches"] == 1
    said = state["records"][2]["request"]["messages"]
    assert [m["role"] for m in said] == ["user", "assistant", "tool", "developer", "user", "assistant", "tool"]
    assert json.loads(said[3]["content"].removeprefix("New tool: "))["function"]["name"] == "late"
    assert said[4]["content"] == "from a: look"


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_the_client_searches_itself(serve, stream):
    """Codex keeps the tools of MCP servers behind such a search; what it finds can be called."""
    call = CALL.replace("write", "tool_search") % '{"query" :"caf\\u00e9", "n": 1.0}'
    gateway, session = serve(["Hm.\n" + call, CALL.replace("write", "find") % "{}", "Done."])
    search = {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}}
    found = {"type": "namespace", "name": "mcp__f", "tools": [{"type": "function", "name": "find"}]}
    body = {"input": [USER], "tools": [search]}

    def ask():
        if not stream:
            return post(gateway, session, "/v1/responses", body).json()["output"]
        events = [v for _, v in events_of(gateway, session, "/v1/responses", body)]
        done = [v["item"] for v in events if v["type"] == "response.output_item.done"]
        assert done == events[-1]["response"]["output"]
        return done

    _, call = first = ask()
    assert (call["type"], call["execution"]) == ("tool_search_call", "client")
    assert call["arguments"] == {"query": "caf\u00e9", "n": 1} and call["id"].startswith("tsc_")
    body["input"] += [*first, {"type": "tool_search_output", "call_id": call["call_id"], "tools": [found],
                               "status": "completed", "execution": "client"}]
    call, = ask()
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "mcp__f", "find")
    body["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "r"}]
    assert ask()[0]["content"][0]["text"] == "Done."
    state = gateway.get(f"/sessions/{session}?records=1").json()
    assert state["num_branches"] == 1 and not state["tito_session_mismatch"]
    told = state["records"][1]["request"]["messages"][2]
    assert told["role"] == "tool" and '"find"' in told["content"]


def test_functions_are_answered_with_a_function_call(serve):
    """The way before tools: asked so, answered so, echoed so."""
    gateway, session = serve([CALL % '{"content" :"a"}', "Done."])
    body = {"model": "m", "messages": [USER], "functions": [TOOLS[0]["function"]]}
    choice = post(gateway, session, "/v1/chat/completions", body).json()["choices"][0]
    call = choice["message"]["function_call"]
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]
    assert call == {"name": "write", "arguments": '{"content" :"a"}'}
    events = events_of(gateway, new_session(gateway), "/v1/chat/completions", body)
    parts = [v["choices"][0] for _, v in events[:-1]]
    told = [p["delta"]["function_call"] for p in parts if "function_call" in p["delta"]]
    assert told[0]["name"] == "write" and "".join(t["arguments"] for t in told) == call["arguments"]
    assert parts[-1]["finish_reason"] == "function_call"
    body["messages"] += [{"role": "assistant", "content": None, "function_call": call},
                         {"role": "function", "name": "write", "content": "ok"}]
    second = post(gateway, session, "/v1/chat/completions", body).json()
    assert second["choices"][0]["message"]["content"] == "Done."
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1


def test_item_references_lead_to_the_stored_answer(serve):
    gateway, session = serve(["<think>\na\n</think>\n\nFirst.\n" + CALL % "{}", "Second."])
    first = post(gateway, session, "/v1/responses", responses_body(store=True)).json()
    refs = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    outputs = [{"type": "function_call_output", "call_id": item["call_id"], "output": "done"}
               for item in first["output"] if item["type"] == "function_call"]
    second = post(gateway, session, "/v1/responses",
                  responses_body(input=[{"role": "user", "content": "hi"}, *refs, *outputs]))
    assert second.status == 200, second.text
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1
    stored = gateway.request("GET", f"/sessions/{session}/v1/responses/{first['id']}").json()
    assert stored["output"] == first["output"]


@pytest.mark.parametrize("names", ["ids", "seals"])
def test_whole_items_of_two_answers_in_sequence_stay_two(serve, names):
    """The second answer follows the first without a message between. Codex sends no ids, but seals."""
    gateway, session = serve(["<think>\na\n</think>\n\nFirst.", "<think>\nb\n</think>\n\nSecond.", "Third."])
    items = [USER]
    for _ in range(3):
        answer = post(gateway, session, "/v1/responses", responses_body(input=items, include=["reasoning.encrypted_content"]))
        assert answer.status == 200, answer.text
        items += [{k: v for k, v in item.items() if names == "ids" or k != "id"} for item in answer.json()["output"]]
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_branches"] == 1



@pytest.mark.parametrize("strict", [False, True])
def test_a_text_and_the_next_answer_without_ids_stay_two(serve, strict):
    """Their items have no border: the session's answers say where the first one ends."""
    call = CALL.replace("write", "f") % "{}"
    said = {"First.": call, " First.\n": "Second." + call, "First": ".\n" + call, **({} if strict else {"Text.": "More."})}
    for at, (first, second) in enumerate(said.items()):
        gateway, sid = serve([f"<think>\na\n</think>\n\n{first}", f"<think>\nb\n</think>\n\n{second}", "Third."], **({"message_matcher": "strict"} if strict else {}))
        items = [USER]
        for turn in range(3):
            answer = post(gateway, sid, "/v1/responses", {"input": items, "tools": [{"type": "function", "name": "f"}]})
            assert answer.status == 200, answer.text
            new = [{k: v for k, v in item.items() if k != "id"} for item in answer.json()["output"]]
            if at in (1, 3) and not strict:      # without white space and thoughts
                new = [{"role": "assistant", "content": i["content"][0]["text"].strip()} if "role" in i else i for i in new if i["type"] != "reasoning"]
            items += new + [{"type": "function_call_output", "call_id": i["call_id"], "output": "r"} for i in new if "call_id" in i]
        turns = [len(t["turns"]) for t in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]]
        assert turns == [3], (first, second)
        gateway.stop()


@pytest.mark.parametrize("text", ["", "I look."])
def test_each_block_of_an_answer_in_a_message_of_its_own_continues_it(serve, text):
    """The API takes messages of one role in sequence as one."""
    call = CALL.replace("write", "f") % "{}"
    gateway, sid = serve([f"<think>\nhm\n</think>\n\n{text}{call}", "It is."])
    body = {"max_tokens": 999, "messages": [USER], "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    blocks = post(gateway, sid, "/v1/messages", body).json()["content"]
    result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "r"}
    body["messages"] += [*({"role": "assistant", "content": [b]} for b in blocks), {"role": "user", "content": [result]}]
    assert post(gateway, sid, "/v1/messages", body).status == 200
    assert [len(t["turns"]) for t in gateway.get(f"/sessions/{sid}/trajectories").json()["trajectories"]] == [2]


def test_a_thought_alone_that_is_an_answer_stays_one(serve):
    """The model thought, said nothing, was asked again, and thought the same."""
    gateway, sid = serve(["<think>\nhm\n</think>\n\n", "<think>\nhm\n</think>\n\n" + LOOK[0], LOOK[1]])
    assert post(gateway, sid, "/v1/chat/completions", {**CALLS_F, "messages": [USER]}).status == 200
    thought = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    assert go_on(gateway, sid, [USER, thought], [], content="I look.") == [3]


def test_a_thought_in_a_message_of_its_own_after_another_thought_continues_its_answer(serve):
    gateway, sid = serve(["<think>\nhm\n</think>\n\n", "<think>\nso\n</think>\n\n" + LOOK[0], LOOK[1]])
    assert post(gateway, sid, "/v1/chat/completions", {**CALLS_F, "messages": [USER]}).status == 200
    hm, so = ({"role": "assistant", "content": "", "reasoning_content": thought} for thought in ("hm", "so"))
    assert go_on(gateway, sid, [USER, hm], [so], content="I look.") == [3]


ASKED = {"instructions": "Be brief.", "metadata": {"k": "v"}, "parallel_tool_calls": False,
         "temperature": 0.25, "top_p": 0.5, "max_output_tokens": 77, "tool_choice": "auto",
         "reasoning": {"effort": "low"}, "truncation": "auto", "user": "u", "store": True,
         "text": {"format": {"type": "text"}, "verbosity": "low"},
         "include": ["reasoning.encrypted_content"]}


def test_a_stored_response_is_the_answer_itself(serve):
    """GET /responses/{id}: what was asked, what it cost, when it was made, along a chain."""
    gateway, session = serve(["<think>\nhm\n</think>\n\none", "two", CALL % '{"content": "x"}'])
    tools = [{"type": "custom", "name": "write", "description": "d"},
             {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]}]
    bodies = [responses_body(**ASKED), responses_body(reasoning=ASKED["reasoning"]),
              responses_body(tools=tools, user="w")]
    live = []
    for body in bodies:
        if live:
            body.update(input="more", previous_response_id=live[-1]["id"])
        live.append(post(gateway, session, "/v1/responses", body).json())
    begin = int(time.time())
    g.wait_until(lambda: time.time() >= begin + 1, 10, "another second")
    for body, answer in zip(bodies, live):
        stored = gateway.request("GET", f"/sessions/{session}/v1/responses/{answer['id']}").json()
        assert stored == answer
        for key, value in body.items():
            assert key in ("input", "include") or stored[key] == value
    assert live[0]["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert live[1]["usage"]["input_tokens_details"]["cached_tokens"] > 0
    kinds = [item["type"] for item in live[2]["output"]]
    assert kinds == ["custom_tool_call"]


CUSTOM = [{"type": "custom", "custom": {"name": "write", "description": "d"}},
          {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
          {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]


def chat_calls(text):
    """The calls of a stream by (choice, call): what an SDK makes of their pieces."""
    calls = {}
    for line in text.split("\n"):
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else []:
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault((choice["index"], piece["index"]), {})
                call.update({k: v for k, v in piece.items() if k in ("id", "type")})
                for kind in set(piece) & {"custom", "function"}:
                    for key, value in piece[kind].items():
                        inner = call.setdefault(kind, {})
                        inner[key] = inner.get(key, "") + value
    return calls


def test_chat_calls_custom_tools_as_custom_ones(serve):
    """Whole, streamed, several answers at once, and echoed: also where nothing is known of the call."""
    both = CALL % '{"input": "a\\n\\"b\\""}' + "\n" + CALL.replace("write", "f") % '{"x": 1}'
    gateway, session = serve([both, "done"] + [both] * 3 + ["end"])
    whole = post(gateway, session, "/v1/chat/completions", chat_body(tools=CUSTOM)).json()["choices"][0]
    custom, function = whole["message"]["tool_calls"]
    assert whole["finish_reason"] == "tool_calls"
    assert custom == {"id": custom["id"], "type": "custom", "custom": {"name": "write", "input": 'a\n"b"'}}
    assert function["type"] == "function" and json.loads(function["function"]["arguments"]) == {"x": 1}
    echo = [USER, {"role": "assistant", "content": None, "tool_calls": [custom, function]},
            {"role": "tool", "tool_call_id": custom["id"], "content": "1"}, {"role": "tool", "tool_call_id": function["id"], "content": "2"}]
    assert post(gateway, session, "/v1/chat/completions", chat_body(tools=CUSTOM, messages=echo)).status == 200
    assert len(gateway.request("GET", f"/sessions/{session}/trajectories").json()["trajectories"]) == 1, "the echo goes on"
    asked = gateway.request("GET", f"/sessions/{session}?records=1").json()["records"][1]["request"]["messages"][1]["tool_calls"][0]["function"]
    assert asked["name"] == "write" and json.loads(asked["arguments"]) == {"input": 'a\n"b"'}
    streamed = chat_calls(post(gateway, session, "/v1/chat/completions", chat_body(tools=CUSTOM, stream=True)).text)
    assert [c.get("custom") or json.loads(c["function"]["arguments"]) for c in streamed.values()] == [custom["custom"], {"x": 1}]
    two = chat_calls(post(gateway, session, "/v1/chat/completions", chat_body(tools=CUSTOM, stream=True, n=2)).text)
    assert sorted(two) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(two[i, 0]["type"] == "custom" and two[i, 0]["custom"] == custom["custom"] and "function" not in two[i, 0] for i in (0, 1))
    other = {**custom, "id": "elsewhere", "custom": {"name": "write", "input": "made by hand"}}
    foreign = [USER, {"role": "assistant", "tool_calls": [other]}, {"role": "tool", "tool_call_id": "elsewhere", "content": "1"}]
    assert post(gateway, session, "/v1/chat/completions", chat_body(tools=CUSTOM, messages=foreign)).status == 200
    last = gateway.request("GET", f"/sessions/{session}?records=1").json()["records"][-1]["request"]["messages"][1]["tool_calls"][0]
    assert last["function"] == {"name": "write", "arguments": '{"input":"made by hand"}'}


def test_new_instructions_take_the_place_of_the_previous_ones(serve):
    gateway, session = serve(["one", "two", "three"])
    first = post(gateway, session, "/v1/responses", responses_body(instructions="A")).json()
    second = post(gateway, session, "/v1/responses", responses_body(
        instructions="A", input="more", previous_response_id=first["id"])).json()
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0
    third = post(gateway, session, "/v1/responses", responses_body(
        instructions="B", input="more", previous_response_id=second["id"]))
    assert third.status == 200
    state = gateway.request("GET", f"/sessions/{session}?records=1").json()
    assert [m["content"] for m in state["records"][2]["request"]["messages"]] == [
        "B", "hi", "one", "more", "two", "more"]


def test_logprobs_and_several_answers(serve):
    gateway, session = serve(["one two", "three"])
    body = {"model": "m", "messages": [USER], "n": 2, "logprobs": True}
    answer = post(gateway, session, "/v1/chat/completions", body).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1]
    entries = [e for c in answer["choices"] for e in c["logprobs"]["content"]]
    assert len(entries) == answer["usage"]["completion_tokens"]
    assert all(e["logprob"] <= 0 and isinstance(e["top_logprobs"], list) for e in entries)
    text = bytes(b for e in answer["choices"][0]["logprobs"]["content"] for b in e["bytes"])
    assert text.startswith(answer["choices"][0]["message"]["content"].encode())
    events = events_of(gateway, new_session(gateway), "/v1/chat/completions",
                       dict(body, stream_options={"include_usage": True}))
    finished = [v["choices"][0]["index"] for _, v in events
                if v and v["choices"] and v["choices"][0]["finish_reason"]]
    assert sorted(finished) == [0, 1]
    assert events[-2][1]["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]


@every_dialect
def test_the_end_comes_after_the_commit(serve, dialect):
    path, body, _, _ = DIALECTS[dialect]
    gateway, session = serve(["answer"])
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", f"/sessions/{session}{path}", json.dumps(body(stream=True)),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    ends = {"chat": b"finish_reason\":\"stop", "messages": b"message_stop",
            "responses": b"response.completed"}[dialect]
    seen = b""
    while ends not in seen:
        seen += response.read1(65536)
    state = gateway.request("GET", f"/sessions/{session}").json()
    assert state["num_checkpoints"] == 1
    response.read()
    connection.close()


def test_a_completion_of_several_prompts(serve):
    """Each prompt is a call with n answers; a repeated request gets all of them again."""
    gateway, session = serve([f"answer {i}" for i in range(20)])
    path = f"/sessions/{session}/v1/completions"
    body = {"model": "m", "prompt": ["one", "two", "two"], "n": 2, "max_tokens": 50, "logprobs": 1}
    whole = gateway.post(path, body)
    assert whole.status == 200, whole.text
    answer = whole.json()
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    assert all(c["finish_reason"] == "stop" for c in answer["choices"])
    assert sum(len(c["logprobs"]["tokens"]) for c in answer["choices"]) == answer["usage"]["completion_tokens"]
    assert answer["usage"]["prompt_tokens"] == 9
    records = gateway.request("GET", f"/sessions/{session}?records=1").json()["records"]
    assert len(records) == 3 and all(len(r["answers"]) == 2 for r in records)
    again = gateway.post(path, body, headers={"x-stainless-retry-count": "1"})
    assert again.body == whole.body and again.headers["Rollgate-Replayed"] == "1"
    stream = [v for _, v in events_of(gateway, session, "/v1/completions",
                                      {"model": "m", "prompt": [[104], [105]],
                                       "stream_options": {"include_usage": True}}) if v]
    said = {c["index"]: "" for v in stream for c in v["choices"]}
    for v in stream:
        for c in v["choices"]:
            said[c["index"]] += c["text"]
    assert sorted(said) == [0, 1] and all(t.startswith("answer") for t in said.values())
    assert len({v["id"] for v in stream}) == 1 and stream[-1]["usage"]["prompt_tokens"] == 2
    before = gateway.request("GET", f"/sessions/{session}").json()["num_calls"]
    bad = gateway.post(path, {"model": "m", "prompt": [[104], [2000000000]]})
    assert bad.status == 400 and bad.json()["error"]["param"] == "prompt"
    assert "prompt[1]" in bad.json()["error"]["message"]
    assert gateway.request("GET", f"/sessions/{session}").json()["num_calls"] == before
    assert gateway.post(path, {"model": "m", "prompt": ["fine"]}).status == 200


def test_long_answers_to_several_prompts(serve):
    """Their texts stay in the calls until all are there; two are of a length that is copied."""
    said = [("abcdefghij"[i] * 7 + " ") * (12_000 if i < 4 else 100) for i in range(6)]
    gateway, session = serve(said, context_length=1_000_000)
    path = f"/sessions/{session}/v1/completions"
    body = {"model": "m", "prompt": ["one", "two", "three"], "n": 2, "max_tokens": 200_000}
    whole = gateway.post(path, body)
    assert whole.status == 200, whole.text
    texts = [c["text"] for c in whole.json()["choices"]]
    assert len(texts) == 6 and set(texts) <= set(said) and max(map(len, texts)) == 96_000
    records = gateway.request("GET", f"/sessions/{session}?records=1").json()["records"]
    assert sorted(a["message"]["content"] for r in records for a in r["answers"]) == sorted(texts)
    again = gateway.post(path, body, headers={"x-stainless-retry-count": "1"})
    assert again.body == whole.body and again.headers["Rollgate-Replayed"] == "1"


def test_several_prompts_whose_answer_was_lost_are_not_sampled_again(serve):
    gateway, session = serve([f"answer {i}" for i in range(20)], ",delay_ms=400", on_disconnect="finish")
    path = f"/sessions/{session}/v1/completions"
    body = {"model": "m", "prompt": ["one", "two"]}
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    state = lambda: gateway.request("GET", f"/sessions/{session}").json()
    g.wait_until(lambda: state()["num_inflight_generations"] == 2, 10, "both run")
    connection.sock.close()
    connection.close()
    again = gateway.post(path, body)
    assert again.status == 200 and len(again.json()["choices"]) == 2
    g.wait_until(lambda: state()["num_inflight_generations"] == 0, 10, "none runs")
    assert state()["num_calls"] == 2
    assert gateway.post(path, body).status == 200 and state()["num_calls"] == 4, "a new sample"


def test_a_completion_of_ids_the_model_does_not_have_is_refused(start):
    gateway = start(engine="builtin:echo")
    session = gateway.post("/sessions", {}).json()
    path = f"/sessions/{session['session_id']}/v1/completions"
    for foreign in (2000000000, 100000):
        bad = gateway.post(path, {"model": "m", "prompt": [1, 2, foreign], "max_tokens": 4})
        assert bad.status == 400, bad.text
        assert bad.json()["error"]["param"] == "prompt" and "prompt[2]" in bad.json()["error"]["message"]
    assert gateway.post(path, {"model": "m", "prompt": [104, 105], "max_tokens": 4}).status == 200


def test_response_ids_are_those_that_clients_were_told(serve):
    gateway, session = serve(["one", "two", "three", "four"])
    bodies = {"/v1/chat/completions": chat_body(), "/v1/messages": messages_body(), "/v1/responses": responses_body(),
              "/v1/completions": {"model": "m", "prompt": "x"}}
    told = [post(gateway, session, path, body).json()["id"] for path, body in bodies.items()]
    assert [i.rstrip("0123456789abcdef") for i in told] == ["chatcmpl-", "msg_", "resp_", "cmpl-"]
    for n, i in enumerate(told):
        reward = {"reward_info": {"n": n}, "response_id": i}
        assert gateway.request("POST", f"/sessions/{session}/reward_info", reward).status == 200
    state = gateway.request("GET", f"/sessions/{session}?records=1").json()
    assert [a["response_id"] for r in state["records"] for a in r["answers"]] == told
    assert [x["response_id"] for x in state["tree"]["nodes"] if x["generated"]] == told
    assert state["turn_rewards"] == {i: {"n": n} for n, i in enumerate(told)}
    whole = gateway.request("GET", f"/sessions/{session}/trajectories?select=all_checkpoints").json()
    assert [t["turns"][-1]["response_id"] for t in whole["trajectories"]] == told
    assert [t["turn_rewards"] for t in whole["trajectories"]] == [{i: {"n": n}} for n, i in enumerate(told)]
