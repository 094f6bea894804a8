// The page: puts its parts together, and keeps what they share.

import { Api } from './api.js';
import { Density } from './density.js';
import { Details } from './details.js';
import { Draw } from './draw.js';
import { Fences } from './fences.js';
import { ago, count, many, speed } from './format.js';
import { Frames } from './frames.js';
import { bounds, boxOf } from './geometry.js';
import { List, ORDERS } from './list.js';
import { Live } from './live.js';
import { Ground } from './map.js';
import { Points } from './points.js';
import { Replay } from './replay.js';
import { Search } from './search.js';
import { KIND, Store } from './store.js';
import { rgb, theme } from './theme.js';
import { askToken, attempt, find, make, say, sheet, tabs, toast } from './ui.js';

const STATES = {
  connecting: 'Connecting…',
  live: 'Live',
  waiting: 'Connection lost',
  failed: 'Not connected',
  none: 'No fleet yet',
};

const api = new Api(new URL('.', document.baseURI), askToken);
const store = new Store(Math.floor(Date.now() / 1000));
const app = { api, store };

const config = (await attempt(() => api.json('map/config.json'))) ?? {};
const base = config.base
  ? await attempt(() => api.json('map/base.geojson', { accept: 'application/geo+json' }))
  : undefined;
const ground = new Ground(find('map'), { tiles: config.tiles, base }, '<a href="map/licences.txt">Licences</a>');
const points = new Points(store, () => api.now());
Object.assign(app, { ground });

const open = tabs(find('tabs'), () => {});
const setSheet = sheet(find('panel'), find('handle'));
let fleet = '';
let clickWaiting = null;

Object.assign(app, {
  fleet: () => fleet,
  tag: () => find('tag').value || undefined,
  open: (tab) => {
    open(tab);
    if (find('panel').dataset.sheet === 'low') setSheet('half');
  },
  hint: (text) => {
    say(find('hint'), text);
    find('hint').hidden = !text;
  },
  tool: (id) => {
    for (const button of document.querySelectorAll('#tools [data-tool]')) {
      button.setAttribute('aria-pressed', button.id === id);
    }
  },
  onceClicked: (work) => {
    clickWaiting = work;
  },
  chosen: () => details.entity,
  select: (entity, goThere) => details.open(entity, goThere),
  replay: (entities, from, to) => attempt(() => replay.open(entities, from, to)),
  trail: (entity, from, signal) => replay.trail(entity, from, signal),
  clearTrail: () => {
    if (!replay.isOpen) ground.show('trail', []);
  },
  dim: (isDim, opacity = 0.25) => {
    points.opacity = isDim ? opacity : 1;
    ground.map.triggerRepaint();
  },
  mark: () => {
    const kinds = new Map(search.kinds());
    if (details.entity) kinds.set(details.entity, KIND.chosen);
    store.mark(kinds);
    ground.map.triggerRepaint();
  },
});

await ground.ready;
ground.addPoints(points);
const draw = new Draw(ground.map, app.hint);
app.draw = draw;
const replay = new Replay(app);
const details = new Details(app);
const search = new Search(app);
const fences = new Fences(app);
const density = new Density(app);
const frames = new Frames(ground.map);
const here = new List(find('here-list'), find('here-more'), (entity) => details.open(entity, true));

theme(find('theme'), () => {
  for (const name of ['fresh', 'stale', 'hit', 'chosen', 'edge']) points.colors[name] = rgb(name);
  ground.paint();
});

const live = new Live(api, store, ground, {
  state: (text, seconds) => {
    const pill = find('state');
    pill.dataset.state = text;
    say(pill, seconds ? `${STATES[text]}, again in ${Math.ceil(seconds)} s` : STATES[text]);
  },
  loaded: (total, isAll) => {
    if (!isAll) toast(`Only the first ${count(total)} objects are shown: look closer`);
    if (total > 0 || hasLooked) hasLooked = true;
  },
  changed: () => ground.map.triggerRepaint(),
});
app.live = live;
let hasLooked = false;

/** What was chosen is let go of with Escape. */
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || draw.isActive) return;
  if (clickWaiting) {
    clickWaiting = null;
    app.tool(null);
    app.hint('');
  } else if (details.entity) details.close();
});

