"""Fields of agents' requests without an effect here: the request is answered (SDKs require that), and the fields are
counted, logged by name, and recorded with the turn."""
import json
import re

import pytest

from gateway import ROOT
from stub_engines import StubEngine
from test_dialects import USER, chat_body, messages_body, serve  # noqa: F401 (serve is a fixture)

METRIC = "rollgate_dropped_fields_total"
MEMBERS = (ROOT / "worker/dialect/request_members.def").read_text()

PLAIN = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [USER]}),
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 50, "messages": [USER]}),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "completions": ("/v1/completions", {"model": "m", "prompt": "hi"}),
}
# unknown, known but unused: their names
DROPPED = {
    "chat": ({"frob": 1, "temprature": 0.2, "stream_options": {"include_usage": True, "frob": 1}, "thread": "x",
              "extra": {"model": 1}},
             {"verbosity": "low", "service_tier": "flex", "tools": [{"type": "web_search"}]},
             ["extra", "frob", "service_tier", "stream_options.frob", "temprature", "thread", "tools.web_search", "verbosity"]),
    "messages": ({"top_a": 1, "frequency_penalty": 1, "output_config": {"format": None, "frob": 1}, "stop": "x"},
                 {"thinking": {"type": "enabled", "budget_tokens": 9}, "mcp_servers": [{}],
              "tools": [{"type": "bash_20250124", "name": "bash"}]},
                 ["frequency_penalty", "mcp_servers", "output_config.frob", "stop", "thinking", "tools.bash_20250124", "top_a"]),
    "responses": ({"logit_bias_": {}, "text": {"format": {"type": "text"}, "frob": 0}, "min_tokens": 3},
                  {"reasoning": {"summary": "auto"}, "truncation": "auto",
                   "tools": [{"type": "image_generation"}, {"type": "tool_search"}]},
                  ["logit_bias_", "min_tokens", "reasoning.summary", "text.frob", "tools.image_generation", "tools.tool_search",
                   "truncation"]),
    "completions": ({"messages": [], "tools": [{"type": "web_search"}]}, {"service_tier": "flex"},
                    ["messages", "service_tier", "tools"]),
}
QUIET = {"user": "u", "metadata": {"user_id": "u"}, "prompt_cache_key": "k", "safety_identifier": "s", "client_metadata": {},
         "frob": None}


def count(gateway, dialect, reason):
    return gateway.metrics().get(f'{METRIC}{{dialect="{dialect}",reason="{reason}"}}', 0)


def ask(gateway, dialect, more, sid=None):
    sid = sid or gateway.post("/sessions", {}).json()["session_id"]
    path, body = PLAIN[dialect]
    a = gateway.post(f"/sessions/{sid}{path}", {**body, **more})
    assert a.status == 200, a.text
    return sid


def generated(gateway, sid):
    return [n for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if n["generated"]]


@pytest.mark.parametrize("dialect", PLAIN)
def test_counted_logged_and_on_record(start, dialect):
    gateway = start(engine="builtin:echo", workers=1, log_level="debug")
    unknown, unused, names = DROPPED[dialect]
    quiet = ask(gateway, dialect, QUIET)
    assert not any(k.startswith(METRIC) and v for k, v in gateway.metrics().items())
    assert all("dropped_fields" not in n for n in generated(gateway, quiet)) and "have no effect" not in gateway.log()
    sid = ask(gateway, dialect, {**QUIET, **unknown, **unused})
    reasons = (count(gateway, dialect, "unknown"), count(gateway, dialect, "unused"))
    assert sum(reasons) == len(names) and reasons[1] == sum(len(v) if k == "tools" else 1 for k, v in unused.items()), reasons
    assert [sorted(n["dropped_fields"]) for n in generated(gateway, sid)] == [names]
    line = next(l for l in gateway.log().split("\n") if "have no effect" in l)
    assert sid in line and all(name in line for name in names)
    turn = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]["turns"][0]
    assert sorted(turn["dropped_fields"]) == names


