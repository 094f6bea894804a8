// Trails and replay: where some objects were, drawn until the time of a slider that can run by itself.

import { bounds } from './geometry.js';
import { clock, many, speed } from './format.js';
import { linesUntil, pointsOf, whereAt } from './track.js';
import { attempt, find, make, say } from './ui.js';

/** Points of one track at most, and of a call. */
const POINTS = 50_000;
const PAGE = 10_000;
/** Where nothing is known for so many seconds, a trail is cut. */
const GAP = 300;

export class Replay {
  /** `app`: as in search.js, and dim(isDim). */
  constructor(app) {
    this.app = app;
    this.tracks = [];
    this.factor = 10;
    this.slider = find('replay-slider');
    this.slider.addEventListener('input', () => this.set(Number(this.slider.value)));
    find('replay-play').addEventListener('click', () => (this.isPlaying ? this.pause() : this.play()));
    find('replay-close').addEventListener('click', () => {
      this.close();
      app.open('here');
    });
    for (const button of document.querySelectorAll('[data-factor]')) {
      button.addEventListener('click', () => this.speed(Number(button.dataset.factor)));
    }
    find('replay-list').addEventListener('click', (event) => {
      const row = event.target.closest('button');
      if (row) app.select(row.dataset.entity, false);
    });
    this.speed(10);
  }

  get isOpen() {
    return this.tracks.length > 0;
  }

  speed(factor) {
    this.factor = factor;
    for (const button of document.querySelectorAll('[data-factor]')) {
      button.setAttribute('aria-pressed', Number(button.dataset.factor) === factor);
    }
  }

  /** Loads the tracks of objects from one time to another. */
  async open(entities, from, to) {
    this.close();
    const stop = new AbortController();
    this.stop = stop;
    this.app.open('replay');
    say(find('replay-said'), `Loading ${many(entities.length, 'track')}…`);
    const tracks = [];
    for (const entity of entities) {
      const points = await this.load(entity, from, to, stop.signal);
      if (stop.signal.aborted) return;
      if (points.length > 0) tracks.push({ entity, points });
    }
    if (tracks.length === 0) {
      say(find('replay-said'), 'There are no reports in this time.');
      return;
    }
    this.tracks = tracks;
    this.from = Math.min(...tracks.map(({ points }) => points[0].time));
    this.to = Math.max(...tracks.map(({ points }) => points.at(-1).time));
    Object.assign(this.slider, { min: this.from, max: this.to, step: 'any' });
    find('replay-tools').hidden = false;
    this.app.dim(true);
    this.app.ground.fit(bounds(tracks.flatMap(({ points }) => points.map(({ lon, lat }) => [lon, lat]))));
    this.set(this.from);
  }

  async load(entity, from, to, signal) {
    const { api, fleet } = this.app;
    const points = [];
    let next = from;
    do {
      const query = { from: next, to, gap: GAP, max_points: PAGE };
      const page = await api.json(api.of(fleet(), 'entities', entity, 'track'), { query, signal });
      points.push(...pointsOf(page.parts));
      next = page.next;
    } while (next !== undefined && points.length < POINTS);
    return points;
  }

  /** Shows a time. */
  set(time) {
    this.time = Math.max(this.from, Math.min(this.to, time));
    this.slider.value = this.time;
    this.slider.setAttribute('aria-valuetext', clock(this.time));
    say(find('replay-time'), clock(this.time));
    this.draw();
  }

  /** Where each object is at the time that is shown. */
  places() {
    return this.tracks.map(({ entity, points }) => ({
      entity,
      ...whereAt(points, this.time),
      isThere: points[0].time <= this.time,
    }));
  }

  draw() {
    const { ground } = this.app;
    const line = (isPast, coordinates) => ({
      type: 'Feature',
      properties: { isPast },
      geometry: { type: 'LineString', coordinates },
    });
    this.whole ??= this.tracks.flatMap(({ points }) => linesUntil(points, Infinity).map((one) => line(false, one)));
    const until = this.tracks.flatMap(({ points }) => linesUntil(points, this.time).map((one) => line(true, one)));
    ground.show('trail', [...this.whole, ...until]);
    const places = this.places();
    ground.show(
      'replay',
      places
        .filter((place) => place.isThere)
        .map(({ entity, lon, lat }) => ({
          type: 'Feature',
          properties: { entity },
          geometry: { type: 'Point', coordinates: [lon, lat] },
        })),
    );
    const now = performance.now();
    if (this.isPlaying && now - (this.listed ?? 0) < 250) return;
    this.listed = now;
    this.list(places);
  }

  list(places) {
    const list = find('replay-list');
    const texts = places.map((place) => [place.entity, place.isThere ? speed(place.speed) || 'there' : 'not yet']);
    say(find('replay-said'), `${many(this.tracks.length, 'track')}, ${clock(this.from)} to ${clock(this.to)}`);
    if (list.children.length === texts.length) {
      texts.forEach(([, text], i) => say(list.children[i].querySelector('.side'), text));
      return;
    }
    list.replaceChildren(
      ...texts.map(([entity, text]) =>
        make(
          'li',
          {},
          make(
            'button',
            {
              class: 'row',
              type: 'button',
              'data-entity': entity,
            },
            make('span', { class: 'main' }, make('span', { class: 'name' }, entity)),
            make('span', { class: 'side' }, text),
          ),
        ),
      ),
    );
  }

  play() {
    if (this.time >= this.to) this.set(this.from);
    this.isPlaying = true;
    this.button();
    let before = performance.now();
    const step = (now) => {
      if (!this.isPlaying) return;
      this.set(this.time + ((now - before) / 1000) * this.factor);
      before = now;
      if (this.time >= this.to) this.pause();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  pause() {
    this.isPlaying = false;
    this.button();
    if (this.isOpen) this.draw();
  }

  button() {
    const button = find('replay-play');
    button.dataset.playing = this.isPlaying;
    button.setAttribute('aria-label', this.isPlaying ? 'Pause' : 'Play');
  }

  close() {
    this.stop?.abort();
    this.isPlaying = false;
    this.button();
    this.tracks = [];
    this.whole = null;
    find('replay-tools').hidden = true;
    find('replay-list').replaceChildren();
    say(find('replay-said'), 'Choose an object and “Replay”, or search in the past.');
    for (const source of ['trail', 'replay']) this.app.ground.show(source, []);
    this.app.dim(false);
  }

  /** The trail of one object until now, without a replay. */
  async trail(entity, from, signal) {
    const points = await this.load(entity, from, undefined, signal);
    if (signal.aborted || this.isOpen) return points;
    const lines = linesUntil(points, Infinity);
    this.app.ground.show(
      'trail',
      lines.map((coordinates) => ({
        type: 'Feature',
        properties: { isPast: true },
        geometry: { type: 'LineString', coordinates },
      })),
    );
    return points;
  }

  /** Opens the replay of one object's last minutes. */
  last(entity, seconds) {
    return attempt(() => this.open([entity], this.app.api.now() - seconds, this.app.api.now()));
  }
}
