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
    bool router;           /* the source is an SMG's GET /workers; else a file */
    const char *where;     /* URL of the SMG, or path of the file */
    const char *options;   /* ",key-file=F" for each engine of a router; or "" */
    const char *as_engine; /* the router as an argument of --engine, for its key and TLS settings */
};

/* Engine arguments in the source's order. */
struct engine_texts {
    const char **at;
    size_t n, cap;
    bool none; /* the file has only the line "none" */
    /* number of a router's workers that cannot be used here: prefill, decode, gRPC */
    size_t left_out;
};

/* Parses file:PATH or smg:URL[,option=value]... into the arena. Fails with ERR_CONFIG. */
int engine_source_parse(struct arena *a, const char *text, struct engine_source *ret,
                        struct err *e);

/* Parses lines of engine arguments, or the single line "none". Blank lines and those that begin
 * with # are ignored. Fails with ERR_CONFIG if a line is not a valid argument. The caller frees
 * texts->at; its strings are in the arena. */
int engine_source_lines(struct arena *a, struct str text, struct engine_texts *ret, struct err *e);

/* Parses the answer to GET /workers: {"workers": [{"url", "worker_type"?}]}, or the older {"urls":
 * [...]}. Fails with ERR_CONFIG for anything else. */
int engine_source_workers(struct arena *a, const struct engine_source *s, struct str text,
                          struct engine_texts *ret, struct err *e);

#endif
