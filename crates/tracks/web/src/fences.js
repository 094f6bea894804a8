// Fences: drawing, changing and deleting them, their names on the map, and what happens at them, as it happens.

import { Marker } from 'maplibre-gl';

import { areaOf, bounds, geometryOf } from './geometry.js';
import { clock, length, span } from './format.js';
import { attempt, find, make, say, toast } from './ui.js';

/** Events that are listed. */
const EVENTS = 200;
/** Names on the map at most. */
const NAMES = 200;
const VERBS = { enter: 'entered', exit: 'left', dwell: 'stays in', cross: 'crossed' };
const KINDS = { Circle: 'circle', Rectangle: 'rectangle', Polygon: 'polygon', Corridor: 'corridor' };

export class Fences {
  /** `app`: as in search.js. */
  constructor(app) {
    this.app = app;
    this.all = new Map();
    this.markers = [];
    this.editing = null;
    this.events = [];
    this.waiting = [];
    find('fence-new').addEventListener('click', () => this.form());
    find('fence-form').addEventListener('submit', (event) => {
      event.preventDefault();
      attempt(() => this.save());
    });
    find('fence-cancel').addEventListener('click', () => this.close());
    find('fence-delete').addEventListener('click', () => attempt(() => this.remove()));
    for (const kind of Object.values(KINDS)) {
      find(`fence-${kind}`).addEventListener('click', () => attempt(() => this.drawShape(kind)));
    }
    find('fence-list').addEventListener('click', (event) => {
      const row = event.target.closest('button');
      if (row) attempt(() => this.form(this.all.get(row.dataset.fence)));
    });
    find('event-list').addEventListener('click', (event) => {
      const row = event.target.closest('button');
      if (row) app.select(row.dataset.entity, true);
    });
  }

  /** Begins with a fleet: its fences, its last events, and those that come. */
  start(fleet) {
    this.stop?.abort();
    this.stop = new AbortController();
    this.close();
    this.events = [];
    this.waiting = [];
    find('event-list').replaceChildren();
    const { signal } = this.stop;
    attempt(() => this.load());
    attempt(() => this.follow(fleet, signal));
  }

  async load() {
    const { api, fleet } = this.app;
    const { fences } = await api.json(api.of(fleet(), 'fences'));
    this.all = new Map(fences.map((fence) => [fence.name, fence]));
    this.show();
  }

  async follow(fleet, signal) {
    const { api } = this.app;
    const path = api.of(fleet, 'stream');
    let isFirst = true;
    const on = {
      state: () => {},
      event: (name, data) => {
        if (name === 'hello' && isFirst) {
          isFirst = false;
          attempt(() => this.past(fleet, data.after, signal));
        } else if (VERBS[name]) this.happened([data]);
      },
    };
    await api.stream(path, { query: { positions: false, events: true }, signal, on });
  }

  /** The events before those that the stream brings. */
  async past(fleet, until, signal) {
    const { api } = this.app;
    const query = { after: Math.max(0, until - EVENTS), limit: EVENTS };
    const { events } = await api.json(api.of(fleet, 'events'), { query, signal });
    this.happened(events.filter((event) => event.id <= until));
  }