def test_the_names_are_bounded_and_outlive_a_restart(start):
    gateway = start(engine="builtin:echo", workers=1)
    more = {("é" * 60 if i % 2 else "\u0007x") + str(i): i for i in range(40)}
    sid = ask(gateway, "chat", {"nul\0name": 1, 'quo"te\\': 1, **more})
    names = generated(gateway, sid)[0]["dropped_fields"]
    assert len(names) <= 16 and all(len(n.encode()) <= 64 for n in names) and names[:2] == ["nul\0name", 'quo"te\\']
    assert "é" * 32 in names and count(gateway, "chat", "unknown") == 42
    gateway.stop()
    gateway.start()
    assert generated(gateway, sid)[0]["dropped_fields"] == names


def test_every_prompt_of_a_batch_has_the_names(start):
    gateway = start(engine="builtin:echo", workers=1)
    sid = ask(gateway, "completions", {"prompt": ["a", "b"], "frob": 1})
    assert [n["dropped_fields"] for n in generated(gateway, sid)] == [["frob"]] * 2
    assert count(gateway, "completions", "unknown") == 1


def test_what_an_upstream_gets_is_not_dropped(start):
    with StubEngine("openai") as engine:
        gateway = start(engine=engine.setting, workers=1)
        sid = ask(gateway, "chat", {"verbosity": "low", "thinking": {"type": "enabled"}, "priority": 5,
                                    "tools": [{"type": "web_search"}]})
        assert engine.requests[-1]["body"]["verbosity"] == "low" and engine.requests[-1]["body"]["tools"]
        assert generated(gateway, sid)[0]["dropped_fields"] == ["priority"]
        sid = ask(gateway, "messages", {"thinking": {"type": "adaptive"}})     # goes on as chat, without it
        assert "thinking" not in engine.requests[-1]["body"] and generated(gateway, sid)[0]["dropped_fields"] == ["thinking"]


