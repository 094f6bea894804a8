// Draws all objects in one call: a layer of the map with a shader of its own.
//
// A GeoJSON source would cut 10,000 objects into tiles anew for every frame. This copies 200 KB to the graphics card.

import { STRIDE, unproject } from './store.js';

const VERTEX = `#version 300 es
in vec2 a_place;
in float a_time;
in float a_course;
in float a_kind;
uniform mat4 u_matrix;
uniform float u_now;
uniform float u_size;
uniform float u_bearing;
out float v_age;
out float v_kind;
out vec2 v_turn;
out float v_has_course;
void main() {
  gl_Position = u_matrix * vec4(a_place, a_kind * -0.0, 1.0);
  gl_PointSize = u_size * (a_kind > 0.5 ? 1.45 : 1.0);
  v_age = u_now - a_time;
  v_kind = a_kind;
  v_has_course = a_course > -5.0 ? 1.0 : 0.0;
  float turn = a_course - u_bearing;
  v_turn = vec2(cos(turn), sin(turn));
}`;

// Distances in a square from −1 to 1; an edge is as wide as a pixel.
const FRAGMENT = `#version 300 es
precision highp float;
in float v_age;
in float v_kind;
in vec2 v_turn;
in float v_has_course;
uniform vec3 u_fresh;
uniform vec3 u_stale;
uniform vec3 u_hit;
uniform vec3 u_chosen;
uniform vec3 u_edge;
uniform float u_opacity;
uniform float u_pixel;
out vec4 color;
float nose(vec2 p) {
  // A triangle whose tip is ahead.
  return max(dot(vec2(abs(p.x), p.y), normalize(vec2(1.0, 0.62))) - 0.49, -p.y - 0.05);
}
void main() {
  vec2 p = gl_PointCoord * 2.0 - 1.0;
  p.y = -p.y;
  vec2 q = vec2(p.x * v_turn.x - p.y * v_turn.y, p.x * v_turn.y + p.y * v_turn.x);
  float shape = length(q) - 0.5;
  if (v_has_course > 0.5) shape = min(shape, nose(q));
  float inner = 1.0 - smoothstep(-0.16 - u_pixel, -0.16 + u_pixel, shape);
  float outer = 1.0 - smoothstep(0.0 - u_pixel, 0.0 + u_pixel, shape);
  float age = clamp(log2(max(v_age, 1.0) / 8.0) / 5.0, 0.0, 1.0);
  vec3 fill = mix(u_fresh, u_stale, age);
  if (v_kind > 1.5) fill = u_chosen;
  else if (v_kind > 0.5) fill = u_hit;
  float alpha = outer * (v_kind > 0.5 ? 1.0 : u_opacity);
  if (alpha < 0.01) discard;
  color = vec4(mix(u_edge, fill, inner) * alpha, alpha);
}`;

export class Points {
  constructor(store, clock) {
    this.id = 'points';
    this.type = 'custom';
    this.renderingMode = '2d';
    this.store = store;
    this.clock = clock;
    this.opacity = 1;
    this.colors = {};
    /** Objects that the graphics card has, in its order. */
    this.drawn = [];
    this.draws = 0;
  }

  onAdd(map, gl) {
    this.map = map;
    this.gl = gl;
    const compile = (type, source) => {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      return shader;
    };
    this.program = gl.createProgram();
    gl.attachShader(this.program, compile(gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(this.program, compile(gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program));
    this.buffer = gl.createBuffer();
    this.vertices = gl.createVertexArray();
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    [
      ['a_place', 2, 0],
      ['a_time', 1, 2],
      ['a_course', 1, 3],
      ['a_kind', 1, 4],
    ].forEach(([name, size, from]) => {
      const at = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, gl.FLOAT, false, STRIDE * 4, from * 4);
    });
    gl.bindVertexArray(null);
    this.uniforms = new Proxy(
      {},
      {
        get: (known, name) => (known[name] ??= gl.getUniformLocation(this.program, `u_${name}`)),
      },
    );
    this.store.isChanged = true;
  }

  onRemove() {
    this.gl.deleteProgram(this.program);
    this.gl.deleteBuffer(this.buffer);
    this.gl.deleteVertexArray(this.vertices);
  }

  prerender() {
    const { x, y } = this.centre();
    const [ox, oy] = this.store.origin;
    // A quarter of what is seen: floats stay exact to less than a pixel.
    const span = 2 ** -this.map.getZoom();
    if (Math.abs(x - ox) > Math.max(span, 1e-5) || Math.abs(y - oy) > Math.max(span, 1e-5))
      this.store.moveOrigin([x, y]);
  }

  centre() {
    const { lng, lat } = this.map.getCenter();
    const sin = Math.sin((lat * Math.PI) / 180);
    return { x: (lng + 180) / 360, y: 0.5 - Math.log((1 + sin) / (1 - sin)) / (4 * Math.PI) };
  }

  render(gl, args) {
    const { store, uniforms } = this;
    gl.useProgram(this.program);
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    if (store.isChanged) {
      store.isChanged = false;
      gl.bufferData(gl.ARRAY_BUFFER, store.values.subarray(0, store.size * STRIDE), gl.DYNAMIC_DRAW);
      this.drawn = store.names.slice();
      this.drawnOrigin = store.origin;
    }
    const ratio = this.map.getPixelRatio();
    const zoom = this.map.getZoom();
    const size = Math.max(10, Math.min(30, 10 + (zoom - 10) * 3)) * ratio;
    gl.uniformMatrix4fv(uniforms.matrix, false, moved(args.defaultProjectionData.mainMatrix, store.origin));
    gl.uniform1f(uniforms.now, this.clock() - store.base);
    gl.uniform1f(uniforms.size, size);
    gl.uniform1f(uniforms.pixel, 1.2 / size);
    gl.uniform1f(uniforms.bearing, (this.map.getBearing() * Math.PI) / 180);
    gl.uniform1f(uniforms.opacity, this.opacity);
    for (const [name, value] of Object.entries(this.colors)) gl.uniform3fv(uniforms[name], value);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.disable(gl.DEPTH_TEST);
    gl.disable(gl.STENCIL_TEST);
    gl.drawArrays(gl.POINTS, 0, this.drawn.length);
    gl.bindVertexArray(null);
    this.draws += 1;
  }

  /** What the graphics card has, read back from it: name, longitude and latitude of each object. For checks. */
  readBack() {
    const { gl, drawn, drawnOrigin } = this;
    const values = new Float32Array(drawn.length * STRIDE);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.getBufferSubData(gl.ARRAY_BUFFER, 0, values);
    gl.bindBuffer(gl.ARRAY_BUFFER, null);
    return drawn.map((entity, i) => {
      const [lon, lat] = unproject(values[i * STRIDE] + drawnOrigin[0], values[i * STRIDE + 1] + drawnOrigin[1]);
      return { entity, lon, lat };
    });
  }

  /** The object that is nearest to a place on the screen, within some pixels. */
  pick({ x, y }, pixels = 16) {
    let [best, least] = [null, pixels];
    for (const object of this.store.all.values()) {
      const at = this.map.project([object.lon, object.lat]);
      const far = Math.hypot(at.x - x, at.y - y);
      if (far < least) [best, least] = [object, far];
    }
    return best;
  }
}

/** A matrix for places that are measured from an origin, computed in doubles. */
function moved(m, [x, y]) {
  const out = new Float32Array(m);
  for (let i = 0; i < 4; i += 1) out[12 + i] = m[i] * x + m[4 + i] * y + m[12 + i];
  return out;
}
