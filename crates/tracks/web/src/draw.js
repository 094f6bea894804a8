// Drawing areas with the mouse, a finger or a pen: one tool at a time, which ends with a shape, or with Escape.

import {
  TerraDraw,
  TerraDrawCircleMode,
  TerraDrawLineStringMode,
  TerraDrawPolygonMode,
  TerraDrawRectangleMode,
  TerraDrawRenderMode,
  TerraDrawSelectMode,
} from 'terra-draw';
import { TerraDrawMapLibreGLAdapter } from 'terra-draw-maplibre-gl-adapter';

import { color } from './theme.js';

/** The tools' names for what the service calls areas. */
const MODES = { rectangle: 'rectangle', circle: 'circle', polygon: 'polygon', corridor: 'linestring' };

const HINTS = {
  rectangle: 'Click one corner, then the opposite one; or drag',
  circle: 'Click the middle, then the edge; or drag',
  polygon: 'Click each corner; click the first one again to finish',
  corridor: 'Click along the way; click the last place again to finish',
};

export class Draw {
  /** `hint(text)`: what to do now, or nothing. */
  constructor(map, hint) {
    this.hint = hint;
    this.map = map;
    this.ended = -Infinity;
    const drawn = { draggable: true, coordinates: { midpoints: true, draggable: true, deletable: true } };
    const style = {
      fillColor: () => color('hit'),
      fillOpacity: 0.12,
      outlineColor: () => color('hit'),
      outlineWidth: 2,
      lineStringColor: () => color('hit'),
      lineStringWidth: 3,
      closingPointColor: () => color('hit'),
      closingPointWidth: 6,
    };
    this.draw = new TerraDraw({
      adapter: new TerraDrawMapLibreGLAdapter({ map, coordinatePrecision: 9 }),
      modes: [
        new TerraDrawRectangleMode({ styles: style, drawInteraction: 'click-move-or-drag' }),
        new TerraDrawCircleMode({ styles: style, projection: 'globe', drawInteraction: 'click-move-or-drag' }),
        new TerraDrawPolygonMode({ styles: style }),
        new TerraDrawLineStringMode({ styles: style }),
        new TerraDrawSelectMode({
          pointerDistance: 24,
          allowManualDeselection: false,
          styles: {
            selectedPolygonColor: () => color('fence'),
            selectedPolygonFillOpacity: 0.15,
            selectedPolygonOutlineColor: () => color('fence'),
            selectedPolygonOutlineWidth: 2.5,
            selectedLineStringColor: () => color('fence'),
            selectedLineStringWidth: 3,
            selectionPointColor: '#ffffff',
            selectionPointOutlineColor: () => color('fence'),
            selectionPointWidth: 7,
            selectionPointOutlineWidth: 2.5,
            midPointColor: () => color('fence'),
            midPointWidth: 4,
          },
          flags: {
            polygon: { feature: drawn },
            linestring: { feature: drawn },
            rectangle: { feature: { draggable: true, coordinates: { resizable: 'opposite' } } },
            circle: { feature: { draggable: true, coordinates: { resizable: 'center-fixed' } } },
          },
        }),
        new TerraDrawRenderMode({ modeName: 'render', styles: {} }),
      ],
    });
    this.draw.start();
    this.draw.setMode('render');
    this.draw.on('finish', (id, { action }) => {
      if (action === 'draw' && this.done) this.finish(id);
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.kind) this.cancel();
    });
  }

  /** Whether a click on the map belongs to a tool: the one that has ended it does, too. */
  get isActive() {
    return Boolean(this.kind) || performance.now() - this.ended < 300;
  }

  /** Lets the user draw. Promises the geometry, or nothing where it was given up. */
  begin(kind) {
    this.cancel();
    this.kind = kind;
    this.hint(HINTS[kind]);
    this.draw.setMode(MODES[kind]);
    this.map.doubleClickZoom.disable();
    return new Promise((done) => {
      this.done = done;
    });
  }

  finish(id) {
    const { geometry } = this.draw.getSnapshotFeature(id);
    const { done } = this;
    this.end();
    done(geometry);
  }

  /** Ends whatever is being drawn or changed. */
  cancel() {
    const { done } = this;
    this.end();
    done?.(null);
  }

  end() {
    if (this.kind) {
      this.hint('');
      this.ended = performance.now();
    }
    Object.assign(this, { kind: null, done: null, edited: null });
    // The tool cleans up behind the click that has ended it.
    if (this.draw.getMode() !== 'render') this.draw.setMode('render');
    this.draw.clear();
    setTimeout(() => this.map.doubleClickZoom.enable(), 300);
  }

  /** Lets the user change a shape. `geometry()` of the answer is what it has become. */
  edit(kind, geometry) {
    this.cancel();
    const round = (value) => (Array.isArray(value) ? value.map(round) : Math.round(value * 1e8) / 1e8);
    const feature = {
      type: 'Feature',
      geometry: { ...geometry, coordinates: round(geometry.coordinates) },
      properties: { mode: MODES[kind] },
    };
    const [added] = this.draw.addFeatures([feature]);
    if (!added.valid) throw new Error(`This shape cannot be changed here: ${added.reason ?? 'it is not simple'}`);
    this.kind = kind;
    this.hint(
      kind === 'circle' || kind === 'rectangle'
        ? 'Drag a corner, or the whole shape'
        : 'Drag the corners; drag a small dot to add one',
    );
    this.draw.setMode('select');
    this.draw.selectFeature(added.id);
    return {
      geometry: () => this.draw.getSnapshotFeature(added.id).geometry,
      end: () => this.cancel(),
    };
  }
}