def test_token_counts_and_refused_requests_count_nothing(start):
    gateway = start(engine="builtin:echo", workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    path, body = f"/sessions/{sid}/v1/messages/count_tokens", {"messages": [USER], "system": "s", "cache_control": {}}
    plain = gateway.post(path, body)
    counted = gateway.post(path, {**body, "frob": 1, "mcp_servers": [{}], "tools": [{"type": "bash_20250124", "name": "bash"}]})
    assert (plain.status, counted.status) == (200, 200) and not plain.headers["Rollgate-Not-Obeyed"]
    assert counted.headers["Rollgate-Not-Obeyed"] == "frob, mcp_servers, tools.bash_20250124"
    edited = gateway.post(path, {**body, "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}})
    assert edited.status == 400 and "context_management.edits[0].type" in edited.text
    assert gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": 7, "frob": 1}).status == 400
    assert not any(k.startswith(METRIC) and v for k, v in gateway.metrics().items())


@pytest.mark.parametrize("body", [chat_body(), messages_body()], ids=["chat", "messages"])
def test_the_tools_that_are_offered_are_not_dropped(start, body):
    gateway = start(engine="builtin:echo", workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    path = "/v1/messages" if "max_tokens" in body else "/v1/chat/completions"
    assert body["tools"] and gateway.post(f"/sessions/{sid}{path}", body).status == 200
    assert "dropped_fields" not in generated(gateway, sid)[0]


@pytest.mark.parametrize("dialect,tool", [("chat", {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}),
                                          ("messages", {"name": "f", "strict": True, "input_schema": {"type": "object"}}),
                                          ("responses", {"type": "function", "name": "f", "strict": True, "parameters": {"type": "object"}})])
def test_a_strict_tool_is_dropped_unless_a_grammar_binds_the_calls(start, dialect, tool):
    gateway = start(engine="builtin:echo", workers=1)
    demanded = {"type": "any"} if dialect == "messages" else "required"
    for more, dropped in (({}, ["tools.strict"]), ({"tool_choice": demanded}, None)):
        sid = ask(gateway, dialect, {"tools": [tool, {**tool, "strict": False}], **more})
        assert generated(gateway, sid)[0].get("dropped_fields") == dropped


@pytest.mark.parametrize("wrap", [lambda tool: [tool], lambda tool: [{"type": "namespace", "name": "n", "tools": [tool]}]])
def test_a_strict_tool_of_an_item_is_dropped_unless_a_grammar_binds_the_calls(start, wrap):
    """Codex sends all tools this way for newer models."""
    gateway = start(engine="builtin:echo", workers=1)
    items = [{"type": "additional_tools", "role": "developer", "tools": wrap({"type": "function", "name": "f", "strict": True, "parameters": {"type": "object"}})},
             {"role": "user", "content": "x"}]
    for more, dropped in (({}, ["tools.strict"]), ({"tool_choice": "required"}, None)):
        assert generated(gateway, ask(gateway, "responses", {"input": items, **more}))[0].get("dropped_fields") == dropped


def test_a_strict_tool_is_dropped_if_the_format_alone_makes_a_call_single(start):
    """gpt-oss ends an answer after its call, so parallel_tool_calls: false needs no grammar."""
    gateway = start(engine="builtin:echo", workers=1, tool_parser="gpt_oss")
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool]}}
    for more, dropped in (({"parallel_tool_calls": False}, ["tools.strict"]), ({"tool_choice": allowed}, None)):
        assert generated(gateway, ask(gateway, "chat", {"tools": [tool], **more}))[0].get("dropped_fields") == dropped


def flat(**more):
    return {"type": "function", "name": "f", "parameters": {}, **more}


def test_members_of_tools_and_formats_without_effect_are_dropped(start):
    gateway = start(engine="builtin:echo", workers=1)
    claude = {"name": "f", "input_schema": {"type": "object"}}
    lark = {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}
    for dialect, more, names in (
            ("messages", {"tools": [{**claude, "input_examples": [{}], "allowed_callers": ["code_execution_20260120"], "frob": 1}]},
             ["tools.allowed_callers", "tools.frob", "tools.input_examples"]),
            ("messages", {"tools": [{**claude, "type": "custom", "cache_control": {}, "eager_input_streaming": True,
                                     "defer_loading": True, "allowed_callers": ["direct"]}]}, []),
            ("messages", {"output_config": {"format": {"type": "grammar"}}}, ["output_config.format.type"]),
            ("responses", {"tools": [flat(output_schema={}, defer_loading=True, allowed_callers=["programmatic"])]},
             ["tools.allowed_callers", "tools.defer_loading", "tools.output_schema"]),
            ("responses", {"tools": [flat(defer_loading=False, description="d", strict=None)], "top_logprobs": 0}, []),
            ("responses", {"tools": [{"type": "namespace", "name": "n", "description": "d", "tools": [flat()]}], "top_logprobs": 2},
             ["tools.namespace.description", "top_logprobs"]),
            ("responses", {"tools": [{"type": "namespace", "name": "n", "description": "", "tools": [flat()]}]}, []),
            ("responses", {"tools": [{"type": "custom", "name": "f", "format": lark}]}, ["tools.format"]),
            ("responses", {"tools": [{"type": "custom", "name": "f", "format": {"type": "text"}}]}, []),
            ("chat", {"tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": lark}}}]},
             ["tools.format"])):
        assert sorted(generated(gateway, ask(gateway, dialect, more))[0].get("dropped_fields", [])) == names, more


def test_a_choice_of_a_tool_that_is_not_given_is_dropped(start):
    gateway = start(engine="builtin:echo", workers=1)
    function = {"name": "f", "parameters": {}}
    sid = ask(gateway, "chat", {"tools": [{"type": "function", "function": function}], "functions": [function], "function_call": "auto"})
    assert generated(gateway, sid)[0]["dropped_fields"] == ["functions", "function_call"]
    for known in ([], [flat()]):
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [*known, {"type": "function", "name": "typo"}]}
        sid = ask(gateway, "responses", {"tools": [flat()], "tool_choice": choice})
        assert generated(gateway, sid)[0]["dropped_fields"] == ["tool_choice.typo"]


def test_what_sdks_add_to_answers_is_not_dropped(start):
    """OpenAI's SDK parses the arguments of strict tools into the item."""
    gateway = start(engine="builtin:echo", workers=1)
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}", "parsed_arguments": {"a": 1}}
    sid = ask(gateway, "responses", {"input": [USER, call, {"type": "function_call_output", "call_id": "c1", "output": "r"}], "tools": [flat()]})
    assert "dropped_fields" not in generated(gateway, sid)[0]


