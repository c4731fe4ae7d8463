"""`builtin:recorded:FILE` answers from exports: the same agent gets the same tokens, logprobs and versions without an engine, and one
that leaves the record is told where."""
import json
import subprocess

import pytest

import gateway as g
import rollgate

SYSTEM = {"role": "system", "content": "You are brief."}


@pytest.fixture
def source(start):
    """A gateway whose answers follow from session and call: what is recorded."""
    gateway = start(workers=1, engine="builtin:random:7")
    gateway.post("/admin/weight_version", {"version": 3})
    return gateway


def agent(gateway, n=3, **body):
    """An agent of n turns; its session."""
    with rollgate.Client(gateway.url, retry_s=0) as client:
        s = client.create_session()
        messages = [SYSTEM, {"role": "user", "content": "What is 6 times 7?"}]
        for turn in range(n):
            answer = s.chat(messages, max_tokens=200, **body)["choices"][0]["message"]
            messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": f"And then {turn}?"}]
        return s.id


def export(gateway, session, format="msgpack", raw=False):
    with rollgate.Client(gateway.url) as client:
        return client.trajectories(session, format=format, raw=raw)


def record(tmp_path, data, name="record"):
    path = tmp_path / name
    path.write_bytes(data)
    return f"builtin:recorded:{path}"


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert not rollgate.diff(x, y, tolerance=0), rollgate.diff(x, y, tolerance=0)
        assert [t["finish_reason"] for t in x.turns] == [t["finish_reason"] for t in y.turns]
        assert [t["logprob_basis"] for t in x.turns] == [t["logprob_basis"] for t in y.turns]


def as_lines(data):
    """As `rollgate export --to jsonl` writes an export."""
    document = json.loads(data)
    return b"".join(json.dumps({"session_id": document["session_id"], **t}).encode() + b"\n" for t in document["trajectories"])


@pytest.mark.parametrize("format", ["msgpack", "json", "jsonl"])
def test_an_agent_gets_its_record_again(start, source, tmp_path, format):
    session = agent(source)
    (t,) = first = export(source, session)
    assert t.num_turns == 3 and t.versions == (3, 3) and t.trained_tokens > 60
    data = export(source, session, format.rstrip("l"), raw=True)
    replay = start(workers=1, engine=record(tmp_path, as_lines(data) if format == "jsonl" else data))
    same(first, export(replay, agent(replay)))
    same(first, export(replay, agent(replay)))      # again, from the first on


def test_files_of_the_sink_are_records_also_joined(start, tmp_path):
    source = start(workers=1, engine="builtin:random:7", sink=f"file:{tmp_path}/episodes")
    exports = {}
    with rollgate.Client(source.url) as client:
        for i in range(2):
            session = agent(source)
            exports[session] = client.finalize(session)
    files = g.wait_until(lambda: [p for p in (tmp_path / "episodes").glob("*.msgpack") if len(list(p.parent.glob("*.msgpack"))) == 2],
                         what="two files")
    replay = start(workers=1, engine=record(tmp_path, b"".join(p.read_bytes() for p in files)))
    for path in files:      # the first prompt is the same: its answers come in the order of the file
        same(exports[path.stem], export(replay, agent(replay)))


def test_streams_and_other_dialects_have_the_same_tokens(start, source, tmp_path):
    session = agent(source, 1)
    replay = start(workers=1, engine=record(tmp_path, export(source, session, raw=True)) + ",tokens_per_s=2000")
    ask = {"messages": [{"role": "user", "content": "What is 6 times 7?"}], "max_tokens": 200}
    paths = {"chat": ("/v1/chat/completions", {**ask, "messages": [SYSTEM, *ask["messages"]], "stream": True}),
             "messages": ("/v1/messages", {**ask, "model": "m", "system": SYSTEM["content"]}),
             "responses": ("/v1/responses", {"instructions": SYSTEM["content"], "input": ask["messages"], "max_output_tokens": 200})}
    for name, (path, body) in paths.items():
        made = replay.post("/sessions").json()
        answer = replay.post(f"/sessions/{made['session_id']}{path}", body)
        assert answer.status == 200, (name, answer.text)
        same(export(source, session), export(replay, made["session_id"]))


