"""The store of a fleet by its eight functions: rules of claims, epochs and logs, on real servers and on the file
store that is their measure. Then servers that are emptied, fail over, are full, or do not answer."""
import os
import random
import signal
import socket
import threading

import pytest
import redis

import gateway as g
from store_kit import KINDS, Driver, Proxy, Server, TlsServer

DISPATCHER = 0xffffffff      # its place


@pytest.fixture(params=KINDS + ["file"])
def store(request, tmp_path):
    """An empty store of each kind: its URL."""
    if request.param == "file":
        yield f"file:{tmp_path}/store"
        return
    with Server(tmp_path / "server", kind=request.param) as server:
        yield server.url()


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "server", "--enable-debug-command", "yes") as s:
        yield s


def refusals(answer):
    """{number of the record: (verdict, next)}."""
    assert answer["verdict"] == "done", answer
    return {i: (verdict, following) for i, verdict, following, _ in answer["refused"]}


def test_only_the_node_of_the_block_makes_a_first_entry(store):
    with Driver(store) as d:
        assert d.claim(7, "a")["verdict"] == "unknown"
        d.put("block:0", "a", 1)
        assert d.claim(7, "b")["verdict"] == "unknown"
        assert d.claim(7, "a", block=1)["verdict"] == "unknown"
        assert d.claim(7, "a", beat=3)["verdict"] == "alive"
        a = d.claim(7, "a")
        assert (a["verdict"], a["owner"], a["whole"]) == ("done", "a", True)
        assert a["epoch"] > 1_700_000_000_000 and a["base"] == a["epoch"]
        assert refusals(d.append(7, a["epoch"], ["s", 0, 0, "r0"])) == {}
        b = d.claim(7, "b", known=2)        # it had the place before the store was replaced
        assert (b["verdict"], b["base"], b["whole"], b["n_logs"]) == ("done", b["epoch"] - 1, False, 1)
        assert b["base"] > a["base"]
        assert d.renew("a", [7, a["epoch"], True])["refused"] == [[0, "fenced", 0, b["base"]]]


def test_a_beat_keeps_others_from_claiming(store):
    with Driver(store) as a, Driver(store) as b:
        epoch = a.begin(7, "a")
        first = b.claim(7, "b")
        assert (first["verdict"], first["owner"], first["epoch"]) == ("alive", "a", epoch)
        assert a.renew("a", [7, epoch, False])["refused"] == []
        assert b.claim(7, "b", beat=first["beat"])["verdict"] == "alive"
        second = b.claim(7, "b", beat=first["beat"] + 1)
        assert second["verdict"] == "done" and second["epoch"] > epoch
        # a third node saw the same beat: too late
        assert a.claim(7, "c", beat=first["beat"] + 1)["verdict"] == "alive"
        # a claim whose answer was lost is repeated with the beat that the refusal returns
        assert b.claim(7, "b", beat=second["beat"])["verdict"] == "done"


def test_a_former_owner_records_nothing(store):
    with Driver(store) as a, Driver(store) as b:
        old = a.begin(7, "a")
        assert refusals(a.append(7, old, ["s", 0, 0, "one"])) == {}
        beat = b.claim(7, "b")["beat"]
        new = b.claim(7, "b", beat=beat)["epoch"]
        for answer in (a.append(7, old, ["s", 0, 1, "two"]), a.append(7, 0, ["s", 0, 1, "two"]), a.drop(7, old, "s"),
                       a.release(7, old)):
            assert (answer["verdict"], answer["base"]) == ("fenced", new) and not answer["refused"]
        assert a.renew("a", [7, old, True])["refused"] == [[0, "fenced", 0, new]]
        assert b.read(7, "s")["texts"] == ["one"]
        assert refusals(b.append(7, new, ["s", 0, 1, "two b"])) == {}
        assert b.read(7, "s")["texts"] == ["one", "two b"]


def test_records_follow_each_other(store):
    with Driver(store) as d:
        e = d.begin(7, "a")
        assert refusals(d.append(7, e, ["s", 0, 0, "r0"], ["s", 0, 1, "r1"], ["t", 5, 5, "t5"])) == {}
        # the same again is accepted, a hole is not, and what follows a refusal is refused
        got = refusals(d.append(7, e, ["s", 0, 1, "r1"], ["s", 0, 3, "r3"], ["s", 0, 2, "r2"], ["t", 5, 6, "t6"], ["u", 0, 2, "u2"]))
        assert got == {1: ("short", 2), 2: ("short", 2), 4: ("short", 0)}
        assert refusals(d.append(7, e, ["s", 0, 0, "other"], ["s", 0, 2, "r2"])) == {0: ("conflict", 2), 1: ("conflict", 2)}
        assert refusals(d.append(7, e, ["s", 0, 2, "r2"])) == {}
        assert d.lengths(7) == {"s": [0, 3], "t": [5, 7]} and d.lengths(8) == {}
        s, t = d.read(7, "s"), d.read(7, "t", 6)
        assert (s["first"], s["next"], s["texts"]) == (0, 3, ["r0", "r1", "r2"])
        assert (t["first"], t["next"], t["texts"]) == (6, 7, ["t6"])
        assert d.read(7, "s", 9)["texts"] == [] and d.read(7, "none")["next"] == 0


def test_a_dropped_log_is_gone_or_keeps_its_last_record(store):
    with Driver(store) as d:
        e = d.begin(7, "a")
        d.append(7, e, *[["s", 0, n, f"r{n}"] for n in range(4)], ["t", 0, 0, "t0"])
        assert d.drop(7, e, "s", keep=True)["verdict"] == "done"
        assert d.drop(7, e, "s", keep=True)["verdict"] == "done"
        assert d.drop(7, e, "none", keep=True)["verdict"] == "done"
        s = d.read(7, "s")
        assert (s["first"], s["next"], s["texts"]) == (3, 4, ["r3"])
        # a late repetition of what was dropped is refused: nobody can say whether it is the same
        assert refusals(d.append(7, e, ["s", 0, 1, "r1"], ["s", 0, 4, "r4"])) == {0: ("conflict", 4), 1: ("conflict", 4)}
        assert refusals(d.append(7, e, ["s", 0, 4, "r4"])) == {}
        assert d.read(7, "s")["texts"] == ["r3", "r4"]
        assert d.drop(7, e, "t")["verdict"] == "done"
        assert d.lengths(7) == {"s": [3, 5]}


