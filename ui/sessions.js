// The list of sessions: only the rows in sight are in the page, however many there are.
import {h, clear, number, decimal, ago, clock, perFrame, foreign, shortId, hintScroll} from "./dom.js";
import {inRange, rangeChip, readRange} from "./range.js";
import {store} from "./store.js";

const ROW = 36;
const SPARE = 6;

const COLUMNS = [
  {name: "session_id", title: "Session", value: r => r.session_id, text: r => h("a", {href: `#/sessions/${r.session_id}`, tabindex: -1, title: r.session_id}, shortId(r.session_id))},
  {name: "labels", title: "Labels", value: r => labelText(r), text: r => h("span", {title: labelText(r, true)}, foreign(labelText(r), "bdi"))},
  {name: "phase", title: "Phase", value: r => r.phase, text: r => h(`span.phase.${r.phase}`, {title: r.warnings ? r.warnings.join("; ") : null}, r.phase, r.inflight > 0 && " · running", r.warnings && " · warning")},
  {name: "reward", title: "Reward", number: true, value: r => r.reward ?? -Infinity, text: r => decimal(r.reward)},
  {name: "calls", title: "Turns", number: true, value: r => r.calls, text: r => number(r.calls)},
  {name: "tokens", title: "Tokens", number: true, value: r => r.tokens, text: r => number(r.tokens)},
  {name: "branches", title: "Branches", number: true, value: r => r.branches, text: r => number(r.branches)},
  {name: "drift", title: "Drift", number: true, value: r => r.drift ?? -1, text: r => h("span", {title: r.drift === null ? "no export has audited it yet" : null}, number(r.drift))},
  {name: "updated_at", title: "Last activity", number: true, value: r => r.updated_at, text: r => h("span", {title: clock(r.updated_at)}, ago(r.updated_at))},
];

// The label of each attempt is as long as all others together, and two of them never agree: only `all` has it.
export function labelText(row, all = false) {
  const labels = Object.entries(row.labels || {}).filter(([k]) => all || k !== "attempt").map(([k, v]) => `${k}=${v}`);
  if (row.group) labels.unshift(`${row.group}/${row.rollout ?? "?"}`);
  return labels.join(" ");
}

// Whether a row has every word of the search; a word `phase:open` means that phase, `-word` its absence.
function rowMatches(row, wanted) {
  return wanted.every(word => {
    if (word.startsWith("phase:")) return row.phase === word.slice(6);
    if (word.startsWith("-") && word.length > 1) return !row.hay.includes(word.slice(1));
    return row.hay.includes(word);
  });
}

// Orders rows by a column; equal ones by id, so that they stand still.
function orderOf(column, down) {
  const sign = down ? -1 : 1;
  return (a, b) => {
    if (a.key !== b.key) return a.key < b.key ? -sign : sign;
    return a.row.session_id < b.row.session_id ? -1 : 1;
  };
}

export function sortRows(rows, column, down) {
  return rows.map(row => ({key: column.value(row), row})).sort(orderOf(column, down)).map(one => one.row);
}

// Sorted rows without those of some ids, and with these: what changed finds its place, the rest keeps its order. Of 100,000
// rows this takes a hundredth of what sorting takes.
export function replaceRows(sorted, ids, rows, column, down) {
  const order = orderOf(column, down);
  const kept = sorted.filter(row => !ids.has(row.session_id));
  const out = [];
  let at = 0;
  for (const row of sortRows(rows, column, down)) {
    const one = {key: column.value(row), row};
    let low = at;
    for (let high = kept.length; low < high;) {
      const middle = (low + high) >> 1;
      if (order({key: column.value(kept[middle]), row: kept[middle]}, one) < 0) low = middle + 1;
      else high = middle;
    }
    while (at < low) out.push(kept[at++]);
    out.push(row);
  }
  while (at < kept.length) out.push(kept[at++]);
  return out;
}

const view = {search: "", sort: "updated_at", down: true, picked: [], at: 0, top: 0, range: null};

