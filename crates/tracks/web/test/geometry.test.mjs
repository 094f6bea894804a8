// Areas and distances: what is drawn and what the service takes are the same.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  areaOf,
  boxOf,
  boxRing,
  circleRing,
  corridorRing,
  distance,
  geometryOf,
  hasAll,
  isWithin,
  wrapped,
} from '../src/geometry.js';

test('distances are those of the sphere', () => {
  assert.ok(Math.abs(distance([0, 0], [1, 0]) - 111195.08) < 0.01);
  assert.ok(Math.abs(distance([179.5, 10], [-179.5, 10]) - distance([0, 10], [1, 10])) < 1e-3);
});

test('a circle that was drawn is the circle of the service', () => {
  for (const [lon, lat, radius] of [
    [18.07, 59.33, 700],
    [-70, -33, 25],
    [10, 0, 50_000],
  ]) {
    const geometry = { type: 'Polygon', coordinates: [circleRing([lon, lat], radius)] };
    const area = areaOf('circle', geometry);
    assert.equal(area.type, 'Circle');
    assert.ok(distance(area.center, [lon, lat]) < radius / 200, `${area.center}`);
    assert.ok(Math.abs(area.radius - radius) < radius / 200 + 0.1, `${area.radius}`);
  }
});

test('areas come back as they went', () => {
  const box = { type: 'Rectangle', bbox: [17.9, 59.2, 18.2, 59.4] };
  assert.deepEqual(areaOf('rectangle', geometryOf(box)), box);
  const polygon = {
    type: 'Polygon',
    coordinates: [
      [
        [0, 0],
        [1, 0],
        [1, 1],
        [0, 0],
      ],
    ],
  };
  assert.deepEqual(areaOf('polygon', geometryOf(polygon)), polygon);
  const line = {
    type: 'LineString',
    coordinates: [
      [0, 0],
      [0.01, 0],
      [0.01, 0.01],
    ],
  };
  assert.deepEqual(areaOf('corridor', line, 30), { type: 'Corridor', coordinates: line.coordinates, width: 30 });
});

test('the outline of a corridor is as far from its line as it is wide', () => {
  const line = [
    [18, 59],
    [18.02, 59.005],
    [18.03, 59.02],
  ];
  for (const at of corridorRing(line, 100)) {
    const far = Math.min(...line.map((one) => distance(one, at)));
    assert.ok(far > 95 && far < 350, `${far}`);
  }
});

test('rectangles may cross the antimeridian', () => {
  assert.ok(isWithin([170, -10, -170, 10], 175, 0) && isWithin([170, -10, -170, 10], -175, 0));
  assert.ok(!isWithin([170, -10, -170, 10], 0, 0));
  assert.deepEqual(boxRing([170, 0, -170, 1])[1], [190, 0]);
  assert.equal(wrapped(190), -170);
  assert.deepEqual(boxOf([170, -10, 190, 10]), [170, -10, -170, 10]);
  assert.deepEqual(boxOf([-300, -90, 300, 95]), [-180, -90, 180, 90]);
  assert.ok(hasAll([170, -10, -170, 10], [175, 0, -175, 1]));
  assert.ok(!hasAll([170, -10, -170, 10], [165, 0, -175, 1]));
  assert.ok(hasAll([-180, -90, 180, 90], [165, 0, -175, 1]));
});
