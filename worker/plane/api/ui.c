/* The viewer's files (ui.h): served from the binary, with headers that keep other pages' code out.
 * They contain no data, so no key is needed. Browsers ask again by ETag each time and get 304 if
 * the binary is the same. */

#include "worker/plane/api/ui.h"

#include "common/base/err.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/viewer/assets.h"

/* Only the gateway's own files are ever loaded, and no text becomes markup or code. */
static const char POLICY[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

/* Sets the headers of every file. */
static void set_headers(struct exchange *x, const struct viewer_asset *file)
{
    exchange_set_header(x, "Content-Security-Policy", str_cstr(POLICY));
    exchange_set_header(x, "X-Content-Type-Options", STR("nosniff"));
    exchange_set_header(x, "X-Frame-Options", STR("DENY"));
    exchange_set_header(x, "Referrer-Policy", STR("no-referrer"));
    exchange_set_header(x, "Cross-Origin-Opener-Policy", STR("same-origin"));
    exchange_set_header(x, "Cross-Origin-Resource-Policy", STR("same-origin"));
    exchange_set_header(x, "Cache-Control", STR("no-cache")); /* browsers ask again by its ETag */
    exchange_set_header(x, "Vary", STR("Accept-Encoding"));
    exchange_set_header(x, "ETag", str_cstr(file->etag));
}

/* Reports whether a comma-separated header has the word, whatever follows it (";q=..."; no browser
 * sends "gzip;q=0"). */
static bool names_word(struct str list, struct str word)
{
    return str_find(list, word, 0) != SIZE_MAX;
}

/* Sends a file, gzipped if the browser accepts that. */
static void send_file(struct service_request *r, const struct viewer_asset *file)
{
    struct str known = exchange_header(r->x, "if-none-match");
    bool gzip = names_word(exchange_header(r->x, "accept-encoding"), STR("gzip"));
    int status = names_word(known, str_cstr(file->etag)) ? 304 : 200;

    set_headers(r->x, file);
    if (gzip && status == 200)
        exchange_set_header(r->x, "Content-Encoding", STR("gzip"));
    respond_count(r->service, r->dialect, status);
    exchange_reply(r->x, status, file->type, gzip ? file->gzipped : file->plain);
}

/* Sends a file by name; an error if the viewer is off or has no such file. */
static void send_named(struct service_request *r, struct str name)
{
    const struct viewer_asset *file = r->service->config->ui ? viewer_find(name) : NULL;
    struct err e = {0};

    if (file) {
        send_file(r, file);
        return;
    }
    (void)err_set(&e, ERR_NOT_FOUND,
                  r->service->config->ui ? "the viewer has no such file"
                                         : "the viewer is switched off (--ui)");
    respond_error(r, NULL, &e);
}

void ui_page(struct service_request *r)
{
    send_named(r, STR("index.html"));
}

bool ui_holds(struct str path)
{
    return str_starts(path, STR("/ui/"));
}

/* Answers /ui/NAME; only GET. */
void ui_file(struct service_request *r)
{
    struct err e = {0};

    if (str_eq(exchange_method(r->x), STR("GET")) && str_eq(r->rest, STR("/ui/")) &&
        r->service->config->ui) {
        exchange_set_header(r->x, "Location", STR("../ui")); /* the page's own links begin there */
        respond_count(r->service, r->dialect, 308);
        exchange_reply(r->x, 308, "text/plain", STR("the viewer is at /ui\n"));
        return;
    }
    if (str_eq(exchange_method(r->x), STR("GET"))) {
        send_named(r, str_sub(r->rest, strlen("/ui/"), SIZE_MAX));
        return;
    }
    exchange_set_header(r->x, "Allow", STR("GET"));
    (void)err_set(&e, ERR_METHOD, "the path has no such method");
    respond_error(r, NULL, &e);
}