def test_a_default_is_not_dropped(start):
    gateway = start(engine="builtin:echo", workers=1)
    for dialect, more in (("chat", {"service_tier": "auto", "verbosity": "medium", "stream_options": {"continuous_usage_stats": False}}),
                          ("messages", {"service_tier": "auto", "mcp_servers": [], "tools": [{"name": "f", "input_schema": {}, "input_examples": []}]}),
                          ("responses", {"service_tier": "default", "truncation": "disabled", "text": {"verbosity": "medium"}, "include": []})):
        assert "dropped_fields" not in generated(gateway, ask(gateway, dialect, more))[0], dialect
    sid = ask(gateway, "chat", {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "thread": []})
    assert sorted(generated(gateway, sid)[0]["dropped_fields"]) == ["stream_options.continuous_usage_stats", "thread"]


def test_members_of_tools_of_items_are_dropped(start):
    """Codex sends apply_patch and its grammar this way."""
    gateway = start(engine="builtin:echo", workers=1)
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}
    tools = [{"type": "custom", "name": "f", "format": grammar}, {"type": "namespace", "name": "n", "description": "d", "tools": [flat(defer_loading=True)]},
             {"type": "image_generation"}]
    sid = ask(gateway, "responses", {"input": [{"type": "additional_tools", "role": "developer", "tools": tools}, USER]})
    assert sorted(generated(gateway, sid)[0]["dropped_fields"]) == ["tools.format", "tools.image_generation", "tools.namespace.description"]


# --- members of messages and of their parts ---

def parts(*content, **more):
    return {"role": "user", "content": [{"type": "text", "text": "x"}, *content], **more}


