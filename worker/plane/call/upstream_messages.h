/*
 * Makes the messages of a request to an upstream that is asked with messages: the client's, plus
 * what the upstream had signed in its answers if the client left that out. Pure.
 */
#ifndef RG_CALL_UPSTREAM_MESSAGES_H
#define RG_CALL_UPSTREAM_MESSAGES_H

struct json;
struct json_out;

/* Writes the list. `signed_answers` is from session_plan_signed, or NULL. A member that the client
 * sent is kept. */
void upstream_messages_write(struct json_out *o, const struct json *messages,
                             const struct json *signed_answers);

#endif
