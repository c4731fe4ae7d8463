// What the gateway holds, kept up by its events: listed once, then changed by GET /events. Pages listen.
import {eachPage, follow, keySession, embedded} from "./api.js";

class Store {
  constructor() {
    this.sessions = new Map();
    this.groups = new Map();
    this.queues = new Map();
    this.runners = new Map();
    this.listeners = new Set();
    this.state = "off";      // of the stream: off, opening, live, lost, or an ApiError
    this.unreachable = [];   // peers, whose sessions and groups neither the lists nor the events have
    this.loading = false;    // the lists are being read
    this.changes = 0;        // how many events came
  }

  // fn(what, ids): "sessions" (those of the ids), "groups" or "state" has changed. Returns how to stop.
  listen(fn) {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  tell(what, ids = []) {
    for (const fn of this.listeners) fn(what, ids);
  }

  start() {
    if (this.stop || embedded || keySession()) return;
    this.setState("opening");
    this.stop = follow("/events", (name, data) => this.take(name, data), state => {
      this.setState(state);
      if (state === "live") this.load();
    });
  }

  restart() {
    if (this.stop) this.stop();
    this.stop = null;
    if (this.abort) this.abort.abort();
    this.sessions.clear();
    this.groups.clear();
    this.queues.clear();
    this.runners.clear();
    this.setState("off");
    this.start();
  }

  setState(state) {
    this.state = state;
    this.tell("state");
  }

  // The lists, behind the beginning of the stream: what changes meanwhile comes as an event, and the newer row wins.
  async load() {
    if (this.abort) this.abort.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.loading = true;
    const seen = new Set();
    try {
      await eachPage("/sessions?archived=false", "sessions", rows => {
        for (const row of rows) {
          seen.add(row.session_id);
          this.putSession(row);
        }
        this.tell("sessions", rows.map(row => row.session_id));
      }, abort.signal);
      this.forget([...this.sessions.keys()].filter(id => !seen.has(id) && !this.sessions.get(id).fresh));
      for (const row of this.sessions.values()) row.fresh = false;
      await this.loadGroups(abort.signal);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.failed = error;
    }
    this.loading = false;
    this.tell("sessions");
    this.tell("groups");
  }

  async loadGroups(signal) {
    try {
      await eachPage("/groups", "groups", rows => {
        for (const row of rows) this.groups.set(row.id, row);
      }, signal);
    } catch (error) {
      if (signal.aborted) throw error;      // without a dispatcher there are no groups
    }
  }

  forget(ids) {
    for (const id of ids) this.sessions.delete(id);
    this.tell("sessions", ids);
  }

  putSession(row, fresh = false) {
    const known = this.sessions.get(row.session_id);
    if (known && known.updated_at > row.updated_at) return;
    row.fresh = fresh;
    row.hay = sessionHay(row);
    this.sessions.set(row.session_id, row);
  }

  take(name, data) {
    this.changes++;
    if (name === "hello") {
      this.unreachable = data.unreachable || [];
      this.tell("state");
    } else if (name === "session") {
      this.putSession(data, true);
      this.tell("sessions", [data.session_id]);
    } else if (name === "session_gone") {
      this.forget([data.session_id]);
    } else if (name === "group") {
      this.groups.set(data.id, data);
      this.tell("groups");
    } else if (name === "group_gone") {
      this.groups.delete(data.id);
      this.tell("groups");
    } else if (name === "queue") {
      this.queues.set(data.queue, data);
      this.tell("groups");
    } else if (name === "runner") {
      this.runners.set(data.runner, data);
      this.tell("groups");
    } else if (name === "reset") {
      this.load();
    }
  }
}

export const store = new Store();

// The rows that changed last, the newest first, without sorting all the others; and how many there are that `keep` takes.
export function newestRows(n, keep = () => true) {
  const rows = [];
  let all = 0;
  for (const row of store.sessions.values()) {
    if (!keep(row)) continue;
    all++;
    if (rows.length === n && row.updated_at <= rows[n - 1].updated_at) continue;
    let at = rows.length;
    while (at > 0 && rows[at - 1].updated_at < row.updated_at) at--;
    rows.splice(at, 0, row);
    rows.length = Math.min(rows.length, n);
  }
  return {rows, all};
}

// What a search looks through.
function sessionHay(row) {
  const labels = Object.entries(row.labels || {}).map(([k, v]) => `${k}=${v}`).join(" ");
  return `${row.session_id} ${row.phase} ${row.group || ""} ${labels}`.toLowerCase();
}

// --- /metrics ---

// The text -> Map of name -> [{labels, value}].
export function readMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const found = /^(\w+)(?:\{([^}]*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || "").matchAll(/(\w+)="([^"]*)"/g)) labels[name] = value;
    if (!out.has(found[1])) out.set(found[1], []);
    out.get(found[1]).push({labels, value: Number(found[3])});
  }
  return out;
}

export function sumOf(metrics, name, keep = () => true) {
  const rows = metrics.get(`rollgate_${name}`) || [];
  return rows.reduce((sum, row) => sum + (keep(row.labels) ? row.value : 0), 0);
}
