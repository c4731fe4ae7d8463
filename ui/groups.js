// Groups of rollouts, the queues they settle into, and one group with its members.
import {h, clear, number, decimal, ago, clock, foreign, shortId, longText, tableHead} from "./dom.js";
import {json, post} from "./api.js";
import {store} from "./store.js";

const SHOWN_MAX = 500;

function progress(group) {
  const part = n => `${(100 * n) / Math.max(group.n, 1)}%`;
  return h("span.progress", {role: "img", "aria-label": `${group.succeeded} of ${group.n} succeeded, ${group.running} running`},
    h("i.done", {style: {width: part(group.succeeded)}}), h("i.doing", {style: {width: part(Math.min(group.running, group.n - group.succeeded))}}));
}

export function queueTable(queues) {
  const names = ["queue", "waiting", "running", "rollouts running", "settled", "taken", "acknowledged", "oldest", "blocked runners"];
  return h("div.wide", h("table", h("caption.unseen", "Queues"), tableHead(names, ["waiting", "running", "rollouts running", "settled", "taken", "acknowledged", "oldest"]), h("tbody", queues.map(q => h("tr",
    h("td", foreign(q.queue)), ...["waiting", "running", "rollouts_running", "settled", "taken", "acked_total"].map(k => h("td.num", number(q[k]))),
    h("td.num", q.oldest_s === null || q.oldest_s === undefined ? "–" : `${number(q.oldest_s)} s`),
    h("td", (q.blocked || []).length ? q.blocked.map(b => [foreign(b.runner), ` (${b.reason}) `]) : "none"))))));
}

export function runnerTable(runners) {
  const outcomes = ["ok", "timeout", "error", "infra", "cancelled"];
  const names = ["runner", "running", "free slots", ...outcomes, "blocked"];
  return h("div.wide", h("table", h("caption.unseen", "Runners"), tableHead(names, ["running", "free slots", ...outcomes]), h("tbody", runners.map(r => h("tr",
    h("td", foreign(r.runner)), h("td.num", number(r.running)), h("td.num", number(r.free_slots)), outcomes.map(o => h("td.num", number(r.outcomes[o]))), h("td", r.blocked || "no"))))));
}

export function groupTable(groups) {
  const names = ["group", "state", "progress", "queue", "runner", "version", "submitted"];
  return h("div.wide", h("table", h("caption.unseen", "Groups"), tableHead(names),
    h("tbody", groups.slice(0, SHOWN_MAX).map(g => h("tr", h("td", h("a", {href: `#/groups/${encodeURIComponent(g.id)}`}, foreign(g.id))),
      h("td", h(`span.state.${g.state}`, g.state)), h("td", progress(g), ` ${g.succeeded}/${g.n}`), h("td", foreign(g.queue ?? "–")), h("td", foreign(g.runner)),
      h("td", foreign(g.version ?? "–")), h("td", {title: clock(g.submitted_at)}, ago(g.submitted_at)))))));
}

export function groupsPage(main) {
  const queues = h("div");
  const runners = h("div");
  const groups = h("div");
  clear(main, h("div.page", h("h1", "Groups"), h("section", h("h2", "Queues"), queues), h("section", h("h2", "Runners"), runners), h("section", h("h2", "Groups"), groups)));
  let timer = null;
  const draw = () => {
    timer = null;
    const all = [...store.groups.values()].sort((a, b) => b.submitted_at - a.submitted_at);
    const empty = h("p.empty", store.loading ? "Reading …" : "None.");
    clear(queues, store.queues.size ? queueTable([...store.queues.values()]) : empty.cloneNode(true));
    clear(runners, store.runners.size ? runnerTable([...store.runners.values()]) : empty.cloneNode(true));
    clear(groups, all.length ? groupTable(all) : empty, all.length > SHOWN_MAX && h("p.more", `The newest ${SHOWN_MAX} of ${number(all.length)} groups.`));
  };
  draw();
  const stop = store.listen(what => {
    if (what === "groups" && !timer) timer = setTimeout(draw, 300);
  });
  return () => {
    stop();
    clearTimeout(timer);
  };
}

function members(group) {
  const names = ["rollout", "state", "session", "attempts", "reward", "outcome", "trained tokens", "reason"];
  return h("div.wide", h("table", h("caption.unseen", "Members"), tableHead(names, ["rollout", "attempts", "reward", "trained tokens"]), h("tbody", group.members.map(m => h("tr",
    h("td.num", number(m.rollout)), h("td", h(`span.state.${m.state}`, m.state)),
    h("td", m.session_id ? h("a", {href: `#/sessions/${m.session_id}`}, shortId(m.session_id)) : "–"), h("td.num", number(m.attempts)),
    h("td.num", decimal(m.reward)), h("td", m.outcome || "–"), h("td.num", number(m.trained_tokens)),
    h("td", m.reason ? foreign(m.reason) : "–", m.log_tail && h("details", h("summary", "log"), longText(m.log_tail))))))));
}

// Pairs of members that can be compared: each with the one before it.
function pairs(group) {
  const seen = group.members.filter(m => m.session_id);
  return seen.slice(1).map((m, i) => h("a.button", {href: `#/compare?a=${seen[i].session_id}&b=${m.session_id}`}, `Compare ${seen[i].rollout} and ${m.rollout}`));
}

export function groupPage(main, id) {
  const body = h("div");
  const head = h("div.tools", h("h1", "Group ", foreign(id)));
  clear(main, h("div.page", head, body));
  let ended = false;
  const draw = async () => {
    try {
      const group = await json(`/groups/${encodeURIComponent(id)}`);
      if (ended) return;
      clear(body, h("p", h(`span.state.${group.state}`, group.state), " ", progress(group), ` ${group.succeeded} of ${group.n} succeeded, ${group.running} running`),
        h("div.tools", pairs(group).slice(0, 16), !["finished", "partial", "failed", "cancelled"].includes(group.state) && h("button.danger", {onclick: cancel}, "Cancel the group …")),
        members(group));
    } catch (error) {
      if (!ended) clear(body, h("p.fault", {role: "alert"}, error.message));
    }
  };
  const cancel = async () => {
    if (!confirm(`Cancel the group ${id}? Its running attempts end, and their sessions are aborted.`)) return;
    await post(`/groups/${encodeURIComponent(id)}/cancel`, {});
    location.hash = "#/groups";
  };
  draw();
  let timer = null;
  let known = store.groups.has(id);
  const stop = store.listen(what => {
    if (what !== "groups" || timer) return;
    timer = setTimeout(() => {
      timer = null;
      known = known || store.groups.has(id);
      if (known && !store.groups.has(id)) clear(body, h("p.empty", "The group is gone: it was acknowledged, or cancelled."));
      else draw();
    }, 500);
  });
  return () => {
    ended = true;
    stop();
    clearTimeout(timer);
  };
}
