"""deploy/kubernetes against the API's models (python3-kubernetes 22.6.0: Kubernetes 1.22). Every key must be a field of its
model, every value of the field's type, and required fields must be there. Compose files against docker-compose's schema."""
import copy
import os
import re
import shutil
import subprocess

import pytest
import yaml

import gateway as g
from packages_kit import ROOT, run

kubernetes = pytest.importorskip("kubernetes", reason="python3-kubernetes is not installed: scripts/setup --packages")
from kubernetes.client import models  # noqa: E402  pylint: disable=wrong-import-position

# kind -> (model, API); the fields of autoscaling/v2 are those of v2beta2, which clusters no longer serve
KINDS = {"ConfigMap": ("V1ConfigMap", "v1"), "Service": ("V1Service", "v1"), "StatefulSet": ("V1StatefulSet", "apps/v1"),
         "PodDisruptionBudget": ("V1PodDisruptionBudget", "policy/v1"), "NetworkPolicy": ("V1NetworkPolicy", "networking.k8s.io/v1"),
         "HorizontalPodAutoscaler": ("V2beta2HorizontalPodAutoscaler", "autoscaling/v2")}
FILES = {"rollgate": ["ConfigMap", "Service", "StatefulSet"],
         "rollgate-fleet": ["ConfigMap", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service", "Service", "StatefulSet"],
         "rollgate-store": ["NetworkPolicy", "Service", "StatefulSet"]}
SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str}


def faults_of(value, kind, path):
    """What does not fit the model `kind`, as lines that begin with the path."""
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        return [f"{path}: no list"] if not isinstance(value, list) else [f for i, v in enumerate(value) for f in faults_of(v, match[1], f"{path}[{i}]")]
    if match := re.fullmatch(r"dict\(str, (.*)\)", kind):
        return [f"{path}: no map"] if not isinstance(value, dict) else [f for k, v in value.items() for f in faults_of(v, match[1], f"{path}.{k}")]
    if kind in SCALARS:
        fits = isinstance(value, SCALARS[kind]) and (kind == "bool") == isinstance(value, bool)
        return [] if fits else [f"{path}: {value!r} is no {kind}"]
    if kind == "object":        # a number or a name: ports, resources
        return [] if isinstance(value, (str, int, dict)) and not isinstance(value, bool) else [f"{path}: {value!r}"]
    model = getattr(models, kind)
    if not isinstance(value, dict):
        return [f"{path}: no map"]
    fields = {json: field for field, json in model.attribute_map.items()}
    found = [f"{path}.{key}: unknown field" for key in value if key not in fields]
    found += [f for key, v in value.items() if key in fields for f in faults_of(v, model.openapi_types[fields[key]], f"{path}.{key}")]
    given = {fields[key]: v for key, v in value.items() if key in fields}
    try:
        model(**given)          # names a required field that is missing
    except ValueError as e:
        found.append(f"{path}: {e}")
    return found


def documents(name="rollgate"):
    return list(yaml.safe_load_all((ROOT / f"deploy/kubernetes/{name}.yaml").read_text()))


