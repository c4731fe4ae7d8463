#!/usr/bin/python3
"""scripts/bench journal: turns a second, p99 and worker CPU a turn for each durability; replay time of
10,000 sessions of 20 turns, first touch and p99 afterwards; memory of 10,000 live sessions without and
with --max-worker-memory. Everything through the real gateway. Say the machine's load with the figures."""
import argparse
import http.client
import json
import os
import threading
import time

from scenes_kit import cpu_s, g


def cpu_ms(pid):
    return 1000 * cpu_s(pid)


def talk(gateway, turns, times, session=None):
    """One agent's turns on one keep-alive connection; a growing conversation of short messages."""
    c = http.client.HTTPConnection("127.0.0.1", gateway.port)

    def post(path, body):
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read()
        assert r.status == 200, text
        return json.loads(text)
    if session is None:
        session = post("/sessions", {})["session_id"]
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"turn {turn} " + "words " * 20})
        begin = time.perf_counter()
        a = post(f"/sessions/{session}/v1/chat/completions", {"model": "m", "messages": messages})
        times.append(time.perf_counter() - begin)
        messages.append(a["choices"][0]["message"])
    c.close()


def durability(level, agents, turns):
    gateway = g.Gateway(workers=1, routers=1, engine="builtin:random:1", durability=level,
                        log_level="info").start()
    try:
        worker = gateway.child("worker-0")
        times = []
        talk(gateway, 20, [])  # warm
        before, begin = cpu_ms(worker), time.perf_counter()
        threads = [threading.Thread(target=talk, args=(gateway, turns, times)) for _ in range(agents)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wall, used = time.perf_counter() - begin, cpu_ms(worker) - before
        times.sort()
        return {"durability": level, "turns_per_s": round(len(times) / wall),
                "p50_ms": round(times[len(times) // 2] * 1000, 2),
                "p99_ms": round(times[int(len(times) * .99)] * 1000, 2),
                "worker_cpu_ms_per_turn": round(used / len(times), 4)}
    finally:
        gateway.stop()
        gateway.destroy()


def fill(gateway, sessions, turns, agents=8):
    """So many sessions of so many turns; their ids."""
    made = []

    def work():
        for _ in range(sessions // agents):
            made.append(gateway.post("/sessions").json()["session_id"])
            talk(gateway, turns, [], made[-1])
    threads = [threading.Thread(target=work) for _ in range(agents)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    time.sleep(1.5)
    return made


def memory(gateway):
    m = gateway.metrics()
    return {"live_MB": round(gateway.resident(gateway.child("worker-0")) / 1e6, 1),
            "sessions_MB": round(m["rollgate_session_memory_bytes"] / 1e6, 1),
            "evicted_sessions": int(m["rollgate_sessions_evicted"]),
            "tokens": int(m["rollgate_live_tokens"])}


def replay(sessions, turns):
    gateway = g.Gateway(workers=1, routers=1, engine="builtin:random:1", log_level="info").start()
    try:
        made = fill(gateway, sessions, turns)
        held = memory(gateway)
        folder = f"{gateway.folder}/state/worker-0"
        size = sum(os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder))
        gateway.stop(120)
        load = os.getloadavg()[0]
        gateway.start()
        worker = gateway.child("worker-0")
        used = cpu_ms(worker)
        line = [l for l in gateway.log()[gateway.log_start:].split("\n") if "journal replayed" in l][-1]
        ms = max(int(line.rsplit("ms=", 1)[1]), 1)
        after = memory(gateway)
        touches = []
        before = cpu_ms(worker)
        for session in made[:500]:
            begin = time.perf_counter()
            assert gateway.get(f"/sessions/{session}").status == 200
            touches.append(time.perf_counter() - begin)
        touched = cpu_ms(worker) - before
        touches.sort()
        return {"sessions": sessions, "turns": turns, "load": round(load, 1),
                "journal_MB": round(size / 1e6, 1), "replay_ms": ms, "worker_cpu_ms": round(used),
                "replay_MB_per_s": round(size / 1e3 / ms, 1), "sessions_per_s": round(sessions * 1000 / ms),
                "first_touch_p50_ms": round(touches[250] * 1000, 2),
                "first_touch_p99_ms": round(touches[495] * 1000, 2),
                "first_touch_cpu_ms": round(touched / 500, 3),
                "before": held, "after": after}
    finally:
        gateway.stop(120)
        gateway.destroy()


def ceiling(sessions, turns, limit):
    """The same sessions under a ceiling: memory, and what a turn on a session that left costs."""
    gateway = g.Gateway(workers=1, routers=1, engine="builtin:random:1", log_level="info",
                        max_worker_memory=limit).start()
    try:
        made = fill(gateway, sessions, turns)
        held = memory(gateway)
        times = []
        for session in made[:300]:      # the coldest
            talk(gateway, 1, times, session)
        times.sort()
        lag = max(v for k, v in gateway.metrics().items() if k.startswith("rollgate_loop_lag") and "worker" in k)
        return {"limit": limit, **held, "cold_turn_p50_ms": round(times[150] * 1000, 2),
                "cold_turn_p99_ms": round(times[297] * 1000, 2), "loop_lag_ms": round(lag * 1000, 1)}
    finally:
        gateway.stop(120)
        gateway.destroy()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--json")
    p.add_argument("--agents", type=int, default=4)
    p.add_argument("--turns", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--sessions", type=int, default=10000)
    p.add_argument("--session-turns", type=int, default=20)
    p.add_argument("--limit", default="100m")
    o = p.parse_args()
    rows = []
    for r in range(o.rounds):
        order = ["none", "process", "power"]
        for level in order if r % 2 == 0 else reversed(order):
            rows.append(durability(level, o.agents, o.turns))
            print(rows[-1], flush=True)
    median = {}
    for level in ("none", "process", "power"):
        used = sorted(x["worker_cpu_ms_per_turn"] for x in rows if x["durability"] == level)
        median[level] = used[len(used) // 2] if used else 1
    print("worker CPU ms per turn, median:", median,
          f"process costs {100 * (median['process'] / median['none'] - 1):.1f} %")
    again = replay(o.sessions, o.session_turns)
    print(again, flush=True)
    evicted = ceiling(o.sessions, o.session_turns, o.limit)
    print(evicted)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"durability": rows, "median_cpu_ms": median, "replay": again,
                       "ceiling": evicted}, f, indent=1)


main()
