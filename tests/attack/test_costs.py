"""What one request costs the worker: long lists and long texts."""
import pytest

from gateway import fresh_memory, wait_until


def new(gateway):
    return gateway.post("/sessions").json()


def cpu_s(gateway):
    """CPU seconds of the worker so far."""
    with open(f"/proc/{gateway.child('worker-0')}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def costs_twice(cost, n, what):
    """cost(n): CPU seconds. The lists are long, so that the clock's ticks do not matter."""
    one, two = [], []

    def doubles():
        one.append(cost(n))
        two.append(cost(2 * n))
        return min(two) <= 2.3 * min(one) + 0.02
    wait_until(doubles, 60, f"{what} costs at most 2.3 times")


def test_a_text_that_cannot_fit_is_refused_by_its_bytes(start):
    gateway = start(engine="builtin:echo", workers=1, context_length=4096)
    session = new(gateway)
    a = gateway.chat(session, "!" * (4 << 20))
    assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text
    assert "at least" in a.json()["error"]["message"]
    a = gateway.chat(session, "!" * 5000)
    assert a.status == 400 and "at least" not in a.json()["error"]["message"], a.text
    assert gateway.chat(session, "hello").status == 200


def test_twice_as_many_tools_cost_twice(start):
    """All the way through a turn."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000, max_tools=20_000)

    def cost(n):
        session = new(gateway)
        tools = [{"type": "function", "function": {"name": f"t{i}", "parameters": {}}} for i in range(n)]
        before = cpu_s(gateway)
        a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions",
                         {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools})
        assert a.status == 200, a.text
        return cpu_s(gateway) - before

    costs_twice(cost, 10_000, "a list of tools twice as long")


@pytest.mark.parametrize("begin, item, end", [("<think>", " ", "</think>x"), ("", "<tool_call>f\n<arg_key>a</arg_key><arg_value>", "</arg_value>x")])
def test_twice_as_long_an_answer_costs_twice(start, begin, item, end):
    """Of white space alone, which is no thought unless something follows, and of calls that all begin and of which none is one."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000, reasoning_parser="glm45", tool_parser="glm45")

    def cost(n):
        session, said = new(gateway), begin + item * (n // len(item)) + end
        before = cpu_s(gateway)
        a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", {
            "model": "m", "messages": [{"role": "user", "content": said}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})
        assert a.status == 200 and a.json()["choices"][0]["message"]["content"] == ("x" if begin else said), a.text[:300]
        return cpu_s(gateway) - before

    costs_twice(cost, 150_000, "an answer twice as long")


def helped(gateway):
    return gateway.metrics()["rollgate_helper_work_seconds_count"]


def test_what_a_schema_becomes_is_a_helpers_work(start):
    """A body that is short to read, and whose grammar is not."""
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    schema = {"type": "object", "properties": {"a": {"enum": [f"value {i}" for i in range(2000)]}}}
    before = helped(gateway)
    for grammar in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}):
        a = gateway.chat(session, "hello", max_tokens=20, response_format=grammar)
        assert a.status == 200, a.text
    assert helped(gateway) == before + 1


def test_many_stop_strings_are_a_helpers_work(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = new(gateway)
    before = helped(gateway)
    for stops in (["one", "two"], [f"number {i}" for i in range(1000)]):
        a = gateway.chat(session, "hello", stop=stops)
        assert a.status == 200 and a.json()["choices"][0]["message"]["content"] == "hello", a.text
    assert helped(gateway) == before + 1


def test_what_an_answer_echoes_is_made_ready_by_a_helper(start):
    """All of the tools, which the record of an answer tells, too, whatever becomes of the request."""
    tools = [{"type": "function", "name": f"t{i}", "description": "d" * 3800, "parameters": {"type": "object"}} for i in range(1000)]
    seen, limit = [], 0.010 + fresh_memory()    # its ends are hashed as they came
    for _ in range(3):
        gateway = start(engine="builtin:echo", workers=1, context_length=4096)
        a = gateway.post(f"/sessions/{new(gateway)['session_id']}/v1/responses", {"model": "m", "input": "x", "tools": tools})
        assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:300]
        seen.append(gateway.metrics()['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}'])
        if seen[-1] < limit:
            break
    assert min(seen) < limit, (seen, limit)


