// Searching: who is in an area, who was there in a time, who is nearest. Hits are marked on the map and listed.

import { areaOf, bounds, boxOf, geometryOf, wrapped } from './geometry.js';
import { ago, clock, count, length, many, speed } from './format.js';
import { List } from './list.js';
import { KIND } from './store.js';
import { attempt, find, say } from './ui.js';

export class Search {
  /** `app`: what main.js shares, among it api, ground, store, draw, fleet(), tag(), select(), open(), mark(). */
  constructor(app) {
    this.app = app;
    this.hits = [];
    this.list = new List(find('search-list'), find('search-more'), (entity) => this.chosen(entity));
    for (const kind of ['rectangle', 'circle', 'polygon']) {
      find(`draw-${kind}`).addEventListener('click', () => attempt(() => this.byDrawing(kind)));
    }
    find('search-view').addEventListener('click', () => attempt(() => this.inView()));
    find('draw-nearest').addEventListener('click', () => this.byClick());
    find('nearest-middle').addEventListener('click', () => {
      const { lng, lat } = app.ground.map.getCenter();
      attempt(() => this.nearest([wrapped(lng), lat]));
    });
    find('search-clear').addEventListener('click', () => this.clear());
    find('search-replay').addEventListener('click', () => {
      const { from, to } = this.times() ?? { from: app.api.now() - 600, to: app.api.now() };
      app.replay(
        this.hits.slice(0, 20).map((hit) => hit.entity),
        from,
        to,
      );
    });
    for (const radio of document.querySelectorAll('input[name=when]')) {
      radio.addEventListener('change', () => this.showTimes());
    }
    this.showTimes();
  }

  showTimes() {
    const isPast = this.isPast();
    find('times').hidden = !isPast;
    if (!isPast || find('from').value) return;
    const local = (seconds) => {
      const at = new Date(seconds * 1000);
      return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
    };
    find('from').value = local(this.app.api.now() - 600);
    find('to').value = local(this.app.api.now());
  }

  isPast() {
    return document.querySelector('input[name=when]:checked').value === 'past';
  }

  /** From when to when is asked; nothing: now. */
  times() {
    if (!this.isPast()) return undefined;
    const [from, to] = ['from', 'to'].map((id) => new Date(find(id).value).getTime() / 1000);
    if (Number.isNaN(from) || Number.isNaN(to)) throw new Error('Say from when to when: both times');
    if (from > to) throw new Error('The first time is behind the last one');
    return { from, to };
  }

  async byDrawing(kind) {
    const { app } = this;
    app.tool(`draw-${kind}`);
    const geometry = await app.draw.begin(kind);
    app.tool(null);
    if (geometry) await this.inArea(areaOf(kind, geometry));
  }

  inView() {
    return this.inArea({ type: 'Rectangle', bbox: boxOf(this.app.ground.bounds()) });
  }

  /** Asks who is in an area of the service. */
  async inArea(area) {
    const { app } = this;
    const times = this.times();
    const query = { limit: 1000, ...times, tag: times ? undefined : app.tag() };
    const call = { query };
    if (area.type === 'Rectangle') query.bbox = area.bbox.join(',');
    else if (area.type === 'Circle') query.circle = [area.center[1], area.center[0], area.radius].join(',');
    else Object.assign(call, { method: 'POST', body: { type: 'Polygon', coordinates: area.coordinates } });
    const hits = [];
    app.ground.show('area', [{ type: 'Feature', properties: {}, geometry: geometryOf(area) }]);
    const each = (results) => hits.push(...results);
    const { cursor } = await app.api.pages(app.api.of(app.fleet(), 'within'), { ...call, most: 10_000, each });
    const rows = times
      ? hits.map(({ entity, first, last, points }) => ({
          entity,
          text: `${clock(first)} to ${clock(last)}`,
          side: many(points, 'report'),
        }))
      : hits.map(({ entity, time, speed: metres }) => ({
          entity,
          text: ago(app.api.now() - time),
          side: speed(metres),
        }));
    const what = times ? 'was there' : 'is there';
    const plural = times ? 'were there' : 'are there';
    const text = `${count(hits.length)}${cursor ? ' and more' : ''} ${hits.length === 1 ? what : plural}`;
    this.show(hits, rows, text, area);
  }

  byClick() {
    const { app } = this;
    app.draw.cancel();
    app.tool('draw-nearest');
    app.hint('Click where to look from');
    app.onceClicked((lngLat) => attempt(() => this.nearest([wrapped(lngLat.lng), lngLat.lat])));
  }

  /** Asks who is nearest to a position. */
  async nearest([lon, lat]) {
    const { app } = this;
    app.tool(null);
    const k = Math.max(1, Math.min(1000, Number(find('nearest-k').value) || 10));
    const path = app.api.of(app.fleet(), 'nearby');
    const { results } = await app.api.json(path, { query: { lat, lon, k, tag: app.tag() } });
    const lines = results.map((hit) => ({
      type: 'Feature',
      properties: {},
      geometry: {
        type: 'LineString',
        coordinates: [
          [lon, lat],
          [hit.lon, hit.lat],
        ],
      },
    }));
    app.ground.show('area', lines);
    const rows = results.map((hit) => ({
      entity: hit.entity,
      text: ago(app.api.now() - hit.time),
      side: length(hit.distance),
    }));
    this.show(results, rows, `The nearest ${results.length}`, null);
    if (results.length > 0) app.ground.fit(bounds([[lon, lat], ...results.map((hit) => [hit.lon, hit.lat])]));
  }

  show(hits, rows, text, area) {
    this.hits = hits;
    this.rows = rows;
    this.area = area;
    say(find('search-said'), text);
    find('search-result').hidden = false;
    this.list.show(rows, rows.length, this.app.chosen());
    this.app.open('search');
    this.app.mark();
  }

  chosen(entity) {
    const { from, to } = (this.isPast() && this.times()) || {};
    if (from === undefined) this.app.select(entity, true);
    else this.app.replay([entity], from, to);
  }

  clear() {
    this.hits = [];
    find('search-result').hidden = true;
    this.list.show([]);
    this.app.ground.show('area', []);
    this.app.mark();
  }

  /** What is to be marked on the map. */
  kinds() {
    return this.hits.map(({ entity }) => [entity, KIND.hit]);
  }
}
