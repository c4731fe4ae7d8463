// The frame: navigation, keys of gateway and keyboard, light and dark, and which page is shown.
import {h, clear, announce} from "./dom.js";
import {ApiError, embedded, json, key, keySession, setKey} from "./api.js";
import {store} from "./store.js";
import {overviewPage} from "./overview.js";
import {runPage} from "./run.js";
import {sessionsPage} from "./sessions.js";
import {sessionPage} from "./session.js";
import {comparePage} from "./compare.js";
import {groupsPage, groupPage} from "./groups.js";

const THEME = "rollgate-theme";
const PLACES = [["#/", "Overview", "o"], ["#/run", "Run", "r"], ["#/sessions", "Sessions", "s"], ["#/groups", "Groups", "g"], ["#/compare", "Compare", "c"]];
const main = document.getElementById("main");
let leave = null;

// --- light and dark ---

function remembered() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;        // a page opened as a file may have no storage
  }
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(THEME, name);
  } catch {
    // it holds for this page
  }
}

function turnTheme() {
  const dark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  setTheme(dark ? "light" : "dark");
  show();
}

// --- the bar ---

function stateText() {
  if (store.state instanceof ApiError) return store.state.message;
  return {off: "", opening: "connecting …", live: store.unreachable.length ? "live, this node only" : "live", lost: "reconnecting …"}[store.state];
}

function drawBar() {
  const here = location.hash || "#/";
  const current = href => (href === "#/" ? here === "#/" : here.startsWith(href));
  clear(document.getElementById("bar"),
    h("a.brand", {href: embedded ? "#" : "#/"}, "rollgate"),
    embedded ? h("span.quiet", "exported session") : h("nav", {"aria-label": "Pages"}, keySession()
      ? h("a", {href: `#/sessions/${keySession()}`, "aria-current": "page"}, "Session")
      : PLACES.map(([href, title]) => h("a", {href, "aria-current": current(href) ? "page" : null}, title))),
    h("span.spacer"), h("span.stream", {"data-state": typeof store.state === "string" ? store.state : "refused", role: "status",
      title: store.unreachable.length ? `without the peers ${store.unreachable.join(", ")}` : null}, stateText()),
    !embedded && key() && h("button", {onclick: () => { setKey(null); location.reload(); }}, "Forget key"),
    h("button", {onclick: turnTheme, "aria-label": "Switch between light and dark"}, "◐"), h("button", {onclick: help, "aria-label": "Keyboard help"}, "?"));
}

// --- keys of the gateway ---

function askForKey(message) {
  const input = h("input", {type: "password", autocomplete: "off", id: "key", size: 60, "aria-describedby": "why"});
  const fault = h("p.fault", {role: "alert", id: "why"}, message);
  const form = h("form.key", {onsubmit: async e => {
    e.preventDefault();
    setKey(input.value.trim());
    clear(fault, await tryKey());
    if (!fault.textContent) begin();
  }}, h("h1", "This gateway wants a key"), h("p", "An admin's key shows everything; a session's runner key (rgr-…) shows that session. The key stays in this tab and is forgotten with it."),
  h("label", {for: "key"}, "Key"), input, h("button", "Open"), fault);
  clear(main, h("div.page", form));
  input.focus();
}

// Whether the key, or none, opens what this page needs: "" or what is wrong.
async function tryKey() {
  try {
    await json(keySession() ? `/sessions/${keySession()}` : "/sessions?limit=1");
    return "";
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      const shown = key();
      setKey(null);
      return shown ? (error.status === 403 ? "This key does not open the viewer: use an admin's key, or a session's runner key." : "Invalid key.") : " ";
    }
    return "";
  }
}

// --- pages ---

function show() {
  if (leave) leave();
  leave = null;
  const [path, search] = (location.hash.slice(1) || "/").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const query = new URLSearchParams(search || "");
  drawBar();
  if (embedded) leave = sessionPage(main, embedded.state.session_id, query);
  else if (keySession()) leave = sessionPage(main, keySession(), query);
  else if (parts[0] === "sessions" && parts[1]) leave = sessionPage(main, parts[1], query);
  else if (parts[0] === "run") leave = runPage(main, query);
  else if (parts[0] === "sessions") leave = sessionsPage(main, query);
  else if (parts[0] === "groups" && parts[1]) leave = groupPage(main, parts[1]);
  else if (parts[0] === "groups") leave = groupsPage(main, query);
  else if (parts[0] === "compare") leave = comparePage(main, query);
  else leave = overviewPage(main);
  document.title = `${parts[1] || parts[0] || "rollgate"} · rollgate`;
}

// --- the keyboard ---

const KEYS = [["/", "search the list or the session"], ["o r s g c", "overview, run, sessions, groups, compare"], ["↑ ↓ Home End", "through a list or the tokens"], ["← →", "token by token"],
  ["Enter", "open the row"], ["Space", "pick the row for a comparison"], ["1…6", "conversation, tokens, samples, drift, turns, JSON of a session"], ["[ ]", "the answer before, the next answer"], ["d", "light or dark"], ["?", "this help"], ["Esc", "leave a field or a box"]];

function help() {
  const box = h("dialog.help", {"aria-label": "Keyboard"}, h("div.tools", h("h2", "Keyboard"), h("span.spacer"), h("button", {onclick: () => box.close()}, "Close")),
    h("dl.facts", KEYS.map(([k, what]) => [h("dt", k.split(" ").map(one => [h("kbd", one), " "])), h("dd", what)])));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

function press(e) {
  if (e.ctrlKey || e.altKey || e.metaKey || document.querySelector("dialog[open]")) return;
  const typing = e.target.closest("input, textarea, select");
  if (typing) {
    if (e.key === "Escape") typing.blur();
    return;
  }
  const place = !embedded && !keySession() && PLACES.find(p => p[2] === e.key);
  if (e.key === "?") help();
  else if (e.key === "d") turnTheme();
  else if (e.key === "/" && (document.getElementById("find")?.checkVisibility() || (!embedded && !keySession()))) toSearch();
  else if ("[]".includes(e.key) && document.querySelector("[data-jump=answers]")) document.querySelectorAll("[data-jump=answers] button")[e.key === "[" ? 0 : 1].click();
  else if (place) location.hash = place[0];
  else if (/^[1-6]$/.test(e.key) && document.querySelector("[role=tab]")) document.querySelectorAll("[role=tab]")[e.key - 1].click();
  else return;
  e.preventDefault();
}

function toSearch() {
  const find = document.getElementById("find");
  if (find?.checkVisibility()) {
    find.focus();
    return;
  }
  if (!document.getElementById("search")) {
    history.pushState(null, "", "#/sessions");
    show();
  }
  document.getElementById("search").focus();
}

function begin() {
  store.restart();
  show();
}

async function open() {
  if (remembered()) setTheme(remembered());
  document.addEventListener("keydown", press);
  addEventListener("hashchange", () => {
    show();
    main.focus({preventScroll: true});
    announce(document.title);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
  store.listen(what => {
    if (what === "state") drawBar();
  });
  drawBar();
  if (embedded) {
    show();
    return;
  }
  const fault = await tryKey();
  if (fault) askForKey(fault.trim());
  else begin();
}

open();
