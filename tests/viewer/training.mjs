// Scenes of the viewer that look at training: node training.mjs SCENE JSON. Prints a line of JSON: {ok, failed, ...}.
import {check, newPage, text, until, withBrowser} from "./lib.mjs";

const [scene, given] = process.argv.slice(2);
const told = JSON.parse(given);

async function open(browser, hash, options) {
  const page = await newPage(browser, told.url, options);
  await page.goto(`${told.url}/ui${hash}`);
  return page;
}

// The same page at a different address, loaded from the start.
async function go(page, hash) {
  await page.goto("about:blank");
  await page.goto(`${told.url}/ui${hash}`);
}

const has = (page, selector, words) => until(page, `${selector} says ${words}`,
  (s, w) => [...document.querySelectorAll(s)].some(e => e.innerText.includes(w)), selector, words);

// Waits until the stream of events is there and the lists have been read.
const live = page => until(page, "the page is live", () => document.querySelector(".stream")?.dataset.state === "live");

// Clicks what comes to match; an event may draw it again in between.
async function press(page, selector) {
  await page.waitForSelector(selector);
  await page.click(selector);
}

const address = page => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] || "")));

// Waits until the address has these values.
const says = (page, wanted) => until(page, `the address says ${JSON.stringify(wanted)}`, w => {
  const query = new URLSearchParams(location.hash.split("?")[1] || "");
  return Object.entries(w).every(([name, value]) => query.get(name) === String(value));
}, wanted);

