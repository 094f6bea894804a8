// The map: its ground, its layers from below to above, and their colours.
//
// No style is fetched, and no fonts: labels are elements of the page. Colours come from the style sheet, so that light
// and dark are decided in one place.

import { AttributionControl, Map as MapLibre, NavigationControl, ScaleControl, setWorkerUrl } from 'maplibre-gl';

import { graticule } from './graticule.js';
import { color } from './theme.js';
import { make } from './ui.js';

const NOTHING = { type: 'FeatureCollection', features: [] };

/** Sources that others fill, and their layers: from below to above. */
const LAYERS = [
  ['graticule', 'line', {}, () => ({ 'line-color': color('graticule'), 'line-width': 1 })],
  ['base', 'fill', { filter: ['==', ['geometry-type'], 'Polygon'] }, () => ({ 'fill-color': color('base-fill') })],
  [
    'base',
    'line',
    { filter: ['!=', ['get', 'class'], 'street'], id: 'base-case' },
    () => ({
      'line-color': color('road-edge'),
      'line-width': width(1.4),
    }),
  ],
  [
    'base',
    'line',
    { layout: { 'line-cap': 'round', 'line-join': 'round' } },
    () => ({
      'line-color': ['match', ['get', 'class'], 'fast', color('road-fast'), 'main', color('road-main'), color('road')],
      'line-width': width(1),
    }),
  ],
  ['density', 'fill', {}, () => ({ 'fill-color': color('density'), 'fill-opacity': ['get', 'share'] })],
  ['fences', 'fill', {}, () => ({ 'fill-color': color('fence'), 'fill-opacity': 0.1 })],
  [
    'fences',
    'line',
    { layout: { 'line-join': 'round' } },
    () => ({
      'line-color': color('fence'),
      'line-width': 1.8,
    }),
  ],
  ['area', 'fill', {}, () => ({ 'fill-color': color('hit'), 'fill-opacity': 0.08 })],
  ['area', 'line', {}, () => ({ 'line-color': color('hit'), 'line-width': 2, 'line-dasharray': [3, 2] })],
  [
    'trail',
    'line',
    { layout: { 'line-cap': 'round', 'line-join': 'round' } },
    () => ({
      'line-color': ['case', ['get', 'isPast'], color('trail'), color('trail-rest')],
      'line-width': 3,
      'line-opacity': 0.85,
    }),
  ],
];
/** Above the objects. */
const ABOVE = [
  [
    'replay',
    'circle',
    {},
    () => ({
      'circle-radius': 7,
      'circle-color': color('chosen'),
      'circle-stroke-width': 2.5,
      'circle-stroke-color': color('edge'),
    }),
  ],
];

function width(times) {
  const of = (street, main, fast) => ['match', ['get', 'class'], 'fast', fast, 'main', main, street];
  const more = times > 1 ? 2 : 0;
  return [
    'interpolate',
    ['exponential', 1.6],
    ['zoom'],
    10,
    of(0.3, 0.8 + more / 2, 1.4 + more / 2),
    13,
    of(1, 2.2 + more, 3.6 + more),
    16,
    of(5, 9 + more, 14 + more),
  ];
}

export class Ground {
  constructor(element, { tiles, base }, attribution) {
    setWorkerUrl(document.querySelector('meta[name=map-worker]').content);
    this.map = new MapLibre({
      container: element,
      style: { version: 8, sources: {}, layers: [{ id: 'ground', type: 'background' }] },
      center: [10, 30],
      zoom: 1.4,
      attributionControl: false,
      dragRotate: true,
      fadeDuration: 0,
      maxZoom: 20,
    });
    const { map } = this;
    map.addControl(new NavigationControl({ visualizePitch: false }), 'bottom-right');
    map.addControl(new ScaleControl({ maxWidth: 110 }), 'bottom-right');
    map.addControl(new AttributionControl({ compact: true, customAttribution: attribution }), 'bottom-right');
    this.paints = [];
    this.labels = make('div', { class: 'graticule-labels', 'aria-hidden': 'true' });
    element.append(this.labels);
    this.ready = new Promise((done) => {
      map.once('style.load', () => {
        if (tiles) {
          map.addSource('tiles', { type: 'raster', tiles: [tiles], tileSize: 256, maxzoom: 19 });
          map.addLayer({ id: 'tiles', type: 'raster', source: 'tiles' });
        }
        LAYERS.forEach((layer) => this.add(layer, base));
        ABOVE.forEach((layer) => this.add(layer, base));
        this.paint();
        map.on('move', () => this.drawGraticule());
        map.on('resize', () => this.drawGraticule());
        this.drawGraticule();
        done();
      });
    });
  }

  add([source, type, { id, ...more }, paint], base) {
    const { map } = this;
    if (!map.getSource(source)) {
      const data = source === 'base' ? (base ?? NOTHING) : NOTHING;
      map.addSource(source, { type: 'geojson', data, ...(source === 'base' ? {} : { buffer: 16, tolerance: 0.2 }) });
    }
    const name = id ?? `${source}-${type}`;
    map.addLayer({ id: name, type, source, ...more });
    this.paints.push([name, paint]);
  }

  /** The layer of all objects, below those that are above. */
  addPoints(points) {
    this.map.addLayer(points, 'replay-circle');
    this.points = points;
  }

  /** Takes the colours of the style sheet again. */
  paint() {
    const { map } = this;
    if (!map.getLayer('ground')) return;
    map.setPaintProperty('ground', 'background-color', color('ground'));
    for (const [layer, paint] of this.paints) {
      for (const [name, value] of Object.entries(paint())) map.setPaintProperty(layer, name, value);
    }
    map.triggerRepaint();
  }

  /** Shows features in the place of those that were shown. */
  show(source, features) {
    this.map.getSource(source)?.setData({ type: 'FeatureCollection', features });
  }

  bounds() {
    const all = this.map.getBounds();
    return [all.getWest(), all.getSouth(), all.getEast(), all.getNorth()];
  }

  drawGraticule() {
    const { map } = this;
    const { geometry, labels, step } = graticule(this.bounds());
    const centre = map.getCenter();
    const key = `${step} ${Math.round(centre.lng / step)} ${Math.round(centre.lat / step)}`;
    if (key !== this.lines) {
      this.lines = key;
      this.show('graticule', [{ type: 'Feature', properties: {}, geometry }]);
    }
    const all = labels.map(({ lon, lat, text }) => {
      const label = make('span', { class: lat === undefined ? 'lon' : 'lat' }, text);
      const at = map.project([lon ?? centre.lng, lat ?? centre.lat]);
      if (lat === undefined) label.style.left = `${at.x}px`;
      else label.style.top = `${at.y}px`;
      return label;
    });
    this.labels.replaceChildren(...all);
  }

  /** Brings positions into view. */
  fit([west, south, east, north], zoom = 16) {
    const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.map.fitBounds(
      [
        [west, south],
        [east, north],
      ],
      { padding: this.padding(), maxZoom: zoom, animate: !isCalm, duration: 600 },
    );
  }

  padding() {
    const { clientWidth: width, clientHeight: height } = this.map.getContainer();
    const edge = Math.min(60, width / 8, height / 8);
    return { top: edge, bottom: edge, left: edge, right: edge };
  }
}
