/* The body of a request (exchange.h): how it is read, and how its memory is returned to the system.
 * The body is in libh2o's input, or decoded in a buffer of its own. */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/content_coding.h"
#include "common/serve/server_internal.h"

/* State of decoding a body that has a Content-Encoding. */
struct body_coding {
    struct content_decoder *decoder; /* NULL: decoding is over */
    struct buf body;                 /* the decoded bytes */
    struct err err;                  /* why the body is refused; ERR_NONE: it is accepted */
};

static struct str encoded_body(const struct exchange *x)
{
    return x->req && x->req->entity.base ? str_of(x->req->entity.base, x->req->entity.len)
                                         : STR("");
}

struct str exchange_closed_body(const struct exchange *x)
{
    return x->coding ? buf_str(&x->coding->body) : encoded_body(x);
}

void exchange_open_body(const struct exchange *x, struct str part)
{
    if (!x->coding && x->conn)
        packed_input_open(&x->conn->packed, part);
}

/* ------------------------------------------------------------------ decoding */

static enum content_coding coding_of(const struct exchange *x)
{
    enum content_coding coding = CODING_IDENTITY;

    for (size_t i = 0; i < x->req->headers.size; i++) {
        const h2o_header_t *h = &x->req->headers.entries[i];

        if (str_eq_c(str_of(h->name->base, h->name->len), "content-encoding"))
            coding = content_coding_add(coding, str_of(h->value.base, h->value.len));
    }
    return coding;
}

static void stop_decoding(struct exchange *x)
{
    content_decoder_free(x->coding->decoder);
    x->coding->decoder = NULL;
    server_count_unfinished(x->conn, 0);
}

void exchange_refuse_body(struct exchange *x, const struct err *e)
{
    x->coding->err = *e;
    stop_decoding(x);
    buf_done(&x->coding->body);
}

static void refuse_coding(struct exchange *x)
{
    struct err e = {0};

    exchange_set_header(x, "Accept-Encoding", STR(CONTENT_CODINGS));
    (void)err_set(&e, ERR_CODING,
                  "the body's Content-Encoding is not decoded here: send it as one of %s, or plain",
                  CONTENT_CODINGS);
    exchange_refuse_body(x, &e);
}

/* Decodes the next piece of the body. */
static void decode_piece(struct exchange *x)
{
    struct body_coding *c = x->coding;
    struct err e = {0};
    int rc;

    packed_input_open(&x->conn->packed, content_decoder_next(c->decoder));
    rc = content_decoder_step(c->decoder, &c->body, &e);
    if (rc < 0) {
        exchange_refuse_body(x, &e);
    } else if (rc == 0) {
        server_count_decoded(x->conn, c->body.len);
    } else {
        stop_decoding(x);
        x->body_bytes += c->body.len;
        x->conn->server->body_bytes += c->body.len;
    }
}

bool exchange_decode_body(struct exchange *x)
{
    enum content_coding coding;

    if (!x->coding) {
        coding = x->req->entity.len > 0 ? coding_of(x) : CODING_IDENTITY;
        if (coding == CODING_IDENTITY)
            return true;
        x->coding = mem_zalloc(sizeof(*x->coding));
        if (coding == CODING_UNKNOWN)
            refuse_coding(x);
        else
            x->coding->decoder = content_decoder_new(coding, encoded_body(x),
                                                     x->conn->server->conf.max_request_entity_size);
    }
    if (x->coding->decoder)
        decode_piece(x);
    return x->coding->decoder == NULL;
}

const struct err *exchange_body_error(const struct exchange *x)
{
    return x->coding && x->coding->err.kind != ERR_NONE ? &x->coding->err : NULL;
}

void exchange_free_coding(struct exchange *x)
{
    if (!x->coding)
        return;
    stop_decoding(x);
    buf_done(&x->coding->body);
    free(x->coding);
    x->coding = NULL;
}

/* ------------------------------------------------------------------ reading and freeing */

struct str exchange_body(const struct exchange *x)
{
    struct str body = exchange_closed_body(x);

    exchange_open_body(x, body);
    return body;
}

/* Returns whole pages of the fragment to the system. The input is libh2o's, which frees it as one
 * piece. */
void exchange_drop_body(const struct exchange *x, struct str part)
{
    struct str body = exchange_closed_body(x);

    CHECK(part.p >= body.p && part.p + part.len <= body.p + body.len);
    mem_drop_pages(part.p, part.len);
}
