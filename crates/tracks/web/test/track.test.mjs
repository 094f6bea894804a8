// Where one was at a time.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { countUntil, linesUntil, pointsOf, whereAt } from '../src/track.js';

const at = (time, lon, lat = 0) => ({ time, lon, lat });
const points = pointsOf([
  [at(10, 1), at(20, 2), at(30, 4)],
  [at(100, 9), at(110, 10)],
]);

test('at a report it is exactly there', () => {
  for (const point of points) {
    const place = whereAt(points, point.time);
    assert.deepEqual([place.lon, place.lat, place.isExact], [point.lon, point.lat, true]);
  }
});

test('between two it is in proportion, in a gap where it was, before the first nowhere', () => {
  assert.equal(whereAt(points, 25).lon, 3);
  assert.equal(whereAt(points, 60).lon, 4);
  assert.equal(whereAt(points, 9.9), null);
  assert.equal(whereAt(points, 1000).lon, 10);
  assert.deepEqual(
    [0, 2, 3, 5].map((n) => countUntil(points, [0, 20, 99, 1e9][[0, 2, 3, 5].indexOf(n)])),
    [0, 2, 3, 5],
  );
});

test('over the antimeridian it goes the short way', () => {
  const over = pointsOf([[at(0, 179), at(10, -179)]]);
  assert.equal(whereAt(over, 5).lon, 180);
  assert.deepEqual(linesUntil(over, 10), [
    [
      [179, 0],
      [181, 0],
    ],
  ]);
});

test('trails are cut at gaps and end at the time', () => {
  assert.deepEqual(
    linesUntil(points, Infinity).map((line) => line.length),
    [3, 2],
  );
  assert.deepEqual(linesUntil(points, 15), [
    [
      [1, 0],
      [1.5, 0],
    ],
  ]);
  assert.deepEqual(linesUntil(points, 5), []);
});
