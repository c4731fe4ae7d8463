/* Shapes: the facts about one family that a shared reader needs. The families' table (families.c)
 * has the values. */
#ifndef RG_PARSERS_SHAPES_H
#define RG_PARSERS_SHAPES_H

#include "worker/text/parsers/core.h"

/* json_call.c: {"name": ..., "arguments" or "parameters": ...}, alone or in a list. */
struct json_shape {
    const char *name, *args, *id; /* further names of these members, or NULL */
    const char *end;              /* mark that must close every call, or NULL */
    bool keyed;                   /* the form is {"NAME": {arguments}} */
    bool bare;       /* calls may open the answer and follow each other without marks */
    bool lists;      /* calls may be in brackets, separated by commas */
    bool needs_args; /* an object without arguments is not a call */
    bool escaped;    /* the object's own quotes may be written &#34; */
};

/* raw_call.c: NAME outside, arguments as one JSON object. */
struct raw_shape {
    const char *lead;      /* text between the mark and the name, or NULL */
    const char *id_end;    /* ends an id that precedes the name; NULL: no id */
    const char *name_end;  /* ends the name */
    const char *args_lead; /* precedes the arguments, or NULL */
    const char *args_tail;
    const char *end;  /* closes the call, or NULL */
    const char *bare; /* precedes a known name that opens the answer as text; or NULL */
};

/* tag_call.c: parameters in tags, one by one; the arguments are composed. */
struct tag_shape {
    /* ends the name. The first stop, and any stop of one byte, is part of the name's tag; others
     * begin what follows */
    const char *name_stops[4];
    const char *name_rest; /* end of the name's tag after the first stop, or NULL */
    const char *param;     /* begins a parameter */
    const char *key_stop;
    /* text after the key, if the value is a text, if it is JSON, if the schema decides */
    const char *kind_forms[3];
    const char *type_tag[2]; /* tags around a type between key and value, or NULL */
    const char *value_tag;   /* text between key and value, or NULL */
    const char *param_end;   /* mark that closes the value */
    bool newlines;           /* one newline at each end of a value is layout */
    bool early_stops;        /* the next parameter or the function's end also closes a value */
    bool loose;              /* values are typed by their text, except for string parameters */
    bool json_text;          /* a text parameter may be a quoted JSON string */
    bool json_body;          /* one JSON object may replace the parameters */
    bool json_call;          /* a whole call as JSON may replace the name */
    bool self_closes;        /* the other stops of the name close the call */
    bool xml;                /* the syntax has CDATA, entities, and white space around values */
    bool entities;           /* names and keys may contain entities */
    bool doubled;            /* the name may be written NAME.NAME */
    bool unwraps;            /* a lone parameter `arguments` or `input` may hold all arguments */
};

/* gemma_call.c: call:NAME{key:VALUE,...} with a mark instead of quotes. */
struct gemma_shape {
    const char *quote;
    const char *end;
    bool all_quoted; /* every value is quoted, whatever its type */
};

enum step json_call_run(struct parser *p);
enum step json_call_bare(struct parser *p);
enum step raw_call_run(struct parser *p);
enum step raw_call_bare(struct parser *p);
enum step kimi_call_run(struct parser *p);
enum step mistral_call_run(struct parser *p);
enum step mistral_call_bare(struct parser *p);
enum step tag_call_run(struct parser *p);
enum step python_call_run(struct parser *p);
enum step python_call_bare(struct parser *p);
enum step python_lines_run(struct parser *p); /* calls without brackets, one a line */
enum step python_lines_bare(struct parser *p);
enum step gemma_call_run(struct parser *p);
enum step nested_call_run(struct parser *p); /* MiniMax-M3 */

#endif