// What the address says of the list; without anything it stays as it was left.
function readView(query) {
  if (query.has("q")) view.search = query.get("q");
  if (COLUMNS.some(c => c.name === query.get("sort"))) {
    view.sort = query.get("sort");
    view.down = query.get("order") !== "up";
  }
  view.range = readRange(query);
}

function viewAddress(range) {
  const query = new URLSearchParams();
  if (view.search) query.set("q", view.search);
  if (view.sort !== "updated_at" || !view.down) {
    query.set("sort", view.sort);
    query.set("order", view.down ? "down" : "up");
  }
  for (const name of range ? ["from", "to"] : []) query.set(name, range[name]);
  return `#/sessions${query.size ? `?${query}` : ""}`;
}

export function sessionsPage(main, query) {
  readView(query);
  const tell = () => history.replaceState(null, "", viewAddress(view.range));
  const search = h("input.search", {type: "search", id: "search", placeholder: "Search: id, label=value, phase:open, -word", value: view.search, "aria-label": "Search sessions"});
  const count = h("span.count", {role: "status"});
  const compare = h("button", {onclick: () => { location.hash = `#/compare?a=${view.picked[0]}&b=${view.picked[1]}`; }});
  const head = h("div.row.head", {role: "row"});
  const space = h("div.space");
  const rows = h("div.rows", {role: "rowgroup"});
  const body = h("div.scroll", {tabindex: 0, role: "table", "aria-label": "Sessions", "aria-rowcount": 0}, head, h("div.lines", space, rows));
  let shown = [];
  let drawn = new Map();    // session id -> {row, here (what else its element tells), element}: scrolling makes only the new rows
  let drawnAt = 0;
  const stale = new Set();  // ids of rows that changed since
  let timer = null;

  const drawHead = () => clear(head, h("div.cell.pick", {role: "columnheader"}, h("span.unseen", "Compare")), COLUMNS.map(c => h(`div.cell.${c.name}${c.number ? ".num" : ""}`, {
    role: "columnheader", "aria-sort": view.sort === c.name ? (view.down ? "descending" : "ascending") : "none",
  }, h("button", {onclick: () => sortBy(c)}, c.title, view.sort === c.name ? (view.down ? " ↓" : " ↑") : ""))));
  const sortBy = c => {
    view.down = view.sort === c.name ? !view.down : !!c.number;
    view.sort = c.name;
    drawHead();
    tell();
    choose();
  };

  const column = () => COLUMNS.find(c => c.name === view.sort);
  const wanted = () => view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row, words) => (!view.range || (row.phase !== "open" && inRange(view.range, row.updated_at))) && rowMatches(row, words);
  // Which rows and in which order. With very many this takes a tenth of a second: not for every event.
  const choose = () => {
    const words = wanted();
    const all = [...store.sessions.values()];
    stale.clear();
    shown = sortRows(words.length || view.range ? all.filter(r => matches(r, words)) : all, column(), view.down);
    drawList();
  };
  // The same for the rows that changed.
  const refresh = () => {
    const words = wanted();
    const rows = [...stale].map(id => store.sessions.get(id)).filter(r => r && matches(r, words));
    shown = replaceRows(shown, stale, rows, column(), view.down);
    stale.clear();
    drawList();
  };
  const drawList = () => {
    drawnAt = Date.now();
    space.style.height = `${shown.length * ROW}px`;
    body.setAttribute("aria-rowcount", shown.length + 1);
    view.at = Math.max(0, Math.min(view.at, shown.length - 1));
    clear(count, `${number(shown.length)} of ${number(store.sessions.size)} sessions`, store.loading ? " · reading the list …" : "");
    draw();
  };
  const changed = ids => {
    for (const id of ids) stale.add(id);
    if (timer) return;
    const pause = store.sessions.size > 20000 ? 400 : store.sessions.size > 2000 ? 250 : 150;
    timer = setTimeout(() => {
      timer = null;
      if (stale.size > shown.length / 2) choose();
      else refresh();
    }, Math.max(0, drawnAt + pause - Date.now()));
  };

  const draw = perFrame(() => {
    const first = Math.max(0, Math.floor(body.scrollTop / ROW) - SPARE);
    const last = Math.min(shown.length, first + Math.ceil(body.clientHeight / ROW) + 2 * SPARE);
    view.top = body.scrollTop;
    rows.style.transform = `translateY(${first * ROW}px)`;
    const next = new Map();
    for (let i = first; i < last; i++) {
      const row = store.sessions.get(shown[i].session_id) || shown[i];
      const here = `${i} ${i === view.at} ${view.picked.includes(row.session_id)} ${Math.floor(Date.now() / 1000)}`;
      const known = drawn.get(row.session_id);
      next.set(row.session_id, known && known.row === row && known.here === here ? known : {row, here, element: drawRow(row, i)});
    }
    drawn = next;
    rows.replaceChildren(...[...next.values()].map(one => one.element));
    if (!shown.length) clear(rows, h("p.empty", store.loading ? "Reading …" : "No session matches."));
  });
  const drawRow = (row, i) => h(`div.row${i === view.at ? ".current" : ""}`, {role: "row", "aria-rowindex": i + 2, "data-id": row.session_id,
    onclick: e => {
      if (!e.target.closest("input")) location.hash = `#/sessions/${row.session_id}`;
    }},
    h("div.cell.pick", {role: "cell"}, h("input", {type: "checkbox", tabindex: -1, "aria-label": `Compare ${shortId(row.session_id)}`,
      checked: view.picked.includes(row.session_id), onchange: e => pick(row.session_id, e.target.checked)})),
    COLUMNS.map(c => h(`div.cell.${c.name}${c.number ? ".num" : ""}`, {role: "cell", "data-title": c.title}, c.text(row))));
  const pick = (id, on) => {
    view.picked = view.picked.filter(p => p !== id);
    if (on) view.picked = [...view.picked, id].slice(-2);
    drawPicked();
    draw();
  };
  const drawPicked = () => {
    clear(compare, view.picked.length === 2 ? "Compare the two" : "Compare: pick two");
    compare.disabled = view.picked.length !== 2;
  };

  const move = to => {
    view.at = Math.max(0, Math.min(to, shown.length - 1));
    const y = view.at * ROW;
    const inner = body.clientHeight - ROW;
    if (y < body.scrollTop) body.scrollTop = y;
    else if (y + ROW > body.scrollTop + inner) body.scrollTop = y + ROW - inner;
    draw();
  };
  body.addEventListener("scroll", draw, {passive: true});
  body.addEventListener("keydown", e => {
    const page = Math.floor(body.clientHeight / ROW) - 2;
    const moves = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity};
    if (e.key in moves) move(view.at + moves[e.key]);
    else if (e.key === "Enter" && e.target === body && shown[view.at]) location.hash = `#/sessions/${shown[view.at].session_id}`;
    else if (e.key === " " && e.target === body && shown[view.at]) pick(shown[view.at].session_id, !view.picked.includes(shown[view.at].session_id));
    else return;
    e.preventDefault();
  });
  let typed = null;
  search.addEventListener("input", () => {
    view.search = search.value;
    tell();
    clearTimeout(typed);
    typed = setTimeout(choose, store.sessions.size > 20000 ? 150 : 0);
  });
  search.addEventListener("keydown", e => {
    if (e.key === "ArrowDown") {
      clearTimeout(typed);      // the keys that follow are for what was typed, not for what was found before
      choose();
      body.focus();
      e.preventDefault();
    }
  });
  clear(main, h("div.page.full", h("div.tools", h("h1", "Sessions"), search, rangeChip(view.range, viewAddress(null)), compare, count), h("div.hinted", body)));
  hintScroll(body);
  const sizes = new ResizeObserver(draw);
  sizes.observe(body);
  drawHead();
  drawPicked();
  choose();
  body.scrollTop = view.top;
  const stop = store.listen((what, ids) => {
    if (what === "sessions") changed(ids);
  });
  return () => {
    stop();
    sizes.disconnect();
    clearTimeout(timer);
  };
}
