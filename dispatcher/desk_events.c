/*
 * GET /events of the dispatcher: changes of groups, queues and runners, for the workers, which pass
 * them on to their own followers. A key of the feed is a letter (g, q, r) and a name.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/serve/feed.h"
#include "dispatcher/desk.h"
#include "dispatcher/result.h"
#include "dispatcher/waits.h"

enum { EVENTS_TICK_MS = 250 };

static void put_group(struct desk *d, struct str id, struct json_out *o, const char **ret_event)
{
    const struct group *g = book_group(&d->book, id);
    struct waits_now now = desk_waits_now(d);

    *ret_event = g ? "group" : "group_gone";
    if (g) {
        result_write_row(g, &d->book, &now, o);
        return;
    }
    json_out_obj(o);
    json_out_member_str(o, "id", id);
    json_out_end_obj(o);
}

static void put_outcomes(const struct runner *r, struct json_out *o)
{
    json_out_member_obj(o, "outcomes");
    for (int i = 0; i < OUTCOMES; i++)
        json_out_member_i64(o, outcome_names[i], (int64_t)r->outcomes[i]);
    json_out_end_obj(o);
}

static void put_runner(struct desk *d, struct str name, struct json_out *o)
{
    static const struct runner nobodys; /* shown for a removed runner: not offered, not named */
    const struct runner *r = book_runner(&d->book, name);
    struct waits_now now = desk_waits_now(d);
    struct buf why = {0};

    r = r ? r : &nobodys;
    json_out_obj(o);
    json_out_member_str(o, "runner", name);
    json_out_member_i64(o, "running", (int64_t)r->running);
    json_out_member_i64(o, "free_slots", (int64_t)r->slots);
    put_outcomes(r, o);
    waits_of_runner(r, NULL, &now, &why);
    json_out_member_str(o, "blocked", why.len ? buf_str(&why) : STR(""));
    json_out_end_obj(o);
    buf_done(&why);
}

static void write_key(void *ctx, struct str key, struct buf *out)
{
    struct desk *d = ctx;
    struct str name = str_sub(key, 1, SIZE_MAX);
    struct buf json = {0};
    struct json_out o = json_out_to(&json);
    const char *event = "queue";

    if (key.p[0] == 'g') {
        put_group(d, name, &o, &event);
    } else if (key.p[0] == 'r') {
        event = "runner";
        put_runner(d, name, &o);
    } else {
        struct waits_now now = desk_waits_now(d);

        result_write_queue(&d->book, name, book_queue(&d->book, name), &now, &o);
    }
    feed_event(out, event, buf_str(&json));
    buf_done(&json);
}

void desk_events_init(struct desk *d)
{
    d->events = mem_zalloc(sizeof(*d->events));
    feed_init(d->events, d->loop, EVENTS_TICK_MS);
    d->events->write = write_key;
    d->events->ctx = d;
}

void desk_events_end(struct desk *d)
{
    feed_end(d->events);
}

void desk_events_done(struct desk *d)
{
    free(d->events);
}

static void record_change(struct desk *d, char letter, struct str name)
{
    struct buf key = {0};

    buf_add_c(&key, letter);
    buf_add_str(&key, name);
    feed_record(d->events, buf_str(&key));
    buf_done(&key);
}

void desk_events_runner(struct desk *d, const struct runner *r)
{
    if (feed_watched(d->events))
        record_change(d, 'r', str_cstr(r->name));
}

/* Announces to followers of /events that the group, its queue and its runner have changed or will
 * change. Costs one comparison without followers. */
static void desk_events_group(struct desk *d, const struct group *g)
{
    if (!feed_watched(d->events))
        return;
    record_change(d, 'g', g->spec.id);
    if (g->queue)
        record_change(d, 'q', str_cstr(g->queue->name));
    record_change(d, 'r', str_cstr(g->runner->name));
}

void desk_events_changed(struct desk *d, struct str group)
{
    const struct group *g = feed_watched(d->events) ? book_group(&d->book, group) : NULL;

    if (g)
        desk_events_group(d, g);
}

/* Writes the present events of a key. */
static void put_now(struct desk *d, char letter, const char *name, struct buf *out)
{
    struct buf key = {0};

    buf_add_c(&key, letter);
    buf_puts(&key, name);
    write_key(d, buf_str(&key), out);
    buf_done(&key);
}

/* Sends all queues and runners first, which are few. Groups are listed by GET /groups. */
void desk_events_get(struct desk_request *r)
{
    struct desk *d = r->desk;
    struct buf first = {0};
    struct err e = {0};

    for (size_t i = 0; i < d->book.queues.n; i++)
        put_now(d, 'q', d->book.queues.at[i]->name, &first);
    for (size_t i = 0; i < d->book.runners.n; i++)
        put_now(d, 'r', d->book.runners.at[i]->name, &first);
    if (d->draining)
        (void)err_set(&e, ERR_DRAINING, "the dispatcher ends: ask again");
    else
        (void)feed_join(d->events, r->x, REACH_PROCESS, STR(""), buf_str(&first), &e);
    if (e.kind != ERR_NONE)
        desk_error(r->x, &e);
    buf_done(&first);
}
