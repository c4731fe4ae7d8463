/*
 * Functions that the request writers of several wires share: they write ids, stop lists and
 * grammars of struct engine_request as JSON.
 */
#ifndef RG_WIRE_WIRE_WRITE_H
#define RG_WIRE_WIRE_WRITE_H

#include <stdbool.h>

#include "worker/text/tokens/span.h"

struct engine_image;
struct engine_options;
struct engine_request;
struct json;
struct json_out;
struct sampling;
struct str;
struct wire_send;

/* Writes ids (from 0) as [1,2,...]. On the loop only, because it keeps a table. */
void wire_ids(struct json_out *o, struct token_parts ids);

/* Reserves the space that a request with n ids usually needs, if they are not many. */
void wire_reserve(struct wire_send *s, size_t n);

/* Writes key and array of the request's stop token ids and the model's. Writes nothing if there are
 * none, or if the request ignores them. */
void wire_stop_ids(struct json_out *o, const char *key, const struct engine_request *q,
                   const struct engine_options *opt);

/* Writes logit_bias: the requested one, and -100 for banned ids. Writes nothing if there is
 * neither. */
void wire_bias(struct wire_send *s, struct json_out *o, const struct engine_request *q);

/* Writes JSON unchanged. Long text is only referenced, so it must not move until the request has
 * ended. */
void wire_json(struct wire_send *s, struct json_out *o, struct str text);

/* Writes "data:image/png;base64,..." as a JSON string to s->body, through o. The picture itself is
 * not copied, but read when it is sent. `zero`: with a zero byte after its end. */
void wire_data_url(struct wire_send *s, struct json_out *o, const struct engine_image *image,
                   bool zero);

/* Writes the parameters that have the same name in all engines. */
void wire_sampling(struct json_out *o, const struct sampling *s);

/* Writes a parameter as it was given, or nothing. */
void wire_given(struct json_out *o, const char *key, const struct json *v);

/* Writes a value of q's sampling that may be long: by the text that was made of it before
 * (ready_texts.h), if there is one. */
void wire_value(struct wire_send *s, struct json_out *o, const struct engine_request *q,
                const char *key, const struct json *v);

/* Writes a string, which must not be absent. */
void wire_text(struct wire_send *s, struct json_out *o, const struct engine_request *q,
               const char *key, struct str text);

/* Returns the text of a grammar of that kind ("regex", "ebnf", ...), or absent. */
struct str wire_grammar(const struct sampling *s, const char *kind);

/* Writes the scope for sharing computed prompts, under that key, and the call's priority, which
 * grows with its session. priority: 1 if the highest comes first, -1 if the lowest does, 0: the
 * engine has none. Members of engine_extra win. */
void wire_scheduling(struct json_out *o, const struct engine_request *q, const char *salt_key,
                     int priority);

#endif