  happened(events) {
    this.waiting.push(...events);
    // A crowd of events makes one change of the page.
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.list();
    }, 200);
  }

  list() {
    const known = new Set(this.events.map((event) => event.id));
    const fresh = this.waiting.filter((event) => !known.has(event.id));
    this.waiting = [];
    this.events = [...this.events, ...fresh].sort((a, b) => b.id - a.id).slice(0, EVENTS);
    const list = find('event-list');
    const there = new Map([...list.children].map((item) => [item.dataset.id, item]));
    const items = this.events.map((event) => there.get(String(event.id)) ?? this.item(event));
    list.replaceChildren(...items);
    find('no-events').hidden = items.length > 0;
  }

  item({ id, kind, fence, entity, time }) {
    const text = make(
      'span',
      { class: 'main' },
      make('span', { class: 'name' }, make('b', {}, entity), ` ${VERBS[kind] ?? kind} `, make('b', {}, fence)),
    );
    const side = make('span', { class: 'side' }, clock(time));
    const mark = make('span', { class: `mark ${kind}`, 'aria-hidden': 'true' });
    return make(
      'li',
      { 'data-id': id },
      make('button', { class: 'row', type: 'button', 'data-entity': entity }, mark, text, side),
    );
  }

  /** Draws all fences but the one that is being changed, and lists them. */
  show() {
    const { ground } = this.app;
    const shown = [...this.all.values()].filter((fence) => fence.name !== this.editing?.name);
    ground.show(
      'fences',
      shown.map((fence) => ({
        type: 'Feature',
        properties: { name: fence.name },
        geometry: geometryOf(fence.area),
      })),
    );
    this.markers.forEach((marker) => marker.remove());
    this.markers = shown.slice(0, NAMES).map((fence) => {
      const at = topOf(fence.area);
      const element = make('div', { class: 'fence-name', 'aria-hidden': 'true' }, fence.name);
      return new Marker({ element, anchor: 'bottom' }).setLngLat(at).addTo(ground.map);
    });
    const rows = [...this.all.values()].map((fence) =>
      make(
        'li',
        {},
        make(
          'button',
          {
            class: 'row',
            type: 'button',
            'data-fence': fence.name,
          },
          make(
            'span',
            { class: 'main' },
            make('span', { class: 'name' }, fence.name),
            make('span', { class: 'text' }, about(fence)),
          ),
        ),
      ),
    );
    find('fence-list').replaceChildren(...rows);
    find('no-fences').hidden = rows.length > 0;
  }

  /** Opens the form for a fence, or for a new one. */
  form(fence) {
    this.close();
    this.editing = fence ?? { name: '', isNew: true, area: null, tags: [] };
    find('fence-form').hidden = false;
    find('fence-new').hidden = true;
    say(find('fence-title'), fence ? `Change ${fence.name}` : 'New fence');
    find('fence-field').value = this.editing.name;
    find('fence-field').readOnly = Boolean(fence);
    find('fence-dwell').value = this.editing.dwell ?? '';
    find('fence-tags').value = this.editing.tags.join(', ');
    find('fence-width').value = this.editing.area?.width ?? 50;
    find('fence-delete').hidden = !fence;
    say(find('fence-delete'), 'Delete');
    this.app.open('fences');
    if (fence) {
      this.app.ground.fit(bounds(geometryOf(fence.area).coordinates[0]));
      this.edit(KINDS[fence.area.type], drawnOf(fence.area));
    } else {
      this.kind(null);
      find('fence-field').focus();
    }
    this.show();
  }

  kind(kind) {
    this.shape = kind;
    for (const one of Object.values(KINDS)) find(`fence-${one}`).setAttribute('aria-pressed', one === kind);
    find('fence-width-row').hidden = kind !== 'corridor';
  }

  async drawShape(kind) {
    this.kind(kind);
    const geometry = await this.app.draw.begin(kind);
    if (geometry && this.editing) this.edit(kind, geometry);
  }

  edit(kind, geometry) {
    this.kind(kind);
    this.change = this.app.draw.edit(kind, geometry);
  }

  async save() {
    const { api, fleet } = this.app;
    const name = find('fence-field').value.trim();
    if (!name) throw new Error('Give the fence a name');
    if (!this.change) throw new Error('Draw its area first: choose a shape');
    if (this.editing.isNew && this.all.has(name)) throw new Error(`There is a fence ${name} already`);
    const dwell = Number(find('fence-dwell').value) || undefined;
    const tags = find('fence-tags')
      .value.split(',')
      .map((tag) => tag.trim())
      .filter(Boolean);
    const area = areaOf(this.shape, this.change.geometry(), Number(find('fence-width').value) || 50);
    const { enter, exit, cross } = this.editing;
    const body = { area, enter, exit, cross, ...(dwell && { dwell }), ...(tags.length > 0 && { tags }) };
    await api.json(api.of(fleet(), 'fences', name), { method: 'PUT', body });
    toast(`The fence ${name} is saved`);
    this.close();
    await this.load();
  }

  async remove() {
    const button = find('fence-delete');
    if (button.textContent === 'Delete') {
      say(button, 'Really delete');
      return;
    }
    const { api, fleet } = this.app;
    const { name } = this.editing;
    await api.call(api.of(fleet(), 'fences', name), { method: 'DELETE' });
    toast(`The fence ${name} is deleted`);
    this.close();
    await this.load();
  }

  close() {
    const wasOpen = Boolean(this.editing);
    this.editing = null;
    this.change = null;
    find('fence-form').hidden = true;
    find('fence-new').hidden = false;
    if (!wasOpen) return;
    this.app.draw.cancel();
    this.show();
  }
}

/** What of a fence is drawn with a tool. */
function drawnOf(area) {
  if (area.type === 'Corridor') return { type: 'LineString', coordinates: area.coordinates };
  return geometryOf(area);
}

/** Where its name stands: above the middle, or above the northernmost corner. */
function topOf(area) {
  const ring = geometryOf(area).coordinates[0];
  const [west, , east, north] = bounds(ring);
  if (area.type === 'Circle' || area.type === 'Rectangle') return [(west + east) / 2, north];
  return ring.find(([, lat]) => lat === north);
}

/** A fence in a few words. */
function about({ area, dwell, tags, enter, exit, cross }) {
  const shape = {
    Circle: () => `circle of ${length(area.radius)}`,
    Rectangle: () => 'rectangle',
    Polygon: () => `polygon of ${area.coordinates[0].length - 1} corners`,
    Corridor: () => `corridor, ${length(area.width)} to either side`,
  }[area.type]();
  const left = Object.entries({ enter, exit, cross }).filter(([, isMade]) => !isMade);
  const without = left.length > 0 && `no ${left.map(([kind]) => kind).join(', ')}`;
  return [shape, dwell && `dwell ${span(dwell)}`, without, tags.length > 0 && tags.join(', ')].filter(Boolean).join(' · ');
}
