// Follows a stream of server-sent events, and goes on asking where the browser would give up.
const SHORTEST_MS = 2000;
const LONGEST_MS = 30000;

// A browser has few connections to one server; tabs that nobody sees and that `rest` leave theirs to the others.
export function follow(address, kind, take, tell, rest = false) {
  let source;
  let timer = 0;
  let pause = SHORTEST_MS;
  const leave = () => {
    clearTimeout(timer);
    source?.close();
  };
  const connect = () => {
    leave();
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
      timer = setTimeout(connect, pause);
      pause = Math.min(LONGEST_MS, pause * 2);
    });
  };
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  if (rest) document.addEventListener("visibilitychange", () => (document.hidden ? leave() : connect()));
  if (!rest || !document.hidden) connect();
}
