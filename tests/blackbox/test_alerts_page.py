"""docs/alerts.md and deploy/prometheus: Prometheus accepts the rules, and every metric that they name is exposed by a gateway."""
import re
import shutil
import subprocess

import pytest
import yaml

import gateway as g
from page_kit import read_blocks

PAGE = g.ROOT / "docs/alerts.md"
FOLDER = g.ROOT / "deploy/prometheus"
RULES = FOLDER / "rollgate-rules.yaml"


def alerts():
    group, = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def expressions():
    return [rule["expr"] for rule in alerts().values()] + re.findall(r"^\| [^|`]+ \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.M)


def test_prometheus_accepts_the_files(tmp_path):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True, timeout=60)
    for name in ("scrape.yaml", "rollgate-rules.yaml"):
        shutil.copy(FOLDER / name, tmp_path / name)
    subprocess.run(["promtool", "check", "config", tmp_path / "scrape.yaml"], check=True, capture_output=True, timeout=60)


def test_scrape_block_is_the_file():
    (block, _), = read_blocks(PAGE, "scrape")
    assert block == (FOLDER / "scrape.yaml").read_text(encoding="utf-8")


def test_every_metric_of_a_rule_is_exposed(start):
    text = start(workers=1).get("/metrics").text
    exposed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    named = {name for e in expressions() for name in re.findall(r"rollgate_\w+", e)}
    assert len(named) >= 15
    for name in named:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert exposed.get(name) or exposed.get(base) == "histogram", name


def test_labels_of_a_rule_are_the_metrics(start):
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
