"""docs/weights.md: its commands run as they are written, and tokens have the versions that the page promises."""
from page_kit import play_shell, read_blocks

import gateway as g

PAGE = g.ROOT / "docs/weights.md"


def test_commands_run_as_written(start, tmp_path):
    gateway = start(workers=1)
    session = gateway.post("/sessions").json()
    assert gateway.post("/admin/weight_version", {"version": 17}).status == 200
    said = gateway.chat(session, "Hello").json()["choices"][0]["message"]
    blocks = read_blocks(PAGE, "run")
    assert len(blocks) == 4
    play_shell(blocks, tmp_path, gateway.port)
    gateway.chat(session, [{"role": "user", "content": "Hello"}, said, {"role": "user", "content": "Again"}])
    trajectory, = gateway.post(f"/sessions/{session['session_id']}/finalize", {"format": "json"}).json()["trajectories"]
    sampled = {v for v, mask in zip(trajectory["response_versions"], trajectory["response_mask"]) if mask}
    assert sampled == {17, 18}
    assert {v for v, mask in zip(trajectory["response_versions"], trajectory["response_mask"]) if not mask} == {-1}
    assert [t["weight_versions"][0]["version"] for t in trajectory["turns"]] == ["17", "18"]
    fields = trajectory["extra_fields"]
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (17, 18)
