"""docs/alerts.md and deploy/monitoring: the rules fire as their unit tests say, and a real Prometheus gets data for
every expression of rules and dashboard."""
import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request

import pytest
import yaml

import gateway as g
from runner_kit import script

PAGE = g.ROOT / "docs/alerts.md"
FOLDER = g.ROOT / "deploy/monitoring"
RULES = FOLDER / "rollgate-rules.yaml"
# What the issue of this page asks an alert for, each.
SUBJECTS = {"RollgateEngineDown", "RollgateQueueGrows", "RollgateDrift", "RollgateUnversioned", "RollgateRewardsMissing", "RollgateSinkLags",
            "RollgateDiskLow", "RollgateRestarts", "RollgateStalls"}


def alerts():
    group, = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def panels():
    board = json.loads((FOLDER / "rollgate-dashboard.json").read_text(encoding="utf-8"))
    return {panel["title"]: target["expr"] for panel in board["panels"] for target in panel["targets"]}


def expressions():
    return {**{name: rule["expr"] for name, rule in alerts().items()}, **panels()}


def test_prometheus_accepts_the_files(tmp_path):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True, timeout=60)
    for name in ("scrape.yaml", "rollgate-rules.yaml"):
        shutil.copy(FOLDER / name, tmp_path / name)
    subprocess.run(["promtool", "check", "config", tmp_path / "scrape.yaml"], check=True, capture_output=True, timeout=60)


def test_each_alert_fires_and_stays_quiet():
    """By its unit tests, of which each alert has one of both kinds."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    tests = yaml.safe_load((FOLDER / "rollgate-rules.test.yaml").read_text(encoding="utf-8"))["tests"]
    assert {t["name"] for t in tests} == {f"{name} {kind}" for name in alerts() for kind in ("fires", "stays quiet")}
    for t in tests:
        check, = t["promql_expr_test"]
        assert check["exp_samples"][0]["value"] == (1 if t["name"].endswith("fires") else 0) and t["name"].split()[0] in check["expr"]
    done = subprocess.run(["promtool", "test", "rules", "rollgate-rules.test.yaml"], cwd=FOLDER, text=True, capture_output=True, check=False,
                          timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert SUBJECTS <= set(alerts())


class Prometheus:
    def __init__(self, folder, target):
        self.port = g.free_port()
        shutil.copy(RULES, folder / RULES.name)
        config = yaml.safe_load((FOLDER / "scrape.yaml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as r:
            return json.load(r)["data"]

    def values(self, expr):
        try:
            return self.ask("/api/v1/query", query=expr)["result"]
        except OSError:
            return []

    def close(self):
        self.process.terminate()
        self.process.wait(30)


def as_data(expr):
    """The expression with comparisons as values: a rule that does not fire has data, too."""
    return re.sub(r" (>|<|==) (?!bool)", r" \1 bool ", expr) if "Rollgate" not in expr else expr


@pytest.mark.alone
def test_every_expression_returns_data_of_a_running_gateway(tmp_path):
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed")
    gateway = g.Gateway(workers=1, engine=["builtin:echo", "judge=vllm:http://127.0.0.1:1"], queue_timeout="200ms", sink=f"file:{tmp_path}/out",
                        max_session_inflight=1)
    agent = script(gateway.folder, "agent", "raise SystemExit(3)")
    with open(f"{gateway.folder}/runners.yaml", "w", encoding="utf-8") as f:
        json.dump({"runners": {"r": {"run": agent}}}, f)
    gateway.settings["runners"] = f"{gateway.folder}/runners.yaml"
    gateway.allow("process died").start()
    gateway.wait_line("executor runs")
    prometheus = Prometheus(tmp_path, f"127.0.0.1:{gateway.port}")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            session = gateway.post("/sessions").json()
            gateway.chat(session, "hello")
            gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions", {"model": "judge", "messages": [{"role": "user", "content": "x"}]})
            gateway.post("/sessions", {"no_such_field": 1})
            gateway.post(f"/sessions/{session['session_id']}/finalize")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        group = gateway.post("/groups", {"id": "g", "runner": "r", "reward": "external", "input": None, "attempts": 1})
        assert group.status == 201, group.text
        missing = {}

        def all_have_data():
            missing.clear()
            missing.update({name: expr for name, expr in expressions().items() if not prometheus.values(as_data(expr))})
            return not missing
        try:
            g.wait_until(all_have_data, 20, "every expression has data")
        except AssertionError as e:
            raise AssertionError(f"no data: {missing}") from e
        rules = prometheus.ask("/api/v1/rules")["groups"][0]["rules"]
        assert {r["name"] for r in rules} == set(alerts()) and all(r["health"] == "ok" for r in rules)
    finally:
        stop.set()
        thread.join()
        prometheus.close()
    gateway.stop()


def test_every_metric_of_an_expression_is_exposed(start):
    text = start(workers=1).get("/metrics").text
    exposed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    named = {name for e in expressions().values() for name in re.findall(r"rollgate_\w+", e)}
    assert len(named) >= 15
    for name in named:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert exposed.get(name) or exposed.get(base) == "histogram", name


def test_labels_of_a_rule_are_the_metrics():
    """A label that a summary or a selector names is one of its metric, or one that Prometheus adds."""
    table = (g.ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for name, rule in alerts().items():
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) | set(re.findall(r"\{(\w+)[=!]", rule["expr"]))
        metrics = re.findall(r"rollgate_\w+", rule["expr"])
        known = {"instance", "job"}
        for metric in metrics:
            row = re.search(rf"^\| `{metric}` \| \w+ \| ([^|]*) \|", table, re.M)
            known |= {label.strip() for label in row[1].split(",")}
        assert used <= known, name


def test_page_names_every_alert():
    cells = re.findall(r"^\| (`Rollgate.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(alerts()) and len(alerts()) >= 8


def test_finalized_sessions_count_by_reward(start):
    gateway = start(workers=1, engine="builtin:echo")
    for reward in (1, None):
        session = gateway.post("/sessions").json()
        assert gateway.chat(session, "x").status == 200
        if reward is not None:
            assert gateway.post(f"/sessions/{session['session_id']}/reward_info", {"reward_info": {"reward": reward}}).status == 200
        for _ in range(2):      # the second is the same end again
            assert gateway.post(f"/sessions/{session['session_id']}/finalize").status == 200
    m = gateway.metrics()
    assert m['rollgate_sessions_finalized_total{reward="set"}'] == 1 == m['rollgate_sessions_finalized_total{reward="missing"}']
    free = gateway.metrics()['rollgate_disk_free_bytes{process="supervisor"}']
    assert 0.5 < free / shutil.disk_usage(gateway.folder).free < 2