def test_the_tail_of_a_log_is_cut(store):
    with Driver(store) as d:
        e = d.begin(7, "a")
        d.append(7, e, *[["s", 0, n, f"r{n}"] for n in range(5)], *[["t", 2, n, f"t{n}"] for n in range(2, 5)])
        for start in (9, 3, 3):
            assert d.drop(7, e, "s", start=start)["verdict"] == "done"
        assert d.drop(7, e, "t", start=4)["verdict"] == "done"
        assert d.drop(7, e, "none", start=4)["verdict"] == "done"
        assert d.lengths(7) == {"s": [0, 3], "t": [2, 4]}
        assert refusals(d.append(7, e, ["s", 0, 3, "new"], ["t", 2, 4, "new"])) == {}
        assert d.read(7, "s")["texts"] == ["r0", "r1", "r2", "new"]
        assert d.drop(7, e, "t", start=2)["verdict"] == "done"
        assert d.lengths(7) == {"s": [0, 4]}


def test_a_long_log_is_read_in_pieces(store):
    with Driver(store) as d:
        e = d.begin(7, "a")
        texts = [f"{n}".ljust(300_000, "x") for n in range(9)] + ["y" * 2_000_000, "z"]
        for n, text in enumerate(texts):
            d.append(7, e, ["s", 0, n, text])
        got = []
        while len(got) < len(texts):
            piece = d.read(7, "s", len(got))
            assert piece["first"] == len(got) and 1 <= len(piece["texts"]) <= 4
            got += piece["texts"]
        assert got == texts


def test_a_released_place_has_no_owner_and_an_epoch_of_its_own(store):
    with Driver(store) as a, Driver(store) as b:
        old = a.begin(7, "a")
        a.append(7, old, ["s", 0, 0, "r0"])
        assert a.release(7, old)["verdict"] == "done"
        assert a.append(7, old, ["s", 0, 1, "r1"])["verdict"] == "fenced"
        seen = b.claim(7, "b")
        assert (seen["verdict"], seen["owner"]) == ("alive", "")
        assert b.claim(7, "b", beat=seen["beat"])["verdict"] == "done"


def test_a_renewal_returns_the_beats_of_all_nodes(store):
    with Driver(store) as d:
        e = d.begin(7, "a")                             # renews once
        assert d.renew("b")["beats"] == {"a": 1, "b": 1}
        d.put("node:a", "its entry", 1)
        assert d.renew("a", [7, e, True])["beats"] == {"a": 2, "b": 1}
        d.put("node:b", "", 1)                          # forgotten
        assert d.renew("a")["beats"] == {"a": 3}


def test_a_place_that_is_released_without_logs_is_vacant(store):
    with Driver(store) as d:
        def vacant():
            return [x["vacant"] for x in d.watch() if x["entry"] == "place:7"][-1]

        old = d.begin(7, "a")
        d.append(7, old, ["s", 0, 0, "r0"])
        d.release(7, old)
        assert not vacant()
        beat = d.claim(7, "b")["beat"]
        seen = d.claim(7, "b", beat=beat)
        assert seen["n_logs"] == 1
        d.drop(7, seen["epoch"], "s")
        d.release(7, seen["epoch"])
        assert vacant()
        seen = d.claim(7, "a", beat=d.claim(7, "a")["beat"])
        assert (seen["verdict"], seen["n_logs"]) == ("done", 0) and not vacant()


def test_the_dispatcher_has_a_place_of_its_own(store):
    place = 2 ** 32 - 1
    with Driver(store) as d:
        e = d.begin(place, "a", block=0)
        assert refusals(d.append(place, e, ["g1", 0, 0, "r0"])) == {}
        assert d.ids_of(place) == ["g1"] and d.read(place, "g1")["texts"] == ["r0"]
        assert {x["entry"] for x in d.watch()} == {"block:0", "place:d", None}


def test_a_place_with_newer_records_is_not_claimed_by_an_older_node(store):
    with Driver(store) as d:
        d.put("block:0", "a", 1)
        a = d.claim(7, "a", reads=3)
        assert a["version"] == 0
        d.watch()
        assert d.renew("a", [7, a["epoch"], False, 4])["refused"] == []
        assert [x["version"] for x in d.changes(lambda entries: entries)] == [4]
        d.renew("a", [7, a["epoch"], True, 3])
        seen = d.claim(7, "b", beat=3, reads=3)
        assert (seen["verdict"], seen["version"]) == ("newer", 4)
        assert d.claim(7, "b", beat=3, reads=4)["verdict"] == "done"


def test_the_older_of_two_claimants_gives_way(store):
    """The store forgot both claims. Each node claims with the base that it knows: the newer one keeps the place."""
    with Driver(store) as d:
        nodes = {"a": {"base": 100, "epoch": 100}, "b": {"base": 200, "epoch": 200}}
        claims = []
        for name in "ababababab":
            node = nodes.get(name)
            refused = node and d.renew(name, [8, node["epoch"], False, 0])["refused"]
            if not refused:
                continue
            if refused[0][3] >= node["base"]:
                del nodes[name]
                continue
            claims.append(name)
            a = d.claim(8, name, known=node["base"])
            assert (a["verdict"], a["base"], a["whole"]) == ("done", node["base"], False)
            node["epoch"] = a["epoch"]
        assert claims == ["a", "b"] and set(nodes) == {"b"}
        # all records were sent: from now on the epoch counts
        assert d.renew("b", [8, nodes["b"]["epoch"], True, 0])["refused"] == []
        assert d.append(8, 1, ["s", 0, 0, "r0"])["base"] == nodes["b"]["epoch"]
        assert d.claim(8, "a", known=nodes["b"]["epoch"])["verdict"] == "alive"


