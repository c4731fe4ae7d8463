#!/usr/bin/python3
"""Writes python/rollgate/signatures.pyi, the typed face of the clients' calls, from a gateway's openapi.json.

    scripts/gen_python_types.py OPENAPI.JSON [--check]     # --check: exit status 1 when the file is not what would be written

Options of a call are named keywords with the schema's types; what a call answers is in python/rollgate/answers.py.
"""
import json
import pathlib
import sys

TARGET = pathlib.Path(__file__).parents[1] / "python/rollgate/signatures.pyi"
HEAD = '''"""The clients' calls with their types, made from openapi.json by scripts/gen_python_types.py. For type checkers
alone: at run time the calls are those of calls.py."""
from __future__ import annotations

from typing import Any, Iterable, Literal, Mapping, Optional, Sequence, TypedDict, Union, overload

from .answers import Claims, GroupPage, GroupResult, QueueAnswer, QueueCounts, Reported
from .answers import SessionPage, SessionState, Stats, Submitted
from .records import Export, Tensors
from .session import AsyncSession, Session

Reward = Union[float, Mapping[str, Any]]
'''
EXPORTS = (("format: Literal['msgpack', 'json', 'safetensors'] = 'msgpack', *, raw: Literal[False] = False", "Export"),
           ("format: Literal['verl', 'miles', 'areal', 'prefix-tree'], *, raw: Literal[False] = False", "Tensors"),
           ("format: str = 'msgpack', *, raw: Literal[True]", "bytes"),
           ("format: str, *, raw: bool = False", "Any"))
ID = "session_id: str"
# method, arguments before the options, operation whose fields are options, those that are given already, answer; S is a session
CALLS = [
    ("create_session", "", ("post", "/sessions"), ("count",), "S"),
    ("session", f"{ID}, records: bool = False", None, (), "SessionState"),
    ("stats", "start: Optional[float] = None, end: Optional[float] = None, step: Optional[int] = None, "
              "by: Optional[Literal['task', 'model', 'version']] = None", None, (), "Stats"),
    ("list_sessions", "", ("get", "/sessions"), (), "SessionPage"),
    ("reward", f"{ID}, reward_info: Reward, response_id: Optional[str] = None, *, key: Optional[str] = None", None, (),
     "dict[str, Any]"),
    ("report_logprobs", "trajectory: Mapping[str, Any], logprobs: Any, version: Union[int, str], "
                        "session_id: Optional[str] = None", None, (), "Reported"),
    ("complete", f"{ID}, reward_info: Optional[Reward] = None, finished: Optional[bool] = None, reason: Optional[str] = None, "
                 "stopped_by: Optional[str] = None, *, key: Optional[str] = None", None, (), "dict[str, Any]"),
    ("wait_once", f"{ID}, timeout_s: float = 30.0", None, (), "Optional[SessionState]"),
    ("trajectories", ID, ("get", "/sessions/{id}/trajectories"), ("id", "format"), "EXPORT"),
    ("finalize", ID, ("get", "/sessions/{id}/trajectories"), ("id", "format"), "EXPORT"),
    ("samples", f"{ID}, max_seq_len: Optional[int] = None, metadata: Optional[Mapping[str, Any]] = None", None, (), "Tensors"),
    ("abort", f"{ID}, stopped_by: Optional[str] = None, reason: Optional[str] = None", None, (), "None"),
    ("abort_all", "labels: Mapping[str, Any], stopped_by: Optional[str] = None, reason: Optional[str] = None", None, (),
     "dict[str, Any]"),
    ("finalize_all", "labels: Mapping[str, Any]", None, (), "dict[str, Any]"),
    ("snapshot", ID, None, (), "dict[str, Any]"),
    ("import_session", "snapshot: Mapping[str, Any]", None, (), "S"),
    ("fork", f"{ID}, response_id: Optional[str] = None", ("post", "/sessions/{id}/fork"), ("response_id",), "S"),
    ("delete", ID, None, (), "None"),
    ("chat", f"{ID}, messages: Sequence[Mapping[str, Any]], *, key: Optional[str] = None, timeout_s: float = 600.0",
     ("post", "/sessions/{id}/v1/chat/completions"), ("messages", "stream", "stream_options"), "dict[str, Any]"),
    ("submit", "groups: Sequence[Group], defaults: Optional[Group] = None", None, (), "Submitted"),
    ("put_group", "group_id: str", ("put", "/groups/{name}"), ("id",), "GroupResult"),
    ("group", "group_id: str", None, (), "GroupResult"),
    ("list_groups", "", ("get", "/groups"), (), "GroupPage"),
    ("wait_group_once", "group_id: str, timeout_s: float = 30.0", None, (), "Optional[GroupResult]"),
    ("cancel_group", "group_id: str, deliver: bool = False", None, (), "dict[str, Any]"),
    ("queue", "name: str", None, (), "QueueCounts"),
    ("next", "queue_name: str, max: int = 1, wait_s: float = 0, *, lease_s: Optional[float] = None, order: Optional[str] = None, "
             "states: Optional[Sequence[str]] = None", None, (), "QueueAnswer"),
    ("ack", "queue_name: str, groups: Sequence[str]", None, (), "dict[str, Any]"),
    ("give_back", "queue_name: str, groups: Sequence[str]", None, (), "dict[str, Any]"),
    ("cancel_queue", "queue_name: str, *, states: Optional[Sequence[str]] = None, version_below: Optional[int] = None, "
                     "labels: Optional[Mapping[str, Any]] = None, deliver: bool = False", None, (), "dict[str, Any]"),
    ("claim", "executor: str, slots: Mapping[str, int], wait_s: float = 0", None, (), "Claims"),
    ("renew", "executor: str, attempts: Sequence[str], wait_s: float = 0", None, (), "dict[str, Any]"),
    ("end_attempt", "attempt_id: str, executor: str, outcome: str", ("post", "/attempts/{name}/end"), ("executor", "outcome"),
     "dict[str, Any]"),
    ("health", "", None, (), "dict[str, Any]"),
    ("ready", "", None, (), "dict[str, Any]"),
    ("metrics", "", None, (), "dict[str, float]"),
    ("engines", "", None, (), "dict[str, Any]"),
    ("set_engines", "engines: Iterable[str], *, probe: bool = True, timeout_s: float = 0", None, (), "dict[str, Any]"),
    ("add_engines", "engines: Iterable[str], *, probe: bool = True", None, (), "dict[str, Any]"),
    ("remove_engines", "names: Iterable[str], *, timeout_s: float = 0", None, (), "dict[str, Any]"),
    ("weight_version", "version: Union[int, str, None], *, engines: bool = False", None, (), "dict[str, Any]"),
    ("adapters", "", None, (), "dict[str, Any]"),
    ("adapter_version", "name: str, version: Union[int, str, None]", None, (), "dict[str, Any]"),
    ("pause", "mode: Literal['drain', 'hold'] = 'drain', timeout_s: Optional[float] = None", None, (), "dict[str, Any]"),
    ("resume", "", None, (), "dict[str, Any]")]
