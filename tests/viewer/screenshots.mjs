// Pictures of the viewer: node screenshots.mjs JSON, {url, shots: [{hash, file, width, height, dark, shows, seconds}]}.
import {newPage, until, withBrowser} from "./lib.mjs";

const told = JSON.parse(process.argv[2]);

async function take(browser, shot) {
  const page = await newPage(browser, told.url, {width: shot.width, height: shot.height, dark: shot.dark});
  await page.goto(`${told.url}/ui${shot.hash}`);
  await until(page, `${shot.hash} is live`, () => document.querySelector(".stream")?.dataset.state === "live");
  await until(page, `${shot.hash} is drawn`, s => !!document.querySelector(s), shot.shows);
  if (shot.seconds) await new Promise(done => setTimeout(done, 1000 * shot.seconds));    // its curves grow
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.screenshot({path: shot.file});
  await page.close();
}

await withBrowser(async browser => {
  for (const shot of told.shots) await take(browser, shot);
});