def test_who_had_a_place_later_gets_it_from_a_store_that_has_forgotten_both(store):
    with Driver(store) as d:
        def claims(me, known):
            a = d.claim(7, me, known=known)
            return a["base"] if a["verdict"] == "done" and not a["whole"] else a["verdict"]

        d.put("block:0", "x", 1)
        first = d.claim(7, "x")["epoch"]            # it has lost its disk
        base = claims("a", 100)
        assert base > first
        e = d.claim(7, "a", beat=2)["epoch"]        # it restarts
        d.renew("a", [7, e, True, 0])
        a = d.claim(7, "c", beat=4)["epoch"]        # another one adopts the place
        assert claims("a", 100) == claims("b", 99) == claims("x", first) == "alive"
        base = claims("b", 200)
        assert base > a, "the owner sees that it is replaced for ever"
        assert claims("a", 150) == claims("c", a) == claims("a", e) == "alive"
        assert claims("d", 300) > base
        assert claims("b", base) == claims("b", 200) == "alive"
        assert d.claim(8, "a", known=1)["base"] == 1, "a folder that no claim is known of"
        assert claims("a", first) == "alive"


def test_the_dispatchers_place_waits_for_no_lost_owner(store):
    """What a later owner had is lost, and the entry says so. That owner gets the place if it comes, nevertheless."""
    with Driver(store) as d:
        def taken(place):
            return next(x["taken"] for x in d.watch() if x["entry"] == f"place:{'d' if place == DISPATCHER else place}")

        for place in (7, DISPATCHER):
            assert d.claim(place, "b", known=5)["verdict"] == "done" and not taken(place)
            seen = d.claim(place, "a", known=9, restores=True)
            if place == DISPATCHER:
                assert (seen["verdict"], seen["owner"]) == ("alive", "b") and taken(place)
            assert d.claim(place, "a", known=9 if place == DISPATCHER else 11)["verdict"] == "done"
        assert not taken(7)
    with Driver(store + "-2" if store.startswith("file") else store + "2") as d:
        d.put("block:0", "b", 1)
        claim = d.claim(DISPATCHER, "b", restores=True)
        assert (claim["verdict"], claim["whole"]) == ("done", True) and taken(DISPATCHER)


def test_a_report_of_a_lost_claim_makes_no_entry(store):
    """The store was emptied after the node had listed the entry, and the owner has its block again."""
    with Driver(store) as d:
        d.put("block:0", "b", 1)
        for place in (7, DISPATCHER):
            assert d.claim(place, "b", restores=True, seen=5)["verdict"] == "alive"
        assert {x["entry"] for x in d.watch()} == {"block:0", None}
        assert d.claim(7, "b")["verdict"] == "done"


def test_a_place_that_is_not_whole_has_complete_logs_and_is_taken_by_name(store):
    with Driver(store) as d:
        def entry():
            return [x for x in d.watch() if x["entry"] == "place:7"][-1]

        a = d.claim(7, "a", known=5)
        e, beat = a["epoch"], a["beat"]
        assert refusals(d.append(7, e, ["s", 0, 0, "r0", True], ["t", 0, 0, "r0", False], ["u", 0, 0, "r0", True])) == {}
        d.drop(7, e, "u")
        d.append(7, e, ["u", 0, 0, "r0", False])
        seen = d.call("read", place=7)
        assert {text: log[2] for text, log in zip(seen["texts"], seen["logs"])} == {"s": 1, "t": 0, "u": 0}
        assert d.claim(7, "x", beat=beat)["verdict"] == "incomplete" and not entry()["taken"]
        e = d.claim(7, "x", beat=beat, incomplete=True)["epoch"]
        d.release(7, e)
        assert (entry()["taken"], entry()["whole"], entry()["owner"]) == (True, True, "")
        assert d.claim(8, "x", incomplete=True)["verdict"] == "done", "the store has lost its entry"


def test_editions_grow(store):
    with Driver(store) as d:
        assert d.put("orders", "one", 1)["verdict"] == "done"
        assert d.put("orders", "one", 1)["verdict"] == "done"
        refused = d.put("orders", "two", 1)
        assert (refused["verdict"], refused["value"], refused["edition"]) == ("overtaken", "one", 1)
        assert d.put("orders", "three", 7)["verdict"] == "done"
        assert d.put("orders", "two", 6)["edition"] == 7
        assert d.put("orders", "", 8)["verdict"] == "done"


def test_changes_are_reported_after_all_entries(store):
    with Driver(store) as a, Driver(store) as b:
        e = a.begin(7, "a")
        first = {entry["entry"]: entry for entry in b.watch()}
        assert first["block:0"]["value"] == "a" and first["place:7"]["epoch"] == e and None in first
        a.put("orders", "pause", 1)
        a.renew("a", [7, e, True])
        a.release(7, e)
        seen = b.changes(lambda entries: any(x["entry"] == "place:7" and x["owner"] == "" for x in entries)
                         and any(x["entry"] == "orders" for x in entries))
        assert {x["entry"] for x in seen} == {"orders", "place:7"}
        b.entries = []
        assert {x["entry"] for x in b.watch()} == {"block:0", "place:7", "orders", None}


