/*
 * The machinery that all grammars share: source bytes with absolute offsets, the accounting of
 * every byte (core_output), literals that may be cut, the life of one call. Internal to parsers/.
 *
 * Offsets are absolute: bytes since the start of the completion. in holds [base, base + in.len);
 * [base, done) has already been given to the sink and goes away when a feed ends.
 * A grammar reads one block ("unit"): it begins at done (with lead: white space, section tags)
 * and must not call core_output before the call is committed or accepted.
 */
#ifndef RG_PARSERS_CORE_H
#define RG_PARSERS_CORE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/text/parsers/object_scan.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/parsers/python_scan.h"
#include "worker/text/parsers/tool_index.h"

/* Result of a step. */
enum step {
    STEP_MORE, /* the present bytes do not decide */
    STEP_YES,  /* matched; pos is after it. A unit: the call is accepted */
    STEP_NO,   /* not that. A unit: not a valid call */
};

struct parser;

struct json_shape;
struct raw_shape;
struct tag_shape;
struct gemma_shape;

/* A message's head in front of its body: MARK word END. It may open the answer without its mark. */
struct message_head {
    const char *mark;
    const char *lead; /* text before the word when the mark is not there; NULL: nothing */
    const char *end[4];
};

/* How a family writes calls: the marks that parser.c searches, and the reader of the text between
 * them, which families share, with its shape. */
struct grammar {
    const char *open[2];  /* section begins; a call may follow after white space */
    const char *begin[4]; /* call begins */
    char opened; /* a call may begin with this byte right after a section's tag; it is part of the
                    call. 0: none */
    bool named;  /* after a section's tag the call's name may follow directly */
    const char *close[3];  /* section ends */
    const char *skip[4];   /* syntax wherever it is between calls */
    const char *prose[2];  /* a call may begin with this in the middle of text; part of the call */
    const char *end;       /* call end: where a broken committed call stops, or NULL */
    const char *within[6]; /* other marks in a call that a vocabulary may have as tokens */
    /* Reads a call from pos on (after the begin mark); keeps its state in p->call. */
    enum step (*run)(struct parser *p);
    /* Finds a call without a mark at pos, if only white space is between it and the start or the
     * last call. NULL: the grammar has no such calls. YES: pos is where run starts. */
    enum step (*bare)(struct parser *p);
    const struct message_head *header;
    const struct json_shape *json;
    const struct raw_shape *raw;
    const struct tag_shape *tags;
    const struct gemma_shape *gemma;
};

/* Tags around a thought, in any of several spellings; NULL-filled. */
struct think_tags {
    const char *start[3];
    const char *end[3];
    const char *wrap[4]; /* marks around the answer: syntax */
    bool forced;      /* the model starts inside its thought even if the prompt does not say so */
    bool call_closes; /* a tool call ends an open thought */
    bool bare_end;    /* an end tag may open an answer without a thought */
    bool newlines;    /* newlines after the end tag are syntax */
};

enum parser_phase {
    PHASE_START,
    PHASE_REASONING,
    PHASE_CONTENT,
    PHASE_OPENED,
    PHASE_HEADER,
    PHASE_UNIT,
    PHASE_SKIPPED, /* an element of a list is no call: to the next element */
    PHASE_BROKEN
};

/* Warnings about an answer, as a turn's parse_warning names them. */
enum parser_warning {
    WARN_BLOCK,    /* no valid call */
    WARN_MESSAGE,  /* channels: neither text, thought nor a valid call */
    WARN_UNCLOSED, /* a call without its closing mark */
    WARN_CUT,      /* the last one, cut */
    WARN_STREAMED, /* not a valid call, but its arguments have gone out */
    WARN_GIVEN_UP, /* no further blocks are searched */
    WARNING_COUNT
};

enum { CALL_DEPTH_MAX = 64, NAME_MAX_BYTES = 256 };

/* The call being read. */
struct tool_call {
    int st;           /* the grammar's state */
    int stage;        /* state of an outer grammar around another */
    int field;        /* kind of the value being read */
    bool ready;       /* name known, arguments begun: may be committed */
    bool committed;   /* CALL_BEGIN is out */
    bool ended;       /* CALL_END as well */
    bool unclosed;    /* its own closing mark is missing; a warning when it is accepted */
    bool prose;       /* it began in the middle of text */
    bool listed;      /* it is in brackets */
    bool wrapped;     /* the only parameter may hold all arguments */
    bool args_made;   /* arguments are composed in `made`, not the model's own bytes */
    size_t unsaid;    /* composed: from here on nothing is in `made` yet; 0: all up to pos is */
    size_t item;      /* first byte of an element of a list; 0: the call is in no list */
    size_t from;      /* a start that the grammar remembers (key, value) */
    size_t args_from; /* own bytes: [args_from, args_to) */
    size_t args_to;   /* 0 while open */
    size_t args_sent; /* up to here they are out */
    unsigned n_params;
    unsigned types;  /* types of the parameter being read */
    struct buf name; /* decoded */
    struct buf id;   /* the model's own id, when it wrote one */
    struct buf key;  /* parameter name being read */
    struct buf made; /* composed arguments that are not out yet */
    struct object_scan scan;
    struct python_scan python;
    size_t closer;    /* pythonic: the quote that closes the present broken string; 0: none */
    size_t mark_from; /* pythonic: the block's closing mark does not begin before this byte */
    unsigned depth;   /* number of nested values */
    uint8_t levels[CALL_DEPTH_MAX];             /* for each nested value: kind of its container */
    const struct json *schemas[CALL_DEPTH_MAX]; /* for each nested value: its schema, or NULL */
    size_t values[CALL_DEPTH_MAX];              /* for each nested value: its start in `made` */
    uint16_t name_ends[CALL_DEPTH_MAX]; /* for each nested value: the end of its name in `key` */
};

