/*
 * What a request asks of an export: options from Accept, then the query, then the body.
 */
#ifndef RG_CONTROL_EXPORTING_OPTIONS_H
#define RG_CONTROL_EXPORTING_OPTIONS_H

#include <stdbool.h>

#include "worker/export/build/export.h"

struct json;
struct service;
struct service_request;

/* Reads them. `otherwise`: the format where the request names none; EXPORT_MILES begins with what
 * /samples has, whatever Accept says. *ret_score is the body's member `score` (finalize), or NULL.
 * What both borrow lies in the arena, which outlives them. -1: e names the option. */
int exporting_options(const struct service_request *r, enum export_format otherwise,
                      struct arena *a, struct export_options *ret, const struct json **ret_score,
                      struct err *e);

/* Reads the options of a request for one branch, token by token, on top of those of
 * exporting_options. */
void exporting_view_options(const struct service_request *r, struct arena *a,
                            struct export_options *o);

/* Whether ids are those of a model that is not at hand: nothing here can encode or decode them. */
bool exporting_strange_ids(const struct service *a);

#endif