def play_differently(rng, server, url, oracle, steps):
    """The same random calls to a store and to the file; epochs and names of servers differ, all else is equal."""
    owners, epochs, beats = ["a", "b", "c"], [{}, {}], [{}, {}]
    servers = [["0"], ["0"]]    # of both, also of earlier ones

    def replace_server(driver):
        server.ask("DEBUG", "CHANGE-REPL-ID")
        servers[0].append(server.ask("INFO", "replication")["master_replid"][:16].lstrip("0"))
        servers[1].append(f"{len(servers[1]):x}")
        driver.put("server", str(len(servers[1]) - 1), len(servers[1]))

    with Driver(url) as one, Driver(oracle) as two:
        def both(op, place, epoch=None, **fields):
            answers = []
            for i, d in enumerate((one, two)):
                more = dict(fields)
                if epoch is not None:
                    more["epoch"] = epochs[i].get((place, epoch), 5)
                if op == "renew":
                    more = {"node": more["node"], "places": [[place, more["epoch"], more["whole"], more["version"],
                                                              servers[i][more["server"]], False, more["left"]]]}
                if op == "release":
                    more["server"] = servers[i][more["server"]]
                if op == "claim":
                    more["known"] = max(0, epochs[i].get((place, more["known"]), 0) + more.pop("ahead"))
                    more["beat"] = beats[i].get(place, 0) + more["beat"]
                    if more["seen"] == "later":
                        more["seen"] = epochs[i].get((place, epoch_seen), 0) + 600_000
                answers.append(d.call(op, place=place, **more))
            for i, a in enumerate(answers):
                if op == "claim":
                    beats[i][place] = a["beat"]
                    if a["verdict"] == "done":
                        a["raised"] = a["epoch"] - max(epochs[i].values(), default=0) > 300_000
                        epochs[i][place, claims[place]] = a["epoch"]
                for a_refused in a["refused"]:
                    a_refused.pop()
                a["base"] = [n for n, e in epochs[i].items() if n[0] == place and e == a["base"]] or [
                    a["base"] == n for n in (0, a["epoch"], a["epoch"] - 1)]
                a["server"], a["doubt"] = servers[i].index(a["server"]), a["doubt"] > 0
                a["logs"] = sorted(zip(a["texts"], a["logs"]))
                a.pop("epoch"), a.pop("id"), a["texts"].sort()
            assert answers[0] == answers[1], (op, place, fields)
            return answers[0]

        epoch_seen, claims = 0, {place: 0 for place in (1, 2, DISPATCHER)}
        replace_server(two)
        both("put", 0, key="block:0", value="a", edition=1)
        for _ in range(steps):
            known = rng.choice([len(servers[0]) - 1] * 3 + [len(servers[0]) - 2, 0])
            if rng.random() < .03:
                replace_server(two)
            place, session = rng.choice([1, 2, 1, 2, 1, 2, DISPATCHER]), rng.choice(["s", "t"])
            epoch = max(0, claims[place] - rng.choice([0, 0, 0, 0, 1, 2]))
            op = rng.choices(["claim", "renew", "append", "drop", "read", "put", "release"], [3, 2, 12, 2, 3, 2, 1])[0]
            if op == "claim":
                claims[place] += 1
                epoch_seen = epoch
                both(op, place, block=0, me=rng.choice(owners), beat=rng.choice([0, 0, 0, 1, -1]) if claims[place] > 1 else 0,
                     known=epoch if rng.random() < .4 else -1, ahead=rng.choice([0, 0, 1 << 41, -1 << 40, 1 << 40, 1 << 40, 3 << 39, 3 << 39]),
                     incomplete=rng.random() < .1, restores=rng.random() < .6, bare=rng.random() < .6, reads=rng.choice([3, 3, 3, 2]),
                     seen=rng.choice([0, 0, 0, 1 << 50, "later"]))
            elif op == "renew":
                both(op, place, epoch, node=rng.choice(owners), whole=rng.random() < .3, version=rng.choice([0, 0, 1, 2, 3]),
                     server=known, left=rng.random() < .3)
            elif op == "append":
                following = one.read(place, session)["next"]
                records = []
                for k in range(rng.randint(1, 4)):
                    n = max(0, following + k + rng.choice([0, 0, 0, 0, 0, -1, -2, 1]))
                    text = f"{session}{n // 2}" + ("" if rng.random() < .95 else "!")
                    records.append([rng.choice([session, session, "u"]), 0 if rng.random() < .9 else n, n, text, rng.random() < .3])
                both(op, place, epoch, records=records)
            elif op == "drop":
                both(op, place, epoch, session=session, keep=rng.random() < .7, **{"from": rng.choice([0, 0, 1, 3, 9])})
            elif op == "read":
                both(op, place, **rng.choice([{}, {"session": session, "from": rng.randint(0, 9)}]))
            elif op == "put":
                both(op, 0, key=rng.choice(["orders", "node:a", "block:0"]), value=rng.choice("abc"), edition=rng.randint(1, 30))
            else:
                both(op, place, epoch, server=known)


def test_random_calls_have_the_same_answers_from_a_server_and_a_file(server, tmp_path):
    for seed in range(3):
        play_differently(random.Random(seed), server, server.url(f"run-{seed}"), f"file:{tmp_path}/oracle-{seed}", 300)


