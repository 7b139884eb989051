// Follows a stream of server-sent events, and goes on asking where the browser would give up.
const SHORTEST_MS = 2000;
const LONGEST_MS = 30000;

export function follow(address, kind, take, tell) {
  let source;
  let pause = SHORTEST_MS;
  const connect = () => {
    source = new EventSource(address);
    source.addEventListener(kind, take);
    source.addEventListener("open", () => {
      pause = SHORTEST_MS;
      tell(true);
    });
    source.addEventListener("error", () => {
      tell(false);
      // An answer that is no stream, such as a proxy's while its server restarts, ends it for good.
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(connect, pause);
      pause = Math.min(LONGEST_MS, pause * 2);
    });
  };
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
}
