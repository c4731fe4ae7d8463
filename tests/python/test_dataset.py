"""rollgate.dataset: trajectories of files and of the Redis sink, in order or shuffled, from where a checkpoint left off."""
import json
import re
import shutil
import subprocess
import sys

import pytest

import gateway as g
import rollgate
from rollgate import columns
from rollgate.redis_sink import Consumer
from test_redis_sink import play, redis, server  # noqa: F401

numpy = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def episodes(tmp_path_factory):
    """A folder of six sessions as a file sink writes them; session i has reward i."""
    folder = tmp_path_factory.mktemp("episodes")
    gateway = g.Gateway(workers=1, engine="builtin:random:5", sink=f"file:{folder}").start()
    play(gateway, 6)
    g.wait_until(lambda: len(list(folder.glob("*.msgpack"))) == 6, what="six files")
    gateway.stop()
    return folder


def rewards(data):
    return [t.reward for t in data]


def test_files_come_once_an_epoch_in_the_order_of_their_names(episodes):
    data = rollgate.dataset(f"{episodes}/*.msgpack")
    names = [p.stem for p in sorted(episodes.glob("*.msgpack"))]
    assert [t.session_id for t in data] == names == [t.session_id for t in data]
    assert sorted(rewards(data)) == [0, 1, 2, 3, 4, 5] and data.state()["epoch"] == 3
    two = rollgate.dataset([episodes / f"{n}.msgpack" for n in names[:2]], where=lambda t: t.trained_tokens > 0)
    assert [t.session_id for t in two] == names[:2]
    assert rewards(rollgate.dataset(f"{episodes}/*", where=lambda t: t.reward > 3)) in ([4, 5], [5, 4])


