/* Reads a session's records back, in the order of the disk and with few reads. */
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/files.h"
#include "common/journal/journal_internal.h"
#include "common/journal/segment.h"

/* READ_STEP: bytes of one journal_read. READ_RUN_MAX: longest single read. READ_GAP: longest
 * distance between two records of one read. */
enum { READ_STEP = 64 << 10, READ_RUN_MAX = 4 << 20, READ_GAP = 8 << 10 };

/* Returns the descriptor of a segment, which stays open for the next read. */
static int read_fd(struct journal *j, uint32_t number, struct err *e)
{
    if (j->read_fd >= 0 && j->read_number == number)
        return j->read_fd;
    if (j->read_fd >= 0)
        (void)close(j->read_fd);
    j->read_fd = files_open_segment(j->dirfd, number, false, e);
    j->read_number = number;
    return j->read_fd;
}

/* A requested record: its position, and the reader's number for it. */
struct wanted {
    struct record_place at;
    size_t name;
};

/* Orders records by their position on disk. */
static int compare_offsets(const void *a, const void *b)
{
    const struct record_place *x = &((const struct wanted *)a)->at,
                              *y = &((const struct wanted *)b)->at;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Returns the number of records, from the first on, that one read covers: they follow each other
 * with small gaps. Sets *ret_bytes to the length of the read. */
static size_t run_of(const struct wanted *w, size_t n, size_t *ret_bytes)
{
    uint64_t from = w->at.offset, end = from + w->at.size;
    size_t k = 1;

    for (; k < n; k++) {
        const struct record_place *p = &w[k].at;

        if (p->number != w->at.number || p->offset < end || p->offset - end > READ_GAP ||
            p->offset + p->size - from > READ_RUN_MAX)
            break;
        end = p->offset + p->size;
    }
    *ret_bytes = (size_t)(end - from);
    return k;
}

/* Reads the bytes of a run of records. */
static int read_run(struct journal *j, const struct wanted *w, size_t bytes, struct buf *into,
                    struct err *e)
{
    int fd = read_fd(j, w->at.number, e);
    size_t got = 0;

    if (fd < 0)
        return -1;
    buf_clear(into);
    buf_reserve(into, bytes);
    while (got < bytes) {
        ssize_t n = pread(fd, into->p + got, bytes - got, (off_t)(w->at.offset + got));

        j->stats.reads++;
        if (n <= 0)
            return err_sys(e, ERR_IO, "cannot read journal segment %u", w->at.number);
        got += (size_t)n;
    }
    return 0;
}

/* Reads records in runs. Checks the checksum and the session of each record. */
static int read_wanted(struct journal *j, struct str session_id, const struct wanted *w, size_t n,
                       const struct journal_reader *reader, struct err *e)
{
    struct buf bytes = {0};
    size_t size = 0, k = 0;
    int rc = 0;

    for (; n > 0 && rc == 0; w += k, n -= k) {
        k = run_of(w, n, &size);
        rc = read_run(j, w, size, &bytes, e);
        for (size_t i = 0; i < k && rc == 0; i++) {
            struct str all = str_of(bytes.p + (w[i].at.offset - w->at.offset), w[i].at.size);
            struct journal_record rec;

            if (segment_record(all, &rec) || !str_eq(rec.id, session_id))
                rc = err_set(e, ERR_IO, "journal segment %u is damaged at %llu", w[i].at.number,
                             (unsigned long long)w[i].at.offset);
            else
                rc = reader->each(reader->ctx, w[i].name, rec.payload, e) ? -1 : 0;
        }
    }
    buf_done(&bytes);
    return rc;
}

int journal_read(struct journal *j, struct str session_id, size_t *at,
                 const struct journal_reader *reader, struct err *e)
{
    VEC(struct wanted) v = {0};
    struct wanted w = {.name = *at};
    size_t bytes = 0;
    int rc;

    while (bytes < READ_STEP && liveness_find(&j->live, session_id, w.name, &w.at)) {
        if (w.at.size > 0)
            *vec_push(&v) = w;
        bytes += w.at.size;
        w.name++;
    }
    rc = read_wanted(j, session_id, v.at, v.n, reader, e);
    *at = w.name;
    vec_done(&v);
    return rc ? -1 : bytes > 0;
}

int journal_read_records(struct journal *j, struct str session_id, const uint32_t *records,
                         size_t n, const struct journal_reader *reader, struct err *e)
{
    struct wanted *w = mem_calloc(n, sizeof(*w));
    size_t there = 0;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        w[there].name = i;
        if (!liveness_find(&j->live, session_id, records[i], &w[there].at))
            rc = err_set(e, ERR_IO, "the journal has no such record of the session");
        there += w[there].at.size > 0;
    }
    if (rc == 0 && there > 0) {
        qsort(w, there, sizeof(*w), compare_offsets);
        rc = read_wanted(j, session_id, w, there, reader, e);
    }
    free(w);
    return rc;
}