struct parser {
    const struct think_tags *think;
    const struct grammar *grammar; /* NULL: none */
    enum tool_kind tool;
    struct tool_index *tools;
    size_t hold_bytes;
    struct parse_sink sink;
    struct buf in;
    size_t base, done, pos;
    size_t mark_end;   /* end of the present unit's mark */
    size_t blank_from; /* all in [blank_from, blank_to) is white space */
    size_t blank_to;
    size_t reread;       /* bytes of failed units, which were read again */
    size_t looks;        /* for the tool that takes the arguments of a call without a name */
    bool calls_given_up; /* too many of those: no further calls are searched */
    uint32_t warned[WARNING_COUNT];
    bool headless; /* no header opens the answer */
    int phase;     /* enum parser_phase */
    bool final;
    bool reasoning_open;
    bool call_closes; /* a call ends an open thought */
    bool drops_newlines;
    bool quiet;      /* only white space since the start, the thought or the last call */
    bool marked;     /* some thought or call was recognised */
    bool in_section; /* a section with a valid call is open */
    bool in_list;    /* between the calls of a list */
    int n_calls;
    struct tool_call call;
    bool harmony;               /* channels: `phase` is then enum harmony_phase */
    enum parse_kind body;       /* harmony: what the open message's body is */
    bool verbatim;              /* harmony: its end mark is text as well */
    struct parser_bytes starts; /* parser_steady: what was found for phase and section */
    int starts_of;              /* phase and section of `starts`; 0: none yet */
};

static inline size_t core_end(const struct parser *p)
{
    return p->base + p->in.len;
}

static inline char core_at(const struct parser *p, size_t off)
{
    return p->in.p[off - p->base];
}

static inline struct str core_cut(const struct parser *p, size_t from, size_t to)
{
    return str_of(p->in.p + (from - p->base), to - from);
}

/* Reports whether pos is at the end of all text. */
static inline bool core_over(const struct parser *p)
{
    return p->final && p->pos == core_end(p);
}

static inline bool core_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool core_all_blank(struct str s);

/* Returns the end of the white space from `from` on, so far. A repeated search of a growing run
 * continues where it ended. */
size_t core_blanks_end(struct parser *p, size_t from);

/* Gives the bytes [done, upto) to the sink as `kind`. */
void core_output(struct parser *p, enum parse_kind kind, size_t upto);
/* Takes the bytes before pos: as text, or, while nothing but calls has come, as white space that
 * waits for what follows. */
void core_output_text(struct parser *p);
/* Emits the warning the first time; later ones are counted. */
void core_warn(struct parser *p, enum parser_warning what);
/* At the end: how often, where it was more than once. */
void core_warn_counts(struct parser *p);

/* Reports whether `lit` is at off. MORE if the present bytes are a proper prefix of it. */
enum step core_lit(const struct parser *p, size_t off, const char *lit);

/* Matches a literal at pos; YES moves pos after it. */
enum step core_eat(struct parser *p, const char *lit);

/* A closing mark at pos after white space; at the end of all text a cut one will do. */
enum step core_eat_close(struct parser *p, const char *lit);

/* Skips white space; YES once another byte, or the end of all text, is seen. */
enum step core_blanks(struct parser *p);

/* Moves pos to the first position from it on where one of the n marks is (YES, *which) or may begin
 * (MORE). If there is none, returns MORE with pos at the end. NULL marks are skipped. */
enum step core_find(struct parser *p, const char *const *marks, size_t n, size_t *which);

/* Reports whether pos is more than max_bytes after `from`, and moves it back to that limit. So
 * later steps do not depend on how far a search happened to get. */
bool core_beyond(struct parser *p, size_t from, size_t max_bytes);

/* --- the call at hand --- */

/* Clears the call. */
void tool_call_reset(struct parser *p);
/* The schema of the call's tool: *known is false when tools are given and none has its name. */
const struct json *tool_call_schema(const struct parser *p, bool *known);
/* The types of the call's parameter `key`; 0 when it is not declared. */
unsigned tool_call_types(const struct parser *p, struct str key);
/* Name known and arguments begun: sets ready; NO when the name is unknown. */
enum step tool_call_ready(struct parser *p);
void tool_call_begin(struct parser *p);
/* Sends the certain part of a call's events when the unit is longer than hold_bytes. */
void tool_call_stream(struct parser *p);
/* Marks a committed call as not valid; the search for its end continues from pos. Arguments that
 * are the model's own bytes continue up to that end. For composed arguments, and after complete
 * ones, the unused source is text. */
void tool_call_breaks(struct parser *p);
/* The bytes up to pos of such a call. */
void tool_call_pass_remainder(struct parser *p);
/* Its end, in front of pos. */
void tool_call_remainder_ends(struct parser *p);
/* Accepts the call: sends its missing events and takes the source up to pos. */
void tool_call_accept(struct parser *p);
void tool_call_end(struct parser *p, bool broken);
/* Reads a JSON object at pos as the arguments; YES after its closing brace. */
enum step tool_call_scan_args(struct parser *p);

/* --- tables (families.c) --- */

/* The grammar of a kind; NULL: none, or channels. */
const struct grammar *grammar_of(enum tool_kind kind);

/* Returns the kind's tags; all are NULL if it has no tags (or has channels). */
const struct think_tags *think_tags_of(enum reasoning_kind kind);

/* Harmony has channels instead of one text: it replaces the whole loop. */
/* One step; false when nothing more can be decided. */
bool harmony_step(struct parser *p);
/* Whether the text is one of its marks, or part of one. */
bool harmony_reads(struct str token);

#endif