@pytest.mark.parametrize("check", [
    "if is[3] ~= ARGV[2] and not forgotten then return refuse('alive') end",
    "if tonumber(is[6]) > tonumber(ARGV[7]) then return refuse('newer') end",
    ", 'base', p[1]",
    "if tonumber(ARGV[a + 3]) > tonumber(p[4] or '0') then",
    "redis.call('HGET', KEYS[2], 'value') ~= ARGV[1]",
    "is[4] ~= '1' and is[1] ~= ARGV[1] and ARGV[4] ~= '1' and not forgotten",
    "whole, base, before = '0', ARGV[3], ARGV[3]",
    "or between",
    "ARGV[9] == '1' and ",
    "or forgotten and p[2] and not waits",
    "and before == '1'",
    "if not between then since = epoch end",
    "if known <= tonumber(is[5]) then base = string.format('%.0f', epoch - 1) end",
    "if not p[2] and not forgotten and ARGV[4] ~= '1' then before, since = '1', epoch end",
    "redis.call('DEL', KEYS[5])",
    "if ARGV[8] == '1' and seen > tonumber(is[2]) then had = '?' end",
    "if p[2] and seen > math.max(tonumber(is[2]), told) then redis.call('HSET', KEYS[1], 'server', '?', 'told', newest) end",
    "p[2] and seen > math.max",
    ", 'told', newest",
    " or seen > 0",
    "if seen > math.max(clock, tonumber(is[2])) + 86400000 then newest = told end",
    " newest,",
    "ARGV[8] == '1' and had ~= ''",
    " and had ~= server",
    "if doubt == '0' then doubt = at or is[2] end",
    "if ARGV[8] == '1' or forgotten or had == '' then had = server end",
    "ARGV[a + 4] == server",
    "whole == '3' and '' or ",
    "if vacant ~= '0' or ARGV[4] == server then doubt = '0' end",
    "if vacant ~= '0' or ARGV[4] == server or had == server then had = '' end",
    "and ARGV[4] ~= '1' and redis",
    "redis.call('DEL', (string.gsub(KEYS[i], 'place:(%b{})$', 'complete:%1')))",
    "if string.find(last, '1') and redis.call('HGET', KEYS[1], 'whole') == '1' then last = '' end",
    "redis.call('SADD', KEYS[3], id)",
    "redis.call('DEL', KEYS[3])",
    "if p[1] ~= ARGV[1] then return {'fenced', p[2] or '0'} end\nlocal refused",
    "if p[1] ~= ARGV[1] then return {'fenced', p[2] or '0'} end\nif ARGV[3]",
    "if p[1] ~= ARGV[1] then return {'fenced', p[2] or '0'} end\nlocal info",
    "p[1] ~= ARGV[a]",
    "if not why and n > following then why = 'short' end",
    "if not why and n < first then why = 'conflict' end",
    "if redis.call('LINDEX', KEYS[i], n - first) ~= ARGV[a + 3] then why = 'conflict' end",
    "bad[id] = why",
    "if tonumber(ARGV[3]) <= tonumber(stored) then",
    "redis.call('HINCRBY', KEYS[2], ARGV[2], n - 1)",
    "redis.call('LTRIM', KEYS[3], 0, kept - 1)",
])
def test_no_check_of_the_scripts_is_superfluous(server, tmp_path, check):
    """The test below fails without any one of them."""
    kept = check.split("\n", 1)[1] if "\n" in check else ""
    neutral = ("false" if check.startswith(("redis.call('HGET'", "is[4]", "p[1]")) else "true" if check.startswith("ARGV") else
               "if false then" if check.startswith("if tonumber") and check.endswith("then") else "")
    edit = neutral + " " * (len(check) - len(neutral) - len(kept)) + kept
    with Proxy(server.port, [(check.encode(), edit.encode())]) as proxy:
        with pytest.raises(AssertionError, match=r"test_fleet_store|assert"):
            for seed in range(80):
                play_differently(random.Random(seed), server, proxy.url(f"run-{seed}"), f"file:{tmp_path}/oracle-{seed}", 300)
        assert proxy.found == {check.encode()}


class Node:
    """One node of the protocol's model: what it journaled, and the places that it believes to own."""

    def __init__(self, world, name):
        self.world, self.name, self.epochs, self.bases, self.journal = world, name, {}, {}, {}

    def own(self, place, answer):
        assert answer["verdict"] == "done", answer
        self.epochs[place], self.bases[place] = answer["epoch"], answer["base"]

    def reclaim(self, place):
        """The store has forgotten the claim: makes it again, and sends all records."""
        self.own(place, self.world.driver.claim(place, self.name, known=self.bases[place]))
        for (p, session), log in self.journal.items():
            if p == place and not (self.world.driver.drop(place, self.epochs[place], session)["verdict"] == "done"
                                   and self.send(place, session, 0)):
                return False
        return True

    def is_fenced(self, place, base):
        """True, and the place forgotten, if it has another owner. Else the claim was made again."""
        if base < self.bases[place] and self.reclaim(place):
            return False
        self.epochs.pop(place, None)
        return True

    def renew(self, place, whole=False):
        refused = self.world.driver.renew(self.name, [place, self.epochs[place], whole])["refused"]
        if refused:
            return not self.is_fenced(place, refused[0][3])
        if whole:
            self.bases[place] = self.epochs[place]
        return True

    def send(self, place, session, start):
        """Records from `start` on; what is accepted counts as acknowledged."""
        log = self.journal[place, session]
        while start < len(log):
            a = self.world.driver.append(place, self.epochs[place], *[[session, 0, n, log[n]] for n in range(start, len(log))])
            if a["verdict"] == "fenced":
                if self.is_fenced(place, a["base"]):
                    return False
                return True       # all was sent again
            assert not a["refused"] or a["refused"][0][1] == "short", a
            if not a["refused"]:
                break
            start = a["refused"][0][2]
        self.world.acknowledged.setdefault((place, session), {}).update(enumerate(log))
        return True

    def take(self, place):
        seen = self.world.driver.claim(place, self.name, beat=10 ** 9)
        a = self.world.driver.claim(place, self.name, beat=seen["beat"])
        if a["verdict"] != "done":
            assert a["verdict"] in ("unknown", "incomplete"), a
            return
        self.own(place, a)
        for session in self.world.driver.ids_of(place):
            self.journal[place, session] = self.world.driver.read(place, session)["texts"]
        self.world.replicate()


class World:
    """Three nodes and two places. After a fault each node renews its places and compares its logs with the store; all that
    is within a lease, before another fault."""

    def __init__(self, rng, driver, server):
        self.rng, self.driver, self.server, self.acknowledged, self.count = rng, driver, server, {}, 0
        self.nodes = [Node(self, name) for name in "abc"]
        server.ask("FLUSHALL")
        driver.put("block:0", "a", 1)
        for place in (1, 2):
            self.nodes[0].own(place, driver.claim(place, "a"))
            self.nodes[0].renew(place, whole=True)
        self.replicate()

    def replicate(self):
        """A replica has all that the store has now."""
        with redis.Redis(port=self.server.port) as client:
            self.replica = {key: client.dump(key) for key in client.keys()}

    def fail_over(self):
        """The replica takes over."""
        with redis.Redis(port=self.server.port) as client:
            client.flushall()
            for key, dump in self.replica.items():
                client.restore(key, 0, dump)

    def wait_lease(self):
        for _ in range(2):
            for node in self.rng.sample(self.nodes, 3):
                for place in list(node.epochs):
                    node.renew(place)
                for place, session in list(node.journal):
                    if place in node.epochs and not node.send(place, session, max(0, len(node.journal[place, session]) - 1)):
                        break
        for node in self.nodes:      # the lease is over: who still has the place is its owner
            for place in list(node.epochs):
                node.renew(place, whole=True)

    def step(self):
        node, place = self.rng.choice(self.nodes), self.rng.choice([1, 2])
        taken = any(place in n.epochs for n in self.nodes)      # a place without an owner is claimed soon
        what = self.rng.choices(["turn", "frozen", "renew", "take", "replicate", "fail_over", "empty", "kill"],
                                [30, 3, 4, 4 if taken else 30, 3, 2, 2, 1])[0]
        if what in ("turn", "frozen") and place in node.epochs:
            self.count += 1
            log = node.journal.setdefault((place, self.rng.choice("st")), [])
            log.append(f"{node.name}{self.count}")
            if what == "turn":
                node.send(place, next(s for (p, s), found in node.journal.items() if found is log), len(log) - 1)
        elif what == "renew" and place in node.epochs:
            node.renew(place)
        elif what == "take" and place not in node.epochs:
            node.take(place)
        elif what == "replicate":
            self.replicate()
        elif what == "fail_over":
            self.fail_over()
            self.wait_lease()
        elif what == "empty" and all(any(p in n.epochs for n in self.nodes) for p in (1, 2)):
            self.wait_lease()       # no owner was lost before
            if all(any(p in n.epochs for n in self.nodes) for p in (1, 2)):
                self.server.ask("FLUSHALL")
                self.wait_lease()
        elif what == "kill":
            self.wait_lease()
            node.epochs, node.journal = {}, {}
            self.replicate()

    def check(self):
        self.wait_lease()
        for (place, session), records in self.acknowledged.items():
            a = self.driver.read(place, session)
            assert a["first"] == 0 and len(set(a["texts"])) == len(a["texts"])
            assert {n: a["texts"][n] for n in records} == records, (place, session)


