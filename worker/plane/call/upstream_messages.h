/*
 * The messages of a request to an upstream that is asked with messages: the client's, with what the
 * upstream had signed of its answers put back where the client left it out. Pure.
 */
#ifndef RG_CALL_UPSTREAM_MESSAGES_H
#define RG_CALL_UPSTREAM_MESSAGES_H

struct json;
struct json_out;

/* Writes the list. signed_answers: session_plan_signed, or NULL. The client's own members win. */
void upstream_messages_write(struct json_out *o, const struct json *messages,
                             const struct json *signed_answers);

#endif