def used(*content, **more):
    return [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"frob": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": list(content), **more}]}]


def said(**more):
    return {"role": "assistant", "content": "a", **more}


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
MEMBERS_OF_MESSAGES = [
    ("chat", [said(weight=0), said(weight=1), USER], ["messages.weight"]),
    ("chat", [{**USER, "tools": [{"a": 1}]}], ["messages.tools"]),
    ("chat", [{"role": "system", "content": "s", "name": "boss"}, {**USER, "name": "bob"}], ["messages.name"]),
    ("chat", [said(name="amy"), {**USER, "name": None}, {**USER, "name": ""}], []),
    ("chat", [said(tool_calls=[{"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
              {"role": "tool", "tool_call_id": "c", "content": "e", "is_error": True, "status": "error"}], ["messages.is_error"]),
    ("chat", [said(reasoning_details=[{"type": "reasoning.text", "text": "t"}]), USER], ["messages.reasoning_details"]),
    ("chat", [said(reasoning="t", reasoning_details=[{"text": "t"}], parsed={"a": 1}, provider_specific_fields={"reasoning": "t"},
                   refusal=None, annotations=[], audio=None, is_error=False, id="m"), USER], []),
    ("chat", [parts({"type": "text", "text": "y", "frob": {"a": 1}, "cache_control": {"type": "ephemeral"}, "annotations": []})],
     ["messages.content.frob"]),
    ("messages", used({"type": "text", "text": "y", "frob": 1}, is_error=True, frob=1), ["messages.content.frob"]),
    ("messages", used({"type": "text", "text": "y", "citations": None, "cache_control": {}}, is_error=True), []),
    ("messages", [{"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "container": None,
                   "usage": {"input_tokens": 1}, "content": [{"type": "text", "text": "a", "citations": [{"url": "u"}]}]}, USER], []),
    ("messages", [parts({"type": "document", "title": "t", "context": "c", "citations": {"enabled": True},
                         "source": {"type": "text", "media_type": "text/plain", "data": "x"}})],
     ["messages.content.citations", "messages.content.context"]),
    ("responses", [{"type": "program", "id": "p", "call_id": "q", "code": "1", "fingerprint": "f"},
                   {"type": "program_output", "id": "o", "call_id": "q", "result": "1", "status": "completed"}, USER], ["input.program", "input.program_output"]),
    ("responses", [CALLED, {"type": "function_call_output", "call_id": "c", "output": "x", "success": False, "status": "completed",
                            "caller": {"type": "direct"}, "frob": 1}], ["input.frob"]),
    ("responses", [{"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [
        {"type": "output_text", "text": "a", "annotations": [{"url": "u"}], "logprobs": [{"token": "a"}]}]},
        {"role": "user", "content": [{"type": "input_text", "text": "x", "frob": 0}]}], ["input.content.frob"]),
]


def test_members_of_messages_without_effect_are_dropped(start):
    gateway = start(engine="builtin:echo", workers=1)
    for dialect, messages, names in MEMBERS_OF_MESSAGES:
        sid = ask(gateway, dialect, {"input" if dialect == "responses" else "messages": messages})
        assert sorted(generated(gateway, sid)[-1].get("dropped_fields", [])) == names, messages
    sid = ask(gateway, "responses", {"include": ["reasoning.encrypted_content", "message.output_text.logprobs", "frob"]})
    assert generated(gateway, sid)[-1]["dropped_fields"] == ["include.frob"]


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_members_of_known_messages_are_dropped_on_each_turn(start, dialect):
    gateway = start(engine="builtin:echo", workers=1)
    name = "input" if dialect == "responses" else "messages"
    turns = [{"role": "user", "content": "u" * 3000}, {"role": "assistant", "content": "a"}] * 4
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for n in range(3, 9):
        sent = [{**m, **({"frob": 1} if i == 4 else {})} for i, m in enumerate(turns[:n])] + [USER]
        ask(gateway, dialect, {name: sent}, sid)
        assert generated(gateway, sid)[-1].get("dropped_fields", []) == [f"{name}.frob"] * (n > 4), n
    ask(gateway, dialect, {name: [*turns[:7], USER]}, sid)
    assert "dropped_fields" not in generated(gateway, sid)[-1]


# --- the table is what the readers read ---

READERS = {"CHAT": ["chat_reader"], "MESSAGES": ["messages_reader", "messages_tools"],
           "RESPONSES": ["responses_reader", "responses_tools"], "COMPLETIONS": ["completions_reader"]}
SHARED = "request_fields"


def rows(dialect, use="READ"):
    return {name for where, name, how in re.findall(r'^X\(([\w| ]+), "([^"]+)", (\w+)\)', MEMBERS, re.M)
            if how == use and (dialect in where or "ALL" in where)}


@pytest.mark.parametrize("dialect", READERS)
def test_every_field_that_a_reader_reads_is_in_the_table(dialect):
    text = "".join((ROOT / f"worker/dialect/{f}.c").read_text() for f in [*READERS[dialect], SHARED])
    read = set(re.findall(r'(?:field_\w+|json_get)\(body, "(\w+)"', text)) - {"chat_template_kwargs"}
    known = {n.split(".")[0] for use in ("READ", "SAMPLING", "QUIET", "UNUSED") for n in rows(dialect, use)}
    assert read <= known, read - known
    told = re.findall(r'"(\w+)"', text)
    if dialect == "COMPLETIONS":    # its stream_options are read by chat's function
        told += ["stream_options", "include_usage"]
    assert not {n for n in rows(dialect) if not all(p in told for p in n.split("."))}


def test_json_bodies_without_a_dropped_field_are_not_touched(start):
    """The fields that SDKs always send."""
    gateway = start(engine="builtin:echo", workers=1)
    sid = ask(gateway, "chat", {"temperature": 1, "top_p": 1, "n": 1, "stream": False, "presence_penalty": 0, "seed": 1,
                                "frequency_penalty": 0, "logprobs": False, "max_completion_tokens": 9, "store": False,
                                "modalities": ["text"], "parallel_tool_calls": True, "response_format": {"type": "text"},
                                "reasoning_effort": "low", "chat_template_kwargs": {"a": None}})
    assert json.dumps(generated(gateway, sid)).count("dropped") == 0


SKIPPED = {
    "responses": ({"input": [
        USER,
        {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "q"}, "status": "completed"},
        {"type": "web_search_call", "id": "ws2", "action": {"type": "search", "query": "r"}, "status": "completed"},
        {"type": "file_search_call", "id": "fs", "queries": ["q"], "status": "completed"},
        {"type": "code_interpreter_call", "id": "ci", "code": "1", "container_id": "c", "outputs": None, "status": "completed"},
        {"type": "image_generation_call", "id": "ig", "result": "AAAA", "status": "completed"},
        {"type": "mcp_list_tools", "id": "ml", "server_label": "s", "tools": []},
        {"type": "mcp_call", "id": "mc", "server_label": "s", "name": "f", "arguments": "{}", "output": "x"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
        {"type": "compaction", "id": "cmp", "encrypted_content": "sealed elsewhere"},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "sealed elsewhere"},
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "file_search"}, {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}, {"type": "namespace", "name": "m"}]}]},
        USER], "tools": [{"type": "namespace", "name": "o", "tools": [{"type": "shell"}]}]},
        ["input.code_interpreter_call", "input.compaction", "input.configuration_update", "input.file_search_call",
         "input.image_generation_call", "input.mcp_approval_response", "input.mcp_call", "input.mcp_list_tools", "input.reasoning",
         "input.tool_search_call", "input.web_search_call", "tools.file_search", "tools.mcp", "tools.namespace", "tools.shell"], 16),
    "messages": ({"messages": [
        USER,
        {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "so"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "x", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}]},
        USER]},
        ["messages.mcp_tool_result", "messages.mcp_tool_use", "messages.redacted_thinking", "messages.server_tool_use",
         "messages.web_search_tool_result"], 5),
}


