/*
 * An outside source of the set of engines (--engine-source): a file with one engine a line, or the
 * list of workers of an SGLang router (SMG). This file parses the setting and the source's text;
 * discovery.c reads the source and applies it.
 */
#ifndef RG_ENGINE_ENGINE_SOURCE_H
#define RG_ENGINE_ENGINE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct engine_source {
    bool router;           /* an SMG's GET /workers; else a file */
    const char *where;     /* its URL, or the path */
    const char *options;   /* ",key-file=F": of each engine of a router; "" */
    const char *as_engine; /* a router as an argument of --engine, for its key and TLS settings */
};

/* Engine arguments, in the source's order. */
struct engine_texts {
    const char **at;
    size_t n, cap;
    bool none;       /* the one line says that there are none */
    size_t left_out; /* workers of a router that cannot be asked here: prefill, decode, gRPC */
};

/* file:PATH or smg:URL[,option=value]...; in the arena. ERR_CONFIG. */
int engine_source_parse(struct arena *a, const char *text, struct engine_source *ret,
                        struct err *e);

/* Lines of engine arguments, or the one line "none"; blank ones and those that begin with # are
 * none. ERR_CONFIG when a line cannot be an argument. texts->at is the caller's to free, its
 * strings are the arena's. */
int engine_source_lines(struct arena *a, struct str text, struct engine_texts *ret, struct err *e);

/* The answer to GET /workers: {"workers": [{"url", "worker_type"?}]}, or the older {"urls": [...]}.
 * ERR_CONFIG when it is something else. */
int engine_source_workers(struct arena *a, const struct engine_source *s, struct str text,
                          struct engine_texts *ret, struct err *e);

#endif
