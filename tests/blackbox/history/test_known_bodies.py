"""The start of a session's request is known (--known-bodies-memory), and only new bytes of the next request are read.
Two gateways get the same bytes; one of them reads every body from the start. Answers, errors, records and exports are
the same."""
import json
import random
import re
import signal
import threading

import pytest

import gateway as g
import vision_kit as kit
from stub_engines import StubEngine
from test_export_cases import said, user

KNOWS = {"known_bodies_least": 1}
WHOLE = {"known_bodies_memory": 0}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
LISTS = {"chat": "messages", "messages": "messages", "responses": "input"}
TOOL = {"chat": {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}},
        "messages": {"name": "ls", "input_schema": {"type": "object"}},
        "responses": {"type": "function", "name": "ls", "parameters": {"type": "object"}}}
WORDS = ["plain text",
         "a \"quoted\" word", "line\nline", "tab\t", "back\\slash", "é", "😀", "\u2028", "", "/", "x" * 300, "\u0007",
         "</think>"]


@pytest.fixture
def pair(start):
    """pair(...) -> the gateway that knows and the one that does not, over the same engine."""
    def make(**settings):
        settings = {"engine": "builtin:echo", "workers": 1, "audit_every": 1, **settings}
        return [start(**settings, **KNOWS), start(**settings, **WHOLE)]
    return make


class Twin:
    """A session on both gateways."""

    def __init__(self, pair, **options):
        self.pair, self.ids = pair, []
        for gateway in pair:
            a = gateway.post("/sessions", options)
            assert a.status == 200, a.text
            self.ids.append(a.json()["session_id"])

    def both(self, method, path, body=None, **more):
        """The answers, without what differs from one gateway to the other by chance."""
        got = [gateway.request(method, f"/sessions/{id}{path}", body, **more) for gateway, id in zip(self.pair, self.ids)]
        one, two = [f"{a.status} " + told(a.text.replace(id, "SESSION")) for a, id in zip(got, self.ids)]
        at = next((i for i, (x, y) in enumerate(zip(one, two)) if x != y), 0)
        assert one == two, (path, body and body[-300:], one[max(at - 300, 0):at + 200], two[max(at - 300, 0):at + 200])
        return got

    def call(self, dialect, body, headers=None):
        return self.both("POST", PATHS[dialect], body if isinstance(body, bytes) else body.encode(),
                         headers={"Content-Type": "application/json", **(headers or {})})

    def end(self):
        self.both("GET", "?records=1")
        self.both("GET", "/trajectories?select=leaves&pick=all&train_once=off")
        self.both("POST", "/finalize", b"{}")


def told(text):
    text = re.sub(r"[0-9a-f]{24,32}", "ID", text)
    text = re.sub(r"call_[0-9A-Za-z]+", "CALL", text)
    times = r"timestamp|run|start|queue|engine|gateway|tools|scoring|created|\w*_ms|\w*_us|\w*_at|\w*seconds"
    return re.sub(rf'"({times})": ?[0-9.]+', r'"\1":0', text)


def known_bytes(gateway):
    return sum(v for k, v in gateway.metrics().items() if "request_memory_bytes" in k and 'kind="known"' in k)


def check_known(gateways):
    """One has made use of what it knew, the other has not."""
    used = "rollgate_known_body_bytes_total"
    g.wait_until(lambda: gateways[0].metrics().get(used, 0) > 0, what="bytes of bodies were known")
    assert gateways[1].metrics().get(used, 0) == 0 and known_bytes(gateways[1]) == 0


# --- texts ---

def dumped(rng, value):
    """JSON of the value, in one of the ways that clients write it."""
    return json.dumps(value, ensure_ascii=rng.random() < .5, separators=rng.choice([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))


def item(rng, dialect, role):
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))
    if dialect == "responses" and rng.random() < .5:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    if rng.random() < .3:
        return {"content": [{"type": "text", "text": text}, {"type": "text", "text": "more"}], "role": role}
    return {"role": role, "content": text or "."}


def members(rng, dialect):
    """What stands around the list, by name."""
    out = {"model": "m"}
    if dialect == "messages":
        out["max_tokens"] = 50
        out["system"] = "You are \"it\"."
    if rng.random() < .7:
        out["tools"] = [TOOL[dialect]]
    if rng.random() < .3:
        out["temperature"] = rng.choice([0.5, 1, 1.0])
    if rng.random() < .2:
        out["no_such_field"] = {"a": [1, {}]}
    if rng.random() < .3:
        out["stream"] = False
    return out


