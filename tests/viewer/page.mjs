// One scene with the viewer: node page.mjs SCENE JSON. Prints a line of JSON: {ok, failed, ...}.
import {check, newPage, tell, text, until, withBrowser} from "./lib.mjs";

const [scene, given] = process.argv.slice(2);
const told = JSON.parse(given);
const pause = ms => new Promise(done => setTimeout(done, ms));

async function open(browser, hash, options) {
  const page = await newPage(browser, told.url, options);
  await page.goto(`${told.url}/ui${hash}`);
  return page;
}

const has = (page, selector, words) => until(page, `${selector} says ${words}`,
  (s, w) => [...document.querySelectorAll(s)].some(e => e.innerText.includes(w)), selector, words);

// Waits until the stream of events is there and the lists have been read.
const live = page => until(page, "the page is live", () => document.querySelector(".stream")?.dataset.state === "live");

// Run in the page: texts that are paler against their ground than WCAG AA allows.
function paleTexts() {
  const parts = text => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.disabled || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (e.closest("svg")) continue;      // its inks are theme colours, which another test computes
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return out;
}

const scenes = {
  // Every page with a running gateway.
  async pages(browser) {
    const page = await open(browser, "#/");
    await live(page);
    await has(page, ".tile", "Turns a second");
    await has(page, "td", "builtin:");
    await until(page, "the last active sessions", id => !!document.querySelector(`a[href="#/sessions/${id}"]`), told.a);
    await page.keyboard.press("s");
    await until(page, "both sessions are listed", n => document.querySelectorAll(".row[data-id]").length === n, told.n);
    check("labels are shown", (await text(page, ".rows")).includes("task=one"));
    await page.keyboard.press("/");
    await page.keyboard.type("task=one phase:open");
    await until(page, "the search finds one", () => document.querySelectorAll(".row[data-id]").length === 1);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await until(page, "the session opens", id => document.querySelector(".id")?.textContent === id, told.a);
    check("the forest has an answer for each", (await page.$$(".answer")).length === told.answers, told.answers);
    check("forks say why", (await text(page, ".forest")).includes("assistant_rewritten"));
    check("the beginning is no fork", !(await text(page, ".forest")).includes("new_root") && !(await page.$(".fork")));
    check("one turn is not turns", !/\b1 (turn|token)s\b/.test(await text(page)));
    await has(page, ".message.own", "sampled");
    await page.click(`.answer[data-response="${told.fork}"]`);
    await has(page, ".fork", "assistant_rewritten");
    check("the difference is told", (await page.$$(".fork del, .fork ins")).length > 0);
    await page.keyboard.press("2");
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await page.focus(".cells");
    await page.keyboard.press("End");
    await has(page, ".side", "<|im_end|>");
    check("a token's facts", /id\s+257/.test(await text(page, ".side")), await text(page, ".side"));
    for (const mode of ["logprob", "version", "turn", "drift", "mask"]) {
      await page.click(`[data-mode=${mode}]`);
      await until(page, `coloured by ${mode}`, m => document.querySelector(`[data-mode=${m}]`)?.getAttribute("aria-checked") === "true" && document.querySelectorAll(".grid .legend .key").length > 2, mode);
    }
    await page.click("[data-tab=drift]");
    await has(page, ".body", "writes exactly these ids");
    await page.click("[data-tab=turns]");
    await has(page, "td", "new_root");
    await page.click("[data-tab=json]");
    await has(page, ".body", "\"forks_by_cause\"");
    await page.goto(`${told.url}/ui#/compare?a=${told.a}&b=${told.b}`);
    await has(page, ".verdict", `position ${told.parts_at},`);
    await page.keyboard.press("g");
    await has(page, "h1", "Groups");
    await page.keyboard.press("?");
    await has(page, "dialog", "Keyboard");
    await page.keyboard.press("Escape");
  },

  // Groups and queues change by events.
  async groups(browser) {
    const page = await open(browser, "#/groups");
    await live(page);
    await has(page, "h1", "Groups");
    console.error("ready");
    await has(page, "td", told.group);
    await has(page, "td", told.queue);
    await has(page, "td", told.runner);
    await page.click(`a[href="#/groups/${told.group}"]`);
    await has(page, "td", "waiting");
    page.expectsDialog = true;
    await (await page.$("button.danger")).click();
    await has(page, "h1", "Groups");
    await until(page, "the group goes", id => !document.querySelector(`a[href="#/groups/${id}"]`), told.group);
  },

  // Turns that stream appear token by token, below and in the forest, then in the conversation: the first one, one that goes
  // on from it, and one beside that.
  async live(browser) {
    const page = await open(browser, `#/sessions/${told.a}`);
    await until(page, "its own stream is there", () => document.querySelector(".streaming")?.dataset.state === "live");
    const places = [];
    for (const answer of told.answers) {
      const lengths = new Set();
      const counts = new Set();
      const running = new Set();
      let place = null;
      let over = false;
      console.error("ready");
      const sampler = (async () => {
        while (!over) {
          const seen = await page.evaluate(() => {
            const mark = document.querySelector(".forest .livemark");
            const at = document.querySelector(".answer circle");
            return {text: document.querySelector("li.live pre")?.textContent, count: mark?.querySelector("text").textContent,
              running: document.querySelector(".inflight")?.textContent, place: mark && {at: mark.getAttribute("transform").match(/\d+/g).map(Number), from: at && [at.getAttribute("cx"), at.getAttribute("cy")].map(Number)}};
          });
          if (seen.text) {
            lengths.add(seen.text.length);
            check("the text grows from its beginning", answer.startsWith(seen.text), seen.text.slice(0, 200));
          }
          if (seen.count) counts.add(seen.count);
          if (seen.count) running.add(seen.running);
          place = seen.place || place;
          await pause(30);     // a token comes every 160 ms
        }
      })();
      await until(page, "the answer is in the conversation", a => [...document.querySelectorAll(".message.own pre")].some(e => e.textContent === a), answer);
      over = true;
      await sampler;
      check("it grew in steps", lengths.size >= 4, [...lengths]);
      check("the head counts the call that runs", running.has("1"), [...running]);
      check("so did its mark in the forest", counts.size >= 4, [...counts]);
      await until(page, "nothing runs", () => !document.querySelector("li.live, .livemark"));
      places.push(place);
      tell("steps", lengths.size);
    }
    const [first, second, third] = places;
    check("the first one stands alone", first && !first.from, places);
    check("the second one goes on in its line", second?.at[1] === second?.from[1] && second.at[0] > second.from[0], places);
    check("the third one is beside it", third?.at[1] > third?.from[1] && third.at[0] > third.from[0], places);
  },

  // What else could have been sampled, of the chosen token and of the one under the pointer.
  async alternatives(browser) {
    const page = await open(browser, `#/sessions/${told.a}?tab=tokens&token=${told.at}`);
    await has(page, ".side", "alternatives");
    const side = await text(page, ".side");
    for (const [id, p] of told.others) check(`${id} is told with its logprob`, side.includes(`${id}, ${p}`), side);
    const box = await page.evaluate(() => { const b = document.querySelector(".cells").getBoundingClientRect(); return [b.x, b.y, b.width]; });
    let seen = "";
    for (let y = box[1] + 14; y < box[1] + 200 && !seen.includes("alternatives"); y += 12) {
      for (let x = box[0] + 12; x < box[0] + box[2] && !seen.includes("alternatives"); x += 12) {
        await page.mouse.move(x, y);
        seen = await text(page, ".tip");
      }
    }
    check("and of the token under the pointer", seen.includes("alternatives"), seen);
  },

  // Calls that run and that wait, by engine.
  async waiting(browser) {
    const page = await open(browser, "#/");
    for (const [name, running, queue] of told.engines) {
      await until(page, `${name} runs ${running}, ${queue} wait`, (...want) => [...document.querySelectorAll("table.engines tbody tr")]
        .some(row => [0, 3, 4].every((k, i) => row.children[k].innerText === String(want[i]))), name, running, queue);
    }
  },

  // Sessions that come, change and go, without the page asking for lists again.
  async changes(browser) {
    const page = await newPage(browser, told.url);
    const lists = [];
    page.on("request", r => { if (/\/sessions\?/.test(r.url())) lists.push(r.url()); });
    await page.goto(`${told.url}/ui#/sessions`);
    await live(page);
    await until(page, "the first session is listed", id => !!document.querySelector(`[data-id="${id}"]`), told.a);
    const asked = lists.length;
    console.error("ready");
    await until(page, "a session of another worker comes", label => [...document.querySelectorAll(".row")].some(e => e.innerText.includes(label)), told.label);
    await until(page, "its turn is counted", label => [...document.querySelectorAll(".row[data-id]")].some(e => e.innerText.includes(label) && e.querySelector(".calls").innerText === "1"), told.label);
    await until(page, "the first one goes", id => !document.querySelector(`[data-id="${id}"]`), told.a);
    check("lists were not asked for again", lists.length === asked, lists);
  },

  // A list of several pages: what has come can be used while the rest is held back.
  async loading(browser) {
    const page = await newPage(browser, told.url);
    const held = [];
    let free = false;
    await page.setRequestInterception(true);
    page.on("request", r => {
      if (!free && /\/sessions\?.*cursor=/.test(r.url())) held.push(r);
      else r.continue();
    });
    const counted = (what, words) => until(page, what, w => document.querySelector(".count")?.textContent === w, words);
    await page.goto(`${told.url}/ui#/sessions`);
    await counted("the first page is told", `${told.first} of ${told.first} sessions · reading the list …`);
    while (!held.length) await pause(20);      // the page may tell its rows before the browser tells what the page asks for
    await until(page, "its rows are shown", () => document.querySelectorAll(".row[data-id]").length > 10);
    await page.type("#search", told.one);
    await until(page, "a search finds one of them", () => document.querySelectorAll(".row[data-id]").length === 1);
    await page.evaluate(() => { const e = document.getElementById("search"); e.value = ""; e.dispatchEvent(new Event("input")); });
    await until(page, "all are back", () => document.querySelectorAll(".row[data-id]").length > 10);
    check("one page is asked for at a time", held.length === 1, held.length);
    free = true;
    for (const r of held) r.continue();
    await counted("all are listed", `${told.all} of ${told.all} sessions`);
    const differ = await page.evaluate(async () => {
      const {sortRows, replaceRows} = await import("./ui/sessions.js");
      const column = {value: row => row.n};
      const made = (n, by) => [...Array(n).keys()].map(i => ({session_id: `s${i * 7919 % n}`, n: i * by % 23}));
      const old = made(400, 5);
      const more = made(430, 3).filter((_, i) => i % 4 === 0);
      const ids = new Set([...more.map(row => row.session_id), "s3", "s399", "nobody"]);
      const want = [...old.filter(row => !ids.has(row.session_id)), ...more];
      return [true, false].filter(down => JSON.stringify(replaceRows(sortRows(old, column, down), ids, more, column, down)) !== JSON.stringify(sortRows(want, column, down)));
    });
    check("rows that changed find their places", differ.length === 0, differ);
  },

  // One theme and width: every text can be read (WCAG AA), and no page is wider than its window.
  async looks(browser) {
    const {dark, width} = told;
    const seen = await newPage(browser, told.url, {dark, width});
    for (const hash of ["#/", "#/run", "#/run?by=task", "#/sessions", `#/sessions/${told.a}`, `#/sessions/${told.a}?tab=tokens`, `#/sessions/${told.a}?tab=turns`, `#/sessions/${told.a}?tab=drift`, `#/sessions/${told.a}?tab=samples`,
      `#/sessions/${told.a}?tab=json&at=${told.fork}`, `#/compare?a=${told.a}&b=${told.b}`, "#/groups", `#/groups/${told.group}`]) {
      const where = `${hash}, ${dark ? "dark" : "light"}, ${width} px`;
      await seen.goto("about:blank");
      await seen.goto(`${told.url}/ui${hash}`);
      await until(seen, `${where} is drawn`, () => document.querySelector(".message, .cells, .body td, .body pre, .body p, .verdict, .row[data-id], main td, .tile .spark"));
      check(`${where}: the theme is the system's`, await seen.evaluate(() => getComputedStyle(document.documentElement).colorScheme) === (dark ? "dark" : "light"));
      const wide = await seen.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth + Math.max(0, document.querySelector("main").scrollWidth - document.querySelector("main").clientWidth));
      check(`${where}: nothing stands out of the window`, wide <= 0, wide);
      const pale = await seen.evaluate(paleTexts);
      check(`${where}: texts have a contrast of 4.5`, pale.length === 0, pale.slice(0, 5));
    }
    if (width < 600) {
      await seen.goto(`${told.url}/ui#/sessions/${told.a}?tab=tokens`);
      await until(seen, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
      await seen.hover(".cells");
      check("what is told of a token stays in the window", await seen.evaluate(() => { const b = document.querySelector(".tip").getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth && b.bottom <= innerHeight; }));
    }
    await seen.close();
    const page = await open(browser, "#/");
    await page.keyboard.press("d");
    check("a key switches", await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme) === "dark");
    await page.reload();
    await until(page, "it is remembered", () => document.documentElement.dataset.theme === "dark");
  },

  // What a hostile agent writes stays text.
  async hostile(browser) {
    const page = await open(browser, "#/sessions");
    await page.evaluateOnNewDocument(() => { window.alert = () => { window.ran = true; }; });
    await live(page);
    await until(page, "the session is listed", id => !!document.querySelector(`[data-id="${id}"]`), told.a);
    check("its label is text", (await text(page, ".rows")).includes("<img"));
    for (const hash of [`#/sessions/${told.a}`, `#/sessions/${told.a}?tab=tokens`, `#/sessions/${told.a}?tab=turns`, `#/sessions/${told.a}?tab=json`, `#/sessions/${told.a}?tab=drift`, `#/sessions/${told.a}?tab=samples`, `#/compare?a=${told.a}&b=${told.a}`]) {
      await page.goto("about:blank");
      await page.goto(`${told.url}/ui${hash}`);
      await until(page, `${hash} is drawn`, () => document.querySelector(".message, .cells, .body td, .body pre, .body p, .verdict"));
      await pause(200);
      check(`${hash}: nothing ran`, !(await page.evaluate(() => window.ran || window.pwned)));
      check(`${hash}: no element came of text`, (await page.$$("main img, main script, main iframe, main object, main style, main form:not(.tools), main [onerror], main marquee")).length === 0);
      const shown = await page.evaluate(() => document.querySelector("main").innerText);
      check(`${hash}: nothing invisible is left`, !/[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\u001b\u0007\u0000]/.test(shown));
    }
    await page.goto("about:blank");
    await page.goto(`${told.url}/ui#/sessions/${told.a}`);
    await has(page, ".message pre", "<script>");
    check("controls are spelt", /‹U\+202E›/.test(await text(page)) && (await text(page)).includes("␛"));
  },

  // Pictures in messages and where they stand in the tokens; bytes that only begin as one draw nothing.
  async pictures(browser) {
    const page = await open(browser, `#/sessions/${told.a}`);
    await until(page, "the good one is drawn in its message", () => document.querySelectorAll(".message canvas[data-drawn]").length === 1);
    check("the broken one is told, not drawn", await page.evaluate(() => document.querySelectorAll(".message figure").length === 2 && document.querySelectorAll(".message canvas").length === 1));
    await page.goto("about:blank");
    await page.goto(`${told.url}/ui#/sessions/${told.a}?tab=tokens&token=${told.offset + 3}`);
    await until(page, "it stands in the tokens", () => document.querySelector(".grid")?.dataset.pictures === "1");
    await until(page, "and beside its token", () => !!document.querySelector(".side canvas[data-drawn]"));
    check("its token says which", (await text(page, ".side")).includes(`token 4 of ${told.length}`));
    const [r, g, b] = await page.evaluate(() => [...document.querySelector(".side canvas").getContext("2d").getImageData(20, 20, 1, 1).data]);
    check("it has its own grey", Math.abs(r - told.shade) < 3 && r === g && g === b);
    check("no element loads one by its address", (await page.$$("img, object, embed, iframe")).length === 0);
  },

  // A gateway that wants keys.
  async keys(browser) {
    const allow = ["401", "403"];
    const page = await open(browser, "", {allow});
    await until(page, "it asks for a key", () => !!document.getElementById("key"));
    for (const wrong of ["nonsense", told.agent]) {
      await page.evaluate(() => { document.getElementById("key").value = ""; });
      await page.type("#key", wrong);
      await page.keyboard.press("Enter");
      await until(page, "it says no", () => document.querySelector(".fault")?.innerText.length > 3);
      check("nothing is shown", !(await text(page)).includes(told.a) && !(await page.$(".tile")));
    }
    await page.evaluate(() => { document.getElementById("key").value = ""; });
    await page.type("#key", told.admin);
    await page.keyboard.press("Enter");
    await live(page);
    await has(page, ".tile", "Turns a second");
    check("the key is this tab's alone", await page.evaluate(() => !!sessionStorage.getItem("rollgate-key") && !Object.values(localStorage).length && !document.cookie));
    check("no request shows it in its address", !page.url().includes(told.admin));
    const other = await (await browser.createBrowserContext()).newPage();
    await other.goto(`${told.url}/ui`);
    await until(other, "another tab must give its own", () => !!document.getElementById("key"));
    await other.type("#key", told.runner);
    await other.keyboard.press("Enter");
    await until(other, "its session is shown", id => document.querySelector(".id")?.textContent === id, told.a);
    await until(other, "with its conversation", () => !!document.querySelector(".message.own"));
    check("and nothing else", !(await other.$("nav a[href='#/sessions']")) && !(await other.$("button.danger")));
    await other.goto(`${told.url}/ui#/sessions/${told.b}`);
    await pause(300);
    check("not even by its address", !(await text(other, "main")).includes(told.b));
  },

  // Every command of "Copy as curl", and every download: what was copied is told, what was saved lies in the folder.
  async files(browser) {
    const page = await newPage(browser, told.url, {allow: ["401"]});
    await browser.defaultBrowserContext().overridePermissions(told.url, ["clipboard-read", "clipboard-write"]);
    const wire = await browser.target().createCDPSession();
    await wire.send("Browser.setDownloadBehavior", {behavior: "allow", downloadPath: told.folder, eventsEnabled: true});
    const begun = new Map();
    const saved = new Set();
    wire.on("Browser.downloadWillBegin", e => begun.set(e.guid, e.suggestedFilename));
    wire.on("Browser.downloadProgress", e => { if (e.state === "completed") saved.add(begun.get(e.guid)); });
    await page.goto(`${told.url}/ui`);
    await until(page, "a key is asked for", () => !!document.getElementById("key"));
    await page.type("#key", told.key);
    await page.keyboard.press("Enter");
    await live(page);
    await page.goto(`${told.url}/ui#/sessions/${told.a}`);
    await has(page, ".message.own", "sampled");
    const [curls, downloads] = await page.$$("details.menu");
    await (await curls.$("summary")).click();
    const commands = {};
    for (const button of await curls.$$("button")) {
      const name = await button.evaluate(e => e.textContent);
      await button.click();
      await until(page, `${name} says that it is copied`, e => e.textContent === "Copied", button);
      commands[name] = await page.evaluate(() => navigator.clipboard.readText());
    }
    check("no command holds the key", !JSON.stringify(commands).includes(told.key));
    tell("commands", commands);
    const n = (await downloads.$$("button")).length;
    for (let i = 0; i < n; i++) {
      if (i % 5 === 0) {      // after ten files of one visit Chromium asks whether a page may save more
        await page.goto("about:blank");
        await page.goto(`${told.url}/ui#/sessions/${told.a}`);
        await has(page, ".message.own", "sampled");
        await (await (await page.$$("details.menu"))[1].$("summary")).click();
      }
      const before = saved.size;
      const button = (await (await page.$$("details.menu"))[1].$$("button"))[i];
      const name = await button.evaluate(e => e.textContent);
      await button.click();
      for (let k = 0; k < 600 && saved.size === before; k++) await pause(50);
      check(`${name} is saved`, saved.size === before + 1, await button.evaluate(e => e.textContent));
    }
    tell("saved", [...saved]);
    await page.evaluate(() => {
      Object.defineProperty(navigator, "clipboard", {value: undefined});
      document.addEventListener("copy", e => { window.copied = e.target.value; });
    });
    await page.click("[data-tab=tokens]");
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await (await page.waitForSelector("::-p-text(Copy ids)")).click();
    check("without a clipboard of its own the page copies as by hand", /^\[\d+,/.test(await until(page, "it is copied", () => window.copied)));
  },

  // Pages that nobody sees leave the browser's few connections to the one that is looked at.
  async left(browser) {
    const page = await newPage(browser, told.url);
    const began = Date.now();
    for (let visit = 0; visit < 5; visit++) {
      await page.goto("about:blank");
      await page.goto(`${told.url}/ui#/sessions/${told.a}`);
      await live(page);
      await has(page, ".message.own", "sampled");
      await until(page, "its own stream is there", () => document.querySelector(".streaming")?.dataset.state === "live");
    }
    check("no visit waited for those before it", Date.now() - began < 50000, Date.now() - began);
    const see = state => page.evaluate(now => {
      Object.defineProperty(document, "visibilityState", {configurable: true, get: () => now});
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
    await see("hidden");
    await until(page, "a hidden page gives its streams up", () => document.querySelector(".stream").dataset.state === "lost" && document.querySelector(".streaming").innerText === "reconnecting …");
    await see("visible");
    await live(page);
    await until(page, "its own stream is there", () => document.querySelector(".streaming")?.dataset.state === "live");
  },

  // A page of `rollgate export --html`, as a file.
  async exported(browser) {
    const page = await newPage(browser, "file://");
    const asked = [];
    page.on("request", r => { if (!/^(data|blob):/.test(r.url())) asked.push(r.url()); });
    await page.goto(told.url);
    await until(page, "the session is shown", id => document.querySelector(".id")?.textContent === id, told.a);
    await has(page, ".message.own", "sampled");
    check("the forest has an answer for each", (await page.$$(".answer")).length === told.answers, (await page.$$(".answer")).length);
    check("controls are spelt", /‹U\+202E›/.test(await text(page)) && (await text(page)).includes("␛"));
    await page.click(`.answer[data-response="${told.fork}"]`);
    await has(page, ".fork", "assistant_rewritten");
    await page.keyboard.press("2");
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await page.focus(".cells");
    await page.keyboard.press("End");
    await has(page, ".side", "<|im_end|>");
    await page.click("[data-tab=drift]");
    await has(page, ".body", "writes exactly these ids");
    await page.click("[data-tab=turns]");
    await has(page, "td", "new_root");
    for (const at of await page.$$eval(".answer", all => all.map(e => e.dataset.response))) {
      await page.click(`.answer[data-response="${at}"]`);
      await page.click("[data-tab=conversation]");
      await has(page, ".message.own", "sampled");
      check(`${at}: nothing is missing`, !(await page.$(".fault")));
    }
    check("nothing ran", !(await page.evaluate(() => window.pwned)));
    check("no element came of text", (await page.$$("main img, main script, main style, main [onerror], main marquee")).length === 0);
    check("no file but the page was asked for", asked.length === 1, asked);
  },
};

await withBrowser(scenes[scene]);
