// The gateway's routes, with the key that the user gave for this tab.

const KEY = "rollgate-key";
const LIMIT_PAGE = 1000;

// In a page of `rollgate export --html` the data stands in the page and nothing is asked for.
export const embedded = readEmbedded();

function readEmbedded() {
  const element = document.getElementById("rollgate-data");
  return element ? JSON.parse(element.textContent) : null;
}

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function key() {
  return embedded ? null : sessionStorage.getItem(KEY);
}

export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// The session that a runner's key is for; null for an admin's key or none.
export function keySession() {
  const found = /^rgr-(w\d+-[0-9a-f]{32})-/.exec(key() || "");
  return found ? found[1] : null;
}

// Relative to the page, so that a proxy may put the gateway below a folder.
export function address(path) {
  return new URL(path.replace(/^\//, ""), document.baseURI);
}

function headers() {
  return key() ? {Authorization: `Bearer ${key()}`} : {};
}

async function refused(answer) {
  let error = {};
  try {
    error = (await answer.json()).error || {};
  } catch {
    // not one of ours: the status says enough
  }
  return new ApiError(answer.status, error.code || "", error.message || `HTTP ${answer.status}`);
}

export async function ask(path, options = {}) {
  const answer = await fetch(address(path), {cache: "no-store", ...options, headers: {...headers(), ...options.headers}});
  if (!answer.ok) throw await refused(answer);
  return answer;
}

export async function json(path, options) {
  return (await ask(path, options)).json();
}

export async function post(path, body) {
  return ask(path, {method: "POST", body: JSON.stringify(body), headers: {"Content-Type": "application/json"}});
}

// Pages of all sessions, one after the other; `page` gets each list, and returns false to stop.
export async function eachPage(path, member, page, signal) {
  let cursor = null;
  do {
    const query = new URLSearchParams({limit: LIMIT_PAGE});
    if (cursor) query.set("cursor", cursor);
    const got = await json(`${path}${path.includes("?") ? "&" : "?"}${query}`, {signal});
    if (page(got[member]) === false) return;
    cursor = got.next_cursor;
  } while (cursor);
}

// --- streams ---

// Server-sent events by fetch: EventSource cannot send a key. `on` gets (name, data) of each; ends when the answer ends.
async function readEvents(path, on, signal) {
  const answer = await ask(path, {signal, headers: {Accept: "text/event-stream"}});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    left += value;
    const parts = left.split("\n\n");
    left = parts.pop();
    for (const part of parts) readEvent(part, on);
  }
}

function readEvent(text, on) {
  let name = "message";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) on(name, JSON.parse(data));
}

// Whether somebody may see this page. Browsers hold six connections to a gateway for all their tabs together, and keep those
// of pages that were left for "back": streams of pages that nobody sees would leave none for the one that is looked at.
const HIDDEN_MS = 3000;

class Sight {
  constructor() {
    this.seen = true;
    this.listeners = new Set();
    addEventListener("pagehide", () => this.set(false));
    addEventListener("pageshow", () => this.set(true));
    document.addEventListener("visibilitychange", () => this.look());
    this.look();
  }

  look() {
    clearTimeout(this.timer);
    if (document.visibilityState === "visible") this.set(true);
    else this.timer = setTimeout(() => this.set(false), HIDDEN_MS);
  }

  set(seen) {
    if (this.seen === seen) return;
    this.seen = seen;
    for (const fn of [...this.listeners]) fn(seen);
  }

  // Calls fn once, when that comes to pass. Returns how to stop.
  when(seen, fn) {
    const listener = now => {
      if (now !== seen) return;
      this.listeners.delete(listener);
      fn();
    };
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

const sight = new Sight();

const inSight = () => sight.seen || new Promise(done => sight.when(true, done));

// Reads events until the answer ends, or nobody sees the page any more.
async function readWhileSeen(path, on, stop) {
  const one = new AbortController();
  const end = () => one.abort();
  stop.addEventListener("abort", end);
  const forget = sight.when(false, end);
  try {
    await readEvents(path, on, one.signal);
  } finally {
    forget();
    stop.removeEventListener("abort", end);
  }
}

// The same for ever while the page is seen: asked again, slower and slower, when it ends. Returns a function that stops it.
// `status` hears "live", "lost" (it ended, maybe events with it) and, once, an ApiError that makes asking again useless.
export function follow(path, on, status) {
  const stop = new AbortController();
  (async () => {
    let wait = 500;
    while (!stop.signal.aborted) {
      try {
        await readWhileSeen(path, (name, data) => {
          wait = 500;
          if (name === "hello") status("live");
          on(name, data);
        }, stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof ApiError && [401, 403, 404, 410].includes(error.status)) {
          status(error);
          return;
        }
      }
      if (stop.signal.aborted) return;
      status("lost");
      if (sight.seen) {
        await new Promise(done => setTimeout(done, wait));
        wait = Math.min(wait * 2, 10000);
      }
      await inSight();
    }
  })();
  return () => stop.abort();
}

// --- one session ---

export async function sessionState(id) {
  return embedded ? embedded.state : json(`/sessions/${id}`);
}

// A branch with its tokens (branch.js reads it). response: where it ends; absent: the newest. reported: of which weights of the trainer.
export async function branchBytes(id, response, {drift = false, reported = null} = {}) {
  if (embedded) {
    const text = embedded.branches[response];
    if (!text) throw new ApiError(404, "not_found", "This page holds whole branches only: choose the end of one.");
    return Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;
  }
  const query = new URLSearchParams();
  if (response) query.set("branch", response);
  if (drift) query.set("drift", "on");
  if (reported) query.set("reported", reported);
  return (await ask(`/sessions/${id}/tokens?${query}`)).arrayBuffer();
}

// Saves an answer of the gateway as a file.
export async function download(path, name) {
  const blob = await (await ask(path)).blob();
  saveBlob(blob, name);
}

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The same request for a shell; `options` for curl, with a space behind. The key stays out: it would end in a history file.
export function curl(path, options = "") {
  const auth = key() ? ' \\\n  -H "Authorization: Bearer $ROLLGATE_KEY"' : "";
  return `curl -sS ${options}'${address(path).href.replace(/'/g, "%27")}'${auth}`;
}