def spelled(rng, dialect, texts, around, order):
    """A body: the list's items are given as text, the other members stand around it in this order."""
    parts = [f'{json.dumps(k)}: {json.dumps(around[k])}' for k in order if k in around]
    cut = min(len(parts), order.index("LIST"))
    listed = f'"{LISTS[dialect]}": [{",".join(texts)}]'
    return "{" + ", ".join(parts[:cut] + [listed] + parts[cut:]) + "}"


def hurt(rng, body):
    """The body with one fault, or another form, somewhere behind its beginning."""
    at = rng.randrange(len(body) // 3, len(body))
    return rng.choice([
        body[:at],
        body[:at] + b"\xff" + body[at:],
        body[:at] + b"\\u12" + body[at:],
        body[:at] + b"]" + body[at:],
        body[:at] + b"0" + body[at + 1:],
        body + b" {}",
        body[:-1] + b', "messages": [{"role": "user", "content": "another list"}]}',
        body[:-1] + b', "input": "another text"}',
        body[:-1] + b', "messages": 3}',
        body[:-1] + b', "model": "n", "model": "k"}',
        body[:-1] + b', "temperature": "hot"}',
        body[:-1] + b', "n": 2}',
        body.replace(b"messages", b"mess\\u0061ges", 1),
        b"\n" + body,
    ])


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("round_of", range(2))
def test_random_sessions_are_the_same(pair, dialect, round_of):
    seed = random.randrange(10**9)
    print("seed", seed, round_of)
    rng = random.Random(seed)
    gateways = pair()
    for _ in range(2):
        twin, texts, around = Twin(gateways, history=rng.choice(["tree", "timelines"])), [], members(rng, dialect)
        order = [*around, "LIST"]
        rng.shuffle(order)
        for _ in range(12):
            kind = rng.random()
            if kind < .15 and len(texts) > 2:       # an older place, or the last message in other words
                texts = texts[:rng.randrange(1, len(texts))]
            elif kind < .25:
                around = members(rng, dialect)
            texts.append(dumped(rng, item(rng, dialect, "user" if len(texts) % 2 == 0 else "assistant")))
            body = spelled(rng, dialect, texts, around, order).encode()
            if rng.random() < .4:
                twin.call(dialect, hurt(rng, body))
            answer = twin.call(dialect, body)[0]
            if answer.status == 200 and dialect == "chat":
                texts.append(dumped(rng, answer.json()["choices"][0]["message"]))
        twin.end()
    check_known(gateways)


def chat(messages, before="", behind=', "model": "m"'):
    return "{" + before + '"messages": [' + ", ".join(json.dumps(m) for m in messages) + "]" + behind + "}"


def test_boundaries_that_look_alike(pair):
    """The next body begins with the same bytes and means something else from there on."""
    twin = Twin(pair())
    first = chat([user("a"), said("b"), user("c")])
    twin.call("chat", first)
    end = first.index("]")
    for rest in (', {"role": "user", "content": "more"}], "model": "m"}',       # goes on
                 ' , {"role": "user", "content": "m\\u006fre"} ] , "model" : "m" }',
                 '], "model": "m", "messages": [{"role": "user", "content": "another list"}]}',
                 '], "model": "m", "messages": []}', '], "model": "m", "messages": null}',
                 ', 1], "model": "m"}', ', {}], "model": "m"}', ',], "model": "m"}', ', {"role": "user"',
                 ', {"role": "user", "content": "\\ud8',
                 '], "model": "m"} x', ']', '] "model": "m"}', '}, "model": "m"}', '', '1], "model": "m"}',
                 ', {"role": "user", "content": "\\x"}]}',
                 '], "n": 0}', '], "tools": 3}', '], "model": "m", "stream": true, "stream_options": {"include_usage": true}}',
                 ', {"role": "who", "content": "x"}], "model": "m"}', ', {"role": "user", "content": ' + "[" * 600):
        twin.call("chat", first[:end] + rest)
        twin.call("chat", first)
    for at in range(1, end, 7):     # one byte is another one, anywhere in what is known
        twin.call("chat", (first[:at] + chr(ord(first[at]) ^ 1) + first[at + 1:]).encode())
    twin.end()
    check_known(twin.pair)


def test_members_before_the_list_are_obeyed(pair):
    """They are known with it: another one there makes another request, and a repeated one is found again."""
    twin = Twin(pair(), idempotent_retry=True)
    turns = [user("one"), said("two"), user("three")]
    for before in ('"stream": false, ', '"temperature": 0.25, ', '"tools": [], ', '"n": 2, ', '"messages": [], ',
                   '"max_tokens": 3, "max_tokens": 4, '):
        for n in (1, 3, 3):
            twin.call("chat", chat(turns[:n], before=before), headers={"x-stainless-retry-count": "1"} if n == 3 else None)
    twin.end()


def test_a_retry_without_the_stream_is_the_same_call(pair):
    """The hash of a body leaves `stream` out wherever it stands, also where it was known already."""
    twin = Twin(pair())
    turns = [user("one"), said("two"), user("three")]
    twin.call("chat", chat(turns[:1], before='"stream": true, '))
    twin.call("chat", chat(turns, before='"stream": true, '))
    again = twin.call("chat", chat(turns, before='"stream": false, '), headers={"x-stainless-retry-count": "1"})
    assert all(a.status == 200 for a in again)
    twin.end()


def test_limits_are_the_same(pair):
    """Reading takes of its budgets what reading the whole takes."""
    twin = Twin(pair(max_messages=12, max_request_memory="1MiB", max_request_growth=8))
    turns = [user("x" * 100)]
    for n in range(14):
        turns += [said("y" * n), user("z\\n" * n)]
        twin.call("chat", chat(turns))
    twin = Twin(twin.pair)
    turns = [user("first"), said("\n" * 60000), user("second")]
    for n in range(6):     # over the megabyte at some time
        turns += [said("\t" * 50000), user(f"turn {n}")]
        twin.call("chat", chat(turns[-9:]))
        twin.call("chat", chat(turns[:9] + [user("last")], behind=f', "no_such": {json.dumps([[n]] * (2500 * n))}'))
    twin.end()
    check_known(twin.pair)


def test_long_bodies_by_pieces_and_agents_in_turn(pair):
    """Bodies that a helper reads; two agents share a session and its first messages."""
    twin = Twin(pair(helpers=2))
    shared = [{"role": "system", "content": "s\n" * 30000}]
    agents = [[user("go"), said(f"agent {a} " + "w" * 90000), user("on")] for a in range(2)]
    for n in range(3):
        for turns in agents:
            answer = twin.call("chat", chat(shared + turns))[0]
            turns += [answer.json()["choices"][0]["message"], user(f"turn {n} \"é\"")]
    twin.end()
    check_known(twin.pair)


def test_a_long_body_of_which_little_is_new_is_read_on_the_spot(start):
    """A helper is there for long work: comparing is none. Without what is known, or with much that is new, it reads."""
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    turns = [user("w " * 150000), said("so"), user("on")]

    def helped(turns):
        before = gateway.metrics()["rollgate_helper_work_seconds_count"]
        answer = gateway.chat(session, turns)
        assert answer.status == 200, answer.text
        turns += [answer.json()["choices"][0]["message"], user("more")]
        return gateway.metrics()["rollgate_helper_work_seconds_count"] - before

    assert helped(turns) > 0
    assert helped(turns) == 0
    turns[-1:] = [user("x " * 150000), said("so"), user("on")]
    assert helped(turns) > 0
    assert helped(turns) == 0
    assert helped([user("v " * 150000), said("so"), user("on")]) > 0


def helper_works(gateway):
    return gateway.metrics()["rollgate_helper_work_seconds_count"]


def test_a_long_body_of_a_model_that_sees(pair, tmp_path):
    """Its pictures are lifted out of what is new of it; texts that only look like some are none. A turn of texts is read as where
    the model sees nothing."""
    gateways = pair(model=kit.model_folder(tmp_path / "m"), audit_every=1000, context_length=4000000)
    twin, small, large, blob = Twin(gateways), kit.png(64, 64), kit.big(40), kit.b64(bytes(range(256)) * 56)
    turns = [user("w " * 150000), said("so")]
    picture = {"type": "image_url", "image_url": {"url": kit.url(large)}}
    news = ["text", "more", blob, f'"data":"{blob}"', [kit.text("see"), kit.image(small)], "text", "data:image/png;base64," + blob, "text",
            [picture, kit.text("and")], "text", [picture], [kit.text("x " * 150000)], "text"]
    helped = []
    for new in news:
        turns.append({"role": "user", "content": new})
        before = helper_works(gateways[0])
        answer = twin.call("chat", chat(turns))[0]
        assert answer.status == 200, (new[:50], answer.text)
        turns.append(answer.json()["choices"][0]["message"])
        helped.append(helper_works(gateways[0]) - before)
    # of the two long texts that are no pictures, a helper makes the engine's echo, and does nothing else
    assert helped[0] > 0 and helped[1:4] == [0, 1, 1] and all(helped[4:]), helped
    broken = kit.image(large[:-9])
    for bad in (broken, {"type": "image_url", "image_url": {"url": kit.url(large)[:-8] + "@@@@@@@@"}}):
        assert twin.call("chat", chat(turns + [{"role": "user", "content": [bad]}]))[0].status == 400
    twin.end()
    check_known(gateways)
    other = Twin(gateways)
    turns = [user("w " * 150000), said("so"), user("on")]
    for n in range(3):
        before = helper_works(gateways[0])
        answer = other.call("messages", json.dumps({"max_tokens": 9, "messages": turns}))[0].json()
        assert (helper_works(gateways[0]) > before) == (n == 0)
        turns += [{"role": "assistant", "content": answer["content"]}, user(f"turn {n}")]
    other.end()


def test_nothing_of_it_outlives_a_session_in_memory(pair):
    """Sessions leave memory and workers die between turns: what is known was bytes only."""
    gateways = pair(max_worker_memory="4MiB")
    twins = [Twin(gateways) for _ in range(4)]
    turns = {t: [user("go"), said("w " * 150000), user("on")] for t in twins}
    for n in range(2):
        for t in twins:
            answer = t.call("chat", chat(turns[t]))[0]
            turns[t] += [answer.json()["choices"][0]["message"], user(f"more {n}")]
    for gateway in gateways:
        assert gateway.stop() == 0
        gateway.start()
    for t in twins:
        t.call("chat", chat(turns[t]))
        t.end()


def test_what_is_held_stays_below_its_limit(start):
    gateway = start(engine="builtin:echo", workers=1, known_bodies_memory="1MiB", known_bodies_least=1)
    sessions = [gateway.post("/sessions", {}).json() for _ in range(8)]
    for n in range(3):
        for s in sessions:
            assert gateway.chat(s, [user("go"), said("w " * 40000 + "é" * n), user("on")]).status == 200
    g.wait_until(lambda: known_bytes(gateway) > 0, what="something is known")
    assert known_bytes(gateway) <= 2 << 20


def taught(gateway):
    """A session of which something is known."""
    session = gateway.post("/sessions", {}).json()
    assert gateway.chat(session, [user("go"), said("w " * 20000), user("on")]).status == 200
    g.wait_until(lambda: known_bytes(gateway) > 0, what="something is known")
    return session


def test_short_bodies_are_not_kept(start):
    """To read one again costs less than its memory."""
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    for words in 6000, 10000:
        for n in range(3):
            assert gateway.chat(session, [user("go"), said("w " * words), user(f"on {n}")]).status == 200
    used = "rollgate_known_body_bytes_total"
    g.wait_until(lambda: gateway.metrics().get(used, 0) > 0, what="bytes of bodies were known")
    assert gateway.metrics()[used] < 3 * 20000, "two of the long bodies were known, and no others"


@pytest.mark.parametrize("end", ["finalize", "abort", "delete"])
def test_an_ended_session_leaves_its_room_to_others(start, end):
    gateway = start(engine="builtin:echo", workers=1)
    path = f"/sessions/{taught(gateway)['session_id']}"
    a = gateway.request("DELETE", path) if end == "delete" else gateway.post(f"{path}/{end}", {})
    assert a.status < 300, a.text
    g.wait_until(lambda: known_bytes(gateway) == 0, what="nothing is known any more")


def test_a_reload_that_takes_the_room_away_is_obeyed_at_once(start, tmp_path):
    """Not with the next request of whoever it is: there may be none."""
    path = tmp_path / "rollgate.yaml"
    path.write_text("")
    gateway = start(engine="builtin:echo", workers=1, config=path)
    session = taught(gateway)
    path.write_text("known-bodies-memory: 0\n")
    gateway.signal(signal.SIGHUP)
    gateway.wait_line("configuration reloaded")
    g.wait_until(lambda: known_bytes(gateway) == 0, what="nothing is known any more")
    assert gateway.chat(session, [user("go"), said("w " * 20000), user("on")]).status == 200
    assert known_bytes(gateway) == 0


def test_a_long_answer_does_not_hold_what_its_request_did_not_begin_with(start, tmp_path):
    """Its reading had a look at what the session's other agent said; that may go while the engine answers."""
    path = tmp_path / "rollgate.yaml"
    path.write_text("")
    done = {"ids": list(b"ok") + [257], "matched": 257}
    with StubEngine() as engine:
        gateway = start(engine=engine.setting, workers=1, config=path)
        engine.plan.append(done)
        session = taught(gateway)
        go, answers = threading.Event(), []
        engine.plan.append({**done, "wait": go})
        other = [user("another agent"), said("v " * 20000), user("on")]
        thread = threading.Thread(target=lambda: answers.append(gateway.chat(session, other)))
        thread.start()
        g.wait_until(lambda: engine.running == 1, what="the engine is asked")
        path.write_text("known-bodies-memory: 0\n")
        gateway.signal(signal.SIGHUP)
        gateway.wait_line("configuration reloaded")
        try:
            g.wait_until(lambda: known_bytes(gateway) == 0, what="nothing is known any more")
        finally:
            go.set()
            thread.join()
        assert answers[0].status == 200
