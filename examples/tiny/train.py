"""A whole training loop on a tiny task that really learns: no GPU, no download, two cores, minutes.

    python3 examples/tiny/train.py                        # learns by PPO; --plot FILE.png
    python3 examples/tiny/train.py --retokenize           # the same through the text of the messages
    python3 examples/tiny/train.py --algorithm off-policy # or grpo, reinforce; --compare FILE.png plots them all

Every part is the real one: a server of SGLang's shape samples, the gateway records, an executor runs the agent's tool loop, groups come from
a queue, weights go through pause, update, resume. Before each first gradient step the importance ratio of every token must be
1 within 1e-3: it is only when ids, masks, logprobs and versions are true from end to end.
"""
from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import numpy

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import policy  # noqa: E402
import rollgate  # noqa: E402
from agent import TURNS, tiny  # noqa: E402
from algorithms import ALGORITHMS, Ppo  # noqa: E402
from rollgate import pace  # noqa: E402
from rollgate.executor import Executor  # noqa: E402


# --- the processes ---

def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@contextlib.contextmanager
def process(*command: str, log: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(log, "ab") as f:
        child = subprocess.Popen(command, stdout=f, stderr=f, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(60)


def wait_for(what: Callable[[], Any], child: subprocess.Popen[bytes], log: str) -> None:
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError, rollgate.RollgateError):
            what()
            return
        if child.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{child.args!r} does not serve:\n{Path(log).read_text()[-3000:]}")
        time.sleep(0.05)


@contextlib.contextmanager
def executor(url: str) -> Iterator[None]:
    """Runs the agent in a thread of this process."""
    ready = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        box["executor"], box["loop"] = Executor([tiny], url), asyncio.get_running_loop()
        ready.set()
        await box["executor"].run()
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        box["loop"].call_soon_threadsafe(box["executor"].stop)
        thread.join()


@contextlib.contextmanager
def stage(binary: str) -> Iterator[tuple[rollgate.Client, str, str]]:
    """Engine, gateway and executor: (client, engine's URL, folder)."""
    with tempfile.TemporaryDirectory(prefix="tiny") as folder, contextlib.ExitStack() as stack:
        engine, listen, log = f"http://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", f"{folder}/log"
        numpy.save(f"{folder}/weights.npy", policy.Learner().table)
        child = stack.enter_context(process(sys.executable, str(HERE / "server.py"), engine.rsplit(":", 1)[1], f"{folder}/weights.npy", log=log))
        wait_for(lambda: urllib.request.urlopen(engine + "/health", timeout=5).close(), child, log)
        child = stack.enter_context(process(binary, "serve", f"--listen={listen}", f"--state-dir={folder}/state", "--workers=1", "--routers=1",
                                            f"--model={HERE}/model", f"--engine=sglang:{engine}", log=log))
        client = stack.enter_context(rollgate.Client(f"http://{listen}"))
        wait_for(lambda: rollgate.Client(client.address.url, retry_s=0).ready(), child, log)
        stack.enter_context(executor(client.address.url))
        yield client, engine, folder


# --- one step ---

def turns_of(t: rollgate.Trajectory) -> Iterator[tuple[Any, Any, Any, float]]:
    """(prompt ids, answer ids, recorded logprobs, turn's reward) of each answer: what the engine saw and sampled."""
    ids, first, logprobs = t.ids, t.prompt_len, t.response_logprobs
    if logprobs is None:
        raise ValueError(f"{t!r}: the engine told no logprobs")
    for turn in t.turns:
        begin, end = turn["start"], turn["end"]
        yield ids[:first + begin], t.response_ids[begin:end], logprobs[begin:end], t.turn_rewards[turn["response_id"]]["reward"]


def encode(text: str) -> list[int]:
    """The tokenizer's own ids of an answer: merged pairs wherever they fit, in the order of its merges."""
    pieces = list(text)
    for i in range(8):
        pair = policy.LETTERS[i] + policy.LETTERS[(i + 1) % 8]
        k = 0
        while k + 1 < len(pieces):
            if pieces[k] + pieces[k + 1] == pair:
                pieces[k:k + 2] = [pair]
            k += 1
    return [policy.PAIR + policy.LETTERS.index(p[0]) if len(p) == 2 else ord(p) for p in pieces]


def retokenized(answer: Iterable[int], logprobs: Iterable[float]) -> tuple[list[int], list[float]]:
    """The same answer as a trainer has it from the messages' text: encoded anew, closed as the template closes it, with
    the recorded logprobs laid beside in order, because nothing tells which belongs where."""
    text = "".join(policy.LETTERS[(a - policy.PAIR) % 8] + policy.LETTERS[(a - policy.PAIR + 1) % 8] if a >= policy.PAIR else chr(a)
                   for a in map(int, answer) if a != policy.END)
    ids = [*encode(text), policy.END]
    return ids, [*map(float, logprobs), *[0.0] * len(ids)][:len(ids)]


def batch_of(client: rollgate.Client, groups: Iterable[Any], version: int, algorithm: Ppo, text: bool) -> dict[str, Any]:
    """Rows, actions, recorded logprobs, versions and advantages of every trained token; how many answers text has changed."""
    out: dict[str, Any] = {"rows": [], "actions": [], "logprobs": [], "versions": [], "advantages": [], "rewards": [], "answers": 0, "changed": 0}
    for group in groups:
        members = [client.finalize(m["session_id"])[0] for m in group["members"] if m["state"] == "succeeded"]
        for t in members:
            if t.versions != (version, version) or t.trained_tokens != sum(e["end"] - e["start"] for e in t.turns):
                raise RuntimeError(f"{t!r}: not what version {version} sampled")
        answers = [list(turns_of(t)) for t in members]
        advantages = algorithm.advantages(numpy.array([[a[3] for a in turns] for turns in answers]))
        out["rewards"] += [t.reward for t in members]
        for turns, row in zip(answers, advantages):
            for (prompt, answer, logprobs, _), advantage in zip(turns, row):
                ids, lps = (list(map(int, answer)), list(map(float, logprobs)))
                out["answers"] += 1
                if text:
                    before = ids
                    ids, lps = retokenized(answer, logprobs)
                    out["changed"] += ids != before
                out["rows"] += policy.contexts(prompt, ids)
                out["actions"] += [policy.ACTION_OF[i] for i in ids]
                out["logprobs"] += lps
                out["versions"] += [version] * len(ids)
                out["advantages"] += [advantage] * len(ids)
    return {k: numpy.array(v) if isinstance(v, list) else v for k, v in out.items()}


def update_weights(client: rollgate.Client, engine: str, folder: str, table: policy.Array, version: int) -> None:
    """Pause, update, resume: nothing is lost, whatever runs."""
    client.pause("hold")
    post(engine + "/pause_generation", {"mode": "in_place"})
    numpy.save(f"{folder}/weights.npy", table)
    post(engine + "/update_weights_from_disk", {"model_path": f"{folder}/weights.npy", "weight_version": str(version)})
    post(engine + "/continue_generation", {})
    client.resume()


def sample(client: rollgate.Client, step: int, seeds: random.Random, groups: int, n: int) -> list[Any]:
    """The step's groups, sampled by the weights of now."""
    tasks = [[f"{seeds.randrange(8)}{seeds.randrange(8)}" for _ in range(TURNS)] for _ in range(groups)]
    client.submit([{"id": f"s{step}-{i}", "input": task} for i, task in enumerate(tasks)], {"runner": "tiny", "n": n, "version": step})
    taken, _ = pace.collect(client, "train", groups)
    return sorted(taken, key=lambda group: str(group["id"]))


def train(binary: str, steps: int, groups: int = 8, n: int = 8, algorithm: str = "ppo", text: bool = False, goal: float = 0.0,
          tell: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Rows of {step, reward, ratio, mean_ratio, largest, staleness, changed}: the mean reward of what this step's weights sampled; the worst
    |ratio - 1|, the mean and the largest ratio of the batch that is trained, before its first gradient step; how many versions old it is; the
    share of its answers whose ids text has changed. Ends early once the reward has passed the goal."""
    seeds, learner, history = random.Random(3), policy.Learner(), []
    chosen, waiting = ALGORITHMS[algorithm](), collections.deque[dict[str, Any]]()
    with stage(binary) as (client, engine, folder):
        for step in range(steps):
            taken = sample(client, step, seeds, groups, n)
            waiting.append(batch_of(client, taken, step, chosen, text))
            reward = float(waiting[-1]["rewards"].mean())
            b = waiting.popleft() if len(waiting) > chosen.lag else waiting[0]      # the first one again until there are enough
            staleness = step - b["versions"]

            def ratios() -> Any:
                return numpy.exp(learner.logprobs(b["rows"], b["actions"]) - b["logprobs"])
            ratio = ratios()
            history.append({"step": step, "reward": reward, "ratio": float(abs(ratio - 1).max()), "mean_ratio": float(ratio.mean()),
                            "largest": float(ratio.max()), "staleness": int(staleness.max()), "changed": b["changed"] / b["answers"]})
            tell("step {step:3d}  reward {reward:.3f}  {staleness} old  worst |ratio - 1| {ratio:.2e}  answers changed {changed:.1%}".format(
                **history[-1]))
            if goal and reward > goal:
                break
            for _ in range(chosen.epochs):
                learner.update(b["rows"], b["actions"], chosen.weights(ratios(), b["advantages"], staleness))
            update_weights(client, engine, folder, learner.table, step + 1)
            client.ack("train", [g["id"] for g in taken])
    return history


def plot(path: str, true: list[dict[str, Any]], text: list[dict[str, Any]]) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for rows, name in ((true, "true ids"), (text, "re-tokenized text")):
        left.plot([r["step"] for r in rows], [r["reward"] for r in rows], label=name)
        right.plot([r["step"] for r in rows], [max(r["ratio"], 1e-16) for r in rows], label=name)
    left.set(xlabel="step", ylabel="reward", ylim=(0, 1.02))
    right.set(xlabel="step", ylabel="worst |importance ratio - 1|", yscale="log")
    right.axhline(1e-3, color="grey", linewidth=0.8)
    left.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def compare(path: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Rewards, and the largest and mean ratio before a step's first gradient step, of each algorithm's run."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for name, rows in runs.items():
        steps = [r["step"] for r in rows]
        line = left.plot(steps, [r["reward"] for r in rows], label=name)[0]
        right.plot(steps, [r["largest"] for r in rows], color=line.get_color())
        right.plot(steps, [r["mean_ratio"] for r in rows], color=line.get_color(), linestyle=":")
    left.set(xlabel="step", ylabel="reward", ylim=(0, 1.02))
    right.set(xlabel="step", ylabel="importance ratio, largest (dotted: mean)")
    left.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=os.environ.get("ROLLGATE", str(HERE.parents[1] / "build/release/rollgate")))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--retokenize", action="store_true", help="train on the messages' text, encoded anew")
    parser.add_argument("--plot", help="a PNG of both runs")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ppo")
    parser.add_argument("--compare", help="a PNG of a run of each algorithm")
    given = parser.parse_args()
    began = time.monotonic()
    if given.compare:
        compare(given.compare, {name: train(given.binary, given.steps, algorithm=name) for name in ALGORITHMS})
        return 0
    history = train(given.binary, given.steps, algorithm=given.algorithm, text=given.retokenize)
    print(f"reward {history[0]['reward']:.3f} -> {history[-1]['reward']:.3f} in {time.monotonic() - began:.0f} s")
    if given.plot:
        plot(given.plot, history, train(given.binary, given.steps, text=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
