// The text of server-sent events, cut into events. EventSource does the same, but sends no token.

export class EventParser {
  constructor() {
    this.rest = '';
    this.clear();
  }

  clear() {
    this.name = '';
    this.data = [];
    this.id = '';
  }

  /** The events that end in this piece of text. */
  feed(text) {
    const found = [];
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (this.data.length > 0) found.push({ name: this.name || 'message', data: this.data.join('\n'), id: this.id });
        this.clear();
        continue;
      }
      const colon = line.indexOf(':');
      // A line that begins with a colon is there to keep the connection open.
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
      if (field === 'event') this.name = value;
      else if (field === 'data') this.data.push(value);
      else if (field === 'id') this.id = value;
    }
    return found;
  }
}
