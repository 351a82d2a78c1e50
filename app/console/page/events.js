// Server-sent events (the HTML standard, section 9.2), read from text as it arrives.

export class EventParser {
  #rest = "";
  #event = "";
  #data = [];
  #id = "";
  #told = "";

  /** Return the events that are complete with this text: `{ event, data, id }`. A new id alone is one without a name. */
  push(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    const found = [];
    for (const line of lines) {
      if (line === "" || line === "\r") this.#finish(found);
      else this.#take(line.endsWith("\r") ? line.slice(0, -1) : line);
    }
    return found;
  }

  #take(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
  }

  #finish(found) {
    if (this.#data.length) found.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
    else if (this.#id !== this.#told) found.push({ event: "", data: "", id: this.#id });
    this.#told = this.#id;
    this.#event = "";
    this.#data = [];
  }
}