@pytest.mark.parametrize("seed", range(int(os.environ.get("RG_FLEET_SEEDS", "4"))))
def test_no_acknowledged_record_is_lost(server, seed):
    with Driver(server.url()) as driver:
        world = World(random.Random(seed), driver, server)
        for _ in range(250):
            world.step()
        world.check()
        assert len(world.acknowledged) == 4


def test_a_failover_that_lost_a_tail_is_noticed(tmp_path):
    with Server(tmp_path / "one") as one, Server(tmp_path / "two") as two, Proxy(one.port) as proxy, Driver(proxy.url()) as d:
        two.follow(one)
        e = d.begin(7, "a")
        assert refusals(d.append(7, e, ["s", 0, 0, "r0"])) == {}
        g.wait_until(lambda: two.ask("LLEN", "rg:test:log:{7}:s") == 1, 20, "the replica has the record")
        two.ask("REPLICAOF", "NO", "ONE")
        assert refusals(d.append(7, e, ["s", 0, 1, "r1"], ["s", 0, 2, "r2"])) == {}
        proxy.target = two.port
        proxy.cut()
        while (a := d.append(7, e, ["s", 0, 3, "r3"]))["verdict"] == "lost":
            assert "closed" in a["why"]
        assert refusals(a) == {0: ("short", 1)}
        assert refusals(d.append(7, e, *[["s", 0, n, f"r{n}"] for n in (1, 2, 3)])) == {}
        assert d.read(7, "s")["texts"] == ["r0", "r1", "r2", "r3"]


def test_a_claim_is_on_a_replica_before_its_answer(tmp_path):
    with Server(tmp_path / "one") as one, Server(tmp_path / "two") as two, Driver(one.url()) as d:
        two.follow(one)
        e = d.begin(7, "a")
        assert two.ask("HGET", "rg:test:place:{7}", "epoch") == str(e)
        two.process.send_signal(signal.SIGSTOP)
        claim = d.later("claim", place=7, block=0, me="a", beat=2, known=0, reads=0)
        assert d.read(7, "s")["verdict"] == "done" and not d.answered    # not delayed by the claim
        a = claim()
        assert a["verdict"] == "lost" and "no replica" in a["why"]


def test_a_repeated_record_is_a_write_that_a_replica_can_confirm(server):
    def changes():
        return server.ask("INFO", "persistence")["rdb_changes_since_last_save"]
    with Driver(server.url()) as d:
        e = d.begin(7, "a")
        assert refusals(d.append(7, e, ["s", 0, 0, "r0"])) == {}
        for record, verdict, writes in (("r0", {}, 1), ("other", {0: ("conflict", 1)}, 0)):
            before = changes()
            assert refusals(d.append(7, e, ["s", 0, 0, record])) == verdict
            assert changes() - before == writes
        assert d.renew("a", [7, e, False, 0])["refused"] == []


def test_a_server_without_the_scripts_gets_them_again(server):
    with Driver(server.url()) as d:
        e = d.begin(7, "a")
        server.ask("SCRIPT", "FLUSH")
        assert "NOSCRIPT" in d.append(7, e, ["s", 0, 0, "r0"])["why"]
        assert refusals(d.append(7, e, ["s", 0, 0, "r0"])) == {}


def test_a_full_server_refuses_records_and_keeps_owners(server):
    with Driver(server.url()) as d:
        e = d.begin(7, "a")
        assert refusals(d.append(7, e, ["s", 0, 0, "x" * 1_000_000])) == {}
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert d.append(7, e, ["s", 0, 1, "r1"])["verdict"] == "full"
        assert d.renew("a", [7, e, True])["refused"] == []
        assert d.put("orders", "pause", 1)["verdict"] == "done"
        assert d.drop(7, e, "s")["verdict"] == "done"
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert refusals(d.append(7, e, ["s", 0, 0, "r0"])) == {}


def test_a_server_that_does_not_answer_is_given_up(server):
    with Driver(server.url(), limit_ms=300) as d:
        e = d.begin(7, "a")
        server.process.send_signal(signal.SIGSTOP)
        a = d.append(7, e, ["s", 0, 0, "r0"])
        assert a["verdict"] == "lost" and "no answer for 300 ms" in a["why"]
        server.process.send_signal(signal.SIGCONT)
        g.wait_until(lambda: d.append(7, e, ["s", 0, 0, "r0"])["verdict"] == "done", 20, "the server answers again")


