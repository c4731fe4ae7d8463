/*
 * What the request writers of several wires share: ids, stop lists, grammars, out of struct
 * engine_request, as JSON.
 */
#ifndef RG_WIRE_WIRE_WRITE_H
#define RG_WIRE_WIRE_WRITE_H

#include <stdbool.h>

struct engine_image;
struct engine_options;
struct engine_request;
struct json;
struct json_out;
struct sampling;
struct str;
struct token_span;
struct wire_send;

/* [1,2,...], of ids from 0. On the loop only: it keeps a table. */
void wire_ids(struct json_out *o, struct token_span ids);

/* Key and array of the request's stop token ids and the model's; nothing when there are none or
 * the request ignores them. */
void wire_stop_ids(struct json_out *o, const char *key, const struct engine_request *q,
                   const struct engine_options *opt);

/* logit_bias: what was asked for, and -100 for what is banned; nothing where there is neither. */
void wire_bias(struct wire_send *s, struct json_out *o, const struct engine_request *q);

/* Writes JSON as it is. Of long text only the place is kept, where it stays until the request has
 * ended. */
void wire_json(struct wire_send *s, struct json_out *o, struct str text);

/* "data:image/png;base64,...", as a JSON string that o writes to s->body; the picture itself is not
 * copied, but read as it is sent. `zero`: with one byte of zero behind its end. */
void wire_data_url(struct wire_send *s, struct json_out *o, const struct engine_image *image,
                   bool zero);

/* The parameters that all engines know by the same name. */
void wire_sampling(struct json_out *o, const struct sampling *s);

/* A parameter as it was given, or nothing. */
void wire_given(struct json_out *o, const char *key, const struct json *v);

/* Writes a value of q's sampling that may be long: by the text made of it before (ready_texts.h),
 * if there is one. */
void wire_value(struct wire_send *s, struct json_out *o, const struct engine_request *q,
                const char *key, const struct json *v);

/* Writes a string, which is not absent. */
void wire_text(struct wire_send *s, struct json_out *o, const struct engine_request *q,
               const char *key, struct str text);

/* The text of a grammar of another kind ("regex", "ebnf", ...), or absent. */
struct str wire_grammar(const struct sampling *s, const char *kind);

/* Writes the scope for sharing computed prompts, under that key, and the call's priority, which
 * grows with its session. priority: 1 if the highest comes first, -1 the lowest, 0: the engine has
 * none. Members of engine_extra win. */
void wire_scheduling(struct json_out *o, const struct engine_request *q, const char *salt_key,
                     int priority);

#endif
