// How the viewer paints while somebody scrolls: node frames.mjs many|long JSON. Prints a line of JSON.
import {newPage, tell, until, withBrowser} from "./lib.mjs";

const [what, given] = process.argv.slice(2);
const told = JSON.parse(given);
const FRAMES = 240;
const LISTED_MAX_MS = 500000;

// The pauses between frames, in ms, while the box scrolls by so many pixels a frame.
async function frames(page, selector, distance) {
  return page.evaluate(async (s, by, n) => {
    const box = document.querySelector(s);
    const at = [];
    await new Promise(done => {
      const step = now => {
        at.push(now);
        box.scrollTop += by;
        if (at.length <= n) requestAnimationFrame(step);
        else done();
      };
      requestAnimationFrame(step);
    });
    const pauses = at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
    const part = p => Number(pauses[Math.min(pauses.length - 1, Math.floor(pauses.length * p))].toFixed(1));
    return {frames: pauses.length, median_ms: part(0.5), p95_ms: part(0.95), worst_ms: part(1)};
  }, selector, distance, FRAMES);
}

const shown = n => n.toLocaleString("en-US");

const scenes = {
  async many(browser) {
    const page = await newPage(browser, told.url);
    const began = Date.now();
    await page.evaluateOnNewDocument(() => {
      window.longest = 0;
      new PerformanceObserver(list => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({type: "longtask", buffered: true});
    });
    await page.goto(`${told.url}/ui#/sessions`);
    await until(page, "the first rows", () => document.querySelectorAll(".row[data-id]").length > 10);
    tell("first_ms", Date.now() - began);
    await page.waitForFunction(count => document.querySelector(".count")?.textContent === `${count} of ${count} sessions`,
      {timeout: LISTED_MAX_MS, polling: 250}, shown(told.n));
    tell("listed_ms", Date.now() - began);
    tell("stall_ms", Math.round(await page.evaluate(() => window.longest)));
    tell("elements", await page.evaluate(() => document.querySelectorAll("*").length));
    tell("scroll", await frames(page, ".page.full .scroll", 400));
    await page.keyboard.press("/");
    const typed = Date.now();
    await page.keyboard.type(told.search);
    await until(page, "the search finds one", () => document.querySelectorAll(".row[data-id]").length === 1);
    tell("search_ms", Date.now() - typed);
  },

  async long(browser) {
    const page = await newPage(browser, told.url);
    const began = Date.now();
    await page.goto(`${told.url}/ui#/sessions/${told.a}?tab=tokens`);
    await until(page, "all tokens are there", n => document.querySelector(".body .count")?.innerText.startsWith(n), shown(told.n));
    tell("drawn_ms", Date.now() - began);
    tell("elements", await page.evaluate(() => document.querySelectorAll("*").length));
    tell("scroll", await frames(page, ".cells", 700));
    await page.focus(".cells");
    await page.keyboard.press("End");
    await until(page, "the last token is told", n => document.querySelector(".side").innerText.includes(`${n} of`), shown(told.n - 1));
  },
};

await withBrowser(scenes[what]);
