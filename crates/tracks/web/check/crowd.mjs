// The city: 10,000 objects that move, and pictures of the page.

import { join } from 'node:path';

import { holds, until } from './browser.mjs';

const OBJECTS = 10_000;
/** Frames a second at least, drawn by software on a machine that runs the service and other things as well. */
const FRAMES = 2;

const live = (page) =>
  until('the city is live', () => page.evaluate(() => document.getElementById('state').dataset.state === 'live'), 30);

export async function crowd(watched) {
  const page = await watched.open('city');
  await live(page);
  await until(
    'all objects are drawn',
    () => page.evaluate((n) => window.__tracks.points.drawn.length >= n, OBJECTS),
    30,
  );
  const [before, began] = [await page.evaluate(() => window.__tracks.store.values.slice(0, 50_000).join()), Date.now()];
  const seconds = 6;
  const measured = await page.evaluate(async (ms) => {
    const { frames, live: moving, map, store } = window.__tracks;
    const newest = () => [...store.all.values()].map(({ time }) => time);
    const then = newest();
    frames.reset();
    let reports = 0;
    const take = moving.take.bind(moving);
    moving.take = (report) => {
      reports += 1;
      take(report);
    };
    await new Promise((done) => setTimeout(done, ms));
    moving.take = take;
    const now = newest();
    return {
      ...frames.measure(),
      reports,
      moved: now.filter((time, i) => time !== then[i]).length,
      zoom: map.getZoom(),
    };
  }, seconds * 1000);
  const after = await page.evaluate(() => window.__tracks.store.values.slice(0, 50_000).join());
  holds('they move', before !== after && measured.moved > OBJECTS / 4);
  holds(`${measured.perSecond.toFixed(1)} frames a second; ${FRAMES} are the least`, measured.perSecond >= FRAMES);
  await page.context().close();
  const rate = (measured.reports * 1000) / (Date.now() - began);
  return (
    `${measured.perSecond.toFixed(1)} frames/s, median ${measured.median.toFixed(0)} ms, 95 of 100 within ` +
    `${measured.p95.toFixed(0)} ms, ${rate.toFixed(0)} reports/s, ${measured.moved} have moved`
  );
}

/** Goes to a part of the city and waits until it is drawn. */
async function look(page, zoom, centre = [18.0686, 59.3293]) {
  await live(page);
  await page.evaluate(([z, at]) => window.__tracks.map.jumpTo({ center: at, zoom: z }), [zoom, centre]);
  await page.waitForTimeout(2500);
}

export async function pictures(watched, out) {
  const shot = (page, name) => page.screenshot({ path: join(out, `${name}.png`) });
  const light = await watched.open('city');
  await look(light, 14.2);
  await shot(light, 'light');
  await light.click('#tab-fences');
  await light.waitForTimeout(600);
  await light.click('#fence-list [data-fence=harbour]');
  await light.waitForTimeout(2000);
  await shot(light, 'fence');
  await light.click('#fence-cancel');
  await light.context().close();

  const dark = await watched.open('city', { colorScheme: 'dark' });
  await look(dark, 14.2);
  await dark.click('#here-list li:nth-child(3) button');
  await dark.waitForTimeout(1500);
  await dark.click('#details-replay');
  await until('the track is there', () => dark.evaluate(() => window.__tracks.replay.isOpen));
  await dark.evaluate(() => {
    const { replay } = window.__tracks;
    replay.set(replay.from + (replay.to - replay.from) * 0.7);
  });
  await dark.waitForTimeout(1500);
  await shot(dark, 'dark');
  await dark.click('#replay-close');
  await dark.click('#details-close');
  await look(dark, 12);
  await dark.click('#show-density');
  await dark.waitForTimeout(2500);
  await shot(dark, 'density');
  await dark.context().close();

  const phone = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
  for (const colorScheme of ['light', 'dark']) {
    const page = await watched.open('city', { ...phone, colorScheme });
    await look(page, 14.5);
    if (colorScheme === 'dark') {
      await page.tap('#tab-fences');
      await page.waitForTimeout(800);
    }
    await shot(page, `phone-${colorScheme}`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    holds('nothing is wider than the phone', !wide);
    await page.context().close();
  }
  return `in ${out}`;
}