def test_a_prompt_that_leaves_the_record_is_refused_with_its_place(start, source, tmp_path):
    session = agent(source)
    replay = start(workers=1, engine=record(tmp_path, export(source, session, raw=True)))
    (t,) = export(source, session)
    ids = list(t.ids)

    def leave(change):
        with rollgate.Client(replay.url, retry_s=0) as client:
            s = client.create_session()
            messages = [SYSTEM, {"role": "user", "content": "What is 6 times 7?"}]
            messages.append({"role": "assistant", "content": s.chat(messages, max_tokens=200)["choices"][0]["message"]["content"]})
            with pytest.raises(rollgate.errors.EngineRefused) as e:
                s.chat(change(messages), max_tokens=200)
            return e.value
    error = leave(lambda m: [*m, {"role": "user", "content": "And then what?"}])
    at = int(str(error).split("at token ")[1].split(" ")[0])
    assert error.status == 400 and not error.retry
    assert f"leaves the record of session {session}, trajectory 0, before turn 2 of 3: at token {at} the record has id {ids[at]}, " in str(error)
    begin = t.prompt_len + t.turns[0]["end"]
    assert begin < at < t.prompt_len + t.turns[1]["start"] and f'"{chr(ids[at])}' in str(error) and 'the prompt id 119, "what?' in str(error)
    error = leave(lambda m: [SYSTEM, {"role": "user", "content": "What is 6 plus 7?"}])
    assert "before turn 1 of 3" in str(error) and '"times 7?' in str(error) and '"plus 7?' in str(error)
    with pytest.raises(rollgate.errors.EngineRefused) as e:
        agent(replay, 4)
    assert f"after turn 3 of 3: at token {len(ids)} the record has its end" in str(e.value)
    with pytest.raises(rollgate.errors.EngineRefused) as e:
        with rollgate.Client(replay.url, retry_s=0) as client:
            client.create_session().chat([SYSTEM, {"role": "user", "content": "What is 6 times 7?"}], max_tokens=5)
    assert "and max_tokens allows 5" in str(e.value)


@pytest.mark.parametrize("path, body, kind", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "invalid_request_error"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}, "invalid_request_error"),
    ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}, "invalid_request_error"),
    ("/v1/responses", {"input": "x"}, "invalid_request_error")])
def test_every_dialect_says_400(start, source, tmp_path, path, body, kind):
    replay = start(workers=1, engine=record(tmp_path, export(source, agent(source, 1), raw=True)))
    answer = replay.post(f"/sessions/{replay.post('/sessions').json()['session_id']}{path}", body)
    assert answer.status == 400 and answer.json()["error"]["type"] == kind and "leaves the record" in answer.text


def test_several_answers_to_one_prompt_come_in_order(start, source, tmp_path):
    ask = [{"role": "user", "content": "hi"}]
    with rollgate.Client(source.url) as client:
        s = client.create_session(history="tree")
        told = [c["message"]["content"] for c in s.chat(ask, n=3)["choices"]]
    assert len(set(told)) == 3
    for data in (export(source, s.id, raw=True), export(source, s.id, "json", raw=True)):
        replay = start(workers=1, engine=record(tmp_path, data))
        with rollgate.Client(replay.url) as client:
            assert [client.create_session().chat(ask)["choices"][0]["message"]["content"] for _ in range(4)] == [*told, told[0]]
            assert [c["message"]["content"] for c in client.create_session().chat(ask, n=2)["choices"]] == told[1:]


def test_shared_turns_keep_their_logprobs(start, source, tmp_path):
    """With train_once a later trajectory has mask 0 and logprob 0 where an earlier one has the sampled ones."""
    with rollgate.Client(source.url) as client:
        s = client.create_session(history="tree")
        first = [{"role": "user", "content": "hi"}]
        first.append({"role": "assistant", "content": s.chat(first)["choices"][0]["message"]["content"]})
        for more in ("a", "b"):
            s.chat([*first, {"role": "user", "content": more}])
        data = s.trajectories(train_once=True, raw=True)
        whole = s.trajectories()
    replay = start(workers=1, engine=record(tmp_path, data))
    with rollgate.Client(replay.url) as client:
        s = client.create_session(history="tree")
        s.chat(first[:1])
        for more in ("a", "b"):
            s.chat([*first, {"role": "user", "content": more}])
        same(whole, s.trajectories())


def edited(data, change):
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


WRONG = {
    "empty": (lambda d: b"", "it holds no answer"),
    "text": (lambda d: b"hello", "session_id is missing"),
    "cut msgpack": (lambda d: b"\x82\xa1a", "msgpack at byte 1: it ends inside a list"),
    "cut JSON": (lambda d: d[:-9], "the record cannot be read: "),
    "no export": (lambda d: b'{"a": 1}', "session_id is missing"),
    "a text capture": (lambda d: edited(d, lambda x: x["trajectories"][0].update(response_ids=None)), "prompt_ids and response_ids are not there"),
    "a short mask": (lambda d: edited(d, lambda x: x["trajectories"][0]["response_mask"].pop()), "response_mask is not as long as response_ids"),
    "a bad id": (lambda d: edited(d, lambda x: x["trajectories"][0]["response_ids"].__setitem__(0, -1)), "has what is no token id"),
    "a turn outside": (lambda d: edited(d, lambda x: x["trajectories"][0]["turns"][0].update(end=10**6)), "a start or an end outside"),
    "pictures": (lambda d: edited(d, lambda x: x["trajectories"][0].update(images=[{}])), "a record with pictures"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_record_is_refused_at_the_start(source, tmp_path, wrong):
    change, words = WRONG[wrong]
    setting = record(tmp_path, change(export(source, agent(source, 1), "json", raw=True)))
    done = subprocess.run([g.BINARY, "config", "--check", "--engine", setting], capture_output=True, text=True)
    assert done.returncode != 0 and words in done.stdout + done.stderr, done.stdout + done.stderr