OF_SESSION = ("chat", "finalize", "trajectories")       # of a Session, too
TRUTHS = {True, False, "true", "false", "on", "off", "1", "0", ""}
NAMED = {"sampling_params": "SamplingParams", "score": "Score", "session": "SessionOptions", "on": "GroupOn"}


class Types:
    """Schemas to annotations; objects with known members become TypedDicts."""

    def __init__(self):
        self.made = {}

    def of(self, schema, name=""):
        if not isinstance(schema, dict) or not schema:
            return "Any"
        if "anyOf" in schema:
            kinds = [self.of(s, name) for s in schema["anyOf"] if s.get("type") != "null"]
            kinds = list(dict.fromkeys(kinds))
            return kinds[0] if len(kinds) == 1 else f"Union[{', '.join(kinds)}]"
        if schema.get("enum") and set(schema["enum"]) <= TRUTHS:
            return "bool"
        if "enum" in schema:
            return f"Literal[{', '.join(repr(x) for x in schema['enum'])}]"
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = list(dict.fromkeys(self.of({**schema, "type": k}, name) for k in kind if k != "null"))
            return "Any" if set(kind) >= {"object", "array"} else kinds[0] if len(kinds) == 1 else f"Union[{', '.join(kinds)}]"
        if kind == "array":
            return "Sequence[SamplingName]" if name == "lock_sampling" else f"Sequence[{self.of(schema.get('items'), name)}]"
        if kind == "object" and schema.get("properties"):
            return self.typed_dict(NAMED.get(name) or name.title().replace("_", ""), schema)
        if kind == "object":
            return "Mapping[str, Any]"
        return {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}.get(kind, "Any")

    def typed_dict(self, name, schema):
        members = [f"    {k}: {optional(self.of(v, k), v)}" for k, v in schema["properties"].items()]
        text = "\n".join([f"class {name}(TypedDict, total=False):", *members])
        assert self.made.setdefault(name, text) == text, f"two schemas of the name {name}"
        return name


