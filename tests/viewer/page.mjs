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

// What the page paints: [frames, longest and 95th percentile of the pauses between them in ms] while fn scrolls.
async function frames(page, selector, distance) {
  return page.evaluate(async (s, by) => {
    const box = document.querySelector(s);
    const at = [];
    await new Promise(done => {
      const step = now => {
        at.push(now);
        box.scrollTop += by;
        if (at.length < 180) requestAnimationFrame(step);
        else done();
      };
      requestAnimationFrame(step);
    });
    const pauses = at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
    return {frames: pauses.length, median_ms: pauses[pauses.length >> 1], p95_ms: pauses[Math.floor(pauses.length * 0.95)], worst_ms: pauses[pauses.length - 1]};
  }, selector, distance);
}

// Contrast of every text with what is behind it, as WCAG 2 counts it: those below what AA wants.
async function lowContrast(page) {
  return page.evaluate(() => {
    const channel = c => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const parse = text => (/rgba?\(([^)]*)\)/.exec(text) || [null, "0,0,0,0"])[1].split(/[ ,/]+/).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
    const ground = e => {
      for (let at = e; at; at = at.parentElement) {
        const c = parse(getComputedStyle(at).backgroundColor);
        if (c.length < 4 || c[3] > 0.99) return c;
      }
      return [255, 255, 255];
    };
    const bad = [];
    for (const e of document.querySelectorAll("body *")) {
      const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
      const box = e.getBoundingClientRect();
      if (!own || !box.width || e.closest(".unseen, .skip, svg") || e.disabled) continue;
      const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) bad.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return bad;
  });
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

  // A turn that streams appears token by token, then in the conversation.
  async live(browser) {
    const page = await open(browser, `#/sessions/${told.a}`);
    await has(page, ".streaming", "live");
    console.error("ready");
    const lengths = new Set();
    let over = false;
    const sampler = (async () => {
      while (!over) {
        const seen = await page.evaluate(() => document.querySelector("li.live pre")?.textContent ?? null);
        if (seen) {
          lengths.add(seen.length);
          check("the text grows from its beginning", told.answer.startsWith(seen), seen.slice(0, 200));
        }
      }
    })();
    await until(page, "the answer is in the conversation", a => [...document.querySelectorAll(".message.own pre")].some(e => e.textContent === a), told.answer);
    over = true;
    await sampler;
    check("it grew in steps", lengths.size >= 4, [...lengths]);
    await until(page, "nothing runs", () => !document.querySelector("li.live"));
    tell("steps", lengths.size);
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

  // A very long list and a very long branch.
  async many(browser) {
    const page = await open(browser, "#/sessions");
    await live(page);
    await until(page, "all are listed", n => document.querySelector(".count")?.innerText.startsWith(`${n.toLocaleString("en-US")} of ${n.toLocaleString("en-US")} sessions`) && !document.querySelector(".count").innerText.includes("reading"), told.n);
    check("only the rows in sight are in the page", (await page.$$(".row[data-id]")).length < 120);
    tell("sessions", await frames(page, ".page.full .scroll", 400));
    await page.focus(".page.full .scroll");
    await page.keyboard.press("End");
    await until(page, "the last row is in sight", n => !!document.querySelector(`.row[aria-rowindex="${n + 1}"]`), told.n);
    await page.keyboard.press("/");
    const before = Date.now();
    await page.keyboard.type(told.search);
    await until(page, "the search finds one", () => document.querySelectorAll(".row[data-id]").length === 1);
    tell("search_ms", Date.now() - before);
  },

  async long(browser) {
    const page = await open(browser, `#/sessions/${told.a}?tab=tokens`);
    await until(page, "all tokens are there", n => document.querySelector(".count")?.innerText.startsWith(n.toLocaleString("en-US")), told.n);
    tell("tokens", await frames(page, ".cells", 700));
    check("the page holds few elements", await page.evaluate(() => document.querySelectorAll("*").length) < 1500);
    await page.focus(".cells");
    await page.keyboard.press("End");
    await has(page, ".side", `${(told.n - 1).toLocaleString("en-US")} of`);
    await page.evaluate(() => document.querySelector("[aria-label='Go to position']").focus());
    await page.keyboard.type("100000\n");
    await has(page, ".side", "100,000 of");
  },

  // What a hostile agent writes stays text.
  async hostile(browser) {
    const page = await open(browser, "#/sessions");
    await page.evaluateOnNewDocument(() => { window.alert = () => { window.ran = true; }; });
    await live(page);
    await until(page, "the session is listed", id => !!document.querySelector(`[data-id="${id}"]`), told.a);
    check("its label is text", (await text(page, ".rows")).includes("<img"));
    for (const hash of [`#/sessions/${told.a}`, `#/sessions/${told.a}?tab=tokens`, `#/sessions/${told.a}?tab=turns`, `#/sessions/${told.a}?tab=json`, `#/sessions/${told.a}?tab=drift`, `#/compare?a=${told.a}&b=${told.a}`]) {
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
    check("not even by its address", !(await text(other)).includes(told.b));
  },

  // Light, dark, wide, narrow: contrast, and nothing beside the page.
  async looks(browser) {
    for (const dark of [false, true]) {
      for (const width of [1280, 390]) {
        const page = await newPage(browser, told.url, {dark, width});
        for (const hash of ["#/", "#/sessions", `#/sessions/${told.a}`, `#/sessions/${told.a}?tab=tokens`, `#/sessions/${told.a}?tab=turns`, "#/groups", `#/compare?a=${told.a}&b=${told.b}`]) {
          await page.goto("about:blank");
          await page.goto(`${told.url}/ui${hash}`);
          await until(page, `${hash} is drawn`, () => document.querySelector(".tile, .row[data-id], .message, .cells, .body td, section h2, .verdict"));
          const name = `${hash.replace(told.a, "ID")} ${dark ? "dark" : "light"} ${width}`;
          const bad = await lowContrast(page);
          check(`${name}: contrast`, bad.length === 0, bad.slice(0, 5));
          check(`${name}: nothing sticks out`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1));
          const nameless = await page.evaluate(() => [...document.querySelectorAll("button, a, input, select, [role=button]")].filter(e => !(e.innerText || e.textContent || e.getAttribute("aria-label") || e.labels?.length)).map(e => e.outerHTML.slice(0, 120)));
          check(`${name}: everything has a name`, nameless.length === 0, nameless);
        }
        if (dark) check("the page is dark", await page.evaluate(() => getComputedStyle(document.body).backgroundColor) === "rgb(18, 23, 31)");
        await page.close();
      }
    }
    const page = await open(browser, "#/");
    await page.waitForSelector("#bar button");
    await page.keyboard.press("d");
    check("d turns it dark", await page.evaluate(() => document.documentElement.dataset.theme) === "dark");
  },

  // A page of `rollgate export --html`, as a file.
  async exported(browser) {
    const page = await newPage(browser, "file://");
    await page.goto(told.url);
    await until(page, "the session is shown", id => document.querySelector(".id")?.textContent === id, told.a);
    await has(page, ".message.own", "sampled");
    await page.click(`.answer[data-response="${told.fork}"]`);
    await has(page, ".fork", "assistant_rewritten");
    await page.keyboard.press("2");
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await page.click("[data-tab=drift]");
    await has(page, ".body", "writes exactly these ids");
    check("nothing ran", !(await page.evaluate(() => window.pwned)));
  },
};

await withBrowser(scenes[scene]);
