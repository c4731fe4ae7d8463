"""The consumer of the Redis sink against a real Redis and a real gateway: each key once, whatever dies between."""
import shutil
import subprocess

import pytest

import gateway as g
import rollgate
from rollgate.redis_sink import Consumer

redis = pytest.importorskip("redis")


@pytest.fixture
def server(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    port = g.free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with redis.Redis(host="127.0.0.1", port=port) as client:    # "localhost" is no name without /etc/hosts
            def answers():
                try:
                    return client.ping()
                except redis.exceptions.RedisError:
                    return False
            g.wait_until(answers, 20, "redis answers")
            yield client, f"redis://127.0.0.1:{port}/0"
            client.connection_pool.disconnect()
    finally:
        process.terminate()
        process.wait(20)


def play(gateway, n, **options):
    """n finalized sessions; their ids."""
    ids = []
    with rollgate.Client(gateway.url) as client:
        for i in range(n):
            sid = client.create_session(**options)["session_id"]
            client.chat(sid, [{"role": "user", "content": f"task {i}"}])
            client.complete(sid, i)
            client.finalize(sid)
            ids.append(sid)
    return ids


def take_all(consumer, n):
    got = []
    while len(got) < n:
        more = consumer.take(4, block_s=10)
        assert more, f"{len(got)} of {n} came"
        got += more
    return got


def test_each_key_once(start, server):
    client, url = server
    gateway = start(engine="builtin:echo", sink=url)
    ids = play(gateway, 6, group="g7", rollout=0, group_size=6)
    first = Consumer(client, "trainer", name="a")
    got = take_all(first, 6)
    assert sorted(e.session_id for e in got) == sorted(ids) and {e.group for e in got} == {"g7"}
    assert sorted(e.trajectory.reward for e in got) == [0, 1, 2, 3, 4, 5] and got[0].trajectories == 1
    assert first.state() == sorted(f"{i}/0" for i in ids) and first.take(9, block_s=0.05) == []

    # the trainer dies after its checkpoint, before commit: the next one trains none of them again
    second = Consumer(client, "trainer", name="b", idle_s=0)
    second.restore(first.state())
    assert second.take(9, block_s=0.05) == [] and client.xlen(second.stream) == 0

    # a gateway that died sends entries again: keys that were committed are known for good
    fields = {b"key": got[0].key.encode(), b"session_id": b"s", b"trajectories": b"1", b"data": b"\x80"}
    client.xadd(second.stream, fields)
    third = Consumer(client, "trainer", name="c")
    assert third.take(9, block_s=0.05) == [] and client.xlen(third.stream) == 0


def test_two_deaths_in_a_row(server):
    """What the first checkpoint has trained and nobody committed is known to all that follow, until a commit remembers it."""
    client, _ = server

    def add(key):
        client.xadd(b"rollgate:trajectories", {b"key": key, b"session_id": b"s", b"trajectories": b"1", b"data": b"\x80"})
    first = Consumer(client, "trainer", name="a")
    add(b"A")
    assert [e.key for e in first.take(9)] == ["A"]
    saved = first.state()           # and it dies

    second = Consumer(client, "trainer", name="b")
    second.restore(saved)           # A's entry stays with the dead for idle_s
    add(b"B")
    assert [e.key for e in second.take(9)] == ["B"]
    saved = second.state()
    assert saved == ["A", "B"]      # and it dies before its commit

    third = Consumer(client, "trainer", name="c")
    third.restore(saved)
    add(b"C")
    assert [e.key for e in third.take(9)] == ["C"] and third.state() == ["A", "B", "C"]
    assert third.commit() == 1 and third.state() == [], "a checkpoint does not carry them for ever"
    saved = third.state()           # and it dies

    fourth = Consumer(client, "trainer", name="d", idle_s=0)
    fourth.restore(saved)
    assert fourth.take(9, block_s=0.05) == [] and client.xlen(fourth.stream) == 0
    assert fourth.commit() == 0


def test_what_cannot_be_read_holds_up_nothing_else(server):
    """It comes again; alone it raises, and then nothing is taken."""
    client, _ = server
    fields = {b"session_id": b"s", b"trajectories": b"1"}
    far = {b"node": b"n", b"file": b"/no/such/file", b"offset": b"0", b"length": b"1"}
    there = []
    consumer = Consumer(client, "trainer", idle_s=0, far=lambda node, file, offset, length: there.pop())
    client.xadd(consumer.stream, {**fields, b"key": b"near/0", b"data": b"\x80"})
    client.xadd(consumer.stream, {**fields, b"key": b"far/0", **far})
    assert [e.key for e in consumer.take(9)] == ["near/0"]
    assert consumer.commit() == 1 and client.xlen(consumer.stream) == 1
    for _ in range(2):
        with pytest.raises(IndexError):
            consumer.take(9)
        assert consumer.state() == [] and consumer.commit() == 0 and client.xlen(consumer.stream) == 1
    there.append(b"\x80")
    assert [e.key for e in consumer.take(9)] == ["far/0"]
    assert consumer.take(9, block_s=0.05) == [], "claimed again, and taken already"
    assert consumer.commit() == 1 and client.xlen(consumer.stream) == 0


def test_what_was_not_trained_comes_to_another(start, server):
    client, url = server
    gateway = start(engine="builtin:echo", sink=url)
    play(gateway, 3)
    dead = Consumer(client, "trainer", name="a")
    keys = {e.key for e in take_all(dead, 3)}
    alive = Consumer(client, "trainer", name="b", idle_s=0)
    assert {e.key for e in alive.take(9)} == keys
    assert alive.commit() == 3 and client.xlen(alive.stream) == 0 and alive.state() == []
    assert dead.drop() == 3


def test_a_key_in_two_entries_is_given_once(server):
    client, _ = server
    consumer = Consumer(client, "trainer")
    fields = {b"key": b"s/0", b"session_id": b"s", b"trajectories": b"1", b"data": b"\x80"}
    for _ in range(2):
        client.xadd(consumer.stream, fields)
    assert [e.key for e in consumer.take(9)] == ["s/0"]
    assert consumer.commit() == 1 and client.xlen(consumer.stream) == 0


def test_large_entries_lie_in_a_file(start, server):
    client, url = server
    gateway = start(engine="builtin:echo", sink=url, sink_inline_max=100)
    (sid,) = play(gateway, 1)
    consumer = Consumer(client, "trainer")
    (entry,) = take_all(consumer, 1)
    assert entry.session_id == sid and entry.trajectory.trained_tokens > 0 and consumer.commit() == 1
