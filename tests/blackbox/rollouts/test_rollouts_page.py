"""docs/rollouts.md: runs the steps of its first group, with the page's runner file and group."""
import json
import re

import yaml

import gateway as g
import runner_kit
from page_kit import read_blocks

PAGE = g.ROOT / "docs/rollouts.md"


def program(path, text):
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_first_group_of_the_page_is_trained_and_acknowledged(start, tmp_path):
    (text, _), = read_blocks(PAGE, "runners")
    group = json.loads(re.search(r"\{\"id\": .*\}(?=`)", PAGE.read_text(encoding="utf-8"))[0])
    agent = program(tmp_path / "agent", f"[ \"$*\" = '--image {group['input']['image']}' ] || exit 1\n"
                    "curl -s $OPENAI_BASE_URL/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n")
    grade = program(tmp_path / "grade", "echo looks good\necho 1\n")
    runners = yaml.safe_load(text.replace("/opt/swe/agent", str(agent)).replace("/opt/swe/grade", str(grade)))["runners"]
    gateway = start(workers=1)
    assert gateway.post("/groups", group).status == 201
    with runner_kit.Runner(gateway, runners):
        settled = gateway.get(f"/groups/{group['id']}/wait?timeout_s=60").json()
    assert settled["state"] == "finished" and settled["succeeded"] == group["n"]
    taken, = gateway.get("/queues/train/next").json()["groups"]
    for member in taken["members"]:
        assert member["reward"] == 1
        export = gateway.post(f"/sessions/{member['session_id']}/finalize", {"format": "json"}).json()
        assert export["trajectories"][0]["response_mask"][0] == 1
    assert gateway.post("/queues/train/ack", {"groups": [group["id"]]}).json() == {"acked": 1}
    assert gateway.get(f"/groups/{group['id']}").status == 404