def test_a_long_echo_is_written_by_a_helper(start):
    """The response object tells its request's instructions; a chat's answer does not."""
    gateway = start(engine="builtin:echo", workers=1, context_length=100_000_000)
    path, long = f"/sessions/{new(gateway)['session_id']}/v1", "word " * 400_000

    def cost(url, body=None):
        before = helped(gateway)
        a = (gateway.post(f"{path}/{url}", {"model": "m", "max_tokens": 2, **body}, headers={"Idempotency-Key": url}) if body else
             gateway.get(f"{path}/{url}"))
        assert a.status == 200, a.text[:300]
        return helped(gateway) - before, a

    bodies = (("chat/completions", {"messages": [{"role": "system", "content": long}, {"role": "user", "content": "x"}]}),
              ("responses", {"instructions": long, "input": [{"role": "user", "content": "y"}]}))
    first, again = ([cost(*b) for b in bodies] for _ in range(2))
    assert first[1][0] == first[0][0] + 1
    assert [n for n, _ in again] == [1, 2], "read, and of Responses written"
    assert again[1][1].headers["Rollgate-Replayed"] == "1" and again[1][1].json() == first[1][1].json()
    said = first[1][1].json()
    n, a = cost(f"responses/{said['id']}")
    assert (n, a.json()) == (1, said), "the stored one likewise"
    n, a = cost(f"responses/{cost('responses', {'input': 'short'})[1].json()['id']}")
    assert n == 0 and a.json()["output"][0]["content"][0]["text"], "a short one is written at once"


def test_calls_and_their_results_are_exported_one_by_one(start):
    """As atif, where a result names its call: each was looked for among all calls of its step, in one step of the loop."""
    n, seen, limit = 4_000, [], 0.010 + fresh_memory()
    calls = [{"id": f"call_{i:06}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} for i in range(n)]
    results = [{"role": "tool", "tool_call_id": f"call_{i:06}", "content": f"{i}"} for i in reversed(range(n))]
    for _ in range(3):
        gateway = start(engine="builtin:echo", workers=1, context_length=10_000_000)
        session = new(gateway)
        a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", {"model": "m", "max_tokens": 2, "messages": [
            {"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": calls}, *results,
            {"role": "tool", "tool_call_id": "of nobody", "content": "y"}]})
        assert a.status == 200, a.text[:300]
        a = gateway.get(f"/sessions/{session['session_id']}/trajectories?format=atif")
        assert a.status == 200, a.text[:300]
        step = a.json()["trajectories"][0]["steps"][1]
        assert [c["tool_call_id"] for c in step["tool_calls"]] == [c["id"] for c in calls]
        assert [r.get("source_call_id") for r in step["observation"]["results"]] == [r["tool_call_id"] for r in results] + [None]
        seen.append(gateway.metrics()['rollgate_loop_hold_cpu_max_seconds{process="worker-0"}'])
        if seen[-1] < limit:
            break
    assert min(seen) < limit, (seen, limit)


def test_a_session_that_has_ended_has_no_body_read(start):
    """Neither a long one, which a helper would read, nor what is no JSON."""
    gateway = start(engine="builtin:echo", workers=1)
    sessions = [new(gateway) for _ in range(2)]
    assert gateway.request("DELETE", f"/sessions/{sessions[0]['session_id']}").status == 204
    assert gateway.post(f"/sessions/{sessions[1]['session_id']}/finalize", {}).status == 200
    before = helped(gateway)
    for session in sessions:
        for body in (b'{"model":"m","x":[' + b"1," * 400_000 + b"1]}", b"[" * 300_000, b"no"):
            a = gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", body)
            assert a.status == 410 and a.json()["error"]["code"] == "session_ended", a.text[:300]
    assert helped(gateway) == before
    a = gateway.post(f"/sessions/{sessions[0]['session_id']}/v1/chat/completions", b"[" * (3 << 20))
    assert a.status == 410 and helped(gateway) == before + 1, "it gives the memory of the body back"


def test_lists_of_ids_are_refused_by_their_count(start):
    """By the reader: where they are long, in a helper."""
    gateway = start(engine="builtin:echo", workers=1, context_length=4096)
    n = (1 << 20) + 1     # the stand-in for a model has no vocabulary of its own
    session = new(gateway)
    url = f"/sessions/{session['session_id']}/v1"
    hello = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    for field, value in [("allowed_token_ids", [1] * n), ("logit_bias", {str(i): 1 for i in range(n)}), ("bad_words", ["w"] * n)]:
        a = gateway.post(f"{url}/chat/completions", {**hello, field: value})
        assert a.status == 400 and a.json()["error"]["param"] == field and f"{n} are too many" in a.text, a.text[:300]
    for prompt, field in [([65] * 400_000, "prompt"), ([[65], [65] * 4097], "prompt[1]")]:
        a = gateway.post(f"{url}/completions", {"model": "m", "prompt": prompt, "max_tokens": 1})
        assert a.status == 400 and a.json()["error"]["code"] == "context_length_exceeded", a.text[:300]
        assert a.json()["error"]["param"] == field and f"{field} has" in a.json()["error"]["message"], a.text[:300]
    a = gateway.post(f"{url}/completions", {"model": "m", "prompt": [65] * 4000, "max_tokens": 1})
    assert a.status == 200, a.text[:300]
    a = gateway.post(f"{url}/completions", {"model": "m", "prompt": [65, 1 << 30], "max_tokens": 1})
    assert a.status == 400 and "prompt[1] is 1073741824; this model's ids are" in a.text, a.text[:300]