@pytest.fixture
def refusing():
    """Returns (port, connections) of a server that refuses every login."""
    connections = []

    def serve():
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            connections.append(g.time.monotonic())
            near.sendall(b"-ERR no\r\n"), near.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], connections
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def repeat_call(refusing, calls, **driver):
    """Makes calls that fail, each at once after the one before, by a connection each. Returns the seconds that they took."""
    port, connections = refusing
    with Driver(f"redis://127.0.0.1:{port}", **driver) as d:
        start = g.time.monotonic()
        for _ in range(calls):
            assert d.append(7, 1, ["s", 0, 0, "r0"])["verdict"] == "lost"
        assert len(connections) == calls
        return g.time.monotonic() - start


def test_calls_that_repeat_at_once_do_not_connect_at_once(refusing):
    assert repeat_call(refusing, 5) > .02 + .04 + .08 + .16


def test_no_pause_is_longer_than_a_fifth_of_the_lease(refusing):
    """Else a node whose connection pauses would look lost to one that has connected again."""
    assert repeat_call(refusing, 12, limit_ms=400) < 11 * .08 + 3


def test_a_watch_begins_again_after_its_connection_broke(server):
    with Proxy(server.port) as proxy, Driver(proxy.url()) as d, Driver(server.url()) as other:
        other.put("orders", "one", 1)
        assert [e["value"] for e in d.watch() if e["entry"]] == ["one"]
        proxy.cut()
        other.put("orders", "two", 2)
        seen = d.changes(lambda entries: sum(e["entry"] is None for e in entries) >= 2)
        assert seen[0]["entry"] is None and "closed" in seen[0]["why"]
        assert [e["value"] for e in seen if e["entry"]] == ["two"]


