// Pages of a list: which page token belongs to which page, and the two buttons.

/** Keeps the way through pages. `turned()` is called when another page is wanted. */
export class Pages {
  #tokens = [null];
  #next = null;

  constructor(parts, turned) {
    this.parts = parts;
    parts.back.addEventListener("click", () => (this.#tokens.pop(), turned()));
    parts.next.addEventListener("click", () => (this.#tokens.push(this.#next), turned()));
  }

  /** What to add to the query for the page that is shown. */
  get query() {
    const token = this.#tokens.at(-1);
    return token === null ? {} : { page_token: token };
  }

  /** The list is another one: back to its first page. */
  restart() {
    this.#tokens = [null];
  }

  /** Note what an answer said about the next page. */
  update(nextToken) {
    this.#next = nextToken;
    this.parts.back.disabled = this.#tokens.length === 1;
    this.parts.next.disabled = !nextToken;
    this.parts.pager.hidden = this.#tokens.length === 1 && !nextToken;
  }
}