@pytest.mark.parametrize("dialect", SKIPPED)
def test_items_that_no_model_reads_are_told(start, dialect):
    """Items of a history that another server made: left out of the prompt, as ever, and named in each answer."""
    gateway = start(engine="builtin:echo", workers=1)
    more, names, n = SKIPPED[dialect]
    path, body = PLAIN[dialect]
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for turn in (1, 2):
        answer = gateway.post(f"/sessions/{sid}{path}", {**body, **more})
        assert answer.status == 200, answer.text
        assert sorted(answer.headers["rollgate-not-obeyed"].split(", ")) == names
        assert count(gateway, dialect, "unused") == turn * n and not count(gateway, dialect, "unknown")
    turns = generated(gateway, sid)
    assert turns and all(sorted(t["dropped_fields"]) == names for t in turns)
    roles = [t["role"] for t in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"] if not t["generated"]]
    assert "tool" not in roles


def test_what_has_its_own_words_is_not_told_as_skipped(start):
    """Notes to oneself, thoughts in the clear or of ours, calls that the client ran."""
    gateway = start(engine="builtin:echo", workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    items = [USER, {"type": "ghost_snapshot", "ghost_commit": {"id": "g"}},
             {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "sealed elsewhere"},
             {"type": "reasoning", "summary": [], "encrypted_content": "rollgate-r1"},
             {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
             {"type": "shell_call_output", "call_id": "c", "output": []}, USER]
    answer = gateway.post(f"/sessions/{sid}/v1/responses", {"input": items})
    assert answer.status == 200 and "rollgate-not-obeyed" not in answer.headers, answer.headers
    assert [n["role"] for n in gateway.get(f"/sessions/{sid}").json()["tree"]["nodes"]].count("tool") == 1


# --- half a character, as agents in JavaScript cut texts ---

HALF = "\ud83d"
RESULT = "long text " + HALF
HALVES = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a" + HALF}, {"type": "text", "text": "\ude00"}]},
        {"role": "assistant", "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": HALF})}}]},
        {"role": "tool", "tool_call_id": "t", "content": RESULT}]}, ["messages[1]", "messages[3]"]),
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 50, "system": "s" + HALF, "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"x": HALF}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": RESULT}]}]}]},
        ["system", "messages[1]", "messages[2]"]),
    "responses": ("/v1/responses", {"model": "m", "input": [
        {"role": "user", "content": "x"}, {"type": "function_call", "call_id": "t", "name": "f", "arguments": json.dumps({"x": HALF})},
        {"type": "function_call_output", "call_id": "t", "output": RESULT}]}, ["input[2]"]),
    "completions": ("/v1/completions", {"model": "m", "prompt": RESULT}, ["prompt"]),
}