def test_many_calls_are_under_way_at_once(server):
    with Driver(server.url()) as d:
        e = d.begin(7, "a")
        waits = [d.later("append", place=7, epoch=e, records=[[f"s{n % 3}", 0, n // 3, f"r{n}".ljust(9000)]]) for n in range(300)]
        assert all(refusals(wait()) == {} for wait in waits)
        assert [len(d.read(7, f"s{n}")["texts"]) for n in range(3)] == [100] * 3


def test_calls_that_wait_for_a_slow_server_arrive_whole_by_tls(tmp_path):
    with TlsServer(tmp_path / "one") as server, Driver(server.url(), limit_ms=20_000, env=server.env) as d:
        e, n = d.begin(7, "a"), 0
        for _ in range(6):
            server.process.send_signal(signal.SIGSTOP)
            waits = [d.later("append", place=7, epoch=e, records=[["s", 0, n + k, f"r{n + k}".ljust(9001)]]) for k in range(500)]
            server.process.send_signal(signal.SIGCONT)
            assert all(refusals(wait()) == {} for wait in waits)
            n += 500
        assert server.ask("LLEN", "rg:test:log:{7}:s") == n


def test_what_is_no_store_is_named(server):
    with Driver(server.url()) as d:
        server.ask("SET", "rg:test:place:{7}", "text")
        assert d.append(7, 1, ["s", 0, 0, "r0"])["verdict"] == "failed"
    with socket.create_server(("127.0.0.1", 0)) as listener, Driver(f"redis://127.0.0.1:{listener.getsockname()[1]}") as d:
        wait = d.later("append", place=7, epoch=1, records=[])
        other, _ = listener.accept()
        with other:
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert "not RESP2" in wait()["why"]


class Successors:
    """A store that fails over. Its clients connect to `url`."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.n = kind, folder, 1
        if kind == "file":
            self.url = f"file:{folder}/store"
            self.name_server("1")
            return
        self.old, self.new = Server(folder / "one", kind=kind).start(), Server(folder / "two", kind=kind).start()
        self.new.follow(self.old)
        self.proxy = Proxy(self.old.port)
        self.url = self.proxy.url()

    def name_server(self, names):
        with Driver(self.url) as d:
            d.put("server", names, self.n)

    def fail_over(self):
        """The only replica becomes the master."""
        self.n += 1
        if self.kind == "file":
            self.name_server(f"{self.n} {self.n - 1} 1")
            return
        at = self.old.ask("INFO", "replication")["master_repl_offset"]
        g.wait_until(lambda: self.new.ask("INFO", "replication")["slave_repl_offset"] >= at, 20, "the replica has all")
        self.old.stop()
        self.new.ask("REPLICAOF", "NO", "ONE")
        self.proxy.target = self.new.port
        self.proxy.cut()
        self.old = Server(self.folder / f"{self.n}", kind=self.kind).start()
        self.old.follow(self.new)
        self.old, self.new = self.new, self.old

    def wait_old(self):
        """Waits until the replica runs for longer than anything that is claimed next."""
        if self.kind != "file":
            g.wait_until(lambda: self.new.ask("INFO", "server")["uptime_in_seconds"] > 2, 20, "the replica is old")

    def close(self):
        if self.kind != "file":
            self.proxy.__exit__()
            self.old.stop()
            self.new.stop()


@pytest.fixture(params=KINDS + ["file"])
def successors(request, tmp_path):
    s = Successors(request.param, tmp_path)
    yield s
    s.close()


def test_a_claim_without_records_at_another_server_is_in_doubt(successors):
    """A claim with own records is none: its node compares them. A renewal at the server where they were compared ends the doubt."""
    def claim(name, bare=True, seen=0):
        while (beat := d.claim(7, name, beat=10 ** 9))["verdict"] == "lost":
            pass
        a = d.claim(7, name, beat=beat["beat"], bare=bare, seen=seen)
        assert a["verdict"] == "done"
        return a

    def renew(name, epoch, server, replicated=False, left=False):
        a = d.renew(name, [7, epoch, True, 0, server, replicated, left])
        assert a["refused"] == []
        return a["server"]

    with Driver(successors.url) as d:
        e = d.begin(7, "a")
        first = d.renew("a")["server"]
        assert first != "0" and d.call("read", place=7)["server"] == first
        d.append(7, e, ["s", 0, 0, "r0"])
        renew("a", e, first)
        d.renew("z")
        successors.fail_over()
        own = claim("a", bare=False)
        b = claim("b")
        assert own["doubt"] == 0 and e - 1000 < b["doubt"] < b["epoch"]
        entry, = (x for x in d.watch() if x["entry"] == "place:7")
        assert entry["taken"] and entry["whole"]
        second = renew("b", b["epoch"], first)
        assert second != first and renew("b", b["epoch"], "0") == second
        c = claim("c")
        assert c["doubt"] == b["doubt"], "b has not compared at this server, and did not mark its sessions"
        renew("c", c["epoch"], second)
        assert (e := claim("a"))["doubt"] == 0

        # what is released is complete, whichever server follows
        renew("a", e["epoch"], second)
        assert d.release(7, e["epoch"], second)["verdict"] == "done"
        successors.fail_over()
        assert (b := claim("b"))["doubt"] == 0
        successors.fail_over()
        while (released := d.release(7, b["epoch"], second))["verdict"] == "lost":
            pass
        assert released["verdict"] == "done"
        assert (c := claim("c"))["doubt"] > 0, "it was compared at an earlier server"

        # its owner has ended, and the next server has that renewal
        renew("c", c["epoch"], d.renew("c")["server"], left=True)
        successors.fail_over()
        assert (c := claim("c"))["doubt"] == 0

        # the caller has seen a claim that the next server lacks
        renew("c", c["epoch"], d.renew("c")["server"], left=True)
        assert (b := claim("b", seen=c["epoch"]))["doubt"] == 0
        assert (c := claim("c", seen=b["epoch"] + 1))["doubt"] > 0

        # or a node told it
        for later, doubts in ((0, False), (1, True)):
            renew("c", c["epoch"], d.renew("c")["server"], left=True)
            told = d.claim(7, "a", restores=True, seen=c["epoch"] + later)
            assert (told["verdict"], told["owner"]) == ("alive", "c")
            assert ((c := claim("c"))["doubt"] > 0) == doubts

        # whose clock is ahead: the next epochs are above that claim, so it is told once, by whichever node
        for lag, again in ((3_600_000, False), (1 << 50, True)):
            renew("c", c["epoch"], d.renew("c")["server"])
            later = c["epoch"] + lag
            assert d.claim(7, "a", restores=True, seen=later)["verdict"] == "alive"
            assert (c := claim("c"))["doubt"] > 0 and (c["epoch"] > later) != again
            renew("c", c["epoch"], d.renew("c")["server"])
            assert d.claim(7, "b", restores=True, seen=later)["verdict"] == "alive"
            assert ((c := claim("c"))["doubt"] > 0) == again
            renew("c", c["epoch"], d.renew("c")["server"])
        assert claim("b", seen=c["epoch"] + 3_600_000)["doubt"] > 0
        c = claim("c", bare=False)
        renew("c", c["epoch"], d.renew("c")["server"])
        assert d.claim(7, "a", restores=True, seen=later - (1 << 50) + 3_600_000)["verdict"] == "alive"
        assert (c := claim("c"))["doubt"] == 0 and c["epoch"] < 1 << 49

        # the only replica confirmed each answer
        successors.wait_old()
        third = d.renew("c")["server"]
        renew("c", c["epoch"], third, replicated=True)
        successors.fail_over()
        assert claim("b")["doubt"] == 0

        # also while epochs are ahead of this server's clock, which an earlier one has left
        assert d.claim(7, "c", known=(1 << 44))["epoch"] > 1 << 44
        c = claim("c", bare=False)
        later = c["epoch"] + 3_600_000
        for node, doubts in (("a", True), ("b", False)):
            renew("c", c["epoch"], d.renew("c")["server"])
            assert d.claim(7, node, restores=True, seen=later)["verdict"] == "alive"
            assert ((c := claim("c"))["doubt"] > 0) == doubts


def test_two_servers_give_no_epoch_twice(tmp_path):
    """A claim that a failover loses must not have the epoch of a claim at the next server, also while epochs are ahead of both clocks."""
    with Server(tmp_path / "one", "--enable-debug-command", "yes") as one, Server(tmp_path / "two", "--enable-debug-command", "yes") as two:
        two.follow(one)
        with Driver(one.url()) as a:
            first = a.claim(7, "z", known=(1 << 44))
            two.ask("REPLICAOF", "NO", "ONE")
            while len({s.ask("INFO", "replication")["master_replid"][:2] for s in (one, two)}) == 1:
                two.ask("DEBUG", "CHANGE-REPL-ID")
            with Driver(two.url()) as b:
                assert b.claim(7, "z", known=1)["epoch"] == first["epoch"]
                e = [d.claim(7, name, beat=first["beat"], incomplete=True)["epoch"] for d, name in ((a, "a"), (b, "b"))]
                assert b.append(7, e[0], ["s", 0, 0, "r0"])["verdict"] == "fenced", e
            while int(one.ask("INFO", "replication")["master_replid"][:2], 16) < 0x80:
                one.ask("DEBUG", "CHANGE-REPL-ID")
            epoch = a.claim(8, "z", known=1)["epoch"]   # else the lost claim would be newer than the next server's
            seconds, us = one.ask("TIME")
            assert epoch <= int(seconds) * 1000 + int(us) // 1000 + 2


def test_a_claim_that_the_store_has_forgotten_before_all_was_read_is_in_doubt(successors):
    """Its owner may have read what other servers had, or not. An emptied store lacks sessions that it has never heard of, too."""
    def find(place):
        return next(x for x in d.watch() if x["entry"] == f"place:{place}")

    with Driver(successors.url) as d:
        e, ahead = d.begin(7, "a"), 1 << 44
        d.append(7, e, ["s", 0, 0, "r0"])
        d.renew("a", [7, e, True, 0, d.renew("a")["server"]])
        successors.fail_over()
        while (b := d.claim(7, "b", beat=0, known=ahead, bare=True))["verdict"] == "lost":
            pass
        assert b["verdict"] == "done" and not b["whole"] and 0 < b["doubt"] < b["epoch"]
        assert find(7)["taken"]
        assert d.claim(8, "b", beat=0, known=ahead)["doubt"] == d.claim(9, "b", beat=0, known=ahead, bare=True)["doubt"] == 0
        assert find(9)["taken"] and not find(8)["taken"]
