"""docs/deploy.md: its settings and the Kubernetes manifest work unchanged, and every file that it names is in
deploy/."""
import os
import re
import shutil
import subprocess

import yaml

import gateway as g

PAGE = g.ROOT / "docs/deploy.md"
SAMPLE = g.ROOT / "deploy/rollgate.yaml"


def manifest():
    return {doc["kind"]: doc for doc in yaml.safe_load_all((g.ROOT / "deploy/kubernetes/rollgate.yaml").read_text(encoding="utf-8"))}


def container():
    return manifest()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]


def test_sample_settings_serve(start):
    subprocess.run([g.BINARY, "config", "--check", "--config", SAMPLE], check=True, capture_output=True, timeout=60)
    dump = subprocess.run([g.BINARY, "config", "--dump", "--config", SAMPLE], check=True, capture_output=True, text=True, timeout=60).stdout
    assert "log-format: json\n" in dump and "durability: process\n" in dump
    gateway = start(config=str(SAMPLE), log_format="text")
    session = gateway.post("/sessions").json()
    assert gateway.chat(session, "Hello").json()["choices"][0]["message"]["content"] == "Hello"


def test_sample_settings_in_comments_are_settings(tmp_path):
    """Without their mark they are the settings of a real node: only the folders and the key file are missing here."""
    text = re.sub(r"^#(?=\S)", "", SAMPLE.read_text(encoding="utf-8"), flags=re.M)
    (tmp_path / "rollgate.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run([g.BINARY, "config", "--check", "--config", tmp_path / "rollgate.yaml"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert set(re.findall(r"^(--[a-z-]+):", done.stdout + done.stderr, re.M)) == {"--model", "--admin-key-file"}, done.stderr


def test_kubernetes_settings_serve(start, tmp_path):
    text = manifest()["ConfigMap"]["data"]["rollgate.yaml"]
    mounts = {m["mountPath"] for m in container()["volumeMounts"]}
    folders = {os.path.dirname(path) if path.endswith("admin-keys") else path for path in re.findall(r"^[a-z-]+: (/\S+)", text, re.M)}
    assert all(any(f == m or f.startswith(m + "/") for m in mounts) for f in folders), folders
    (tmp_path / "admin-keys").write_text("k" * 48 + "\n", encoding="utf-8")
    (tmp_path / "rollgate.yaml").write_text(text.replace("/etc/rollgate-keys", str(tmp_path)), encoding="utf-8")
    gateway = start(config=str(tmp_path / "rollgate.yaml"), run_dir=str(tmp_path / "run"), workers=1)
    for probe in ("startupProbe", "readinessProbe"):
        assert gateway.get(container()[probe]["httpGet"]["path"]).status == 200
    assert gateway.get("/metrics").status == 401 and gateway.post("/sessions").status == 401


def test_kubernetes_leaves_time_to_drain():
    spec = manifest()["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    docs = subprocess.run([g.BINARY, "config", "--dump"], capture_output=True, text=True, timeout=60, check=True).stdout
    grace = int(re.search(r"^grace: (\d+)s", docs, re.M)[1])
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= grace + 21
    assert container()["command"][0] in (g.ROOT / "deploy/Containerfile").read_text(encoding="utf-8")
    stop = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert stop == ["/bin/sleep", "5"] and spec["template"]["spec"]["terminationGracePeriodSeconds"] >= grace + 21 + int(stop[1])


def test_image_has_the_version_everywhere():
    version = re.search(r"rollgate VERSION (\S+)", (g.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    for path in (PAGE, g.ROOT / "deploy/kubernetes/rollgate.yaml", g.ROOT / "deploy/compose/docker-compose.yaml"):
        found = re.findall(r"\brollgate:(\d[\w.]*)", path.read_text(encoding="utf-8"))
        assert found and set(found) == {version}, path


def test_key_commands_of_the_page_make_a_unit_that_needs_keys(tmp_path):
    """Section 3, below another root. systemctl is left out: it does not run here."""
    section = PAGE.read_text(encoding="utf-8").split("## 3. Keys")[1].split("\n## ")[0]
    lines = re.findall(r"^    (\S.*)$", section, re.M)
    commands = [line for line in lines if not line.startswith("systemctl")]
    assert len(commands) == 4 and len(lines) == 5
    for folder in ("etc/rollgate", "usr/share/rollgate"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(g.ROOT / "deploy/systemd/keys.conf", tmp_path / "usr/share/rollgate")
    script = re.sub(r"(?<=\s)/(?=etc/|usr/)", f"{tmp_path}/", "\n".join(commands))
    subprocess.run(["sh", "-euc", script], check=True, timeout=60)
    keys = tmp_path / "etc/rollgate/admin-keys"
    assert keys.stat().st_mode & 0o777 == 0o600 and re.fullmatch(r"[0-9a-f]{48}\n", keys.read_text(encoding="utf-8"))
    drop_in = (tmp_path / "etc/systemd/system/rollgate.service.d/keys.conf").read_text(encoding="utf-8")
    assert "\nLoadCredential=admin-keys:/etc/rollgate/admin-keys\n" in drop_in
    done = subprocess.run([g.BINARY, "config", "--check", "--listen", "0.0.0.0:8600", "--admin-key-file", keys], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_files_that_the_page_names_exist():
    text = PAGE.read_text(encoding="utf-8")
    names = set(re.findall(r"deploy/[\w./-]+\w", text)) | {f"deploy/{n}" for n in re.findall(r"/share/doc/rollgate/examples/([\w./-]+\w)", text)}
    assert len(names) >= 6
    assert not [n for n in names if not (g.ROOT / n).exists()]


def test_executor_key_of_the_page_is_good(start, tmp_path):
    """`rollgate key` needs the state folder of the gateway: that of the unit."""
    name, folder = re.search(r"rollgate key executor (\S+ \S+) --state-dir (\S+) >", PAGE.read_text(encoding="utf-8")).groups()
    unit = (g.ROOT / "deploy/systemd/rollgate.service").read_text(encoding="utf-8")
    assert name == "$(hostname -s)" and folder == "/var/lib/" + re.search(r"^StateDirectory=(\S+)$", unit, re.M)[1]
    (tmp_path / "admin-keys").write_text("k" * 48 + "\n", encoding="utf-8")
    gateway = start(workers=1, admin_key_file=str(tmp_path / "admin-keys"))
    key = subprocess.run([g.BINARY, "key", "executor", "node7", "--state-dir", f"{gateway.folder}/state"], check=True,
                         capture_output=True, text=True, timeout=60).stdout.strip()
    claim = gateway.post("/attempts/claim", {"executor": "node7", "slots": {"swe": 1}, "wait_s": 0},
                         headers={"Authorization": f"Bearer {key}"})
    assert claim.json() == {"attempts": []}
