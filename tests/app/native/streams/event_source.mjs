// A page in small: an EventSource that writes its events to stdout, one JSON line each.
const [, , url] = process.argv;
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const source = new EventSource(url);
for (const type of ["record", "caught_up", "problem", "bye"]) {
  source.addEventListener(type, (event) =>
    say({ type, data: JSON.parse(event.data), id: event.lastEventId }),
  );
}
source.addEventListener("open", () => say({ type: "open" }));
source.addEventListener("error", () => say({ type: "error", state: source.readyState }));
// Node ends when only a reconnect is pending; a page stays open.
setInterval(() => {}, 60_000);
