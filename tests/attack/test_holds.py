"""What holds.py makes of a gateway's log."""
import gateway as g
import holds

LOG = f"""2026-01-01T00:00:00.000Z info rollgate 7 serves
hold 7 12 after 3100 cpu 3050 faults 7
{holds.SAMPLER}(+0x1234)
/lib/x86_64-linux-gnu/libc.so.6(+0x3c050)
/lib/x86_64-linux-gnu/libc.so.6(read+0x10)
{g.BINARY}(+0x11)
{g.BINARY}(+0x22)
hold 7 12 after 4100 cpu 4050 faults 9
{holds.SAMPLER}(+0x1234)
a line of the log between
hold 8 12 after 3500 cpu 10 faults 0
{holds.SAMPLER}(+0x1234)
"""


def test_samples_belong_to_their_turns():
    turns = holds.samples(LOG)
    assert sorted(turns) == [(7, 12), (8, 12)] and [s[:3] for s in turns[7, 12]] == [(3100, 3050, 7), (4100, 4050, 9)]
    assert turns[8, 12][0][:3] == (3500, 10, 0)


def test_a_stack_has_names_and_not_the_loop_s_own():
    frames = holds.samples(LOG)[7, 12][0][3]
    assert holds.stack(frames, {"0x11": "read_piece", "0x22": "run_tasks"}) == "read < read_piece"
