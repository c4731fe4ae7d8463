"""What an engine's grammar must enforce: tool_choice, parallel_tool_calls and response_format, in every family's own
syntax, on every kind of engine. gbnf.py reads the grammars."""
import json
import pathlib
import random
import re

import pytest

from gbnf import Grammar
from stub_engines import StubEngine

DATA = pathlib.Path(__file__).parents[2] / "data" / "parsers"
TOOLS = [t if "function" in t else {"type": "function", "function": t} for t in json.loads((DATA / "tools.json").read_text())]
SCHEMAS = {t["function"]["name"]: t["function"].get("parameters", {}) for t in TOOLS}
KINDS = ["hermes", "qwen3_coder", "llama3_json", "pythonic", "mistral", "deepseek_v3", "deepseek_v31", "deepseek_v32", "glm45", "glm47", "kimi_k2",
         "gpt_oss", "minimax_m2"]
ASK = {"messages": [{"role": "user", "content": "hi"}]}
OK = {"ids": list(b"ok") + [257], "matched": 257}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
    "type": "object", "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}}, "required": ["answer"]}}}


@pytest.fixture
def asked(start):
    """asked(settings)(body, path) -> what the engine was sent; the gateway and engine stay."""
    engines = []

    def make(kind="sglang", routes=("generate", "completions"), **settings):
        engine = StubEngine(kind, routes=routes)
        engines.append(engine.__enter__())
        gateway = start(workers=1, engine=engine.setting, **settings)

        def ask(body, path="/v1/chat/completions"):
            engine.plan.append(OK)
            sid = gateway.post("/sessions", {}).json()["session_id"]
            answer = gateway.post(f"/sessions/{sid}{path}", body)
            if answer.status != 200:
                engine.plan.clear()
                return answer
            return engine.requests[-1]["body"]
        ask.gateway, ask.engine = gateway, engine
        return ask
    yield make
    for e in engines:
        e.__exit__()


def sglang_grammar(body):
    params = body["sampling_params"]
    assert [k for k in ("json_schema", "regex", "structural_tag") if k in params] == []
    return Grammar(params["ebnf"])


# --- the corpus ---

def cases(kind):
    """(label, text, expected lines) of all cases of that kind without thoughts."""
    for path in sorted(DATA.glob("*.txt")):
        for case in path.read_text().split("=== ")[1:]:
            head, rest = case.split("\n--- in\n", 1)
            text, want = rest.split("\n--- out\n", 1)
            label, options = head.split("\n")
            words = options.split()
            if words[0] == kind and words[1] in ("none", "harmony") and "anytool" not in words:
                yield f"{path.stem}: {label}", text, [line for line in want.split("\n") if line]


