// What the programs beside this one share: a headless Chromium of the system, and checks that are told as one line of JSON.
import puppeteer from "puppeteer-core";

const REDRAWN_MS = 60000;
const failed = [];
const told = {};

export function check(what, ok, seen) {
  if (!ok) failed.push(seen === undefined ? what : `${what}: ${JSON.stringify(seen)}`);
}

// A figure for the report.
export function tell(name, value) {
  told[name] = value;
}

// fn(browser); afterwards the report goes to standard output.
export async function withBrowser(fn) {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true, protocolTimeout: 240000,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"],
  });
  try {
    await fn(browser);
  } catch (error) {
    failed.push(String(error && error.stack || error));
  } finally {
    await browser.close();
  }
  console.log(JSON.stringify({ok: failed.length === 0, failed, ...told}));
}

// A page whose faults count: exceptions, errors of its console (a refused request is one that `allow` may name), dialogs
// that nobody expects, requests to anywhere else.
export async function newPage(browser, origin, {width = 1280, height = 800, dark = false, allow = []} = {}) {
  const page = await browser.newPage();
  await page.setViewport({width, height});
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: dark ? "dark" : "light"}]);
  page.setDefaultTimeout(60000);
  const click = page.click.bind(page);
  page.click = async selector => {  // an event may draw the element anew between its being found and its being clicked
    for (const end = Date.now() + REDRAWN_MS; ;) {
      try {
        return await click(selector);
      } catch (error) {
        if (!/detached|not clickable/.test(error.message) || Date.now() > end) throw error;
      }
    }
  };
  page.on("pageerror", e => check("no exception in the page", false, String(e)));
  page.on("console", m => {
    if (m.type() === "error" && !allow.some(a => m.text().includes(a))) check("no error in the console", false, m.text());
  });
  page.on("dialog", async d => {
    if (!page.expectsDialog) check("no dialog opens by itself", false, d.message());
    await d.accept();
  });
  page.on("request", r => {
    if (!r.url().startsWith(origin) && !/^(data|blob|about|file):/.test(r.url())) check("nothing is fetched from elsewhere", false, r.url());
  });
  return page;
}

// Waits until fn, run in the page, gives something true; that value.
export async function until(page, what, fn, ...args) {
  try {
    return await (await page.waitForFunction(fn, {timeout: 60000, polling: 50}, ...args)).jsonValue();
  } catch (error) {
    throw new Error(`${what} did not come true: ${error.message}; the page says: ${(await page.evaluate(() => document.body.innerText)).slice(0, 1500)}`);
  }
}

export async function text(page, selector = "body") {
  return page.$eval(selector, e => e.innerText);
}
