/*
 * sampling_params.engine_extra: fields that a trainer gives for the engine's own requests, which
 * are passed on unchanged. Each kind's adapter lists the fields that it refuses (adapter.h). The
 * check is here. Pure.
 */
#ifndef RG_ENGINE_EXTRA_H
#define RG_ENGINE_EXTRA_H

#include <stdbool.h>

#include "common/base/err.h"

struct engine_adapter;
struct json;
struct json_out;
struct sampling;

/* Checks whether requests of this kind can have the fields of `extra` (NULL: there are none).
 * Returns -1 with ERR_INVALID; e->param names the field. */
int engine_extra_check(const struct engine_adapter *kind, const struct json *extra, struct err *e);

/* Reports whether requests of this kind have a field for each of the parameters, including
 * engine_extra. */
bool engine_takes_fields(const struct engine_adapter *kind, const struct sampling *s);

/* Writes the fields after our own members of the object in o: those of the request, or with `inner`
 * those of its sampling_params. extra may be NULL. */
void engine_extra_write(struct json_out *o, const struct json *extra);
void engine_extra_write_inner(struct json_out *o, const struct json *extra);

#endif