def conforms(value, schema):
    """Whether a value is one that the schema means: the subset that tools.json uses."""
    if "anyOf" in schema:
        return any(conforms(value, s) for s in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    types = schema.get("type", "object")
    checks = {"string": lambda v: isinstance(v, str), "integer": lambda v: type(v) is int, "number": lambda v: type(v) in (int, float),
              "boolean": lambda v: isinstance(v, bool), "object": lambda v: isinstance(v, dict), "array": lambda v: isinstance(v, list),
              "null": lambda v: v is None}
    return any(checks[t](value) for t in ([types] if isinstance(types, str) else types))


def forced_call(line):
    """Whether an expected line is a call that the tools' schemas allow, members in their order."""
    tag, name, args = line.split(" ", 2)
    if tag != "C" or name not in SCHEMAS:
        return False
    try:
        args = json.loads(args)
        args = json.loads(args) if isinstance(args, str) else args
    except ValueError:
        return False
    declared = SCHEMAS[name].get("properties", {})
    order = [k for k in declared if k in args]
    return list(args) == order and all(conforms(v, declared[k]) for k, v in args.items())


def test_choices_in_other_spellings(asked):
    """Mistral's word, and objects with a word for type."""
    ask = asked(tool_parser="hermes", reasoning_parser="none")

    def sent(choice):
        return ask({**ASK, "tools": TOOLS, "tool_choice": choice})["sampling_params"].get("ebnf")

    required = sent("required")
    assert required and all(sent(c) == required for c in ("any", {"type": "any"}, {"type": "required"}))
    assert all(sent(c) == sent(c["type"]) != required for c in ({"type": "auto"}, {"type": "none"}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_familys_grammar_accepts_its_calls_and_nothing_else(asked, kind):
    grammar = sglang_grammar(asked(tool_parser=kind, reasoning_parser="none")({**ASK, "tools": TOOLS, "tool_choice": "required"}))
    taken, refused, odd = 0, 0, set()
    for label, text, want in cases(kind):
        calls = [line for line in want if line[0] in "CB"]
        clean = len(calls) == len(want) and calls and all(map(forced_call, calls))
        got = grammar.accepts(text.rstrip("\n"))
        if not any(line[0] == "C" for line in want):
            assert not got, label  # text, or a call that is none
            refused += 1
        elif clean and got:
            taken += 1
        elif clean:
            odd.add(label)
    assert odd <= ODD, odd - ODD
    assert taken >= 1 and (refused >= 1 or kind == "glm47"), (taken, refused)


# Calls that readers understand and that no model is trained to write, so no grammar offers them.
ODD = {"hermes: name last", "hermes: arguments as text", "hermes: no arguments, null arguments",
       "qwen3_coder: missing parameter end", "qwen3_coder: tool_call closed missing", "gpt_oss: two calls", "pythonic: escapes", "deepseek_v3: no section", "deepseek_v31: no section", "deepseek_v32: json body, self closing",
       "llama3_json: calls without anything between", "pythonic: no comma between parameters",
       "mistral: the object's quotes escaped as in HTML", "raw_families: kimi, bare ordinals: the arguments tell whose they are",
       "qwen3_coder: an odd name that the tool has", "pythonic: newlines in a text without marks", "pythonic: such quotes without marks",
       "glm: an empty list", "glm: a list whose quotes are escaped", "deepseek_v32: JSON with an indent, blanks as a body", "gpt_oss: a recipient without its namespace"}


def cut(text, n):
    return text[:-n]


WRITTEN = {
    "hermes": '<tool_call>\n{"name": "read_file", "arguments": {"path": "a\\nb", "max_bytes": 3}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=read_file>\n<parameter=path>\na <b> \"c\"\nd\n</parameter>\n<parameter=max_bytes>\n3\n</parameter>\n"
                   "</function>\n</tool_call>",
    "llama3_json": '{"name": "read_file", "parameters": {"path": "a", "max_bytes": 3}}',
    "pythonic": "[read_file(path='a', max_bytes=3)]",
    "mistral": '[TOOL_CALLS][{"name": "read_file", "arguments": {"path": "a", "max_bytes": 3}}]',
    "deepseek_v3": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{"path": "a", "max_bytes": 3}\n```'
                   "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{"path": "a", "max_bytes": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v32": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true">a</｜DSML｜parameter>\n'
                    '<｜DSML｜parameter name="max_bytes" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "glm45": "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>max_bytes</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    "glm47": "<tool_call>read_file<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>max_bytes</arg_key><arg_value>3</arg_value></tool_call>",
    "kimi_k2": '<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{"path": "a", "max_bytes": 3}'
               "<|tool_call_end|><|tool_calls_section_end|>",
    "gpt_oss": '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a", "max_bytes": 3}',
    "minimax_m2": '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name="path">a</parameter>\n<parameter name="max_bytes">3</parameter>\n'
                  "</invoke>\n</minimax:tool_call>",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_family_may_write_under_every_demand(asked, kind):
    ask = asked(tool_parser=kind, reasoning_parser="none")
    call = WRITTEN[kind]
    with_tools = {**ASK, "tools": TOOLS}
    required = sglang_grammar(ask({**with_tools, "tool_choice": "required"}))
    assert required.accepts(call)
    for wrong in ("", "I will not.", cut(call, 1) if kind != "gpt_oss" else cut(call, 2), call + "x", "x" + call, call.replace("read_file", "rm"),
                  call.replace("max_bytes", "max_bits"), call.replace("3", "three")):
        assert not required.accepts(wrong), wrong
    named = sglang_grammar(ask({**with_tools, "tool_choice": {"type": "function", "function": {"name": "write"}}}))
    assert not named.accepts(call) and named.accepts(call.replace("read_file", "write").replace("path", "content").split("max_bytes")[0]) is False
    only = sglang_grammar(ask({**with_tools, "tool_choice": {"type": "function", "function": {"name": "read_file"}}}))
    assert only.accepts(call)
    # Two calls, unless they are forbidden; a turn of gpt_oss ends behind one.
    joined = {"llama3_json": call + "; " + call, "pythonic": call[:-1] + ", " + call[1:], "mistral": call[:-1] + ", " + call.split("][")[-1],
              "gpt_oss": call + "<|call|>" + call}.get(kind, call + "\n" + call)
    for tags in (("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"), ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                 ("<minimax:tool_call>\n", "</minimax:tool_call>"), ("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>")):
        if call.startswith(tags[0]):
            inner = call[len(tags[0]):-len(tags[1])]
            joined = tags[0] + inner + inner + tags[1]
    assert required.accepts(joined) == (kind != "gpt_oss")
    single = sglang_grammar(ask({**with_tools, "tool_choice": "required", "parallel_tool_calls": False}))
    assert single.accepts(call) and not single.accepts(joined)
    if kind == "gpt_oss":
        assert "ebnf" not in ask({**with_tools, "parallel_tool_calls": False})["sampling_params"]
        return
    # Of its own accord: text, then one call at most.
    free = sglang_grammar(ask({**with_tools, "parallel_tool_calls": False}))
    for text in ("", "Hello. 1 < 2, <b>!</b>, [x], {y}", call, "I look: " + call if kind not in ("llama3_json", "pythonic") else "well"):
        assert free.accepts(text), text
    assert not free.accepts(joined) and not free.accepts(cut(call, 3))
    # Text in a format, or calls.
    either = sglang_grammar(ask({**with_tools, "response_format": FORMAT}))
    assert either.accepts('{"answer": 4, "why": "x"}') and either.accepts('{"answer":4}') and either.accepts(call) and either.accepts(joined)
    assert not either.accepts('{"why": "x"}') and not either.accepts("4")


def test_the_choice_between_some_tools(asked):
    ask = asked()
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "read_file"}}]}}
    grammar = sglang_grammar(ask({**ASK, "tools": TOOLS, "tool_choice": allowed}))
    assert grammar.accepts(WRITTEN["hermes"]) and not grammar.accepts("no") and not grammar.accepts('<tool_call>{"name":"list_files","arguments":{}}</tool_call>')
    allowed["allowed_tools"]["mode"] = "auto"
    grammar = sglang_grammar(ask({**ASK, "tools": TOOLS, "tool_choice": allowed}))
    assert grammar.accepts(WRITTEN["hermes"]) and grammar.accepts("no")
    assert not grammar.accepts('<tool_call>{"name":"list_files","arguments":{}}</tool_call>')
    allowed["allowed_tools"]["tools"] = [{"type": "function", "function": {"name": "elsewhere"}}]
    assert "ebnf" not in ask({**ASK, "tools": TOOLS, "tool_choice": allowed})["sampling_params"]     # as "none"


# --- the thought ---

def test_the_constraint_begins_behind_the_thought(asked):
    ask = asked(reasoning_parser="qwen3")
    call, forced = WRITTEN["hermes"], {**ASK, "tools": TOOLS, "tool_choice": "required"}
    for body, good in ((forced, call), ({**ASK, "response_format": FORMAT}, '{"answer": 1}')):
        grammar = sglang_grammar(ask(body))
        for text in (good, "<think>\nHm, {1 < 2}.\n</think>\n\n" + good, "<think></think>" + good):
            assert grammar.accepts(text), text
        for text in ("<think>Hm.</think>", "<think>Hm." + good, "Hm.</think>" + good, "<think>a</think><think>b</think>" + good):
            assert not grammar.accepts(text), text


def test_a_thought_that_is_open_must_end(asked):
    body = asked(reasoning_parser="deepseek_r1")({**ASK, "response_format": FORMAT})
    strict = sglang_grammar(body)
    assert strict.accepts('Hm.</think>{"answer": 1}') and not strict.accepts('{"answer": 1}')


def test_an_engine_that_knows_thoughts_itself_may_start_behind_them(asked):
    body = asked("vllm", reasoning_parser="deepseek_r1")({**ASK, "response_format": FORMAT})
    lenient = Grammar(body["sampling_params"]["structured_outputs"]["grammar"])
    assert lenient.accepts('Hm.</think>\n{"answer": 1}') and lenient.accepts('\n\n{"answer": 1}') and not lenient.accepts("Hm.")


# --- every engine, every dialect ---

FIELDS = {"sglang": lambda b: b["sampling_params"].get("ebnf"), "vllm": lambda b: b["sampling_params"].get("structured_outputs", {}).get("grammar"),
          "vllm-completions": lambda b: b.get("structured_outputs", {}).get("grammar"), "llamacpp": lambda b: b.get("grammar")}
NATIVE = {"sglang": lambda b: json.loads(b["sampling_params"]["json_schema"]), "vllm": lambda b: b["sampling_params"]["structured_outputs"]["json"],
          "vllm-completions": lambda b: b["structured_outputs"]["json"], "llamacpp": lambda b: b["json_schema"]}
ANTHROPIC = {"model": "m", "max_tokens": 50, "messages": ASK["messages"],
             "tools": [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in TOOLS]}
RESPONSES = {"model": "m", "input": "hi", "tools": [{"type": "function", **t["function"]} for t in TOOLS]}
DEMANDS = [
    ("/v1/chat/completions", {**ASK, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}, "all"),
    ("/v1/chat/completions", {**ASK, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "read_file"}}, "parallel_tool_calls": False},
     "one"),
    ("/v1/messages", {**ANTHROPIC, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, "all"),
    ("/v1/messages", {**ANTHROPIC, "tool_choice": {"type": "tool", "name": "read_file", "disable_parallel_tool_use": True}}, "one"),
    ("/v1/responses", {**RESPONSES, "tool_choice": "required", "parallel_tool_calls": False}, "all"),
    ("/v1/responses", {**RESPONSES, "tool_choice": {"type": "function", "name": "read_file"}, "parallel_tool_calls": False}, "one"),
]
LIST = '<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("kind", list(FIELDS))
def test_every_engine_gets_every_dialects_demands(asked, kind):
    routes = ("completions",) if kind == "vllm-completions" else ("generate", "completions")
    ask = asked(kind.split("-")[0], routes=routes)
    for path, body, what in DEMANDS:
        for stream in (False, True):
            grammar = Grammar(FIELDS[kind](ask({**body, "stream": stream}, path)))
            assert grammar.accepts(WRITTEN["hermes"]) and not grammar.accepts("no") and not grammar.accepts(LIST + "\n" + LIST), (path, body)
            assert grammar.accepts(LIST) == (what == "all"), (path, body)
    plain = ask({**ASK, "tools": TOOLS, "tool_choice": "auto"})
    assert FIELDS[kind](plain) is None
    schema = FORMAT["json_schema"]["schema"]
    assert NATIVE[kind](ask({**ASK, "response_format": FORMAT})) == schema
    assert NATIVE[kind](ask({**ASK, "response_format": {"type": "json_object"}})) == {"type": "object"}
    responses = {"model": "m", "input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}
    assert NATIVE[kind](ask(responses, "/v1/responses")) == schema
    assert FIELDS[kind](ask({**ASK, "response_format": {"type": "ebnf", "ebnf": 'root ::= "x"'}})) == 'root ::= "x"'


def test_an_openai_upstream_gets_the_demand_itself(asked):
    ask = asked("openai")
    ask({**ASK, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "response_format": FORMAT})
    body = ask.engine.requests[-1]["body"]
    assert body["tool_choice"] == "required" and body["parallel_tool_calls"] is False and body["response_format"] == FORMAT


def test_an_upstream_gets_every_dialects_demand_in_its_own_form(asked, start):
    ask = asked("openai")
    ask({**RESPONSES, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read_file"}]}}, "/v1/responses")
    assert ask.engine.requests[-1]["body"]["tool_choice"] == {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "read_file"}}]}}
    ask({**ANTHROPIC, "tool_choice": {"type": "tool", "name": "read_file"}, "output_format": {"type": "json_schema", "schema": {"type": "object"}}},
        "/v1/messages")
    body = ask.engine.requests[-1]["body"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "read_file"}} and body["response_format"]["type"] == "json_schema"
    # Beside engines that are asked in ids: each gets the demand in its own form.
    with StubEngine("sglang") as ids:
        gateway = start(workers=1, engine=[ask.engine.setting, ids.setting])
        for _ in range(20):
            sid = gateway.post("/sessions", {}).json()["session_id"]
            gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "tools": TOOLS, "tool_choice": "required", "response_format": FORMAT})
        told, asked_in_ids = ask.engine.requests[2:], ids.requests
        assert told and asked_in_ids
        assert all(r["body"]["response_format"] == FORMAT and r["body"]["tool_choice"] == "required" for r in told)
        assert all(r["body"]["sampling_params"]["ebnf"] for r in asked_in_ids)


def test_what_cannot_be_enforced_is_refused(asked):
    none = asked(tool_parser="none")
    for body, path, field in (({**ASK, "tools": TOOLS, "tool_choice": "required"}, "/v1/chat/completions", "tool_choice"),
                              (DEMANDS[2][1], "/v1/messages", "tool_choice"), (DEMANDS[4][1], "/v1/responses", "tool_choice")):
        answer = none(body, path)
        assert answer.status == 400 and field in answer.text, answer.text
    assert isinstance(none({**ASK, "tools": TOOLS}), dict)  # unasked it is no error
    llama = asked("llamacpp")
    for kind in ("regex", "structural_tag"):
        answer = llama({**ASK, "response_format": {"type": kind, kind: "x"}})
        assert answer.status == 400 and "response_format" in answer.text, answer.text
    both = asked()({**ASK, "tools": TOOLS, "tool_choice": "required", "response_format": {"type": "regex", "regex": "x"}})
    assert both.status == 400 and both.json()["error"]["param"] == "tool_choice"


def deep(n):
    return {"type": "object", "properties": {f"k{i}": {"enum": [f"{i}-{j}" * 40 for j in range(200)]} for i in range(n)}}


def test_schemas_beyond_measure_are_refused_and_harm_nothing(asked):
    ask = asked(reasoning_parser="qwen3")
    answer = ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": deep(60)}}})
    assert answer.status == 400 and answer.json()["error"]["param"] == "response_format"
    assert isinstance(ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": deep(2)}}}), dict)
    many = {f"k{i}": {} for i in range(30000)}
    twice = {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    refs = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{k}"} for k in range(3000)]} for i in range(40)}
    for schema in ({"type": "object", "properties": many, "required": list(many)}, {"$ref": "#/$defs/a", "$defs": {"a": twice}},
                   {"$ref": "#/$defs/d0", "$defs": {**refs, **{f"d{i}": {"type": "null"} for i in range(40, 3000)}}}):
        answer = ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}})
        assert isinstance(answer, dict) or answer.status == 400, answer.text


# --- schemas ---

NODE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
    "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["v"]}}}
ANY_JSON = {"$defs": {"j": {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": {"$ref": "#/$defs/j"}},
                                      {"type": "object", "additionalProperties": {"$ref": "#/$defs/j"}}]}},
            "type": "object", "properties": {"j": {"$ref": "#/$defs/j"}}, "required": ["j"]}
SHAPES = [  # schema, texts that fit, texts that do not
    ({"type": "object"}, ['{}', '{"a": [1, {"b": null}], "é": "\\u00e9\\n"}', '{\n  "a": -1.5e+3\n}'], ['', '[]', '{"a"}', '{"a": 01}', '{"a": "\n"}', '{} x']),
    ({"type": "object", "properties": {}}, ['{}', '{ }'], ['{"a": 1}']),
    ({"type": "object", "properties": {}, "additionalProperties": True}, ['{}', '{"a": 1}'], ['[]']),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{}', '{"a": 1, "b": 2}'], ['{"a": "x"}', '{"a": 1,}']),
    ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}, "required": ["b"]},
     ['{"b": 1}', '{"a": "", "b": 1, "c": false}', '{"b":1,"c":true}', '{"a":"x","b":0}'], ['{}', '{"a": "x"}', '{"a": "x", "c": true}', '{, "b": 1}',
                                                                                         '{"b": 1, "d": 2}', '{"b": 1.5}', '{"c": true, "b": 1}']),
    ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, ['{}', '{"a": "x"}', '{"b": "x"}', '{"a": "x", "b": "y"}'],
     ['{"a": "x" "b": "y"}', '{"a": "x",}', '{"a": "x", "a": "x"}']),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "null"}, "required": ["a"]},
     ['{"a": "x"}', '{"a": "x", "z": null}'], ['{"z": null}', '{"a": "x", "z": 1}']),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}, ['[1]', '[1, 2,3]'], ['[]', '[1,2,3,4]', '["x"]', '[1,]']),
    ({"type": "array", "items": {"type": "integer"}}, ['[]', '[1]', '[ 1 , 2 ]'], ['[,]', '[1 2]', '{}']),
    ({"type": "array", "minItems": 2}, ['[1, "x"]', '[{}, [], null]'], ['[]', '[1]']),
    ({"type": "array", "items": {"type": "null"}, "maxItems": 0}, ['[]'], ['[null]']),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, ['["a", 1]'], ['["a"]', '[1, "a"]', '["a", 1, 2]']),
    ({"enum": ["a", 'q"', 3, None, True, {"k": [1]}]}, ['"a"', '"q\\""', '3', 'null', 'true', '{"k": [1]}', '{ "k":[1] }'], ['"b"', 'a', '33', '{"k": []}']),
    ({"const": "only"}, ['"only"'], ['"other"', 'only']),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, ['1', '"x"'], ['null', '1.5']),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "null"}]}, ['{"k": "a"}', 'null'], ['{"k": "b"}', '{}']),
    ({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"type": "boolean"}}}, ['true'], ['1']),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}}]}, ['{"a": 1}', '{"a": 1, "b": 2}'],
     ['{}', '{"b": 2}', '{"a": "x"}']),
    ({"type": ["integer", "null"]}, ['0', '-5', 'null'], ['"x"', '1.0', '--1', '00']),
    ({"type": "integer", "minimum": 0}, ['0', '12'], ['-1', '1.5']),
    ({"type": "number", "exclusiveMinimum": 0}, ['0.5', '3', '1e5'], ['-1', '.5']),
    ({"type": "number"}, ['-1', '1.25', '1E-7'], ['1.', 'NaN', '+1']),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"abc"', '"\\n\\""', '"日本語"'], ['"a"', '"abcd"', 'ab']),
    ({"type": "string", "format": "date-time"}, ['"2026-11-21T04:00:00Z"', '"2026-11-21T04:00:00.123+01:00"'], ['"today"', '"2026-11-21"']),
    ({"type": "string", "format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"'], ['"123"']),
    ({"type": "string", "pattern": "^a+$"}, ['"aaa"'], ['1', '""', '"ab"']),
    ({"type": "string", "pattern": "^(?=a)b"}, ['"x"', '""'], ['1']),
    ({"pattern": "x", "minLength": 3}, ['"x"', '"axb"'], ['""', '"abc"', 'x']),
    ({"type": "string", "format": "ipv4"}, ['"10.0.0.255"'], ['"10.0.0"', '"a.b.c.d"']),
    ({"type": "string", "format": "ipv6"}, ['"::1"', '"fe80::1:2"'], ['""', '"here"']),
    ({"type": "integer", "minimum": 7, "maximum": 1205}, ['7', '10', '99', '999', '1000', '1199', '1205'], ['6', '0', '1206', '1210', '2000', '12050', '07', '-8', '7.0']),
    ({"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3}, ['-2', '-1', '0', '2'], ['-3', '3', '-20', '20']),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, ['4', '10'], ['3', '0', '-4']),
    ({"type": "integer", "maximum": -5}, ['-5', '-10', '-123456'], ['-4', '0', '5']),
    ({"type": "integer", "minimum": 5, "maximum": 2}, ['9', '-9'], ['x']),
    ({"type": "integer", "minimum": 1e300, "maximum": 2}, ['2', '-9'], ['3']),
    ({"type": "number", "minimum": 0, "maximum": 1}, ['0', '1', '0.25', '1.000', '0.999'], ['1.5', '2', '-0.5', '10', '1.01']),
    ({"type": "number", "minimum": -2, "exclusiveMaximum": 10}, ['-2', '-1.5', '0', '9.99', '-0.5'], ['10', '10.0', '11', '-2.5', '-3']),
    ({"type": "number", "minimum": 0.5, "maximum": 2.5}, ['0.5', '1', '2.5'], ['3.1', '-1', '4']),
    ({"type": "number", "maximum": 3}, ['3', '-1e9', '-7.5', '2.5'], ['3.5', '4', '1e9']),
    ({"exclusiveMaximum": 3}, ['2'], ['3', '"x"']),
    (NODE, ['{"v": 1}', '{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]}'], ['{"kids": []}', '{"v": 1, "kids": [{}]}']),
    (ANY_JSON, ['{"j": 1}', '{"j": [{"a": ["x", null]}, []]}'], ['{}', '{"j": }', '{"j": [1, ]}']),
    ({"type": "object", "properties": {'we"ird <k>\\': {"type": "integer"}}}, ['{"we\\"ird <k>\\\\": 1}'], ['{"weird": 1}']),
    ({}, ['1', '{"a": 1}', '"x"'], ['', 'x']),
]


def test_schemas_become_the_rules_of_their_values(asked):
    ask = asked(reasoning_parser="qwen3")  # a model that may think gets a grammar, not the schema
    for schema, good, bad in SHAPES:
        grammar = sglang_grammar(ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}))
        for text in good:
            assert grammar.accepts(text), (schema, text)
        for text in bad:
            assert not grammar.accepts(text), (schema, text)


PATTERNS = ["^[a-c]{2,3}$", "^\\d{3}-\\d{4}$", "a|b", "^a|b$", "^(ab|c)+$", "^(?:x?y)*z$", "\\w+\\.txt$", '^[^"a]$', '^"', "^\\\\$", "^[\\w.-]+@[\\w-]+\\.[a-z]{2,}$", "^$", "",
            "^\\S+\\s\\S+$", "^[^\\d]+$", "^\\u0061\\x62$", "^[A-F0-9]*?$", "^(?<year>\\d\\d)$", "^.{3}$", "^[\\s\\S]$", "^\\/[\\]\\\\x-]$", "^é+$", "^[à-ÿ]$", "^(a(b(c)?)?)?$",
            "^\\$\\^$", "^[+*?.]$", "^a{0,2}b$", "^\\t$", "(a|)$"]
BEYOND = ["(?=a)", "(?!a)", "(?<=a)b", "(a)\\1", "\\ba", "(?i)a", "(a*)*", "a**", "(", ")", "a)", "[", "[]", "a{300}", "((a{50}){50}){50}", "\\p{L}", "^(^a)$", "a$b", "[z-a]", "a{2,1}",
          "\\", "*", "(?", "(?<x", "{2}", "(" * 40 + "a" + ")" * 40]


def test_patterns_become_rules_that_mean_the_same(asked):
    """Beside Python's own reading of the pattern, over many texts."""
    ask = asked(reasoning_parser="qwen3")
    texts = ["", "a", "b", "ab", "abc", "ba", "cc", "abab", "z", "yz", "xyyz", "555-1234", "5551234", "a.txt", "x a.txt", "a.txtx", '"', '"a', "\\", "a b", "a  b", "me@x-y.org", "me@x",
             "AB9", "12", "1", "日本語", "é", "éé", "ÿ", "x", "\n", "\t", "$^", "+", "/]", "/-", "/\\", "aab", "aaab", "d", "-", "A", "\u00a0"]
    for pattern in PATTERNS + BEYOND:
        schema = {"type": "string", "pattern": pattern}
        grammar = sglang_grammar(ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}))
        for text in texts:
            if text == "\n" and re.search(r"[.$]", pattern):
                continue  # Python's $ and our . are not ECMA's there
            fits = pattern in BEYOND or bool(re.search(pattern.replace("(?<", "(?P<"), text, re.ASCII if "\\s" not in pattern.lower() else 0))
            assert grammar.accepts(json.dumps(text, ensure_ascii=False)) == fits, (pattern, text)


def test_bounds_of_integers_hold_exactly(asked):
    ask = asked(reasoning_parser="qwen3")
    rng = random.Random(5)
    pairs = [(rng.randint(-130, 130), rng.randint(0, 120)) for _ in range(25)] + [(0, 0), (9, 1), (99, 1), (100, 899), (-100, 100), (-9, 0)]
    for low, more in pairs:
        schema = {"type": "integer", "minimum": low, "maximum": low + more}
        grammar = sglang_grammar(ask({**ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}))
        for n in range(low - 25, low + more + 25):
            assert grammar.accepts(str(n)) == (low <= n <= low + more), (schema, n)


# --- the built-in engine ---

def test_the_builtin_engine_does_as_it_is_told(start):
    gateway = start(workers=1)
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for path, body, _ in DEMANDS:
        answer = gateway.post(f"/sessions/{sid}{path}", body)
        assert answer.status == 200, answer.text
        assert '"list_files"' in answer.text or '"read_file"' in answer.text or '"write"' in answer.text, answer.text
    message = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "response_format": FORMAT}).json()["choices"][0]["message"]
    assert "answer" in json.loads(message["content"])
    free = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "tools": TOOLS, "parallel_tool_calls": False}).json()
    assert free["choices"][0]["message"]["content"] == "hi"


FAMILIES = ["lcpp.GLM-4.6", "lcpp.GLM-4.7-Flash", "lcpp.Qwen-QwQ-32B", "lcpp.Qwen-Qwen2.5-7B-Instruct", "lcpp.Qwen-Qwen3-0.6B", "lcpp.Qwen3-Coder",
            "lcpp.Qwen3.5-4B", "lcpp.deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "lcpp.deepseek-ai-DeepSeek-V3.1", "lcpp.moonshotai-Kimi-K2",
            "lcpp.openai-gpt-oss-120b", "miles.kimi_k25_fixed", "miles.minimax_m25_fixed", "miles.qwen3_fixed", "miles.qwen3_thinking_2507_and_next_fixed",
            "mistral_common.v3", "mistral_common.v11", "mistral_common.v13_think", "sglang.deepseekv32", "sglang.llama3.1_json", "sglang.llama4_pythonic"]


@pytest.mark.parametrize("name", FAMILIES)
def test_forced_answers_fit_the_prompts_of_real_templates(start, shared, name):
    """Whatever the prompt opens or closes before the answer, with thoughts on, off and by default."""
    gateway = start(workers=1, chat_template=f"{shared}/data/templates/{name}.jinja")
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a", "n"]}
    tools = [{"type": "function", "function": {"name": "get", "description": "d", "parameters": schema}}]
    sid = gateway.post("/sessions", {}).json()["session_id"]
    for kwargs in ({}, {"enable_thinking": False, "thinking": False}, {"enable_thinking": True, "thinking": True}):
        body = {**ASK, "chat_template_kwargs": kwargs}
        forced = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**body, "tools": tools, "tool_choice": "required"}).json()["choices"][0]
        call, = forced["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"a": "", "n": 0} and forced["finish_reason"] == "tool_calls", forced
        fmt = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        plain = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**body, "response_format": fmt}).json()["choices"][0]
        assert json.loads(plain["message"]["content"]) == {"a": "", "n": 0}, plain


def test_an_answer_without_the_demanded_call_is_told_as_it_is(start, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["I will not."]))
    gateway = start(workers=1, engine=f"builtin:script:{script}")
    sid = gateway.post("/sessions", {}).json()["session_id"]
    body = {**ASK, "tools": TOOLS, "tool_choice": "required"}
    choice = gateway.post(f"/sessions/{sid}/v1/chat/completions", body).json()["choices"][0]
    assert choice["message"]["content"] == "I will not." and choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"]
    records = gateway.get(f"/sessions/{sid}?records=1").text
    assert "demanded a tool call" in records, records