def optional(kind, schema):
    nullable = isinstance(schema, dict) and any(s.get("type") == "null" for s in schema.get("anyOf", []))
    return f"Optional[{kind}]" if nullable and kind != "Any" else kind


def body(operation):
    return operation["requestBody"]["content"]["application/json"]["schema"]


def options(types, api, where, given):
    """The keywords of an operation's fields."""
    operation = api["paths"][where[1]][where[0]]
    in_query = {p["name"]: p["schema"] for p in operation["parameters"]}
    fields = body(operation)["properties"] if "requestBody" in operation else in_query
    kinds = {k: types.of(v, k) for k, v in fields.items() if k not in given}
    if where[0] == "get":       # of a query, where texts stand for numbers and truths
        kinds = {k: v if v != "Any" else "Union[str, int, float, bool]" for k, v in kinds.items()}
    return [f"{k}: {'Any' if v == 'Any' else f'Optional[{v}]'} = None" for k, v in kinds.items()]


def wrapped(text):
    """One line, or lines of at most 128 characters."""
    if len(text) <= 128:
        return [text]
    head, _, rest = text.partition("(")
    pad, lines, line = " " * (len(head) + 1), [], head + "("
    rest, arrow, answer = rest.partition(") -> ")
    parts = split(rest)
    for part in [*parts[:-1], parts[-1] + arrow + answer]:
        if len(line) + len(part) > 127 and line.strip():
            lines.append(line.rstrip())
            line = pad
        line += part
    return [*lines, line]


def split(text):
    """Parts of an argument list, each with its comma and blank."""
    parts, depth, at = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(text[at:i + 1] + " ")
            at = i + 2
    return [*parts, text[at:]]


def method(name, arguments, keywords, answer, wait, of_session):
    """A method's text; overloads where its answer depends on the format."""
    asynchronous = "" if wait else "async "
    own = "Session" if wait else "AsyncSession"
    if of_session:
        arguments = arguments.removeprefix(ID).removeprefix(", ").replace("*, key: Optional[str] = None", "*")

    def lines(before, after, gives, mark):
        head = ["self", *([before] if before else [])]
        if after and "*" not in split_names(before):
            head.append("*")
        text = f"    {asynchronous}def {name}({', '.join([*head, *after])}) -> {gives}: ..."
        return ([mark] if mark else []) + wrapped(text)
    if name == "create_session":
        return (lines("", ["count: int", *keywords], f"dict[str, list[{own}]]", "    @overload")
                + lines("", ["count: None = None", *keywords], own, "    @overload"))
    if answer != "EXPORT":
        return lines(arguments, keywords, {"S": own}.get(answer, answer), "")
    if of_session:
        return lines(arguments, keywords, "Export", "")
    return [x for format_, gives in EXPORTS for x in lines(f"{arguments}, {format_}", keywords, gives, "    @overload")]


def split_names(arguments):
    return [a.strip().rstrip(",") for a in split(arguments or "")]


def main():
    api = json.loads(pathlib.Path(sys.argv[1]).read_text())
    types, classes = Types(), []
    locks = body(api["paths"]["/sessions"]["post"])["properties"]["lock_sampling"]
    names = next(s["items"] for s in locks["anyOf"] if s.get("type") == "array")
    while "enum" not in names:
        names = names["anyOf"][0]
    types.made["SamplingName"] = "\n".join(wrapped(f"SamplingName = Literal({', '.join(map(repr, names['enum']))})"))
    types.made["SamplingName"] = "[".join(types.made["SamplingName"].split("(", 1))[:-1] + "]"
    group = body(api["paths"]["/groups/{name}"]["put"])
    types.typed_dict("Group", {"properties": {"id": {"type": "string"}, **group["properties"]}})
    for class_, wait, of_session in (("SyncCalls", True, False), ("AsyncCalls", False, False),
                                     ("SyncSessionCalls", True, True), ("AsyncSessionCalls", False, True)):
        lines = [f"class {class_}:"]
        for name, arguments, where, given, answer in CALLS:
            if not of_session or name in OF_SESSION:
                keywords = options(types, api, where, given) if where else []
                lines += method(name, arguments, keywords, answer, wait, of_session)
        classes.append("\n".join(lines))
    text = "\n\n\n".join([HEAD, *types.made.values(), *classes]).replace(HEAD + "\n\n\n", HEAD + "\n\n") + "\n"
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET} is not what openapi.json makes it: run scripts/gen_python_types.py")


if __name__ == "__main__":
    main()