@pytest.mark.parametrize("dialect", HALVES)
def test_half_a_character_becomes_a_mark_and_is_reported(start, dialect):
    gateway = start(engine="builtin:echo", workers=1)
    path, body, places = HALVES[dialect]
    names = sorted(f"{place}.lone_surrogate" for place in places)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for turn in range(3):   # each later turn has the text again
        a = gateway.post(f"/sessions/{sid}{path}", body)
        assert a.status == 200, a.text
        assert sorted(a.headers["rollgate-not-obeyed"].split(", ")) == names, a.headers
        if "messages" in body:
            said = a.json()["choices"][0]["message"] if dialect == "chat" else {"role": "assistant", "content": a.json()["content"]}
            body = {**body, "messages": [*body["messages"], said, {"role": "user", "content": "more"}]}
    assert count(gateway, dialect, "unused") == 3 * len(places)
    told = [sorted(n["dropped_fields"]) for n in generated(gateway, sid)]
    assert told and all(t == names for t in told), told
    if dialect != "completions":
        asked = gateway.get(f"/sessions/{sid}?records=1").json()["records"][0]["request"]["messages"]
        assert asked[-1]["content"] in ("long text \ufffd", [{"type": "text", "text": "long text \ufffd"}]), asked
    export = gateway.post(f"/sessions/{sid}/finalize?format=msgpack", {})
    assert export.status == 200, export.text


def test_half_a_character_in_known_messages_is_reported_as_in_new_ones(start):
    """A body that begins as the last one did is read from its new messages on."""
    for memory in "0", "64M":
        gateway = start(engine="builtin:echo", workers=1, known_bodies_memory=memory, known_bodies_least=1)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        turns = [{"role": "user", "content": "x" * 5000}, {"role": "assistant", "content": RESULT}, {"role": "user", "content": "y" * 5000}]
        for n in range(3):
            a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": turns})
            assert a.status == 200 and a.headers["rollgate-not-obeyed"] == "messages[1].lone_surrogate", (memory, n, a.text)
            turns += [a.json()["choices"][0]["message"], {"role": "user", "content": "z" * 3000}]
        clean = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": turns[:1]})
        assert clean.status == 200 and "rollgate-not-obeyed" not in clean.headers


# --- a final message of the assistant ---

PREFILLS = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [USER, {"role": "assistant", "content": "The answer is"}]}, "messages[1]"),
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 50, "messages": [USER, {"role": "assistant", "content": "{"}]}, "messages[1]"),
    "responses": ("/v1/responses", {"model": "m", "input": [USER, {"role": "assistant", "content": "The answer is"}]}, "input[1]"),
}


@pytest.mark.parametrize("dialect", PREFILLS)
def test_a_final_assistant_message_is_closed_and_reported(start, dialect):
    gateway = start(engine="builtin:echo", workers=1)
    path, body, place = PREFILLS[dialect]
    sid = gateway.post("/sessions", {}).json()["session_id"]
    a = gateway.post(f"/sessions/{sid}{path}", body)
    assert a.status == 200 and a.headers["rollgate-not-obeyed"] == f"{place}.continuation", a.text
    assert [n["dropped_fields"] for n in generated(gateway, sid)] == [[f"{place}.continuation"]]
    key = "input" if dialect == "responses" else "messages"
    a = gateway.post(f"/sessions/{sid}{path}", {**body, key: [*body[key], USER]})
    assert a.status == 200 and "rollgate-not-obeyed" not in a.headers


def test_an_upstream_decides_itself_about_a_final_assistant_message(start):
    with StubEngine("openai") as engine:
        gateway = start(engine=engine.setting, workers=1)
        sid = gateway.post("/sessions", {}).json()["session_id"]
        path, body, _ = PREFILLS["chat"]
        a = gateway.post(f"/sessions/{sid}{path}", body)
        assert a.status == 200 and "rollgate-not-obeyed" not in a.headers
        assert engine.requests[0]["body"]["messages"][-1]["role"] == "assistant"