def test_a_seed_shuffles_and_each_epoch_differs(episodes):
    def epochs(seed, window=16):
        data = rollgate.dataset(f"{episodes}/*", shuffle=seed, window=window)
        return [rewards(data) for _ in range(3)]
    assert epochs(7) == epochs(7) and epochs(7, 2) == epochs(7, 2)
    seen = [tuple(e) for seed in (7, 8) for e in epochs(seed)]
    assert len(set(seen)) > 3 and {tuple(sorted(e)) for e in seen} == {(0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("options", [{}, {"shuffle": 3, "window": 2}, {"shuffle": 3, "where": lambda t: t.reward != 2}])
def test_a_checkpoint_goes_on_where_it_left(episodes, options):
    whole = rollgate.dataset(f"{episodes}/*", **options)
    want = rewards(whole) + rewards(whole)
    n = len(want) // 2
    for stop in range(n + 1):
        data = rollgate.dataset(f"{episodes}/*", **options)
        walk, got = iter(data), []
        for _ in range(stop):
            got.append(next(walk).reward)
        state = json.loads(json.dumps(data.state()))
        other = rollgate.dataset(f"{episodes}/*", **options).restore(state)
        assert got + rewards(other) + (rewards(other) if stop < n or state["epoch"] == 0 else []) == want, stop


def lengths(bins):
    return [(b["rewards"].tolist(), b["cu_seqlens"].tolist()) for b in bins]


def test_bins_go_on_between_checkpoints(episodes):
    most = max(len(t.ids) for t in rollgate.dataset(f"{episodes}/*"))
    whole = lengths(rollgate.dataset(f"{episodes}/*", shuffle=1).pack(most, chunk=4))
    assert sorted(r for rewards, _ in whole for r in rewards) == [0, 1, 2, 3, 4, 5] and len(whole) > 2
    for stop in range(1, len(whole)):
        data = rollgate.dataset(f"{episodes}/*", shuffle=1)
        walk = data.pack(most, chunk=4)
        got = lengths([next(walk) for _ in range(stop)])
        other = rollgate.dataset(f"{episodes}/*", shuffle=1).restore(data.state())
        assert got + lengths(other.pack(most, chunk=4)) == whole, stop
    data.restore({**data.state(), "bins": 1, "chunk": 4, "max_len": most})
    with pytest.raises(ValueError, match="between bins of pack"):
        next(data.pack(most + 1, chunk=4))
    with pytest.raises(ValueError, match="go on with pack"):
        iter(data)
    batches = list(rollgate.dataset(f"{episodes}/*").pad(4, pad_id=9))
    assert [len(b["rewards"]) for b in batches] == [4, 2] and batches[0]["input_ids"].shape[0] == 4


def test_mistakes_are_named(episodes, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file matches .*nothing"):
        rollgate.dataset(f"{tmp_path}/nothing*")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match="a.txt: a file of trajectories ends in .msgpack, .json, .jsonl"):
        list(rollgate.dataset(tmp_path / "a.txt"))
    (tmp_path / "b.msgpack").write_bytes(b"\x81")
    with pytest.raises(ValueError, match="b.msgpack holds no trajectories: ValueError"):
        list(rollgate.dataset(tmp_path / "b.msgpack"))
    state = rollgate.dataset(f"{episodes}/*", shuffle=1).state()
    with pytest.raises(ValueError, match="shuffle was 1 and is 2"):
        rollgate.dataset(f"{episodes}/*", shuffle=2).restore(state)
    with pytest.raises(ValueError, match="files was 6 and is 1"):
        rollgate.dataset(next(episodes.iterdir()), shuffle=1).restore(state)
    with pytest.raises(ValueError, match="window must be 1 or more"):
        rollgate.dataset(f"{episodes}/*", window=0)
    for batches, name in ((lambda d: d.pad(0), "rows"), (lambda d: d.pack(8, chunk=0), "chunk"), (lambda d: d.pack(0), "max_len")):
        with pytest.raises(ValueError, match=f"{name} must be 1 or more, not 0"):
            next(batches(rollgate.dataset(f"{episodes}/*")))
    with pytest.raises(ValueError, match="window=4 is how many files shuffle= mixes"):
        rollgate.dataset(f"{episodes}/*", window=4)
    with pytest.raises(ValueError, match="wait_s=1 is for a Consumer"):
        rollgate.dataset(f"{episodes}/*", wait_s=1)
    with pytest.raises(FileNotFoundError, match="no file matches .*/typo"):
        rollgate.dataset([f"{episodes}/*", f"{episodes}/typo*"])


def test_a_broken_line_is_named_and_those_before_it_come(episodes, tmp_path):
    """Lines are read one at a time: the first come before the last is looked at."""
    path = tmp_path / "all.jsonl"
    assert rollgate.dataset(f"{episodes}/*").write_jsonl(str(path)) == 6
    whole = path.read_bytes()
    at = whole[:-1].rindex(b"\n") + 1
    for broken, why in ((whole[at:-9], "JSONDecodeError"), (b"[1]", "AttributeError"), (b"[" * 100000, "RecursionError")):
        path.write_bytes(whole[:at] + broken)
        walk = iter(rollgate.dataset(path))
        assert len([next(walk) for _ in range(5)]) == 5
        with pytest.raises(ValueError, match=f"all.jsonl holds no trajectories: .*line 6, at byte {at}: {why}"):
            next(walk)


def test_what_a_failure_had_read_is_given_again(episodes):
    """A trainer that saves its position after an error, or after Ctrl-C, loses nothing."""
    want = rewards(rollgate.dataset(f"{episodes}/*"))
    for use in (lambda d: list(d), lambda d: list(d.pad(4)), lambda d: list(d.pack(1 << 20, chunk=4))):
        calls = []

        def where(t):
            calls.append(t)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return True
        data, given = rollgate.dataset(f"{episodes}/*", where=where), []
        with pytest.raises(KeyboardInterrupt):
            given = use(data)
        state = data.state()
        first = state["done"] + state["shard"]
        assert given + rewards(rollgate.dataset(f"{episodes}/*").restore(state)) == want[first:] and first == (2 if use(
            rollgate.dataset(f"{episodes}/*"))[0].__class__ is rollgate.Trajectory else 0)


def test_a_state_is_of_the_files_that_it_counted(episodes, tmp_path):
    path = tmp_path / "all.jsonl"
    rollgate.dataset(f"{episodes}/*").write_jsonl(str(path))
    state = rollgate.dataset(path).state()
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(ValueError, match="digest was"):
        rollgate.dataset(path).restore(state)


def test_a_file_is_whole_or_not_there(episodes, tmp_path):
    (tmp_path / "x.jsonl").write_text("old")
    with pytest.raises(ZeroDivisionError):
        rollgate.dataset(f"{episodes}/*", where=lambda t: 1 / (t.reward - 3)).write_jsonl(f"{tmp_path}/x.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["x.jsonl"] and (tmp_path / "x.jsonl").read_text() == "old"


def same(a, b):
    for x, y in zip(a, b, strict=True):
        assert not rollgate.diff(x, y, tolerance=0) and x.session_id == y.session_id and x.turns == y.turns, rollgate.diff(x, y)


def test_json_lines_are_read_back(episodes, tmp_path, start):
    data = rollgate.dataset(f"{episodes}/*")
    assert data.write_jsonl(f"{tmp_path}/all.jsonl") == 6
    same(rollgate.dataset(f"{episodes}/*"), rollgate.dataset(tmp_path / "all.jsonl"))
    gateway = start(workers=1, engine="builtin:random:5", durability="process")
    play(gateway, 2)
    with rollgate.Client(gateway.url) as client:
        for row in client.list_sessions()["sessions"]:
            (tmp_path / f"{row['session_id']}.json").write_bytes(client.trajectories(row["session_id"], format="json", raw=True))
    gateway.stop()
    done = subprocess.run([g.BINARY, "export", f"{gateway.folder}/state/worker-0", "--to", "jsonl"], capture_output=True, check=True)
    (tmp_path / "two.jsonl").write_bytes(b"".join(sorted(done.stdout.splitlines(keepends=True))))
    same(rollgate.dataset(tmp_path / "two.jsonl"), rollgate.dataset(f"{tmp_path}/*.json"))


def test_an_evaluation_is_left_out_with_a_word(start, tmp_path, caplog):
    gateway = start(workers=1, engine="builtin:echo")
    with rollgate.Client(gateway.url) as client:
        for evaluation in (False, True):
            with client.create_session(evaluation=evaluation) as s:
                s.chat([{"role": "user", "content": "hi"}])
            for format in ("json", "msgpack"):
                (tmp_path / f"{evaluation}.{format}").write_bytes(client.finalize(s.id, format, raw=True))
        given = list(rollgate.dataset(f"{tmp_path}/*"))
    assert len(given) == 2 and s.id not in {t.session_id for t in given}
    assert f"{tmp_path}/True.json is of an evaluation: left out" in caplog.text and f"{tmp_path}/True.msgpack is of" in caplog.text


def asked_for():
    """A trajectory with arrays that its session asked for."""
    return rollgate.Trajectory({"prompt_ids": [1], "response_ids": [2, 3], "response_mask": [1, 1], "response_logprobs": None, "response_versions": ["a", "b"],
                                "teacher_logprobs": memoryview(numpy.array([0, 1, 2], "f4")), "teacher_logprobs_shape": [3],
                                "routed_experts": memoryview(bytes([1, 2])), "routed_experts_shape": [2, 1, 1], "routed_experts_dtype": "uint8"},
                               session_id="s")


def test_arrays_that_a_session_asked_for_keep_their_types_in_lines(tmp_path):
    t = asked_for()
    assert columns.write_jsonl(f"{tmp_path}/x.jsonl", [t]) == 1
    (back,) = rollgate.dataset(f"{tmp_path}/x.jsonl")
    assert back.array("teacher_logprobs").tolist() == [0, 1, 2] and back.array("teacher_logprobs").dtype == "f4"
    assert back.routed_experts.tolist() == t.routed_experts.tolist() and back.session_id == "s"
    row, again = columns.rows_of([t, back])
    assert row == again and (row["routed_experts"], row["routed_experts_shape"], row["routed_experts_dtype"]) == (b"\x01\x02", [2, 1, 1], "uint8")
    assert numpy.frombuffer(row["teacher_logprobs"], row["teacher_logprobs_dtype"]).tolist() == [0, 1, 2] and row["indexer_topk"] is None
    with pytest.raises(ValueError, match="critic_values of session s: .* no column"):
        list(columns.rows_of([rollgate.Trajectory({**t, "critic_values": b"1"}, session_id="s")]))


def test_every_array_of_an_export_has_a_column():
    """docs/trajectories.md, section 1: the rows whose type in msgpack is an array's."""
    rows = [line.split("|") for line in (g.ROOT / "docs/trajectories.md").read_text().split("## 2.")[0].split("\n") if line.startswith("| `")]
    arrays = {name for row in rows if len(row) == 6 and re.search("ext [123]|^ bin", row[3]) for name in re.findall("`([a-z_]+)`", row[1])}
    assert len(arrays) == 20 and arrays == {*columns.ARRAYS, *columns.PLAIN}


def test_parquet_and_arrow_or_what_they_need(episodes, tmp_path):
    """No Debian before forky has pyarrow: where it is absent the error names the extra. Where it is, npm's hyparquet reads the file."""
    columns.write_jsonl(f"{tmp_path}/x.jsonl", [*rollgate.dataset(f"{episodes}/*"), asked_for()])
    rows = list(columns.rows_of(rollgate.dataset(f"{tmp_path}/x.jsonl")))
    assert [r["reward"] for r in rows] == [*rewards(rollgate.dataset(f"{episodes}/*")), None] and set(rows[0]) == set(columns.COLUMNS)
    assert json.loads(rows[0]["messages"])[0]["role"] == "user" and rows[0]["response_ids"] and rows[0]["num_turns"] == 1
    write_arrow, write_parquet = (getattr(rollgate.dataset(f"{tmp_path}/x.jsonl"), f"write_{kind}") for kind in ("arrow", "parquet"))
    try:
        import pyarrow
    except ImportError:
        for write in (write_arrow, write_parquet):
            with pytest.raises(ImportError, match=r"need pyarrow: install rollgate\[arrow\]"):
                write(f"{tmp_path}/x")
        return
    assert write_arrow(f"{tmp_path}/x.arrow") == write_parquet(f"{tmp_path}/x.parquet", rows=4) == 7
    with pyarrow.ipc.open_file(f"{tmp_path}/x.arrow") as f:
        assert f.read_all().to_pylist() == rows
    done = subprocess.run(["node", g.ROOT / "tests/python/readers/rows.mjs", f"{tmp_path}/x.parquet"], check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(done.stdout) == [{k: list(v) if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]


class Table:
    """What pyarrow gets: its calls, by the names that it has."""

    def __init__(self):
        self.rows, self.schema = [], None

    def module(self):
        import types
        log = self

        class Writer:
            def __init__(self, path, schema):
                log.path, log.schema = path, schema
                open(path, "w", encoding="utf-8").close()

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def write_table(self, table):
                log.rows.append(table)
        names = {name: (lambda name=name: name) for name in ("string", "int32", "uint8", "float32", "float64", "binary")}
        made = types.ModuleType("pyarrow")
        made.__dict__.update(names, list_=lambda kind: f"list<{kind}>", schema=dict, ipc=types.SimpleNamespace(new_file=Writer),
                             Table=types.SimpleNamespace(from_pylist=lambda rows, schema: rows))
        made.parquet = types.ModuleType("pyarrow.parquet")
        made.parquet.ParquetWriter = Writer
        return made


def test_what_pyarrow_is_asked_for(episodes, monkeypatch, tmp_path):
    """Its calls alone, where it cannot be had."""
    table = Table()
    monkeypatch.setitem(sys.modules, "pyarrow", table.module())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", sys.modules["pyarrow"].parquet)
    for write in (rollgate.dataset(f"{episodes}/*").write_parquet, rollgate.dataset(f"{episodes}/*").write_arrow):
        assert write(f"{tmp_path}/x", rows=4) == 6
    assert [len(rows) for rows in table.rows] == [4, 2, 4, 2]
    assert table.schema["response_ids"] == "list<int32>" and table.schema["messages"] == "string" and list(table.schema) == list(columns.COLUMNS)


def test_the_redis_sink_is_a_stream(start, server):  # noqa: F811
    client, url = server
    gateway = start(engine="builtin:echo", sink=url)
    play(gateway, 6)
    consumer = Consumer(client, "trainer", name="a")
    g.wait_until(lambda: client.xlen(consumer.stream) == 6, what="the sink delivers all")
    data = rollgate.dataset(consumer, where=lambda t: t.reward != 1, wait_s=5)
    walk = iter(data)
    got = [next(walk).reward for _ in range(3)]
    state = data.state()
    assert len(state) >= 3 and data.commit() == len(state) and client.xlen(consumer.stream) == 6 - len(state)
    got += [b["rewards"].tolist()[0] for b in data.pad(1)]
    assert sorted(got) == [0, 2, 3, 4, 5]
    # the trainer dies after its checkpoint, before commit
    state = data.state()
    other = rollgate.dataset(Consumer(client, "trainer", name="b", idle_s=0), wait_s=0.05).restore(state)
    assert list(other) == [] and client.xlen(consumer.stream) == 0
    with pytest.raises(ValueError, match="cannot be shuffled"):
        rollgate.dataset(consumer, shuffle=1)


def test_bins_of_a_stream_commit_what_they_hold(start, server):  # noqa: F811
    client, url = server
    gateway = start(engine="builtin:echo", sink=url)
    play(gateway, 4)
    data = rollgate.dataset(Consumer(client, "trainer"), wait_s=5)
    walk = data.pack(40, chunk=4)
    first = next(walk)
    assert len(first["rewards"]) < 4 and data.commit() == len(first["rewards"]) and client.xlen("rollgate:trajectories") == 4 - len(first["rewards"])
    assert sum(len(b["rewards"]) for b in walk) == 4 - len(first["rewards"])


class Entries:
    """A consumer of a list, for what a StreamDataset does with entries."""

    def __init__(self, trajectories):
        self.waiting = [type("Entry", (), {"key": f"s/{i}", "trajectory": t}) for i, t in enumerate(trajectories)]

    def take(self, n, block_s):
        out, self.waiting = self.waiting[:n], self.waiting[n:]
        return out


def test_a_loop_that_is_left_loses_nothing_of_a_stream(episodes):
    from rollgate.datasets import StreamDataset
    all_ = list(rollgate.dataset(f"{episodes}/*"))
    most = max(len(t.ids) for t in all_)
    data = StreamDataset(Entries(all_), None, 1)
    given = []
    for one in data.pack(most, chunk=4):
        given += one["rewards"].tolist()
        break
    assert sorted(data._given) == sorted(f"s/{i}" for i in range(6) if all_[i].reward in given)
    for one in data.pack(most, chunk=4):
        given += one["rewards"].tolist()
    assert sorted(given) == [0, 1, 2, 3, 4, 5] and len(data._given) == 6
    for fail in (lambda d: list(d.pad(4, max_len=1)), lambda d: list(d.pack(1))):
        data = StreamDataset(Entries(all_), None, 1)
        with pytest.raises(ValueError, match="more than max_len 1"):
            fail(data)
        assert not data._given and [t.reward for t in data] == [t.reward for t in all_]
    with pytest.raises(ValueError, match="rows must be 1 or more"):
        next(data.pad(0))