const scenes = {
  // What was seen as faults of earlier pages.
  async faults(browser) {
    const page = await open(browser, "#/", {allow: ["404"]});
    await until(page, "each tile has a curve", () => document.querySelectorAll(".tile").length === 6 && document.querySelectorAll(".tile path.curve").length === 6);
    const spans = await page.$$eval(".tile path.curve", all => all.map(e => e.getBBox().width));
    check("curves span their tiles", spans.every(w => w > 100), spans);
    await page.keyboard.press("?");
    await has(page, "dialog", "Keyboard");
    const cut = await page.evaluate(() => {
      const close = document.querySelector("dialog button").getBoundingClientRect();
      return [...document.querySelectorAll("dialog dt, dialog dd, dialog h2")].filter(e => {
        const b = e.getBoundingClientRect();
        return b.left < close.right && b.right > close.left && b.top < close.bottom && b.bottom > close.top;
      }).map(e => e.innerText);
    });
    check("Close covers nothing", cut.length === 0, cut);
    await page.keyboard.press("Escape");
    await page.keyboard.press("g");
    await has(page, "h1", "Groups");
    const headings = await page.$$eval("h1, h2", all => all.map(e => e.innerText));
    check("no heading stands twice", new Set(headings).size === headings.length, headings);
    await page.keyboard.press("s");
    await until(page, "the session of an attempt is listed", id => !!document.querySelector(`[data-id="${id}"]`), told.attempt);
    const cell = await page.evaluate(id => {
      const e = document.querySelector(`[data-id="${id}"] .labels`);
      return {text: e.innerText, title: e.querySelector("[title]").title, fits: e.scrollWidth <= e.clientWidth};
    }, told.attempt);
    check("labels fit their column", cell.fits && cell.text.includes("task=one"), cell);
    check("the attempt is in their title", !cell.text.includes("attempt=") && cell.title.includes("attempt="), cell);
    const lines = await page.$$eval(".row[data-id] .cell", all => all.map(e => getComputedStyle(e).borderTopWidth + getComputedStyle(e).paddingTop));
    check("all cells of a row are alike", lines.length > 5 && new Set(lines).size === 1, lines);
    const share = await page.evaluate(async () => {
      const {timeBar} = await import("./ui/shares.js");
      return timeBar({queue: 0.0001, engine: 10}).textContent;
    });
    check("a small share has no long number", share.includes("queue < 0.1 %") && share.includes("engine 100 %"), share);
    await go(page, `#/sessions/${told.a}`);
    await until(page, "its stream is there", () => document.querySelector(".streaming")?.dataset.state === "live");
    const live = await page.evaluate(() => document.body.innerText.split(/\s+/).filter(w => w === "live").length);
    check("the page says live once", live === 1, live);
    await go(page, `#/sessions/w0-${"0".repeat(32)}`);
    await has(page, ".fault", "no such session");
    check("no control of a session that is not there", !(await page.evaluate(() => document.querySelector(".dock")?.checkVisibility())));
    await press(page, "::-p-text(All sessions)");
    await has(page, "h1", "Sessions");
    for (const dark of [false, true]) await this.underlines(browser, dark);
    await this.phone(browser);
  },

  // The line under what the model wrote can be seen on every colour.
  async underlines(browser, dark) {
    const page = await open(browser, `#/sessions/${told.a}?tab=tokens&colour=logprob`, {dark});
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
    const seen = await page.evaluate(async () => {
      const {palette} = await import("./ui/colours.js");
      const lightness = ([r, g, b]) => [0.2126 * r, 0.7152 * g, 0.0722 * b].reduce((x, y) => x + y);
      const {none} = palette();
      const hex = text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
      const canvas = document.querySelector(".cells canvas");
      const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const at = (x, y) => [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
      let lines = 0;
      let lost = 0;
      for (let y = 8; y + 24 < canvas.height; y += 24) {
        for (let x = 10; x < width - 20; x++) {
          if (at(x, y + 21).join() !== hex(none[1]).join()) continue;
          lines++;
          if (Math.abs(lightness(at(x, y + 21)) - lightness(at(x, y + 19))) < 90) lost++;
        }
      }
      return {lines, lost};
    });
    check(`${dark ? "dark" : "light"}: underlines are drawn, each on the page's ground`, seen.lines > 100 && seen.lost === 0, seen);
    await page.close();
  },

  // A table that is wider than a phone says so, and stops saying so at its end.
  async phone(browser) {
    const page = await open(browser, "#/groups", {width: 390});
    await until(page, "the table hints at more columns", () => [...document.querySelectorAll(".hinted[data-after=yes]")].some(e => e.querySelector("table.groups")));
    await page.$eval(".hinted table.groups", table => { table.parentElement.scrollLeft = table.scrollWidth; });
    await until(page, "its end says where it came from", () => {
      const box = document.querySelector("table.groups").closest(".hinted");
      return box.dataset.after === "no" && box.dataset.before === "yes";
    });
    await go(page, `#/sessions/${told.a}?tab=json`);
    await until(page, "the chosen tab is in sight", () => {
      const b = document.querySelector("[role=tab][aria-selected=true]")?.getBoundingClientRect();
      return b && b.left >= 0 && b.right <= innerWidth && document.querySelector(".tabs").parentElement.dataset.before === "yes";
    });
    await go(page, "#/sessions");
    await until(page, "so does the list of sessions", () => document.querySelector(".page.full .hinted")?.dataset.after === "yes");
    await page.close();
  },

  // One group: members with their advantage, two of them compared, why it waits, and the way to a failing turn.
  async group(browser) {
    const page = await open(browser, `#/groups/${told.group}`);
    await until(page, "all members are there", n => document.querySelectorAll("table.members tbody tr").length === n, told.members.length);
    for (const [rollout, cells] of told.members) {
      await until(page, `rollout ${rollout} shows ${JSON.stringify(cells)}`, (k, want) => {
        const row = document.querySelector(`tr[data-rollout="${k}"]`);
        const names = [...document.querySelectorAll("table.members th")].map(e => e.innerText);
        return Object.entries(want).every(([name, value]) => row.children[names.indexOf(name)].innerText.trim() === value);
      }, rollout, cells);
    }
    await has(page, ".facts", told.reward);
    await until(page, "the time of the group is drawn", () => document.querySelector(".facts .sharebar")?.ariaLabel.startsWith("Time of the group: "));
    const log = await page.$(`tr[data-rollout="${told.failed}"] details.log`);
    check("the log's last line stands there", (await log.evaluate(e => e.innerText)).includes("AssertionError"));
    await page.click(`tr[data-rollout="${told.failed}"] details.log summary`);
    await has(page, "details.log pre", "Traceback");
    await this.pressed(page);
    check("an open log stays open", await page.$eval(`tr[data-rollout="${told.failed}"] details.log`, e => e.open));
    await press(page, "::-p-text(Compare the two)");
    await has(page, "h1", "Compare");
    await has(page, ".verdict", "The first differing token");
    await go(page, `#/groups/${told.group}`);
    await press(page, `tr[data-rollout="${told.kept}"] ::-p-text(first failing turn)`);
    await until(page, "the failing turn is in sight", () => {
      const b = document.querySelector("li.message.own.target")?.getBoundingClientRect();
      return b && b.top >= 0 && b.top < innerHeight;
    });
    await has(page, "li.target", "truncated");
    await has(page, "[data-jump=truncated] b", "1/1");
    await go(page, `#/groups/${told.waiting}`);
    await has(page, ".banner", told.why);
    await go(page, "#/groups");
    await has(page, "table.groups td.why", told.why);
    await page.type("#search", told.waiting);
    await until(page, "the search finds one group", () => document.querySelectorAll("table.groups tbody tr").length === 1);
    await go(page, "#/run");
    await has(page, ".facts dd", told.measured);
    await has(page, ".facts dt", "estimated from calls");
    await this.repeated(browser);
    const narrow = await open(browser, `#/groups/${told.group}`, {width: 390, dark: true});
    await has(narrow, "h1", told.group);
    await until(narrow, "members", () => document.querySelector("table.members"));
    check("nothing stands out of a phone", await narrow.evaluate(() => document.querySelector("main").scrollWidth <= document.querySelector("main").clientWidth));
  },

  // A click counts although an event comes between press and release; and a session that could not be read is asked for again.
  async pressed(page) {
    const [first, second] = told.pair;
    const [x, y] = await page.evaluate(k => {      // in one step: an event may draw it anew
      const box = document.querySelector(`tr[data-rollout="${k}"] input`);
      box.scrollIntoView({block: "center"});
      const b = box.getBoundingClientRect();
      return [b.x + b.width / 2, b.y + b.height / 2];
    }, first);
    await page.mouse.move(x, y);
    await page.mouse.down();
    const answered = page.waitForResponse(r => r.url().endsWith(`/groups/${told.group}?deliver=false`));
    await page.evaluate(async () => (await import("./ui/store.js")).store.tell("groups"));
    await (await answered).text();
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.mouse.up();
    await until(page, "the press is a click", k => document.querySelector(`tr[data-rollout="${k}"] input`)?.checked, first);
    await page.evaluate(async () => {
      const {store} = await import("./ui/store.js");
      store.forget([...store.sessions.keys()]);
    });
    await page.click(`tr[data-rollout="${second}"] input`);
    check("rows that have left the list stay", await page.$$eval("table.members tbody tr", rows => rows.filter(e => /\d/.test(e.children[6].innerText)).length) === told.sessions);
  },

  async repeated(browser) {
    const page = await newPage(browser, told.url, {allow: ["503"]});
    const refused = new Set();
    await page.setRequestInterception(true);
    page.on("request", r => {
      const asked = new URL(r.url()).pathname;
      if (asked === "/sessions") r.respond({contentType: "application/json", body: '{"sessions": [], "next_cursor": null}'});
      else if (!/^\/sessions\/w/.test(asked) || refused.has(asked)) r.continue();
      else {
        refused.add(asked);
        r.respond({status: 503, contentType: "application/json", body: '{"error": {"message": "busy"}}'});
      }
    });
    await page.goto(`${told.url}/ui#/groups/${told.group}`);
    await until(page, "all members have their turns", n => [...document.querySelectorAll("table.members tbody tr")].filter(e => /\d/.test(e.children[6].innerText)).length === n, told.sessions);
    check("they were asked for again", refused.size > 0);
    await page.close();
  },

  // One session: jumps, folds, offered tools, samples, drift, the strip, the search; and addresses that bring back what was seen.
  async session(browser) {
    const page = await open(browser, `#/sessions/${told.a}?at=${told.end}`);
    await has(page, ".message.own", "sampled");
    const jumps = await page.evaluate(() => Object.fromEntries([...document.querySelectorAll("[data-jump]")].map(e => [e.dataset.jump, e.querySelector("b").innerText])));
    check("jumps are counted", JSON.stringify(jumps) === JSON.stringify(told.jumps), jumps);
    const fold = await page.$eval(".message.system pre", e => e.innerText);
    check("a long prompt is folded", fold.length < 1500 && fold.includes("more characters"), fold.length);
    await page.click(".message.system pre button");
    await until(page, "it unfolds", n => document.querySelector(".message.system pre").innerText.length > n, told.prompt);
    await page.keyboard.press("]");
    await says(page, {message: told.answers[0]});
    await page.keyboard.press("]");
    await says(page, {message: told.answers[1]});
    await until(page, "the second answer is in sight", n => {
      const item = document.querySelector(`li[data-message="${n}"]`);
      const b = item.getBoundingClientRect();
      return item.classList.contains("target") && b.top > 0 && b.top < innerHeight;
    }, told.answers[1]);
    await page.click("[data-jump=answers] button:last-child");
    await says(page, {message: told.answers[2]});
    await page.keyboard.press("/");
    await page.keyboard.type(told.words);
    await has(page, ".finder .count", `1 of ${told.hits}`);
    check("the count is announced once", !(await page.$eval("#live", e => e.textContent)).includes(" of "));
    await page.keyboard.press("Enter");
    await has(page, ".finder .count", `2 of ${told.hits}`);
    check("hits are marked", await page.evaluate(() => CSS.highlights.get("found").size > 0 && CSS.highlights.get("current").size === 1));
    check("no element was made of them", (await page.$$("main mark")).length === 0);
    const seen = await address(page);
    check("the address has the search", seen.q === told.words && "message" in seen, seen);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await until(page, "the link shows the same message", n => document.querySelector("li.target")?.dataset.message === n, seen.message);
    await has(page, ".finder .count", `of ${told.hits}`);
    await page.setViewport({width: 1280, height: 500});
    await until(page, "scrolling moves the address", n => {
      document.querySelector("main").scrollTop = 1e6;
      return Number(new URLSearchParams(location.hash.split("?")[1]).get("message")) > Number(n);
    }, seen.message);
    await page.setViewport({width: 1280, height: 800});

    await page.click("[data-tab=tokens]");
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    await has(page, ".finder .count", "of");
    await page.click("[data-jump=answers] button:last-child");
    await says(page, {token: told.tokens[0]});
    await page.click("[data-jump=drift] button:last-child");
    await says(page, {token: told.drift.position});
    await page.focus(".strip");
    await page.keyboard.press("End");
    await says(page, {token: told.n - 1});
    const strip = await page.evaluate(() => { const b = document.querySelector(".strip").getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; });
    await page.mouse.click(strip[0] + strip[2] / 2, strip[1] + strip[3] / 2);
    await until(page, "a click on the strip goes there", n => Math.abs(Number(new URLSearchParams(location.hash.split("?")[1]).get("token")) - n / 2) <= n / 100 + 1, told.n);
    const drawn = await page.evaluate(() => {
      const canvas = document.querySelector(".strip canvas");
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colours = new Set();
      for (let i = 0; i < data.length; i += 4) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
      return colours.size;
    });
    check("the strip has grounds of several likelihoods", drawn >= 4, drawn);

    await page.click("[data-tab=drift]");
    await has(page, ".drift", told.drift.kind);
    const cells = await page.evaluate(() => [...document.querySelectorAll(".drifted dd")].slice(0, 2).map(e => [...e.querySelectorAll(".here")].map(c => Number(c.title.slice(3)))));
    check("both ways' tokens are shown", JSON.stringify(cells) === JSON.stringify([told.drift.sent, told.drift.want]), cells);
    await page.click(".drift h3 button");
    await says(page, {tab: "tokens", token: told.drift.position, colour: "drift"});

    await page.click("[data-tab=conversation]");
    const offered = await page.$eval(`li[data-message="${told.answers[0]}"] .offered summary`, e => e.innerText);
    check("a turn says which tools it was offered", told.tools.every(name => offered.includes(name)), offered);
    await page.click("[data-tab=turns]");
    await until(page, "each turn has their number", n => document.querySelector("main tbody tr").children[5].innerText === String(n), told.tools.length);

    await go(page, `#/sessions/${told.sampled}?tab=samples`);
    await until(page, "samples of one prompt are next to each other", n => document.querySelectorAll(".sample .facts-line").length === n, told.samples.length);
    const texts = await page.$$eval(".sample", all => all.map(e => e.querySelector("pre.text").innerText));
    check("each with its text", JSON.stringify([...texts].sort()) === JSON.stringify([...told.samples].sort()), texts);
    const tops = await page.$$eval(".sample", all => all.map(e => e.getBoundingClientRect().top));
    check("in one row", new Set(tops).size === 1, tops);
    await page.click(".sample:nth-child(2) button.link");
    await says(page, {tab: "conversation"});
    await has(page, ".message.own", texts[1].slice(0, 20));
    const narrow = await open(browser, link.slice(link.indexOf("#")), {width: 390, dark: true});
    await until(narrow, "a phone shows the linked message", n => {
      const b = document.querySelector("li.target")?.getBoundingClientRect();
      return document.querySelector("li.target")?.dataset.message === n && b.top < innerHeight && b.bottom > 0;
    }, seen.message);
    check("nothing stands out of it", await narrow.evaluate(() => document.querySelector("main").scrollWidth <= document.querySelector("main").clientWidth));
  },

  // The run: figures as GET /stats has them, over time and by label; a span that filters sessions; where the time goes.
  async run(browser) {
    const page = await open(browser, "#/");
    await live(page);
    await page.keyboard.press("r");
    await has(page, "h1", "Run");
    for (const [name, value] of Object.entries(told.tiles)) {
      await until(page, `${name} is ${value}`, (n, v) => document.querySelector(`[data-measure="${n}"] .big`)?.innerText.trim().startsWith(v), name, value);
    }
    check("each has its points", await page.evaluate(() => [...document.querySelectorAll("[data-measure=Reward], [data-measure=Ended]")].every(e => e.querySelector(".curve, .dot"))));
    await has(page, ".causes td", "aborted");
    check("the shares of the time are drawn", (await page.$$("main .sharebar i")).length > 1);
    await until(page, "the slowest are listed", id => !!document.querySelector(`table.slowest a[href="#/sessions/${id}"]`), told.slowest);
    check("with what they waited for", (await text(page, "table.slowest tbody")).includes(told.waited), await text(page, "table.slowest tbody"));
    check("an aborted one has no page", (await text(page, "table.slowest tbody tr")).includes("aborted") && !(await page.$("table.slowest tbody tr:first-child a")), await text(page, "table.slowest tbody tr"));
    await press(page, "::-p-text(by task)");
    for (const [name, reward] of told.tasks) {
      await until(page, `${name} has a row`, (n, r) => document.querySelector(`tr[data-label="${n}"]`)?.children[2].innerText === r, name, reward);
      await page.click(`tr[data-label="${name}"] input`);
    }
    await until(page, "two labels are drawn over each other", () => document.querySelectorAll("[data-measure=Ended] .series1").length > 0 && document.querySelectorAll("[data-measure=Ended] svg .series0").length > 0);
    check("both are named", await page.evaluate(names => names.every(n => document.querySelector(".page .legend").innerText.includes(n)), told.tasks.map(t => t[0])));
    const labels = await page.evaluate(() => new URLSearchParams(location.hash.split("?")[1]).getAll("label"));
    check("the address names both", labels.length === 2, labels);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await until(page, "the link draws both", () => document.querySelectorAll("[data-measure=Ended] .series1").length > 0);

    const box = await page.evaluate(() => { const b = document.querySelector("[data-measure=Ended] svg").getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; });
    const drag = async (from, to) => {
      await page.mouse.move(box[0] + box[2] * from, box[1] + 20);
      await page.mouse.down();
      await page.mouse.move(box[0] + box[2] * to, box[1] + 20, {steps: 4});
      await page.mouse.up();
    };
    await drag(0.02, 0.5);
    await until(page, "a span without sessions has no figures", () => document.querySelector(".chip") && !/\d/.test(document.querySelector("[data-measure=Reward] .big").innerText));
    const span = await address(page);
    check("the address has the span", Number(span.to) > Number(span.from), span);
    await page.focus("[data-measure=Ended] .timechart");
    await page.keyboard.press("Escape");
    await until(page, "Escape drops it", () => !document.querySelector(".chip") && !location.hash.includes("from="));
    await page.focus("[data-measure=Ended] .timechart");
    await page.keyboard.press("End");
    await page.keyboard.down("Shift");
    for (let i = 0; i < 10; i++) await page.keyboard.press("ArrowLeft");
    await page.keyboard.up("Shift");
    await page.keyboard.press("Enter");
    await until(page, "the keyboard selects the last minutes", () => document.querySelector(".chip") && location.hash.includes("from="));
    await until(page, "their sessions are listed", () => document.querySelectorAll("main .columns ul.plain li").length > 0);
    await page.click('a[href^="#/sessions?from="]');
    await until(page, "the list has those of the span", n => document.querySelector(".count")?.innerText.startsWith(`${n} of`), told.ended);
    const past = await address(page);
    await go(page, `#/sessions?from=${past.from - 7200}&to=${past.from - 3600}`);
    await live(page);
    await has(page, ".count", "0 of");
    await press(page, "a[aria-label='Drop the span of time']");
    await until(page, "without the span all are there", () => document.querySelectorAll(".row[data-id]").length > 0);
    await go(page, `#/groups?from=${past.from - 7200}&to=${past.from - 3600}`);
    await has(page, ".chip", "ended");
    await go(page, `#/sessions/${told.slowest}`);
    await until(page, "a session has its shares", () => document.querySelectorAll(".facts .sharebar i").length > 0);
    const narrow = await open(browser, "#/run?by=task", {width: 390, dark: true});
    await until(narrow, "a phone has the tiles", () => document.querySelectorAll("[data-measure]").length > 8);
    check("nothing stands out of it", await narrow.evaluate(() => document.querySelector("main").scrollWidth <= document.querySelector("main").clientWidth));
  },

  // Each tile says what GET /stats has.
  async tiles(browser) {
    const page = await open(browser, "#/run");
    for (const [name, value] of Object.entries(told.tiles)) {
      await until(page, `${name} is ${value}`, (n, v) => document.querySelector(`[data-measure="${n}"] .big span`)?.innerText.trim() === v, name, value);
    }
  },

  // A fleet: the overview has every node, and the run page the sum of all or one of them.
  async fleet(browser) {
    // the page may ask a node just before the fleet calls it lost
    const allow = Object.values(told.states).includes("lost") ? ["status of 503"] : [];
    const page = await newPage(browser, told.url, {allow});
    await page.evaluateOnNewDocument(key => location.protocol === "http:" && sessionStorage.setItem("rollgate-key", key), told.key);
    const cells = node => page.evaluate(name => {
      const names = [...document.querySelectorAll("table.nodes th")].map(e => e.innerText);
      const row = [...document.querySelector(`tr[data-node="${name}"]`).children].map(e => e.innerText.trim());
      return Object.fromEntries(names.map((n, i) => [n, row[i]]));
    }, node);
    await page.goto(`${told.url}/ui#/`);
    for (const [node, state] of Object.entries(told.states)) {
      await until(page, `${node} is ${state}`, (n, s) => document.querySelector(`tr[data-node="${n}"] .state`)?.innerText === s, node, state);
    }
    for (const [node, want] of Object.entries(told.nodes)) {
      await until(page, `the figures of ${node}`, n => /\d/.test(document.querySelector(`tr[data-node="${n}"]`)?.children[6].innerText || ""), node);
      const row = await cells(node);
      check(`${node} has its own figures`, Object.entries(want).every(([k, v]) => row[k] === v), row);
    }
    const order = await page.$$eval("table.nodes tbody tr", found => found.map(e => e.dataset.node));
    check("nodes are in the order of their names", order.join() === [...order].sort().join(), order);
    const all = await page.$$eval("table.nodes tfoot td", found => found.map(e => e.innerText.trim()));
    check("and their sum", all[2] === told.places && all[7] === told.ended && all[8] === told.reward, all);
    if (!told.run) return;
    await press(page, "::-p-text(The run of all nodes)");
    await has(page, "h1", "Run");
    const shows = (name, value) => until(page, `${name} is ${value}`, (n, v) => document.querySelector(`[data-measure="${n}"] .big`)?.innerText.trim().startsWith(v), name, value);
    await shows("Ended", told.ended);
    await shows("Reward", told.reward);
    await has(page, "main", told.span);
    check("no node is left out", !(await page.$(".warning")));
    await until(page, "the slowest of all nodes are listed", n => document.querySelectorAll("table.slowest tbody tr").length === n, Number(told.ended));
    await press(page, "::-p-text(by task)");
    await until(page, "the nodes' tasks are one row", v => document.querySelector('tr[data-label="sums"]')?.children[4].innerText === v, told.ended);
    for (const [node, want] of Object.entries(told.run)) {
      await page.select("select[aria-label=Node]", node);
      await says(page, {node});
      await shows("Ended", want.ended);
      await shows("Reward", want.reward);
    }
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await shows("Ended", Object.values(told.run).at(-1).ended);
    const narrow = await newPage(browser, told.url, {width: 390, dark: true, allow});
    await narrow.evaluateOnNewDocument(key => location.protocol === "http:" && sessionStorage.setItem("rollgate-key", key), told.key);
    await narrow.goto(`${told.url}/ui#/`);
    await until(narrow, "a phone has the nodes", () => document.querySelectorAll("table.nodes tbody tr").length > 1);
    check("nothing stands out of it", await narrow.evaluate(() => document.querySelector("main").scrollWidth <= document.querySelector("main").clientWidth));
  },

  // Logprobs of a trainer: importance ratios of tokens, and what differs most of all.
  async ratios(browser) {
    const page = await open(browser, `#/sessions/${told.b}?tab=tokens`);
    await until(page, "cells are drawn", () => document.querySelector(".cells canvas")?.width > 100);
    check("without a report there is no ratio", !(await page.$("[data-mode=ratio]")));
    await go(page, `#/sessions/${told.a}?tab=tokens`);
    await press(page, "[data-mode=ratio]");
    await says(page, {colour: "ratio"});
    await has(page, ".grid .legend", "ratio < 0.5");
    await has(page, ".grid .legend", "0.95–1.05");
    const colours = await page.evaluate(() => {
      const canvas = document.querySelector(".strip canvas");
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(Array.from({length: data.length / 4}, (_, i) => `${data[4 * i]},${data[4 * i + 1]},${data[4 * i + 2]}`)).size;
    });
    check("the strip draws ratios", colours >= 3, colours);
    await go(page, "#/run");
    await has(page, "table.mismatch", told.version);
    await has(page, "section p", told.largest);
    await has(page, "table.worst", told.difference);
    check("the token stands in its context", (await page.$eval("table.worst .context b", e => e.innerText)) === told.token);
    await page.click("table.worst a");
    await says(page, {token: told.at, colour: "ratio"});
    await has(page, ".side", "trainer's logprob");
    check("its ratio is told", (await text(page, ".side")).includes(told.ratio), await text(page, ".side"));
    check("no element came of text", (await page.$$("main img, main script, main style")).length === 0);
  },
};

await withBrowser(browser => scenes[scene](browser));
