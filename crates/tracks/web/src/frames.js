// How long frames take, for checks and for who wants to know: the last few hundred of them.

const KEPT = 600;

export class Frames {
  constructor(map) {
    this.times = [];
    this.begin = 0;
    map.on('render', () => {
      this.times.push(performance.now());
      if (this.times.length > KEPT) this.times.shift();
    });
  }

  reset() {
    this.times = [];
  }

  /** Frames a second, and the time between two of them, ms: median, 95 of 100, the longest. */
  measure() {
    const gaps = this.times.slice(1).map((time, i) => time - this.times[i]);
    if (gaps.length === 0) return null;
    const sorted = gaps.toSorted((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const total = this.times.at(-1) - this.times[0];
    return { perSecond: (gaps.length * 1000) / total, median: at(0.5), p95: at(0.95), longest: sorted.at(-1) };
  }
}
