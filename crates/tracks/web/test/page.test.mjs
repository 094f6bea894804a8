// Texts of streams, numbers for people, lines of the ground.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { backoff } from '../src/api.js';
import { precisionOf } from '../src/density.js';
import { EventParser } from '../src/events-parser.js';
import { ago, course, length, many, position, span, speed } from '../src/format.js';
import { graticule, stepOf } from '../src/graticule.js';

test('streams are cut into events wherever their text is cut', () => {
  const hello = 'retry: 2000\nevent: hello\nid: 7\ndata: {"after":7}\n\n';
  const text = `: alive\n\n${hello}event: position\r\ndata: {"a":\r\ndata: 1}\r\n\r\n`;
  const expected = [
    { name: 'hello', data: '{"after":7}', id: '7' },
    { name: 'position', data: '{"a":\n1}', id: '' },
  ];
  assert.deepEqual(new EventParser().feed(text), expected);
  for (let cut = 1; cut < text.length; cut += 1) {
    const parser = new EventParser();
    assert.deepEqual([...parser.feed(text.slice(0, cut)), ...parser.feed(text.slice(cut))], expected, `${cut}`);
  }
});

test('tries come later and later, and not for ever later', () => {
  assert.ok(backoff(0, 0.5) === 0.5 && backoff(3, 0.5) === 4 && backoff(50, 0.5) === 20);
  assert.ok(backoff(2, 0) < backoff(2, 1));
});

test('numbers as people read them', () => {
  assert.deepEqual([0, 12, 120, 7200, 400_000].map(ago), ['now', '12 s ago', '2 min ago', '2 h ago', '5 days ago']);
  assert.deepEqual([length(12.4), length(1234), length(45_678), span(600)], ['12 m', '1.23 km', '45.7 km', '10 min']);
  assert.deepEqual([speed(10), speed(undefined), course(350), course(92)], ['36 km/h', '', 'north', 'east']);
  assert.equal(position(-18.5, 59.33), '59.33000° N, 18.50000° W');
  assert.deepEqual([many(1, 'object'), many(1000, 'object')], ['1 object', '1,000 objects']);
});

test('a few lines go through what is seen', () => {
  for (const span of [360, 40, 3, 0.2, 0.004]) {
    const lines = span / stepOf(span);
    assert.ok(lines >= 3 && lines <= 9, `${span}: ${lines}`);
  }
  const { labels } = graticule([17.9, 59.2, 18.2, 59.4]);
  assert.ok(labels.some(({ text }) => text === '18.00° E') && labels.some(({ text }) => text === '59.30° N'));
  assert.ok(graticule([170, -5, 200, 5]).labels.some(({ text }) => text === '175° W'));
  assert.ok(
    graticule([-400, -90, 400, 90]).geometry.coordinates.every((line) => line.every(([, lat]) => Math.abs(lat) <= 85)),
  );
});

test('cells of a density are some 20 to 200 pixels wide', () => {
  for (let zoom = 2; zoom < 18; zoom += 0.5) {
    assert.ok(precisionOf(zoom) >= precisionOf(zoom - 0.5));
  }
  assert.deepEqual([precisionOf(0), precisionOf(11), precisionOf(22)], [1, 6, 8]);
});