ground.map.on('click', (event) => {
  if (clickWaiting) {
    const work = clickWaiting;
    clickWaiting = null;
    app.hint('');
    work(event.lngLat);
    return;
  }
  if (draw.isActive) return;
  const found = points.pick(event.point);
  if (found) details.open(found.entity, false);
  else if (details.entity) details.close();
});

/** Once a second: the list, the counts, the ages. */
function everySecond() {
  const seen = live.seen();
  const filter = find('filter').value.trim().toLowerCase();
  const shown = filter ? seen.filter(({ entity }) => entity.toLowerCase().includes(filter)) : seen;
  shown.sort(ORDERS[find('order').value]);
  const now = api.now();
  if (!find('panel-here').hidden) {
    const rows = shown.slice(0, 200).map(({ entity, time, speed: metres, tags }) => ({
      entity,
      text: [ago(now - time), ...(tags ?? [])].join(' · '),
      side: speed(metres),
    }));
    here.show(rows, shown.length, details.entity);
    find('nobody').hidden = shown.length > 0;
  }
  say(find('count'), many(seen.length, 'object'));
  say(find('rate'), live.reports > 0 ? `${count(live.reports)}/s` : '');
  live.reports = 0;
  details.show();
  // Colours are those of ages.
  ground.map.triggerRepaint();
}
setInterval(everySecond, 1000);

/** Enter takes the first that is listed, or who has this name, wherever it is. */
find('filter').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  const name = event.target.value.trim();
  const first = document.querySelector('#here-list button');
  if (name) details.open(first && !store.all.has(name) ? first.dataset.entity : name, true);
});
for (const id of ['filter', 'order']) find(id).addEventListener('input', everySecond);

/** West, south, east and north of all objects of a fleet: of coarse cells, and of fine ones where that is not much. */
async function extent(name) {
  const of = async (box, precision) => {
    const { cells } = await api.json(api.of(name, 'density'), { query: { bbox: box.join(','), precision } });
    return cells.length > 0
      ? bounds(
          cells.flatMap(({ bounds: [w, s, e, n] }) => [
            [w, s],
            [e, n],
          ]),
        )
      : null;
  };
  const coarse = await of([-180, -90, 180, 90], 3);
  if (!coarse || coarse[2] - coarse[0] > 10) return coarse;
  return of(boxOf(coarse), 6);
}

/** Shows another fleet, and brings what it has into view. */
async function choose(name) {
  fleet = name;
  const url = new URL(location.href);
  url.searchParams.set('fleet', name);
  history.replaceState(null, '', url);
  details.close();
  search.clear();
  replay.close();
  const info = await api.json(api.of(name));
  const tags = info.tags.map((tag) => make('option', { value: tag }, tag));
  find('tag').replaceChildren(make('option', { value: '' }, 'All tags'), ...tags);
  find('tag').hidden = tags.length === 0;
  const all = await extent(name);
  if (all) {
    const [west, south, east, north] = all;
    ground.map.fitBounds(
      [
        [west, south],
        [east, north],
      ],
      { padding: ground.padding(), maxZoom: 16, animate: false },
    );
  }
  live.start(name, undefined);
  fences.start(name);
  density.set(false);
}

/** Fills the list of fleets; the first report makes one, so that there may be none yet. */
async function loadFleets() {
  const { fleets } = await api.json('v1/fleets');
  const names = fleets.map(({ name }) => name);
  const picker = find('fleet');
  picker.replaceChildren(...names.map((name) => make('option', { value: name }, name)));
  if (names.length === 0) {
    live.on.state('none');
    setTimeout(() => attempt(loadFleets), 3000);
    return;
  }
  const wanted = new URL(location.href).searchParams.get('fleet');
  picker.value = names.includes(wanted) ? wanted : names[0];
  await choose(picker.value);
}

find('fleet').addEventListener('change', (event) => attempt(() => choose(event.target.value)));
find('tag').addEventListener('change', () => live.start(fleet, app.tag()));
find('fit').addEventListener('click', () => {
  const all = [...store.all.values()].map(({ lon, lat }) => [lon, lat]);
  if (all.length > 0) ground.fit(bounds(all));
});

// For checks: what is drawn, and how fast.
window.__tracks = { map: ground.map, store, points, replay, search, fences, live, density, frames, draw };
open('here');
await attempt(loadFleets);
