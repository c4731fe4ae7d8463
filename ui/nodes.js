// The nodes of a fleet: GET /fleet as each node sees itself, and GET /stats of all of them added together. A node is asked through the one that serves this page.
import {h, counted, ago, clock, decimal, foreign, number, tableHead, wideTable} from "./dom.js";
import {ApiError, json} from "./api.js";
import {MEASURES, addFigures, shownValue} from "./figures.js";
import {addMismatch} from "./mismatch.js";

const AT_ONCE = 8;
const LISTED = 16;        // of the slowest, as of one node
const RECENT_S = 3600;
const WHOLE_STEP = 14400;

let member = null;        // whether this gateway is in a fleet, as a promise: that changes with a restart only

// GET /fleet; null without a fleet.
export async function readFleet() {
  member ??= json(`/stats?step=${WHOLE_STEP}`).then(stats => stats.node !== null);
  try {
    return (await member) ? await json("/fleet") : null;
  } catch (error) {
    member = null;
    throw error;
  }
}

// [{node, value}] of all nodes that are not lost, a few at a time; the value is null if the node did not answer.
async function askNodes(fleet, ask) {
  const out = fleet.nodes.filter(n => n.state !== "lost").map(n => ({node: n.name, value: null}));
  let next = 0;
  const work = async () => {
    while (next < out.length) {
      const one = out[next++];
      try {
        one.value = await ask(one.node);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }
  };
  await Promise.all(Array.from({length: Math.min(AT_ONCE, out.length)}, work));
  return out;
}

// Makes one row of all rows with the same key: add(rows).
function addRows(lists, keyOf, add) {
  const rows = new Map();
  for (const row of lists.flat()) rows.set(keyOf(row), [...(rows.get(keyOf(row)) || []), row]);
  return [...rows.values()].map(add);
}

function addSeries(lists) {
  return addRows(lists, step => step.at, steps => ({...addFigures(steps), at: steps[0].at})).sort((a, b) => a.at - b.at);
}

// The figures of several nodes as one answer of GET /stats.
export function addStats(all) {
  const every = name => all.map(stats => stats[name]);
  return {
    ...all[0], since: Math.max(...every("since")), total: addFigures(every("total")), evaluation: addFigures(every("evaluation")), series: addSeries(every("series")),
    rows: addRows(every("rows"), row => `${row.other} ${row.name}`, rows => ({...rows[0], total: addFigures(rows.map(r => r.total)), series: addSeries(rows.map(r => r.series))})),
    slowest: every("slowest").flat().sort((a, b) => b.run_s - a.run_s).slice(0, LISTED), mismatch: addMismatch(every("mismatch")),
  };
}

// GET /stats of the node, or of all nodes without one. `nodes` of it: the names of the fleet's nodes; empty without a fleet.
export async function readStats(query, node) {
  const fleet = await readFleet();
  const nodes = fleet ? fleet.nodes.map(n => n.name) : [];
  if (!fleet || node) return {...await json(`/stats?${query}${node ? `&node=${encodeURIComponent(node)}` : ""}`), nodes, ...(node && {unreachable: []})};
  const found = await askNodes(fleet, name => json(`/stats?${query}&node=${encodeURIComponent(name)}`));
  const good = found.filter(f => f.value);
  if (!good.length) throw new Error("no node of the fleet answers");
  return {...addStats(good.map(f => f.value)), nodes, unreachable: nodes.filter(name => !good.some(f => f.node === name))};
}

// What each node says of itself: [{name, state, ..., places, partial, behind, sessions, calls, figures}], and a last one without a name for places without an owner. null without a fleet.
export async function readNodes() {
  const fleet = await readFleet();
  if (!fleet) return null;
  const to = Math.ceil(Date.now() / 1000);
  const told = await askNodes(fleet, async name => {
    const node = encodeURIComponent(name);
    const [own, stats] = await Promise.all([json(`/fleet?node=${node}`), json(`/stats?from=${to - RECENT_S}&step=${RECENT_S}&node=${node}`)]);
    return {behind: own.own.reduce((sum, place) => sum + place.behind, 0), sessions: own.sessions, calls: own.calls, figures: stats.total};
  });
  const owned = name => {
    const places = fleet.places.filter(p => p.node === name);
    return {places: places.length, partial: places.filter(p => !p.whole).length};
  };
  const rows = fleet.nodes.map(n => ({...n, self: n.name === fleet.node, ...owned(n.name), ...told.find(t => t.node === n.name)?.value})).sort((a, b) => (a.name < b.name ? -1 : 1));
  const unowned = owned(null);
  return unowned.places ? [...rows, {name: null, ...unowned}] : rows;
}

const sumMember = (rows, name) => rows.reduce((sum, row) => sum + (row[name] || 0), 0);
const NUMBERS = ["places", "not whole", "behind", "sessions", "calls", "ended in 1 h", "reward"];

function nodeRow(n) {
  return h("tr", {"data-node": n.name || ""}, h("td.name", n.name ? h("a", {href: `#/run?node=${encodeURIComponent(n.name)}`}, foreign(n.name)) : "no owner", n.self && h("span.quiet", " this node")),
    h("td", n.state ? h(`span.state.${n.state === "up" ? "good" : n.state === "lost" ? "bad" : "waiting"}`, n.state) : "–"),
    h("td.num", number(n.places)), h("td.num", number(n.partial)), h("td.num", number(n.behind)), h("td.num", number(n.sessions)), h("td.num", number(n.calls)),
    h("td.num", number(n.figures?.sessions)), h("td.num", n.figures ? shownValue(MEASURES[0], n.figures) : "–"),
    h("td", n.since ? h("span", {title: clock(n.since)}, ago(n.since)) : "–"), h("td", foreign(n.address ?? "–")));
}

// The table of the overview; rows as readNodes gives them.
export function nodeTable(rows) {
  const names = ["node", "state", ...NUMBERS, "since", "address"];
  const all = addFigures(rows.map(r => r.figures).filter(Boolean));
  const count = state => rows.filter(r => r.state === state).length;
  return [h("p.quiet", `${counted(count("up"), "node")} up, ${number(count("draining"))} draining, ${number(count("lost"))} lost. `, h("a", {href: "#/run"}, "The run of all nodes")),
    wideTable("Nodes", "table.nodes", tableHead(names, NUMBERS), h("tbody", rows.map(nodeRow)), h("tfoot", h("tr", h("td", "all"), h("td"), h("td.num", number(sumMember(rows, "places"))), h("td.num", number(sumMember(rows, "partial"))),
      h("td.num", number(sumMember(rows, "behind"))), h("td.num", number(sumMember(rows, "sessions"))), h("td.num", number(sumMember(rows, "calls"))), h("td.num", number(all?.sessions)), h("td.num", all ? shownValue(MEASURES[0], all) : decimal(null)), h("td"), h("td"))))];
}
