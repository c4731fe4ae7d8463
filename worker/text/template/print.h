/*
 * Appends str(), repr() and json.dumps() of values to a buffer. All functions return false with the
 * exception set if a value cannot be written (nesting, tojson of a value that JSON does not have).
 */
#ifndef RG_TEMPLATE_PRINT_H
#define RG_TEMPLATE_PRINT_H

#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

bool print_str(struct template_run *r, struct buf *out, struct value v);
bool print_repr(struct template_run *r, struct buf *out, struct value v);

/* Appends str(v) for 's', repr(v) for 'r', and ascii(v) for 'a'. */
bool print_converted(struct template_run *r, struct buf *out, struct value v, char how);

struct dump_options {
    struct str indent; /* absent: one line */
    struct str item_separator, key_separator;
    bool ensure_ascii, sort_keys;
};

bool print_json(struct template_run *r, struct buf *out, struct value v,
                const struct dump_options *o);

#endif