def test_every_manifest_is_checked():
    assert {p.stem for p in (ROOT / "deploy/kubernetes").iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_manifest_fits_the_models(name):
    assert kubernetes.__version__.startswith("22.6")
    assert sorted(d["kind"] for d in documents(name)) == FILES[name]
    for document in documents(name):
        model, api = KINDS[document["kind"]]
        assert faults_of(document, model, document["kind"]) == []
        assert document["apiVersion"] == api


@pytest.mark.parametrize("change, fault", [
    (lambda c: c.update(livenesProbe={}), "unknown field"), (lambda c: c["readinessProbe"]["httpGet"].pop("port"), "port"),
    (lambda c: c["ports"][0].update(containerPort="8600"), "is no int"), (lambda c: c["securityContext"].update(readOnlyRootFilesystem="yes"), "is no bool"),
    (lambda c: c.update(volumeMounts={}), "no list"), (lambda c: c["lifecycle"]["preStop"].update(sleep={"seconds": 5}), "unknown field"),
    (lambda c: c.pop("name"), "name")])
def test_models_find_mistakes(change, fault):
    document = copy.deepcopy(next(d for d in documents() if d["kind"] == "StatefulSet"))
    change(document["spec"]["template"]["spec"]["containers"][0])
    found = faults_of(document, "V1StatefulSet", "StatefulSet")
    assert found and fault in found[0], found


@pytest.mark.parametrize("name", FILES)
def test_manifest_is_consistent(name):
    those = documents(name)
    (spec,) = (d["spec"] for d in those if d["kind"] == "StatefulSet")
    services = {d["metadata"]["name"]: d["spec"] for d in those if d["kind"] == "Service"}
    pod, container = spec["template"]["spec"], spec["template"]["spec"]["containers"][0]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels and all(service["selector"] == labels for service in services.values())
    assert spec["serviceName"] in services
    volumes = {v["name"] for v in pod.get("volumes", [])} | {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
    assert {m["name"] for m in container["volumeMounts"]} == volumes
    ports = {p["name"] for p in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            at = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert at["port"] in ports
    assert "readinessProbe" in container
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]


def test_fleet_manifest_is_consistent():
    by_kind = {d["kind"]: d for d in documents("rollgate-fleet")}
    spec = by_kind["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    scaler = by_kind["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": by_kind["StatefulSet"]["metadata"]["name"]}
    assert scaler["minReplicas"] == spec["replicas"] > 1
    (metric,) = (m["pods"]["metric"]["name"] for m in scaler["metrics"])
    assert metric in (ROOT / "docs/metrics.md").read_text()
    settings = yaml.safe_load(by_kind["ConfigMap"]["data"]["rollgate.yaml"])
    assert settings["fleet-leave"] is True and spec["template"]["spec"]["terminationGracePeriodSeconds"] > 5 + int(settings["grace"].rstrip("s")) + 21
    store = {d["kind"]: d for d in documents("rollgate-store")}
    assert f"//{store['Service']['metadata']['name']}:{store['Service']['spec']['ports'][0]['port']}/" in settings["fleet"]
    assert store["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("name", ["rollgate", "rollgate-fleet"])
def test_settings_of_manifests_are_valid(name, tmp_path):
    """The gateway itself reads them, with the variables of the pod."""
    (config,) = (d["data"]["rollgate.yaml"] for d in documents(name) if d["kind"] == "ConfigMap")
    for key in ("admin-keys", "key-secret"):
        (tmp_path / key).write_text("5" * 64 + "\n")
    (tmp_path / "rollgate.yaml").write_text(config.replace("/etc/rollgate-keys/", f"{tmp_path}/"))
    env = {"ROLLGATE_FLEET_NODE": "rollgate-fleet-0", "ROLLGATE_FLEET_ADDRESS": "10.0.0.1:8600"} if "fleet" in name else {}
    run(g.BINARY, "config", "--check", "--config", tmp_path / "rollgate.yaml", env=dict(os.environ, **env))


def compose(path, check=True):
    if not shutil.which("docker-compose"):
        pytest.skip("docker-compose is not installed: scripts/setup --packages")
    return run("docker-compose", "-f", path, "config", check=check)


def test_compose_file_fits_the_schema():
    path = ROOT / "deploy/compose/docker-compose.yaml"
    services = yaml.safe_load(compose(path).stdout)["services"]
    assert set(services) == {"rollgate", "store", "prometheus", "grafana"}
    for service in services.values():
        for volume in service["volumes"]:
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            assert not source.startswith("/") or (ROOT / source).exists(), volume
    assert services["rollgate"]["read_only"] is True


def test_compose_schema_finds_mistakes(tmp_path):
    text = (ROOT / "deploy/compose/docker-compose.yaml").read_text()
    (tmp_path / "docker-compose.yaml").write_text(text.replace("read_only:", "readonly:"))
    done = compose(tmp_path / "docker-compose.yaml", check=False)
    assert done.returncode != 0 and "readonly" in done.stderr


def test_prometheus_of_compose_is_valid(tmp_path):
    text = (ROOT / "deploy/compose/prometheus.yaml").read_text()
    rules = yaml.safe_load((ROOT / "deploy/compose/docker-compose.yaml").read_text())["services"]["prometheus"]["volumes"]
    mounted = {v.split(":")[1]: ROOT / "deploy/compose" / v.split(":")[0] for v in rules if v.startswith(".")}
    for inside, outside in mounted.items():
        text = text.replace(inside, str(outside.resolve()))
    (tmp_path / "prometheus.yaml").write_text(text)
    if not shutil.which("promtool"):
        pytest.skip("prometheus is not installed: scripts/setup")
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yaml"], check=True, capture_output=True)
