/* Rewrites a segment without its dead records. Each step copies STEP_BYTES; adjacent needed records
 * are written in one run. `moved` lists the new offset of each record, so that the table in memory
 * can be updated when the new segment replaces the old one. Until then nothing refers to the new
 * file, so an abandoned compaction only removes it. */

#include "common/journal/compaction.h"

#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/files.h"
#include "common/journal/journal.h"
#include "common/journal/segment.h"

enum { STEP_BYTES = 512 << 10 };

struct compaction {
    uint32_t old, number;
    int in, out;
    struct str bytes; /* content of the old file (mmap) */
    struct segment_reader reader;
    struct str run;  /* adjacent needed records that are not written yet */
    uint64_t length; /* length of the new file in bytes, including `run` */
    VEC(struct moved) moved;
};

int compaction_new(int dirfd, uint32_t old, uint32_t number, struct compaction **ret, struct err *e)
{
    struct compaction *c = mem_zalloc(sizeof(*c));

    c->old = old;
    c->number = number;
    c->out = -1;
    c->length = SEGMENT_HEAD;
    c->in = files_open_segment(dirfd, old, false, e);
    if (c->in < 0 || files_map(c->in, false, &c->bytes, e))
        goto out;
    if (segment_reader_init(&c->reader, c->bytes, old, e))
        goto out;
    c->out = files_create_segment(dirfd, number, e);
    if (c->out < 0)
        goto out;
    *ret = c;
    return 0;
out:
    compaction_free(c);
    return -1;
}

void compaction_free(struct compaction *c)
{
    if (!c)
        return;
    files_unmap(c->bytes);
    if (c->in >= 0)
        (void)close(c->in);
    if (c->out >= 0)
        (void)close(c->out);
    vec_done(&c->moved);
    free(c);
}

static int write_run(struct compaction *c, struct err *e)
{
    struct iovec part = {(void *)(uintptr_t)c->run.p, c->run.len};

    c->run = (struct str){0};
    return part.iov_len > 0 ? files_append(c->out, &part, 1, e) : 0;
}

/* Adds the record to the run. If it is not adjacent to the run, writes the run first. */
static int copy_record(struct compaction *c, const struct journal_record *rec, struct err *e)
{
    size_t from = c->reader.at - rec->size;

    if (c->run.p && c->run.p + c->run.len != c->bytes.p + from && write_run(c, e))
        return -1;
    if (!c->run.p)
        c->run.p = c->bytes.p + from;
    c->run.len += rec->size;
    *vec_push(&c->moved) = (struct moved){from, c->length};
    c->length += rec->size;
    return 0;
}

/* Reports whether the record that was just read must be copied. */
static bool is_record_needed(const struct compaction *c, struct liveness *live,
                             const struct journal_record *rec)
{
    return str_eq_c(rec->id, JOURNAL_NOTE) ||
           liveness_wants(live, rec->id, c->old, c->reader.at - rec->size);
}

int compaction_step(struct compaction *c, struct liveness *live, bool sync, struct err *e)
{
    size_t end = c->reader.at + STEP_BYTES;
    struct journal_record rec;
    int rc = 1;

    while (rc == 1 && c->reader.at < end) {
        rc = segment_reader_next(&c->reader, &rec);
        if (rc == 1 && is_record_needed(c, live, &rec) && copy_record(c, &rec, e))
            return -1;
    }
    if (write_run(c, e))
        return -1;
    if (sync && fdatasync(c->out))
        return err_sys(e, ERR_IO, "cannot sync a compacted segment");
    return rc == 0;
}

uint32_t compaction_old(const struct compaction *c)
{
    return c->old;
}

uint32_t compaction_number(const struct compaction *c)
{
    return c->number;
}

struct moved *compaction_detach_moved(struct compaction *c, size_t *ret_n)
{
    struct moved *m = c->moved.at;

    *ret_n = c->moved.n;
    c->moved.at = NULL;
    c->moved.n = c->moved.cap = 0;
    return m;
}

uint64_t compaction_bytes(const struct compaction *c)
{
    return c->length - SEGMENT_HEAD;
}

size_t compaction_table_bytes(const struct compaction *c)
{
    return c->moved.cap * sizeof(*c->moved.at);
}
